//! Just enough of Rust's lexical rules to tell code, literals and comments apart.
//!
//! Rules over source text would otherwise trip over their own examples: a brace in a string, a keyword in a comment.

/// The kind of text that a byte of Rust source belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Names, keywords, numbers, punctuation, white space; also the quotation marks around a literal.
    Code,
    /// The inside of a string or character literal.
    Literal,
    /// A comment, with its marks.
    Comment,
}

/// Returns the kind of every byte of `source`. Source that the compiler would refuse gets some result, never a panic.
pub fn classify(source: &str) -> Vec<Kind> {
    let bytes = source.as_bytes();
    let mut kinds = Vec::with_capacity(bytes.len());
    while kinds.len() < bytes.len() {
        let at = kinds.len();
        let rest = &bytes[at..];
        let (lead, inside, kind, tail) = if rest.starts_with(b"//") {
            (0, rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()), Kind::Comment, 0)
        } else if rest.starts_with(b"/*") {
            (0, block_comment(rest), Kind::Comment, 0)
        } else if rest[0] == b'"' {
            (1, quoted(&rest[1..], b'"'), Kind::Literal, 1)
        } else if rest[0] == b'\'' {
            let inside = character(&source[at + 1..]);
            (1, inside, Kind::Literal, inside.min(1))
        } else if let Some(lead) = raw_lead(bytes, at) {
            (lead, raw(&rest[lead..], lead - 2), Kind::Literal, 1)
        } else {
            (1, 0, Kind::Code, 0)
        };
        kinds.resize(at + lead, Kind::Code);
        kinds.resize(at + lead + inside, kind);
        // The closing mark is part of this step: alone it would open the next literal.
        kinds.resize((at + lead + inside + tail).min(bytes.len()), Kind::Code);
    }
    kinds
}

/// Returns `source` with every byte blank whose kind is not in `wanted`. Line breaks stay, so offsets and lines do too.
pub fn view(source: &str, kinds: &[Kind], wanted: &[Kind]) -> String {
    let keep = |(byte, kind): (u8, &Kind)| if byte == b'\n' || wanted.contains(kind) { byte } else { b' ' };
    let bytes = source.bytes().zip(kinds).map(keep).collect();
    String::from_utf8(bytes).expect("a character lies whole inside code, a literal or a comment")
}

/// Returns the words of code, each with its offset: runs of letters, digits and underscores.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        at += code[at..].find(in_word)?;
        let start = at;
        at += code[start..].find(|c| !in_word(c)).unwrap_or(code.len() - start);
        Some((start, &code[start..at]))
    })
}

/// Returns the line of an offset, counted from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count()
}

/// Returns the offset just behind the brace that closes the one at `open`, or the end of the code if none does.
pub fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return offset + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the number of bytes of a block comment, which may contain others.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the number of bytes before the closing mark, with escapes.
fn quoted(inside: &[u8], mark: u8) -> usize {
    let mut at = 0;
    while at < inside.len() && inside[at] != mark {
        at += if inside[at] == b'\\' { 2 } else { 1 };
    }
    at.min(inside.len())
}

/// Returns the number of bytes of a character literal behind its opening mark, or 0 if the mark begins a lifetime.
fn character(inside: &str) -> usize {
    let mut characters = inside.chars();
    match characters.next() {
        Some('\\') => quoted(inside.as_bytes(), b'\''),
        Some(first) if characters.next() == Some('\'') => first.len_utf8(),
        _ => 0,
    }
}

/// Returns the number of bytes of `r"`, `r#"`, `r##"` ... if one begins at `at`.
fn raw_lead(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map_or(b' ', |previous| bytes[previous]);
    let prefix = matches!(before, b'b' | b'c');
    if bytes[at] != b'r' || (!prefix && (before.is_ascii_alphanumeric() || before == b'_')) {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes + 2)
}

/// Returns the number of bytes before the mark that closes a raw string with that many hashes.
fn raw(inside: &[u8], hashes: usize) -> usize {
    let closes = |window: &[u8]| window[0] == b'"' && window[1..].iter().all(|&byte| byte == b'#');
    inside.windows(hashes + 1).position(closes).unwrap_or(inside.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        view(source, &classify(source), &[Kind::Code])
    }

    #[test]
    fn literals_and_comments_are_blank_in_code() {
        let cases = [
            (r#"a("b // c", d) // e"#, r#"a("      ", d)     "#),
            (r#"a("\"b", "") c"#, r#"a("   ", "") c"#),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r###"a(r#"b "c" d"#, e)"###, r###"a(r#"       "#, e)"###),
            (r##"a(br"b\", e)"##, r##"a(br"  ", e)"##),
            ("a('\"', '\\'', 'b') + c", "a(' ', '  ', ' ') + c"),
            ("fn a<'b>(c: &'b str) {}", "fn a<'b>(c: &'b str) {}"),
            ("let r#in = \"{\";", "let r#in = \" \";"),
            ("'ü' \"ü\" // ü", "'  ' \"  \"      "),
        ];
        for (source, expected) in cases {
            assert_eq!(code(source), expected, "{source}");
        }
    }

    #[test]
    fn unfinished_source_has_an_answer() {
        for source in ["\"a", "/* a", "r#\"a", "'", "'\\", "\"\\", "r", "//", "'ü"] {
            assert_eq!(classify(source).len(), source.len(), "{source}");
        }
    }

    #[test]
    fn lines_stay_where_they_are() {
        let source = "a // b\n\"c\nd\" e\n";
        assert_eq!(code(source), "a     \n\" \n \" e\n");
        assert_eq!(line_of(source, source.find('e').expect("there is one")), 3);
    }

    #[test]
    fn words_have_offsets() {
        let found: Vec<_> = words("a.b_1 (ü2)").collect();
        assert_eq!(found, [(0, "a"), (2, "b_1"), (7, "ü2")]);
    }

    #[test]
    fn braces_match() {
        assert_eq!(closing_brace("a { b { } c } d", 2), 13);
        assert_eq!(closing_brace("{ { }", 0), 5);
    }
}
