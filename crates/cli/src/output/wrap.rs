//! Lines that fit a width.

/// The width of texts, in characters, where no terminal says another one.
pub(crate) const WIDTH: usize = 80;

/// Breaks a text at spaces, so that no line is longer than `width` unless a word is. Line breaks in the text stay.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        let mut length = 0;
        for word in paragraph.split(' ') {
            let more = word.chars().count();
            if length > 0 && length + 1 + more > width {
                lines.push(std::mem::take(&mut line));
                length = 0;
            } else if !line.is_empty() || length > 0 {
                line.push(' ');
                length += 1;
            }
            line += word;
            length += more;
        }
        lines.push(line);
    }
    lines
}

/// Breaks a text into lines, the first behind `first` and the others behind as many spaces.
pub(crate) fn hanging(first: &str, text: &str, width: usize) -> String {
    let indent = first.chars().count();
    let lines = wrapped(text, width.saturating_sub(indent).max(20));
    let line = |(at, line): (usize, &String)| {
        if at == 0 { format!("{first}{line}\n") } else { format!("{:indent$}{line}\n", "") }
    };
    lines.iter().enumerate().map(line).collect()
}

/// Shortens a text to a number of characters: its beginning and its end stay.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most || most < 3 {
        return text.into();
    }
    let end = (most - 1) / 3;
    let begin = most - 1 - end;
    text.chars().take(begin).chain(['…']).chain(text.chars().skip(length - end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_words_stay_whole() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("one two\nthree", 80), ["one two", "three"]);
        assert_eq!(wrapped("a/very/long/path b", 5), ["a/very/long/path", "b"]);
        assert_eq!(wrapped("", 5), [""; 0]);
        let long = "word ".repeat(20);
        assert_eq!(hanging("  - ", long.trim(), 30).lines().map(str::len).max(), Some(28));
        assert!(hanging("  - ", long.trim(), 30).lines().skip(1).all(|line| line.starts_with("    word")));
    }

    #[test]
    fn both_ends_of_a_name_stay() {
        assert_eq!(shortened("bert_multistream", 16), "bert_multistream");
        assert_eq!(shortened("bert_multistream_rank_7", 13), "bert_mul…nk_7");
        assert_eq!(shortened("bert_multistream_rank_7", 13).chars().count(), 13);
    }
}
