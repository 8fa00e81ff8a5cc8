//! What authors of backends construct or match must be able to grow without breaking them.

use super::Finding;
use super::purity::without_tests;
use crate::lexer::{line_of, words};
use crate::workspace::TextFile;

/// The sources that authors of backends write against: the contract, and what the suite asks of them.
const SOURCES: [&str; 2] = ["crates/backend/src/", "crates/conformance/src/device.rs"];

/// The attribute that lets a type grow.
const GROWS: &str = "#[non_exhaustive]";

/// The types without the attribute, and why they never grow.
const FIXED: [(&str, &str); 7] = [
    ("ClassId", "a number"),
    ("StreamId", "a number"),
    ("Tick", "a number"),
    ("Point", "a pair of numbers, which callers write as a literal"),
    ("Reuse", "a new value changes what is sound, so every allocator must decide about it"),
    ("Closing", "a new value changes what is sound, so every allocator must decide about it"),
    ("Unavailable", "a reason for people, and nothing else"),
];

/// Checks that each public struct and enum of the contract is `#[non_exhaustive]` or listed with a reason in this file,
/// and that the list names no other.
pub fn contract_can_grow(files: &[TextFile]) -> Vec<Finding> {
    let (mut findings, mut fixed) = (Vec::new(), Vec::new());
    let of_contract = |file: &&TextFile| file.is_rust() && SOURCES.iter().any(|source| file.path.starts_with(source));
    for file in files.iter().filter(of_contract) {
        for (line, name, grows) in types(&without_tests(&file.code)) {
            let listed = FIXED.iter().any(|(fixed, _)| *fixed == name);
            if listed == grows {
                let what = if grows {
                    format!("{name} is {GROWS}: take it off the list in tests/src/tidy/growing.rs")
                } else {
                    format!("{name} is public: make it {GROWS}, or list it with a reason in tests/src/tidy/growing.rs")
                };
                findings.push(Finding::new(&file.path, line, what));
            }
            fixed.push(name);
        }
    }
    let gone = FIXED.iter().filter(|(name, _)| !fixed.iter().any(|found| found == name));
    findings.extend(gone.map(|(name, _)| Finding::new("tests/src/tidy/growing.rs", 0, format!("there is no {name}"))));
    findings
}

/// Returns the public structs and enums of code: the line, the name, and whether it can grow.
fn types(code: &str) -> Vec<(usize, String, bool)> {
    let all: Vec<(usize, &str)> = words(code).collect();
    let declared = all.windows(3).filter(|three| three[0].1 == "pub" && ["struct", "enum"].contains(&three[1].1));
    let found = declared.map(|three| {
        let (start, name) = (three[0].0, three[2].1);
        // Its attributes stand after the end of the item before it.
        let before = code[..start].rfind(['}', ';']).map_or(0, |end| end + 1);
        (line_of(code, start), name.to_owned(), code[before..start].contains(GROWS))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let fixed: String = FIXED.iter().map(|(name, _)| format!("pub struct {name}(pub u64);\n")).collect();
        let file = |path: &str, text: &str| TextFile::new(path, text);
        let files = [file("crates/backend/src/id.rs", &fixed), file("crates/backend/src/new.rs", text)];
        contract_can_grow(&files).into_iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn a_type_that_cannot_grow_is_found() {
        let grows = "#[derive(Debug)]\n#[non_exhaustive]\npub struct Grows {\n    pub a: u64,\n}\n";
        assert_eq!(found(grows), [""; 0]);
        assert_eq!(found("struct Own {\n    a: u64,\n}\npub(crate) enum Inner { A }\n"), [""; 0]);
        let next = format!("{grows}/// Has #[non_exhaustive].\npub enum Stays {{\n    A,\n}}\n");
        let what = "make it #[non_exhaustive], or list it with a reason in tests/src/tidy/growing.rs";
        assert_eq!(found(&next), [format!("7: Stays is public: {what}")]);
        assert_eq!(found("#[cfg(test)]\nmod tests {\n    pub struct Toy;\n}\n"), [""; 0]);
    }

    #[test]
    fn the_list_has_nothing_else() {
        let what = "Point is #[non_exhaustive]: take it off the list in tests/src/tidy/growing.rs";
        assert_eq!(found("#[non_exhaustive]\npub struct Point;\n"), [format!("2: {what}")]);
        let none = contract_can_grow(&[]);
        assert_eq!((none.len(), none[0].what.as_str()), (FIXED.len(), "there is no ClassId"));
    }
}
