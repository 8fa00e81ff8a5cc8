//! The words that report pages explain: each has one sentence, which stands in the glossary.

use std::collections::BTreeMap;

use super::Finding;
use crate::workspace::TextFile;

/// The page that has the project's words, and the heading over the table of those that only the report page explains.
const GLOSSARY: &str = "docs/explanation/glossary.md";
const HEADING: &str = "## On the report page";
/// The script that has the sentences of the report page, and the line above the first of them.
const SCRIPT: &str = "crates/report/assets/glossary.js";
const BEGIN: &str = "const TERMS = {";

/// Checks that each word of the report page has the sentence that the glossary has first for it, and that each word of
/// the glossary's table for that page is on the page.
pub fn explained_words(files: &[TextFile]) -> Vec<Finding> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|file| &*file.text);
    let (Some(page), Some(script)) = (text_of(GLOSSARY), text_of(SCRIPT)) else {
        return vec![Finding::new(SCRIPT, 0, format!("it or {GLOSSARY} is missing"))];
    };
    let mut findings = Vec::new();
    let terms = terms(script);
    if terms.is_empty() {
        findings.push(Finding::new(SCRIPT, 0, format!("there is no word under `{BEGIN}`")));
    }
    let rows = rows(page);
    for (word, (line, sentence)) in &terms {
        match rows.get(word) {
            None => findings.push(Finding::new(SCRIPT, *line, format!("{word} is not in {GLOSSARY}"))),
            Some((at, meaning)) if plain(first(meaning)) != plain(sentence) => {
                let what = format!("{word}: line {at} of {GLOSSARY} says \"{}\"", first(meaning));
                findings.push(Finding::new(SCRIPT, *line, what));
            }
            Some(_) => {}
        }
    }
    let heading = page.lines().position(|line| line == HEADING).map_or(usize::MAX, |at| at + 1);
    for (word, (line, _)) in rows.iter().filter(|(_, (line, _))| *line > heading) {
        if !terms.contains_key(word) {
            findings.push(Finding::new(GLOSSARY, *line, format!("the report page does not explain {word}")));
        }
    }
    findings
}

/// Returns the words of the script, each with its line and its sentence.
fn terms(script: &str) -> BTreeMap<String, (usize, String)> {
    let lines = script.lines().enumerate().skip_while(|(_, line)| *line != BEGIN).skip(1);
    let quoted = |line: &str| {
        let (word, sentence) = line.trim().strip_prefix('"')?.strip_suffix("\",")?.split_once("\": \"")?;
        Some((word.to_owned(), sentence.to_owned()))
    };
    lines
        .take_while(|(_, line)| *line != "};")
        .filter_map(|(at, line)| quoted(line).map(|(word, sentence)| (word, (at + 1, sentence))))
        .collect()
}

/// Returns the words of all tables of the glossary, each with its line and its meaning.
fn rows(page: &str) -> BTreeMap<String, (usize, String)> {
    let mut rows = BTreeMap::new();
    let is_row = |line: &str| line.starts_with('|') && !line.starts_with("| word |") && !line.starts_with("|-");
    for (at, line) in page.lines().enumerate().filter(|(_, line)| is_row(line)) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (words, meaning) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        rows.extend(words.split(',').map(|word| (word.trim().to_owned(), (at + 1, meaning.to_owned()))));
    }
    rows
}

/// Returns what a meaning says before its first semicolon.
fn first(meaning: &str) -> &str {
    meaning.split(';').next().unwrap_or_default()
}

/// Returns a sentence without what only its place in a table or on a page gives it.
fn plain(sentence: &str) -> String {
    let sentence = sentence.replace('`', "");
    let mut letters = sentence.trim_end_matches('.').chars();
    letters.next().map(|letter| letter.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| word | meaning | not |\n|---|---|---|\n\
                        | page | a `piece` of memory; a *spare* one has none | |\n\n## On the report page\n\n\
                        | word | meaning |\n|---|---|\n| live, in use | not freed |\n";

    fn findings(terms: &str) -> Vec<Finding> {
        let script = format!("// Words.\n{BEGIN}\n{terms}}};\n");
        explained_words(&[TextFile::new(GLOSSARY, PAGE), TextFile::new(SCRIPT, &script)])
    }

    #[test]
    fn a_word_has_the_first_sentence_of_the_glossary() {
        let (page, live) = ("  \"page\": \"A piece of memory.\",\n", "  \"live\": \"Not freed.\",\n");
        let all = format!("{page}{live}  \"in use\": \"Not freed.\",\n");
        assert_eq!(findings(&all), []);
        assert_eq!(findings(&all.replace("Not freed.\",\n  \"in", "Freed.\",\n  \"in")).len(), 1, "another sentence");
        assert_eq!(findings(&format!("{all}  \"heap\": \"All of it.\",\n"))[0].line, 6, "a word the glossary lacks");
        assert_eq!(findings(&format!("{page}{live}")).len(), 1, "a word the page lacks");
        assert_eq!(findings("").len(), 3, "no words at all");
        assert_eq!(explained_words(&[]).len(), 1, "no files at all");
    }
}
