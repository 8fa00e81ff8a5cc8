//! The repository as text: where it is, and its files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::lexer::{self, Kind};

/// Folders of built files and of findings of the fuzzer, by their path from the root or by their bare name.
const LEFT_OUT: [&str; 5] = [".git", "target", "tests/fuzz/corpus", "tests/fuzz/artifacts", "tests/fuzz/coverage"];

/// One text file. For Rust files there are three more views of the text, each as long as the text and with the same
/// line breaks, in which everything else is blank; for other files these views are empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextFile {
    /// The path from the root of the repository, with `/` between folders.
    pub path: String,
    /// The content of the file.
    pub text: String,
    /// Rust code alone: no comments, nothing inside quotation marks.
    pub code: String,
    /// Rust code with its literals: no comments.
    pub uncommented: String,
    /// Comments alone, documentation included.
    pub comments: String,
}

impl TextFile {
    /// Creates a file with that path and that text. Reads nothing from disk.
    pub fn new(path: &str, text: &str) -> TextFile {
        let mut file = TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
            code: String::new(),
            uncommented: String::new(),
            comments: String::new(),
        };
        if path.ends_with(".rs") {
            let kinds = lexer::classify(text);
            file.code = lexer::view(text, &kinds, &[Kind::Code]);
            file.uncommented = lexer::view(text, &kinds, &[Kind::Code, Kind::Literal]);
            file.comments = lexer::view(text, &kinds, &[Kind::Comment]);
        }
        file
    }

    /// Returns whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns whether it is a package's (or the workspace's) manifest.
    pub fn is_manifest(&self) -> bool {
        self.path == "Cargo.toml" || self.path.ends_with("/Cargo.toml")
    }
}

/// Returns the root of the repository, which is the folder above this package.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or_else(|| panic!("{} has no parent folder", here.display())).to_owned()
}

/// Returns every text file below `root`, in the order of their paths. What is not UTF-8 is not text; links are not
/// followed.
///
/// # Panics
///
/// If a folder or a file cannot be read.
pub fn read(root: &Path) -> Vec<TextFile> {
    let mut files = Vec::new();
    walk(root, "", &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().unwrap_or_else(|error| panic!("{path}: {error}"));
        if kind.is_dir() {
            if !LEFT_OUT.contains(&name.as_str()) && !LEFT_OUT.contains(&path.as_str()) {
                walk(&entry.path(), &format!("{path}/"), files);
            }
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).unwrap_or_else(|error| panic!("{path}: {error}"));
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(TextFile::new(&path, &text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_finds_this_file_and_nothing_that_was_built() {
        let files = read(&root());
        assert!(files.iter().any(|file| file.path == "tests/src/workspace.rs" && file.code.contains("fn walk")));
        assert!(files.iter().any(|file| file.path == "Cargo.toml" && file.is_manifest()));
        assert!(files.iter().all(|file| !file.path.starts_with("target/") && !file.path.starts_with(".git/")));
        assert!(files.is_sorted_by(|a, b| a.path < b.path));
    }
}
