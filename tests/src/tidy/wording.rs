//! Wording: no unfinished code, and nothing about the machine that a text was written on.
//!
//! Needles are put together from pieces, so that this file does not contain them.

use std::collections::BTreeSet;

use super::Finding;
use crate::lexer::{line_of, words};
use crate::workspace::TextFile;

/// Markers of unfinished work: macros by name, and words in capitals.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
const MARKERS: [&str; 3] = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Folders and hosts of the places where the project is built, which mean nothing to its readers.
const FORBIDDEN: [&str; 11] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tmp/", "target"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("files.", "pythonhosted"),
    concat!("registry.", "npmjs"),
    concat!("proxy.", "golang"),
    concat!("arti", "factory"),
    concat!("deb.", "debian.org"),
];

/// Checks that nothing is marked as unfinished: no macro that stands for code to come, no marker for later, no debug
/// print.
pub fn no_markers(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (offset, word) in words(&file.code) {
            if MACROS.contains(&word) && file.code[offset + word.len()..].trim_start().starts_with('!') {
                let what = format!("{word}! stands for code to come: write it or leave it out");
                findings.push(Finding::new(&file.path, line_of(&file.code, offset), what));
            }
        }
        for (offset, word) in words(&file.text).filter(|(_, word)| MARKERS.contains(word)) {
            let what = format!("{word} marks work for later: do it, or describe the limit in a sentence");
            findings.push(Finding::new(&file.path, line_of(&file.text, offset), what));
        }
    }
    findings
}

/// Checks that no test is switched off. A test that cannot run everywhere looks for what it needs and prints what it
/// skipped.
pub fn no_ignored_tests(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (offset, _) in words(&file.code).filter(|(_, word)| *word == "ignore") {
            let attribute = file.code[..offset].rfind('#').map_or("", |start| &file.code[start..offset]);
            let squeezed: String = attribute.chars().filter(|c| !c.is_whitespace()).collect();
            if squeezed == "#[" || (squeezed.starts_with("#[cfg_attr(") && !squeezed.contains(']')) {
                let what = "a test is switched off: make it run or take it out";
                findings.push(Finding::new(&file.path, line_of(&file.code, offset), what));
            }
        }
    }
    findings
}

/// Checks that no text names a folder of the machine it was written on, or a host that packages are fetched from.
pub fn forbidden_words(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for needle in FORBIDDEN {
            for (offset, _) in file.text.match_indices(needle) {
                let what = format!("{needle} means nothing outside the machine it was written on");
                findings.push(Finding::new(&file.path, line_of(&file.text, offset), what));
            }
        }
    }
    findings
}

/// Checks that every crate and every backend has a page for its users.
pub fn crates_have_readmes(files: &[TextFile]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let manifests = paths.iter().filter_map(|path| path.strip_suffix("Cargo.toml"));
    manifests
        .filter(|folder| folder.starts_with("crates/") || folder.starts_with("backends/"))
        .map(|folder| format!("{folder}README.md"))
        .filter(|readme| !paths.contains(readme.as_str()))
        .map(|readme| Finding::new(&readme, 0, "missing: say what the crate is, for whom, and how to use it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> [TextFile; 1] {
        [TextFile::new("crates/core/src/a.rs", text)]
    }

    #[test]
    fn code_to_come_is_found() {
        for name in MACROS {
            assert_eq!(no_markers(&rust(&format!("\nfn a() {{ {name}!() }}")))[0].line, 2, "{name}");
        }
        for marker in MARKERS {
            assert_eq!(no_markers(&rust(&format!("// {marker}: later"))).len(), 1, "{marker}");
            assert_eq!(no_markers(&[TextFile::new("README.md", marker)]).len(), 1, "{marker}");
            assert_eq!(no_markers(&rust(&format!("const A{marker}B: u8 = 0;"))), [], "{marker} inside a word");
        }
        assert_eq!(no_markers(&rust("// todo!() is denied\nfn todo() { \"dbg!\"; }")), []);
    }

    #[test]
    fn a_test_that_is_switched_off_is_found() {
        let cases = ["#[ignore]", "#[ignore = \"slow\"]", "#[ ignore ]", "#[cfg_attr(miri, ignore)]"];
        for attribute in cases {
            assert_eq!(
                no_ignored_tests(&rust(&format!("#[test]\n{attribute}\nfn a() {{}}")))[0].line,
                2,
                "{attribute}"
            );
        }
        assert_eq!(no_ignored_tests(&rust("// #[ignore]\n#[test]\nfn a() { ignore(\"#[ignore]\") }")), []);
    }

    #[test]
    fn a_machine_in_the_text_is_found() {
        for needle in FORBIDDEN {
            assert_eq!(forbidden_words(&[TextFile::new("README.md", &format!("\n<{needle}>"))])[0].line, 2, "{needle}");
        }
        assert_eq!(forbidden_words(&rust("//! See https://docs.rs/millpond and artefacts of work/.")), []);
    }

    #[test]
    fn a_crate_without_a_page_is_found() {
        let manifest = |path| TextFile::new(path, "");
        let readme = TextFile::new("crates/core/README.md", "");
        assert_eq!(crates_have_readmes(&[manifest("crates/core/Cargo.toml"), readme]), []);
        let found = crates_have_readmes(&[manifest("backends/sim/Cargo.toml"), manifest("tests/Cargo.toml")]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "backends/sim/README.md");
    }
}
