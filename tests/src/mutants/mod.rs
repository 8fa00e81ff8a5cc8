//! Faults to plant in the sources, as data: the name of each, the rule that it breaks, and what it does to a text.
//!
//! The lists are in `tests/mutants`, one file for each room of the code. All faults are planted in one copy of the
//! tree, each behind a switch that the environment sets ([`SWITCH`]), so that one build serves them all. The text that
//! a fault replaces must occur exactly once in its file: an entry that the code has left behind is an error
//! ([`stale`]).

pub mod hunt;
mod plant;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;

pub use plant::planted;
pub use table::table;

/// The environment variable that selects the fault that is on: its number, or 0 for none.
pub const SWITCH: &str = "MILLPOND_MUTANT";

/// In a fault's text: whether the fault is on. A text with this word replaces the original as it stands; one without it
/// is an expression that stands in for the original expression while the fault is on.
pub const WORD: &str = "MUTANT";

/// Returns the file that gets the switch of the faults in a file: the root of its crate, which all of the crate can
/// name.
pub fn switch_file(path: &str) -> String {
    let (package, _) = path.split_once("/src/").unwrap_or((path, ""));
    format!("{package}/src/lib.rs")
}

/// A fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its place in the list, counted from 1.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The list that it comes from: the file's name without its ending.
    pub room: String,
    /// The file that it changes, from the root of the repository.
    pub path: String,
    /// The rule that it breaks.
    pub breaks: String,
    /// The text that it replaces.
    pub find: String,
    /// The text that replaces it.
    pub put: String,
    /// The reason why no test has to catch it.
    pub harmless: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Room {
    file: Vec<Faulty>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faulty {
    path: String,
    fault: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    breaks: String,
    find: String,
    put: String,
    harmless: Option<String>,
}

/// Returns every fault of every list below a repository's root, in order of the lists' names.
///
/// # Errors
///
/// If a list cannot be read or understood.
pub fn all(root: &Path) -> Result<Vec<Fault>, String> {
    let folder = root.join("tests/mutants");
    let listing = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut lists: Vec<_> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    lists.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    lists.sort();
    let mut faults = Vec::new();
    for list in lists {
        let name = list.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
        faults.append(&mut listed(&name, &text)?);
    }
    for (fault, number) in faults.iter_mut().zip(1..) {
        fault.number = number;
    }
    Ok(faults)
}

/// Returns the faults of one list, not yet numbered.
fn listed(room: &str, text: &str) -> Result<Vec<Fault>, String> {
    let list: Room = toml::from_str(text).map_err(|error| format!("{room}.toml: {error}"))?;
    let fault = |path: &str, entry: Entry| Fault {
        number: 0,
        name: entry.name,
        room: room.to_owned(),
        path: path.to_owned(),
        breaks: entry.breaks,
        find: entry.find,
        put: entry.put,
        harmless: entry.harmless,
    };
    Ok(list.file.into_iter().flat_map(|f| f.fault.into_iter().map(move |e| fault(&f.path, e))).collect())
}

/// Checks that there is a fault of each of these names.
///
/// # Errors
///
/// If there is none of some of them, with a list of those.
pub fn expect_known(names: &[String], faults: &[Fault]) -> Result<(), String> {
    let unknown: Vec<_> = names.iter().filter(|name| faults.iter().all(|fault| fault.name != **name)).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("no fault has one of these names: {unknown:?}")),
    }
}

/// Returns what is wrong with a list of faults, given how files read today: names that are not unique, and texts that
/// do not occur exactly once, or overlap.
pub fn stale(faults: &[Fault], text_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for fault in faults {
        if !names.insert(&fault.name) {
            wrong.push(format!("two faults are called {}: rename one", fault.name));
        }
        paths.insert(&fault.path);
    }
    for path in paths {
        let here: Vec<_> = faults.iter().filter(|fault| fault.path == *path).collect();
        match text_of(path) {
            Some(text) => wrong.extend(planted(path, &text, &here).err().into_iter().flatten()),
            None => wrong.push(format!("{path} cannot be read: name the file where its code is")),
        }
    }
    wrong
}
