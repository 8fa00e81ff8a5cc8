//! Colour, where it is read by people.

use std::io::{self, IsTerminal as _};

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

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Head => "1",
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Notice => "33",
        }
    }
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

    /// Returns the text, coloured or as it is.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if self.colours && !text.is_empty() { format!("\u{1b}[{}m{text}\u{1b}[0m", paint.code()) } else { text.into() }
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
        assert_eq!(colours.paint(Paint::Good, "yes"), "\u{1b}[32myes\u{1b}[0m");
        assert_eq!(colours.paint(Paint::Good, ""), "");
    }
}
