//! Small files, functions that fit a screen, lines that fit beside each other.

use super::Finding;
use crate::lexer::{closing_brace, line_of, words};
use crate::workspace::TextFile;

/// The most lines of a Rust file. Aim far below.
const FILE_LINES_MAX: usize = 800;
/// The most lines of a function from `fn` to its closing brace. Aim at 70.
const FUNCTION_LINES_MAX: usize = 90;
/// The most characters of a line of code or script.
const LINE_WIDTH_MAX: usize = 120;

/// Checks that no Rust file is longer than 800 lines.
pub fn file_length(files: &[TextFile]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.is_rust());
    rust.filter_map(|file| {
        let lines = file.text.lines().count();
        let what = format!("{lines} lines, and {FILE_LINES_MAX} are the most: split it by concern");
        (lines > FILE_LINES_MAX).then(|| Finding::new(&file.path, 0, what))
    })
    .collect()
}

/// Checks that no function is longer than 90 lines.
pub fn function_length(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (name, first, last) in functions(&file.code) {
            let lines = last - first + 1;
            if lines > FUNCTION_LINES_MAX {
                let what = format!("{name} has {lines} lines, and {FUNCTION_LINES_MAX} are the most: take a part out");
                findings.push(Finding::new(&file.path, first, what));
            }
        }
    }
    findings
}

/// Checks that no line of Rust or of a script is wider than 120 characters, unless it holds an address on the web.
pub fn line_width(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() || file.path.ends_with(".sh") || file.path == ".ci/run") {
        for (index, line) in file.text.lines().enumerate() {
            let width = line.chars().count();
            if width > LINE_WIDTH_MAX && !line.contains("://") {
                let what = format!("{width} characters, and {LINE_WIDTH_MAX} are the most");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// Returns the functions with a body: name, first line, last line.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    let mut previous = "";
    for (offset, word) in words(code) {
        // The word before a name is `fn`; in a pointer's type, what follows `fn` is no word.
        let named = previous == "fn" && code[..offset].trim_end().ends_with("fn");
        if let Some(open) = named.then(|| body(code, offset)).flatten() {
            found.push((word, line_of(code, offset), line_of(code, closing_brace(code, open).saturating_sub(1))));
        }
        previous = word;
    }
    found
}

/// Returns where the body of the function whose name is at `offset` opens, or `None` for a declaration.
fn body(code: &str, offset: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(offset) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> [TextFile; 1] {
        [TextFile::new("crates/core/src/a.rs", text)]
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(file_length(&rust(&"\n".repeat(800))), []);
        assert_eq!(file_length(&rust(&"\n".repeat(801))).len(), 1);
        assert_eq!(file_length(&[TextFile::new("README.md", &"\n".repeat(801))]), []);
    }

    #[test]
    fn a_long_function_is_found_by_name_and_line() {
        let long =
            |lines: usize| format!("struct A;\nfn long(a: [u8; 4]) {{{}}}\nfn b() {{}}\n", "\n".repeat(lines - 1));
        assert_eq!(function_length(&rust(&long(90))), []);
        let found = function_length(&rust(&long(91)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 2);
        assert!(found[0].what.starts_with("long has 91 lines"), "{}", found[0]);
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let code = "trait A {\n fn a(&self);\n fn b(&self) -> fn(u8) {\n  {}\n }\n}\nconst fn c() {}\n";
        assert_eq!(functions(code), [("b", 3, 5), ("c", 7, 7)]);
    }

    #[test]
    fn a_wide_line_is_found_and_an_address_excepted() {
        assert_eq!(line_width(&rust(&"ü".repeat(120))), []);
        assert_eq!(line_width(&rust(&format!("\n{}", "a".repeat(121))))[0].line, 2);
        assert_eq!(line_width(&rust(&format!("// https://{}", "a".repeat(121)))), []);
        assert_eq!(line_width(&[TextFile::new("scripts/a.sh", &"a".repeat(121))]).len(), 1);
    }
}
