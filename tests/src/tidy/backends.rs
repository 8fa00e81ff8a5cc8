//! The rooms of the backends: the same in each, in one order, and without circles.
//!
//! A backend lists its rooms in the documentation of its `lib.rs`, under the heading `# Rooms`: one row of a table for
//! each, in the order in which they stand on each other, and one item of a list for each room that other backends have
//! and it has not, with the reason.

use std::collections::BTreeSet;

use super::Finding;
use super::imports::Imports;
use crate::workspace::TextFile;

/// The rooms that every backend has or says why it has not, in the order in which they stand on each other. A backend
/// may have more.
const ROOMS: [&str; 9] = ["error", "probe", "open", "streams", "time", "memory", "pages", "transfer", "budget"];

/// What a backend says of its rooms, and what it has.
struct Backend {
    /// The name of its folder.
    name: String,
    /// The rooms in its table, in order.
    listed: Vec<String>,
    /// The rooms that it says it has not, with the reasons.
    left_out: Vec<(String, String)>,
    /// The rooms in its sources: files and folders beside `lib.rs`.
    there: BTreeSet<String>,
    imports: Imports,
}

/// Checks that every backend has the rooms or says why it has not, that it lists what it has and has what it lists, and
/// that the common rooms stand on each other in the common order.
pub fn backends_have_the_rooms(files: &[TextFile]) -> Vec<Finding> {
    backends(files).iter().flat_map(Backend::compared).collect()
}

/// Checks that a room names only rooms above it in its backend's table, never a name of the crate's root, and that no
/// files of a backend name each other in a circle.
pub fn rooms_name_those_above(files: &[TextFile]) -> Vec<Finding> {
    backends(files).iter().flat_map(Backend::directed).collect()
}

/// Returns a line for each room that a backend says it has not.
pub fn rooms_left_out(files: &[TextFile]) -> Vec<String> {
    let each = |backend: &Backend| {
        let line = |(room, why): &(String, String)| format!("{} has no {room}: {why}", backend.name);
        backend.left_out.iter().map(line).collect::<Vec<_>>()
    };
    backends(files).iter().flat_map(each).collect()
}

/// Reads the backends: the folders in `backends` that have a manifest.
fn backends(files: &[TextFile]) -> Vec<Backend> {
    let manifests = files.iter().filter_map(|file| file.path.strip_prefix("backends/")?.strip_suffix("/Cargo.toml"));
    manifests.map(|name| Backend::read(files, name)).collect()
}

/// Returns the name at the start of a text, between back quotes, and the text behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('`')?.split_once('`')
}

impl Backend {
    fn read(files: &[TextFile], name: &str) -> Backend {
        let sources = format!("backends/{name}/src/");
        let imports = Imports::read(files, &sources);
        let lib = files.iter().find(|file| file.path == format!("{sources}lib.rs"));
        let docs = lib.map_or("", |file| file.comments.as_str()).lines().filter_map(|line| line.strip_prefix("//!"));
        let docs = docs.map(str::trim).skip_while(|line| *line != "# Rooms").skip(1);
        let section: Vec<&str> = docs.take_while(|line| !line.starts_with("# ")).collect();
        let rows = section.iter().filter_map(|line| quoted(line.strip_prefix("| ")?));
        // An item goes on until a blank line or the next item.
        let list = section.join("\n").replace("\n- ", "\n\n- ");
        let items = list.split("\n\n").filter_map(|item| quoted(item.trim().strip_prefix("- ")?));
        let reason = |text: &str| text.trim_start_matches(':').trim().replace('\n', " ");
        let paths = imports.named.keys().filter(|path| *path != "lib.rs");
        Backend {
            name: name.to_owned(),
            listed: rows.map(|(room, _)| room.to_owned()).collect(),
            left_out: items.map(|(room, why)| (room.to_owned(), reason(why))).collect(),
            there: paths.map(|path| room(path).to_owned()).collect(),
            imports,
        }
    }

    fn finding(&self, file: &str, what: String) -> Finding {
        Finding::new(&format!("backends/{}/src/{file}", self.name), 0, what)
    }

    fn compared(&self) -> Vec<Finding> {
        let mut wrong = Vec::new();
        for room in ROOMS {
            let (is_there, left_out) = (self.there.contains(room), self.left_out.iter().find(|(name, _)| name == room));
            match left_out {
                None if !is_there => {
                    wrong.push(format!("no room {room}: make it, or say under Rooms why it is not here"))
                }
                Some((_, why)) if !is_there && why.is_empty() => {
                    wrong.push(format!("no reason why {room} is not here"))
                }
                Some(_) if is_there => wrong.push(format!("{room} is here, and the list says that it is not")),
                _ => {}
            }
        }
        let unlisted = self.there.iter().filter(|room| !self.listed.contains(room));
        wrong.extend(unlisted.map(|room| format!("{room} is in no row of the table of rooms")));
        let gone = self.listed.iter().filter(|room| !self.there.contains(*room));
        wrong.extend(gone.map(|room| format!("{room} is in the table of rooms, and not in the sources")));
        let common: Vec<usize> =
            self.listed.iter().filter_map(|listed| ROOMS.iter().position(|room| room == listed)).collect();
        if !common.is_sorted() {
            wrong.push(format!("the common rooms stand in the order {}", ROOMS.join(", ")));
        }
        wrong.into_iter().map(|what| self.finding("lib.rs", what)).collect()
    }

