//! The table of the results for all faults, as a page.

use std::collections::BTreeSet;

use super::Fault;
use super::hunt::{Found, Notes};

const HEAD: &str = "\
# Planted faults, and what catches them

Written by `scripts/mutants.sh --table` from what its runs have found. A row says one test that catches the fault, how
many test programs do, and in which packages. A program whose tests all lie in modules counts as one for each of them.
A run goes on to the next fault once enough programs have caught one, so the numbers are at least these. `survives`:
every program of the run that tried it ran, and nothing failed.
";

/// The result for a fault, which its row shows.
enum Fate<'a> {
    Caught(&'a Found),
    Harmless(&'a str),
    Survives,
    NotTried,
    NeedsDevice,
}

fn fate<'a>(fault: &'a Fault, notes: &'a Notes) -> Fate<'a> {
    let folders = ["backends/vulkan/", "backends/wgpu/", "engines/wgpu/"];
    let needs_device = folders.iter().any(|folder| fault.path.starts_with(folder));
    match (notes.found.get(&fault.name), &fault.harmless) {
        (Some(found), _) if found.is_caught() => Fate::Caught(found),
        (_, Some(reason)) => Fate::Harmless(reason),
        (Some(_), None) => Fate::Survives,
        (None, None) if needs_device => Fate::NeedsDevice,
        (None, None) => Fate::NotTried,
    }
}

/// Returns the results as a page.
pub fn table(faults: &[Fault], notes: &Notes) -> String {
    let mut out = String::from(HEAD);
    let count = |is: fn(&Fate<'_>) -> bool| faults.iter().filter(|fault| is(&fate(fault, notes))).count();
    out += &format!(
        "\n{} faults: {} caught, {} of them by two programs or more; {} survive; {} are harmless, for the reason that \
         the row says; {} were not tried, {} of them because they need a device.\n\nThe runs:\n\n",
        faults.len(),
        count(|fate| matches!(fate, Fate::Caught(_))),
        count(|fate| matches!(fate, Fate::Caught(found) if found.programs() > 1)),
        count(|fate| matches!(fate, Fate::Survives)),
        count(|fate| matches!(fate, Fate::Harmless(_))),
        count(|fate| matches!(fate, Fate::NotTried | Fate::NeedsDevice)),
        count(|fate| matches!(fate, Fate::NeedsDevice)),
    );
    notes.runs.iter().for_each(|run| out += &format!("- {run}\n"));
    let rooms: BTreeSet<&str> = faults.iter().map(|fault| fault.room.as_str()).collect();
    for room in rooms {
        out += &format!("\n## {room}\n\n| fault | rule | caught by, for one | programs | packages |\n");
        out += "|---|---|---|---|---|\n";
        for fault in faults.iter().filter(|fault| fault.room == room) {
            out += &format!("| {} | {} | {} |\n", fault.name, fault.breaks, said(&fate(fault, notes)));
        }
    }
    out
}

fn said(fate: &Fate<'_>) -> String {
    match fate {
        Fate::Caught(found) => {
            let packages: Vec<_> = found.packages().collect();
            format!("`{}` | {} | {}", found.first(), found.programs(), packages.join(", "))
        }
        Fate::Harmless(reason) => format!("harmless: {reason} | 0 |"),
        Fate::Survives => "survives | 0 |".to_owned(),
        Fate::NotTried => "not tried | 0 |".to_owned(),
        Fate::NeedsDevice => "not tried: needs a device | 0 |".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(name: &str, path: &str, harmless: Option<&str>) -> Fault {
        let [name, path] = [name, path].map(str::to_owned);
        let [room, breaks, find, put] = ["a-room", "A rule.", "a", "b"].map(str::to_owned);
        Fault { number: 1, name, room, path, breaks, find, put, harmless: harmless.map(str::to_owned) }
    }

    #[test]
    fn a_row_says_what_became_of_its_fault() {
        let faults = [
            fault("seen", "crates/core/src/a.rs", None),
            fault("unseen", "crates/core/src/a.rs", None),
            fault("untried", "crates/core/src/a.rs", None),
            fault("far", "backends/wgpu/src/a.rs", None),
            fault("idle", "crates/core/src/a.rs", Some("Nothing reads it.")),
        ];
        let notes = r#"{"runs": ["a run"], "found": {"unseen": {"caught_by": {}},
            "seen": {"caught_by": {"one": ["p::(no end)", "p::a_test", "q::other"]}}}}"#;
        let notes: Notes = serde_json::from_str(notes).unwrap_or_else(|error| panic!("{error}"));
        let page = table(&faults, &notes);
        let rows = [
            "5 faults: 1 caught, 1 of them by two programs or more; 1 survive; 1 are harmless",
            "2 were not tried, 1 of them because they need a device",
            "- a run\n",
            "| seen | A rule. | `p::a_test` | 2 | one |",
            "| unseen | A rule. | survives | 0 | |",
            "| untried | A rule. | not tried | 0 | |",
            "| far | A rule. | not tried: needs a device | 0 | |",
            "| idle | A rule. | harmless: Nothing reads it. | 0 | |",
        ];
        rows.iter().for_each(|row| assert!(page.contains(row), "{row} is missing in {page}"));
    }
}
