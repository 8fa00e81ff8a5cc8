//! Prose: pages and documentation are in plain English, as far as a program can count.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;
use crate::lexer::line_of;
use crate::workspace::TextFile;

/// The most words of a sentence of a page for users.
const SENTENCE_WORDS: usize = 35;

/// Folders whose pages are for users, and pages that are.
const FOR_USERS: [&str; 5] = ["README.md", "docs/tutorial/", "docs/how-to/", "docs/reference/", "docs/explanation/"];

/// Pages with few numbers: the front page and the tutorials, with the most numbers in a hundred words.
const FEW_NUMBERS: [&str; 2] = ["README.md", "docs/tutorial/"];
const NUMBERS_IN_A_HUNDRED_WORDS: f64 = 2.5;

/// The front page: how many words it may have, tables and programs included, and how many numbers its prose.
const FRONT_PAGE: &str = "README.md";
const FRONT_PAGE_WORDS: std::ops::RangeInclusive<usize> = 650..=900;
const FRONT_PAGE_NUMBERS: usize = 20;

/// Records of measurements, and files that list words rather than use them.
const LEFT_OUT: [&str; 3] = ["benches/record/", "tests/src/tidy/", "tests/mutants/"];

/// A phrase that readers stumble over.
struct Phrase {
    words: &'static str,
    instead: &'static str,
    /// How often pages may have it, in which it has a good sense too. May only fall.
    in_pages: usize,
    /// How often comments and texts of programs may have it. May only fall.
    in_sources: usize,
}

const PHRASES: [Phrase; 6] = [
    Phrase { words: "in place of", instead: "instead of", in_pages: 0, in_sources: 0 },
    Phrase { words: "tells", instead: "returns, says or shows", in_pages: 0, in_sources: 0 },
    Phrase { words: "does the same", instead: "what is done", in_pages: 0, in_sources: 0 },
    Phrase { words: "as ever", instead: "as always", in_pages: 0, in_sources: 0 },
    Phrase { words: "behind", instead: "after, of time", in_pages: 14, in_sources: 383 },
    Phrase { words: "beside", instead: "compared with, or next to", in_pages: 15, in_sources: 88 },
];

/// What a reader reads of a page, without code, tables and what commands print.
#[derive(Debug, Default)]
struct Prose {
    /// Each sentence, and where its paragraph begins.
    sentences: Vec<(String, usize)>,
    /// The words of all sentences and headings.
    words: usize,
    /// Those of them that are numbers.
    numbers: usize,
}

impl Prose {
    fn of(text: &str) -> Self {
        let mut prose = Prose::default();
        let (mut paragraph, mut begin, mut skips) = (String::new(), 0, 0);
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(_) | Tag::Table(_) | Tag::HtmlBlock) => skips += 1,
                Event::End(TagEnd::CodeBlock | TagEnd::Table | TagEnd::HtmlBlock) => skips -= 1,
                Event::Start(Tag::Paragraph | Tag::Item | Tag::Heading { .. }) => {
                    prose.end(&mut paragraph, begin);
                    begin = range.start;
                }
                Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::Heading(_)) => prose.end(&mut paragraph, begin),
                Event::Text(part) if skips == 0 => paragraph.push_str(&part),
                // A name in code is one word, whatever is in it.
                Event::Code(_) if skips == 0 => paragraph.push_str("code"),
                Event::SoftBreak | Event::HardBreak => paragraph.push(' '),
                _ => {}
            }
        }
        prose.end(&mut paragraph, begin);
        prose
    }

    /// Takes in a paragraph that is over.
    fn end(&mut self, paragraph: &mut String, begin: usize) {
        let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        self.words += paragraph.split_whitespace().count();
        self.numbers += paragraph.split_whitespace().filter(is_number).count();
        let mut sentence = String::new();
        for word in std::mem::take(paragraph).split_whitespace() {
            sentence.push_str(word);
            sentence.push(' ');
            // A colon ends what is said before it, too: a list or an example follows.
            if word.ends_with(['.', '?', '!', ':', ';']) {
                self.sentences.push((std::mem::take(&mut sentence), begin));
            }
        }
        if !sentence.is_empty() {
            self.sentences.push((sentence, begin));
        }
    }
}

/// Checks that no sentence of a page for users is too long, and that the front page and the tutorials have few
/// numbers. Costs a look at each byte of these pages.
pub fn prose_is_plain(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| is_of(&file.path, &FOR_USERS) && file.path.ends_with(".md")) {
        let prose = Prose::of(&page.text);
        for (sentence, begin) in &prose.sentences {
            let words = sentence.split_whitespace().count();
            if words > SENTENCE_WORDS {
                let what = format!("a sentence of {words} words, of {SENTENCE_WORDS} at most: {sentence}");
                findings.push(Finding::new(&page.path, line_of(&page.text, *begin), what));
            }
        }
        let share = 100.0 * prose.numbers as f64 / prose.words.max(1) as f64;
        if is_of(&page.path, &FEW_NUMBERS) && share > NUMBERS_IN_A_HUNDRED_WORDS {
            let what = format!("{share:.1} numbers in 100 words, of {NUMBERS_IN_A_HUNDRED_WORDS} at most");
            findings.push(Finding::new(&page.path, 0, what));
        }
        if page.path == FRONT_PAGE {
            findings.extend(front_page(&page.text, &prose));
        }
    }
    findings
}

