//! Colour, where it is read by people, and what is written of a text.
//!
//! Texts hold names and values of files, so that nothing in them may act on a terminal: control characters are escaped
//! as a text is written. Colours are therefore marked by characters that no text has until then.

use std::io::{self, IsTerminal as _};

use millpond_trace::printable_with;

/// How a text is set off from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paint {
    /// The head of a table.
    Head,
    /// What is recommended, or passed.
    Good,
    /// What failed.
    Bad,
    /// What is to be noticed.
    Notice,
}

/// The marks of the colours, which Unicode keeps for uses like this, and the sequences that they stand for.
const MARKS: [(char, &str); 5] = [
    (PLAIN_MARK, "\u{1b}[0m"),
    ('\u{fdd1}', "\u{1b}[1m"),
    ('\u{fdd2}', "\u{1b}[32m"),
    ('\u{fdd3}', "\u{1b}[1;31m"),
    ('\u{fdd4}', "\u{1b}[33m"),
];

/// The mark that ends a colour.
const PLAIN_MARK: char = '\u{fdd0}';

impl Paint {
    fn mark(self) -> char {
        match self {
            Self::Head => '\u{fdd1}',
            Self::Good => '\u{fdd2}',
            Self::Bad => '\u{fdd3}',
            Self::Notice => '\u{fdd4}',
        }
    }
}

/// Returns what is written of a text: its lines without control characters, and its colours.
pub(crate) fn written(text: &str) -> String {
    let text = printable_with(text, "\n").into_owned();
    MARKS.iter().fold(
        text,
        |text, (mark, sequence)| {
            if text.contains(*mark) { text.replace(*mark, sequence) } else { text }
        },
    )
}

/// Whether texts are coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    /// No colours.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { colours: false };

    /// Returns the style of standard output: colours on a terminal, unless the environment asks for none.
    pub(crate) fn of_output() -> Self {
        Self::of(io::stdout().is_terminal(), |name| std::env::var_os(name).map(|value| value.is_empty()))
    }

    /// Returns the style of standard error.
    pub(crate) fn of_messages() -> Self {
        Self::of(io::stderr().is_terminal(), |name| std::env::var_os(name).map(|value| value.is_empty()))
    }

    /// `is_empty` returns whether a variable is set to nothing, or `None` where it is not set.
    fn of(is_terminal: bool, is_empty: impl Fn(&str) -> Option<bool>) -> Self {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        Self { colours: is_terminal && !dumb && is_empty("NO_COLOR") != Some(false) }
    }

    /// Returns the text, with the marks of a colour or as it is.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if self.colours && !text.is_empty() { format!("{}{text}{PLAIN_MARK}", paint.mark()) } else { text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_colours_on_a_terminal_alone_and_where_they_are_wanted() {
        let unset = |_: &str| None;
        assert_eq!(Style::of(false, unset), Style::PLAIN);
        assert_eq!(Style::of(true, |name| (name == "NO_COLOR").then_some(false)), Style::PLAIN);
        assert_eq!(Style::PLAIN.paint(Paint::Bad, "no"), "no");
        let colours = Style { colours: true };
        assert_eq!(written(&colours.paint(Paint::Good, "yes")), "\u{1b}[32myes\u{1b}[0m");
        assert_eq!(written(&colours.paint(Paint::Bad, "a\u{1b}[2J\r\nb")), "\u{1b}[1;31ma\\u{1b}[2J\\r\nb\u{1b}[0m");
        assert_eq!(colours.paint(Paint::Good, ""), "");
    }
}