    fn directed(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let place = |room: &str| self.listed.iter().position(|listed| listed == room);
        for (file, named) in self.imports.named.iter().filter(|(file, _)| *file != "lib.rs") {
            for other in named {
                let (from, to) = (room(file), room(other));
                if other == "lib.rs" {
                    findings.push(self.finding(file, "names something of the crate's root: name its room".to_owned()));
                } else if from != to && place(to) >= place(from) {
                    findings.push(self.finding(file, format!("{from} names {to}, which is not above it: {other}")));
                }
            }
        }
        let circles = self.imports.circles().into_iter().filter(|circle| !circle.contains(&"lib.rs".to_owned()));
        findings.extend(circles.map(|circle| {
            let what = format!("files that name each other in a circle: {}", circle.join(", "));
            self.finding(&circle[0], what)
        }));
        findings
    }
}

/// Returns the room that a file is in: the folder beside `lib.rs`, or the file itself.
fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a backend that has every room, one of them as a folder.
    fn sound() -> Vec<(String, String)> {
        let rows: String = ROOMS.map(|room| format!("//! | `{room}` | what it has |\n")).concat();
        let lib = format!("//! A backend.\n//!\n//! # Rooms\n//!\n//! | room | what |\n//! |---|---|\n{rows}//!\n");
        let files = ROOMS.map(|room| (format!("src/{room}.rs"), String::new()));
        let mut files: Vec<(String, String)> = files.into_iter().filter(|(path, _)| path != "src/time.rs").collect();
        files.extend([
            ("Cargo.toml".to_owned(), String::new()),
            ("src/lib.rs".to_owned(), lib),
            ("src/time/mod.rs".to_owned(), "mod ask;\nuse crate::streams::Lane;\n".to_owned()),
            ("src/time/ask.rs".to_owned(), "use super::Time;\nuse crate::error::Error;\n".to_owned()),
        ]);
        files
    }

    fn change(files: &mut [(String, String)], path: &str, from: &str, to: &str) {
        let (_, text) = files.iter_mut().find(|(name, _)| name == path).expect("the file is there");
        *text = if from.is_empty() { to.to_owned() } else { text.replace(from, to) };
    }

    fn check(rule: fn(&[TextFile]) -> Vec<Finding>, files: &[(String, String)]) -> Vec<String> {
        let files: Vec<TextFile> =
            files.iter().map(|(path, text)| TextFile::new(&format!("backends/new/{path}"), text)).collect();
        rule(&files).iter().map(ToString::to_string).collect()
    }

    fn one(found: &[String], part: &str) {
        assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
    }

    #[test]
    fn a_sound_backend_passes() {
        assert_eq!(check(backends_have_the_rooms, &sound()), [""; 0]);
        assert_eq!(check(rooms_name_those_above, &sound()), [""; 0]);
    }

    #[test]
    fn a_room_that_is_missing_needs_a_reason() {
        let mut files = sound();
        files.retain(|(path, _)| path != "src/budget.rs");
        change(&mut files, "src/lib.rs", "//! | `budget` | what it has |\n", "");
        one(&check(backends_have_the_rooms, &files), "no room budget");
        change(&mut files, "src/lib.rs", "//! # Rooms\n", "//! # Rooms\n//!\n//! Not here:\n//!\n//! - `budget`\n");
        one(&check(backends_have_the_rooms, &files), "no reason why budget is not here");
        change(&mut files, "src/lib.rs", "- `budget`", "- `budget`: nothing\n//!   tells.");
        assert_eq!(check(backends_have_the_rooms, &files), [""; 0]);
        let files: Vec<TextFile> =
            files.iter().map(|(path, text)| TextFile::new(&format!("backends/new/{path}"), text)).collect();
        assert_eq!(rooms_left_out(&files), ["new has no budget: nothing tells."]);
    }

    #[test]
    fn the_table_is_held_against_the_sources_and_the_order() {
        let mut files = sound();
        change(&mut files, "src/lib.rs", "//! # Rooms\n", "//! # Rooms\n//!\n//! - `pages`: there are none.\n//!\n");
        one(&check(backends_have_the_rooms, &files), "pages is here, and the list says that it is not");
        let mut files = sound();
        files.push(("src/extra.rs".to_owned(), String::new()));
        one(&check(backends_have_the_rooms, &files), "extra is in no row");
        let mut files = sound();
        change(&mut files, "src/lib.rs", "//! # Rooms\n", "//! # Rooms\n//! | `extra` | nothing |\n");
        one(&check(backends_have_the_rooms, &files), "extra is in the table of rooms, and not in the sources");
        let mut files = sound();
        change(&mut files, "src/lib.rs", "`probe`", "`x`");
        change(&mut files, "src/lib.rs", "`error`", "`probe`");
        change(&mut files, "src/lib.rs", "`x`", "`error`");
        one(&check(backends_have_the_rooms, &files), "the common rooms stand in the order error, probe");
    }

    #[test]
    fn looking_up_and_going_round_are_found() {
        let mut files = sound();
        change(&mut files, "src/streams.rs", "", "use crate::transfer::Ring;");
        one(&check(rooms_name_those_above, &files), "streams names transfer, which is not above it");
        let mut files = sound();
        change(&mut files, "src/streams.rs", "", "use crate::Thing;");
        one(&check(rooms_name_those_above, &files), "names something of the crate's root");
        let mut files = sound();
        change(&mut files, "src/time/mod.rs", "mod ask;", "mod ask;\nuse ask::Asked;");
        one(&check(rooms_name_those_above, &files), "in a circle: time/ask.rs, time/mod.rs");
        change(&mut files, "src/time/ask.rs", "use super", "#[cfg(test)]\nuse super");
        assert_eq!(check(rooms_name_those_above, &files), [""; 0]);
    }
}