fn front_page(text: &str, prose: &Prose) -> Option<Finding> {
    let (words, numbers) = (text.split_whitespace().count(), prose.numbers);
    let what = format!("{words} words and {numbers} numbers; {FRONT_PAGE_WORDS:?} and {FRONT_PAGE_NUMBERS} are wanted");
    let is_good = FRONT_PAGE_WORDS.contains(&words) && numbers <= FRONT_PAGE_NUMBERS;
    (!is_good).then(|| Finding::new(FRONT_PAGE, 0, what))
}

/// Checks that phrases that readers stumble over are as rare as agreed, in pages and in the comments and texts of
/// sources. Costs a look at each byte for each phrase.
pub fn phrases_are_plain(files: &[TextFile]) -> Vec<Finding> {
    PHRASES.iter().flat_map(|phrase| too_often(phrase, files)).collect()
}

fn too_often(phrase: &Phrase, files: &[TextFile]) -> Vec<Finding> {
    let read = || files.iter().filter(|file| !is_of(&file.path, &LEFT_OUT));
    let pages: Vec<_> = read().filter(|file| file.path.ends_with(".md")).collect();
    let sources: Vec<_> = read().filter(|file| file.is_rust()).collect();
    let found = |files: &[&TextFile], text: fn(&TextFile) -> String, most: usize| {
        let places: Vec<_> = files.iter().flat_map(|file| places(&text(file), phrase.words, &file.path)).collect();
        let (words, instead, count) = (phrase.words, phrase.instead, places.len());
        let what = format!("\"{words}\" {count} times, of {most} at most: write \"{instead}\"");
        let finding = |(path, line): (String, usize)| Finding::new(&path, line, what.clone());
        if count > most { places.into_iter().map(finding).collect() } else { Vec::new() }
    };
    let mut findings = found(&pages, |file| file.text.clone(), phrase.in_pages);
    findings.extend(found(&sources, |file| file.comments.clone(), phrase.in_sources));
    findings
}

/// Returns the files and lines where a phrase stands as words of its own, in any case and over line breaks.
fn places(text: &str, phrase: &str, path: &str) -> Vec<(String, usize)> {
    let wanted: Vec<&str> = phrase.split(' ').collect();
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let mut words: Vec<(usize, &str)> = Vec::new();
    let mut from = 0;
    for part in text.split(|c: char| !is_letter(c)) {
        if !part.is_empty() {
            words.push((from, part));
        }
        from += part.len() + text[from + part.len()..].chars().next().map_or(0, char::len_utf8);
    }
    let is_it = |window: &&[(usize, &str)]| {
        window.iter().zip(&wanted).all(|((_, word), wanted)| word.eq_ignore_ascii_case(wanted))
    };
    words.windows(wanted.len()).filter(is_it).map(|window| (path.to_owned(), line_of(text, window[0].0))).collect()
}

fn is_of(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path == *folder || (folder.ends_with('/') && path.starts_with(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_is_found_and_code_is_none() {
        let long = vec!["word"; SENTENCE_WORDS + 1].join(" ");
        let page = |text: String| [TextFile::new("docs/how-to/a.md", &text)];
        assert_eq!(prose_is_plain(&page(format!("# A\n\nShort.\n\n{long}.\n")))[0].line, 5);
        assert_eq!(prose_is_plain(&page(format!("# A\n\n```text\n{long}\n```\n"))), []);
        assert_eq!(prose_is_plain(&page(format!("| a |\n|---|\n| {long} |\n"))), []);
        assert_eq!(prose_is_plain(&page(format!("`{long}` is code.\n"))), []);
        assert_eq!(prose_is_plain(&[TextFile::new("docs/design/a.md", &long)]), [], "that page is not for users");
    }

    #[test]
    fn a_front_page_of_numbers_is_found() {
        let page = |text: &str| prose_is_plain(&[TextFile::new(FRONT_PAGE, text)]);
        let plain = "One word after the other. ".repeat(150);
        assert_eq!(page(&plain), []);
        assert_eq!(page(&plain[..2600]).len(), 1, "too few words");
        assert_eq!(
            page(&format!("{plain}{}", "7 words. ".repeat(21))).len(),
            2,
            "too many numbers, and too many in 100"
        );
    }

    #[test]
    fn a_phrase_is_found_over_a_line_break_and_in_comments_alone() {
        let phrase = Phrase { words: "in place of", instead: "instead of", in_pages: 1, in_sources: 0 };
        let page = TextFile::new("README.md", "One in place\nof two, and in Place of.");
        let lines = |files: &[TextFile]| too_often(&phrase, files).iter().map(|f| f.line).collect::<Vec<_>>();
        assert_eq!(lines(&[page]), [1, 2]);
        assert!(lines(&[TextFile::new("README.md", "in place of it")]).is_empty(), "as often as agreed");
        let source = TextFile::new("crates/a.rs", "/// A.\nfn a() {\n    // in place of b\n    \"in place of\";\n}");
        assert_eq!(lines(&[source]), [3]);
        assert!(lines(&[TextFile::new("benches/record/a.md", "in place of in place of")]).is_empty());
    }
}
