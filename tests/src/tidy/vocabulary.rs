//! The project's own words: the glossary of the design, and what it bans.

use std::collections::BTreeSet;

use super::Finding;
use crate::lexer::{line_of, words};
use crate::workspace::TextFile;

/// The page that has the project's words, and the line above the table of them.
const GLOSSARY: &str = "docs/explanation/glossary.md";
const HEAD: &str = "| word | meaning | not |";

/// A row of the glossary.
struct Entry {
    line: usize,
    words: Vec<String>,
    banned: Vec<String>,
}

/// Checks the glossary, and that comments and pages use the project's own words for its things: no word stands in the
/// glossary twice, each is in use, and no comment and no other page has one of those that it bans.
pub fn one_vocabulary(files: &[TextFile]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == GLOSSARY) else {
        return vec![Finding::new(GLOSSARY, 0, "missing: the glossary lies there")];
    };
    let entries = glossary(&page.text);
    let mut findings = Vec::new();
    if entries.is_empty() {
        findings.push(Finding::new(GLOSSARY, 0, format!("there is no table under `{HEAD}`")));
    }
    let in_use = words_of_the_library(files);
    let mut seen = BTreeSet::new();
    for entry in &entries {
        for word in &entry.words {
            if !seen.insert(word) {
                findings.push(Finding::new(GLOSSARY, entry.line, format!("{word} stands in the glossary twice")));
            }
            if !in_use.contains(word.as_str()) {
                findings.push(Finding::new(GLOSSARY, entry.line, format!("{word} is in use nowhere")));
            }
        }
    }
    let banned: BTreeSet<&str> = entries.iter().flat_map(|entry| &entry.banned).map(String::as_str).collect();
    for file in files.iter().filter(|file| file.is_rust() || (file.path.ends_with(".md") && file.path != GLOSSARY)) {
        let prose = if file.is_rust() { &file.comments } else { &file.text };
        for (offset, word) in words(prose) {
            let lower = word.to_lowercase();
            if banned.contains(lower.as_str()) || lower.strip_suffix('s').is_some_and(|one| banned.contains(one)) {
                let what = format!("{word} is not one of our words: see the glossary in {GLOSSARY}");
                findings.push(Finding::new(&file.path, line_of(prose, offset), what));
            }
        }
    }
    findings
}

/// Returns the rows of the glossary.
fn glossary(page: &str) -> Vec<Entry> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != HEAD).skip(2);
    let rows = lines.take_while(|(_, line)| line.starts_with('|'));
    let list = |cell: Option<&str>| {
        let words = cell.unwrap_or_default().split(',').map(|word| word.trim().to_lowercase());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
    };
    rows.map(|(at, row)| {
        let mut cells = row.trim_matches('|').split('|');
        let words = list(cells.next());
        Entry { line: at + 1, words, banned: list(cells.nth(1)) }
    })
    .collect()
}

/// Returns every word of the code of the library, the contract and the kit in lower case, parts of names on their own.
fn words_of_the_library(files: &[TextFile]) -> BTreeSet<String> {
    const SOURCES: [&str; 4] = ["crates/core/src/", "crates/backend/src/", "crates/millpond/src/", "crates/kit/src/"];
    let is_ours = |file: &&TextFile| SOURCES.iter().any(|folder| file.path.starts_with(folder));
    let mut all = BTreeSet::new();
    for file in files.iter().filter(is_ours) {
        for (_, name) in words(&file.code) {
            let mut part = String::new();
            for c in name.chars() {
                if (c == '_' || c.is_uppercase()) && !part.is_empty() {
                    all.insert(core::mem::take(&mut part));
                }
                part.extend(c.to_lowercase().filter(|c| *c != '_'));
            }
            all.insert(part);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "| word | meaning | not |\n|---|---|---|\n| block | a range | chunk, slab |\n| page | a handle | |\n";

    fn with(page: &str, more: TextFile) -> Vec<Finding> {
        let core = TextFile::new("crates/core/src/block.rs", "struct BlockId; fn pages_of(page: u64) {}");
        one_vocabulary(&[TextFile::new(GLOSSARY, page), core, more])
    }

    #[test]
    fn a_banned_word_is_found_in_prose_but_not_in_code() {
        let rust = |text: &str| TextFile::new("crates/core/src/a.rs", text);
        assert_eq!(with(TABLE, rust("for a in b.chunks(4) {}")), []);
        assert_eq!(with(TABLE, rust("\n/// A chunk."))[0].line, 2);
        assert_eq!(with(TABLE, rust("// Two Slabs.")).len(), 1);
        assert_eq!(with(TABLE, TextFile::new("README.md", "CHUNK")).len(), 1);
    }

    #[test]
    fn a_word_stands_once_and_is_in_use() {
        let nothing = || TextFile::new("README.md", "");
        assert_eq!(with(TABLE, nothing()), []);
        let twice = with(&format!("{TABLE}| page, rung | again | |\n"), nothing());
        assert_eq!(twice.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5, 5], "{twice:?}");
        assert_eq!(with("no table", nothing()).len(), 1);
        assert_eq!(one_vocabulary(&[nothing()]).len(), 1, "a glossary that is missing");
    }
}
