//! Texts of files, for people to read.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns whether a terminal, or a reader of XML, would not show a character but act on it or refuse it.
fn is_hidden(character: char) -> bool {
    let turns_text_round = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    turns_text_round || character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns a text as a terminal, a page or a picture may show it: control characters, and those that turn the
/// direction of the text, are escaped as in Rust, such as `\n` and `\u{1b}`. Whatever prints a name, a path or a value
/// of a file passes it through here.
pub fn printable(text: &str) -> Cow<'_, str> {
    printable_with(text, "")
}

/// Returns what [`printable`] does, but keeps the control characters in `kept`, such as the line breaks of a text of
/// several lines.
pub fn printable_with<'a>(text: &'a str, kept: &str) -> Cow<'a, str> {
    let is_escaped = |character: char| is_hidden(character) && !kept.contains(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            let _ = write!(out, "{}", character.escape_default());
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        assert_eq!(printable("größe <b> \\ \u{1f600}"), "größe <b> \\ \u{1f600}");
        assert_eq!(printable("a\u{1b}[2Jb\n\r\t\0\u{7f}\u{9b}c"), "a\\u{1b}[2Jb\\n\\r\\t\\u{0}\\u{7f}\\u{9b}c");
        assert_eq!(printable("\u{2028}\u{fffe}\u{ffff}"), "\\u{2028}\\u{fffe}\\u{ffff}");
        assert_eq!(printable("a\u{202e}b\u{2066}\u{200f}c"), "a\\u{202e}b\\u{2066}\\u{200f}c");
        assert_eq!(printable_with("a\nb\tc\u{1b}", "\n\t"), "a\nb\tc\\u{1b}");
    }
}
