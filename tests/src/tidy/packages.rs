//! What goes to the public index: each package by itself, with its licences, and in an order in which they can go.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::Finding;
use crate::lexer::line_of;
use crate::workspace::TextFile;

/// The licences, which every package has a copy of.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// The index's categories that are in use. It refuses those that it does not know.
const CATEGORIES: [&str; 9] = [
    "command-line-utilities",
    "development-tools::ffi",
    "development-tools::profiling",
    "development-tools::testing",
    "hardware-support",
    "memory-management",
    "no-std",
    "parser-implementations",
    "simulation",
];

/// The most keywords of a package, and the most characters of one. The index refuses more.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_LENGTH_MAX: usize = 20;

/// How a source takes in another file.
const TAKES_IN: [&str; 3] = ["include_str!(\"", "include_bytes!(\"", "#[path = \""];

/// A package that is published: the folder with a `/` at its end, and the manifest.
struct Package<'a> {
    folder: &'a str,
    manifest: Table,
}

/// Checks that every package that is published says what the index asks for, lists what is in it, and has the licences,
/// word for word.
pub fn packages_are_complete(files: &[TextFile]) -> Vec<Finding> {
    let texts: BTreeMap<&str, &str> = files.iter().map(|file| (&*file.path, &*file.text)).collect();
    let mut findings = Vec::new();
    for package in published(files) {
        let mut wrong = package.described();
        for licence in LICENCES {
            let copy = texts.get(&*format!("{}{licence}", package.folder));
            if copy.is_none() || copy != texts.get(licence) {
                wrong.push(format!("{licence} is not beside it as it is in the root: copy it"));
            }
        }
        findings.extend(wrong.into_iter().map(|what| package.finding(what)));
    }
    findings
}

/// Checks that what a published package's sources take in at compile time lies in its own folder, and is among the
/// files that the package includes.
pub fn packages_stand_alone(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in published(files) {
        let sources = format!("{}src/", package.folder);
        let included = package.list(&["package", "include"]);
        for file in files.iter().filter(|file| file.path.starts_with(&sources)) {
            for (offset, taken) in taken_in(&file.uncommented) {
                let found = resolved(&file.path, taken);
                let inside = found.strip_prefix(package.folder).is_some_and(|path| includes(&included, path));
                if !inside {
                    let what = format!("takes in {found}, which is not in the package: see `include` in its manifest");
                    findings.push(Finding::new(&file.path, line_of(&file.uncommented, offset), what));
                }
            }
        }
    }
    findings
}

/// Checks that the published packages can be published one after the other: what one depends on is published too, and
/// none depends on itself by way of others. A development dependency counts if it has a version; one that is a path
/// alone is left out of the package.
pub fn packages_have_an_order(files: &[TextFile]) -> Vec<Finding> {
    let packages = published(files);
    let names: BTreeSet<&str> = packages.iter().filter_map(Package::name).collect();
    let mut findings = Vec::new();
    let mut open: BTreeMap<&str, (&Package, Vec<String>)> = BTreeMap::new();
    for package in &packages {
        let needs = package.needs();
        for other in needs.iter().filter(|other| !names.contains(other.as_str())) {
            findings.push(package.finding(format!("needs {other}, which is not published")));
        }
        if let Some(name) = package.name() {
            open.insert(name, (package, needs));
        }
    }
    loop {
        let next = open.iter().find(|(_, (_, needs))| !needs.iter().any(|other| open.contains_key(other.as_str())));
        let Some(name) = next.map(|(name, _)| *name) else { break };
        open.remove(name);
    }
    findings.extend(open.values().map(|(package, needs)| {
        let what = format!("cannot be published before [{}], nor they before it", needs.join(", "));
        package.finding(what + ": name one of them in dev-dependencies by its path alone")
    }));
    findings
}

/// Reads the published packages: those of the stack, whose manifests do not say otherwise. What is no manifest is a
/// finding of `layer_order`.
fn published(files: &[TextFile]) -> Vec<Package<'_>> {
    let manifests = files
        .iter()
        .filter(|file| file.is_manifest() && (file.path.starts_with("crates/") || file.path.starts_with("backends/")));
    let packages = manifests.filter_map(|file| {
        let folder = file.path.strip_suffix("Cargo.toml")?;
        Some(Package { folder, manifest: file.text.parse().ok()? })
    });
    packages.filter(|package| package.at(&["package", "publish"]).is_none()).collect()
}

impl Package<'_> {
    fn at(&self, keys: &[&str]) -> Option<&Value> {
        let (first, rest) = keys.split_first()?;
        rest.iter().try_fold(self.manifest.get(*first)?, |value, key| value.get(key))
    }

    fn name(&self) -> Option<&str> {
        self.at(&["package", "name"]).and_then(Value::as_str)
    }

    fn list(&self, keys: &[&str]) -> Vec<&str> {
        let list = self.at(keys).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn finding(&self, what: String) -> Finding {
        Finding::new(&format!("{}Cargo.toml", self.folder), 0, what)
    }

    /// Returns what is wrong with what the manifest tells the index.
    fn described(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let required = ["description", "version", "edition", "rust-version", "license", "readme"];
        let missing = required.iter().filter(|key| self.at(&["package", key]).is_none());
        wrong.extend(missing.map(|key| format!("no {key}: the index shows it")));
        let keywords = self.list(&["package", "keywords"]);
        if keywords.is_empty() || keywords.len() > KEYWORDS_MAX {
            wrong.push(format!("{} keywords: from 1 to {KEYWORDS_MAX}", keywords.len()));
        }
        let long = keywords.iter().filter(|keyword| keyword.len() > KEYWORD_LENGTH_MAX);
        wrong.extend(long.map(|keyword| format!("the keyword {keyword} is longer than {KEYWORD_LENGTH_MAX}")));
        let categories = self.list(&["package", "categories"]);
        if categories.is_empty() {
            wrong.push("no categories".to_owned());
        }
        let unknown = categories.iter().filter(|category| !CATEGORIES.contains(category));
        wrong.extend(unknown.map(|category| format!("the category {category} is not in the list of this rule")));
        let included = self.list(&["package", "include"]);
        let absent = ["/src/**", "/README.md", "/LICENSE-*"].into_iter().filter(|path| !included.contains(path));
        wrong.extend(absent.map(|path| format!("`include` lacks {path}: packages list what is in them")));
        wrong
    }

    /// Returns the packages of ours that the index must have first.
    fn needs(&self) -> Vec<String> {
        let targets = self.at(&["target"]).and_then(Value::as_table).into_iter().flat_map(Table::values);
        let tables = std::iter::once(&self.manifest).chain(targets.filter_map(Value::as_table));
        let mut needs = BTreeSet::new();
        for table in tables {
            for (section, is_dev) in
                [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
            {
                for (key, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
                    let name = value.get("package").and_then(Value::as_str).unwrap_or(key);
                    let path_alone = value.get("path").is_some() && value.get("version").is_none();
                    let ours = name == "millpond" || name.starts_with("millpond-");
                    // Cargo takes itself out of what a package's tests need.
                    if ours && !(is_dev && (path_alone || Some(name) == self.name())) {
                        needs.insert(name.to_owned());
                    }
                }
            }
        }
        needs.into_iter().collect()
    }
}

/// Returns the files that a source takes in, as they are written, and where.
fn taken_in(code: &str) -> Vec<(usize, &str)> {
    let each = TAKES_IN.iter().flat_map(|start| {
        code.match_indices(start).filter_map(|(offset, _)| {
            let rest = &code[offset + start.len()..];
            Some((offset, &rest[..rest.find('"')?]))
        })
    });
    each.collect()
}

/// Returns a path that is written relative to a file's folder, from the root of the repository.
fn resolved(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if !parts.is_empty() => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns whether one of the patterns stands for that path below the package: a whole folder, or a file by its name.
fn includes(patterns: &[&str], path: &str) -> bool {
    patterns.iter().filter_map(|pattern| pattern.strip_prefix('/')).any(|pattern| match pattern.strip_suffix("**") {
        Some(folder) => path.starts_with(folder),
        None => path == pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"
[package]
name = "millpond-a"
description = "A"
version = "1.0.0"
edition = "2024"
rust-version = "1.90"
license = "MIT OR Apache-2.0"
readme = "README.md"
keywords = ["gpu"]
categories = ["memory-management", "simulation"]
include = ["/src/**", "/README.md", "/LICENSE-*"]
"#;

    fn files(manifest: &str) -> Vec<TextFile> {
        let texts = [
            ("LICENSE-MIT", "MIT"),
            ("LICENSE-APACHE", "Apache"),
            ("crates/a/LICENSE-MIT", "MIT"),
            ("crates/a/LICENSE-APACHE", "Apache"),
            ("crates/a/Cargo.toml", manifest),
        ];
        texts.map(|(path, text)| TextFile::new(path, text)).into()
    }

    fn one(findings: &[Finding], part: &str) {
        assert!(findings.len() == 1 && findings[0].what.contains(part), "{part}: {findings:?}");
    }

    #[test]
    fn a_sound_package_passes_and_an_incomplete_one_is_found() {
        assert_eq!(packages_are_complete(&files(SOUND)), []);
        let cases = [
            ("readme = \"README.md\"\n", "", "no readme"),
            ("[\"gpu\"]", "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]", "6 keywords"),
            ("[\"gpu\"]", "[\"abcdefghijklmnopqrstu\"]", "longer than 20"),
            ("simulation", "simulations", "the category simulations"),
            ("\"/LICENSE-*\"", "", "lacks /LICENSE-*"),
        ];
        for (from, to, part) in cases {
            one(&packages_are_complete(&files(&SOUND.replace(from, to))), part);
        }
        let private = SOUND.replace("readme", "publish = false\nreadme").replace("simulation", "none");
        assert_eq!(packages_are_complete(&files(&private)), [], "what is not published may be as it likes");
    }

    #[test]
    fn a_licence_that_is_missing_or_altered_is_found() {
        let mut files = files(SOUND);
        files[2] = TextFile::new("crates/a/LICENSE-MIT", "mit");
        one(&packages_are_complete(&files), "LICENSE-MIT");
        files.remove(2);
        one(&packages_are_complete(&files), "LICENSE-MIT");
    }

    #[test]
    fn a_file_from_outside_the_package_is_found() {
        let with = |text: &str| {
            let mut files = files(SOUND);
            files.push(TextFile::new("crates/a/src/in/lib.rs", text));
            packages_stand_alone(&files)
        };
        for inside in
            ["include_str!(\"../../README.md\")", "include_bytes!(\"../b.bin\")", "// include_str!(\"../../c\")"]
        {
            assert_eq!(with(inside), [], "{inside}");
        }
        one(&with("\ninclude_bytes!(\"../../../../tests/b.bin\")"), "takes in tests/b.bin");
        one(&with("#[path = \"../../tests/b.rs\"] mod b;"), "takes in crates/a/tests/b.rs");
        assert_eq!(with("\ninclude_str!(\"../../d\")")[0].line, 2);
    }

    #[test]
    fn a_circle_and_a_private_dependency_are_found() {
        let order = |first: &str, second: &str| {
            let mut files = files(&format!("{SOUND}{first}"));
            let manifest = SOUND.replace("millpond-a", "millpond-b");
            files.push(TextFile::new("backends/b/Cargo.toml", &format!("{manifest}{second}")));
            packages_have_an_order(&files)
        };
        let (on_b, on_a) = ("[dependencies]\nmillpond-b.workspace = true\n", "millpond-a.workspace = true\n");
        let dev = format!("[dev-dependencies]\n{on_a}");
        let by_path = "[dev-dependencies]\nmillpond-a = { path = \"../../crates/a\" }\n";
        assert_eq!(order(on_b, ""), []);
        assert_eq!(order(on_b, by_path), []);
        assert_eq!(order(on_b, &dev).len(), 2);
        assert_eq!(order(on_b, &format!("[target.'cfg(unix)'.dependencies]\n{on_a}")).len(), 2);
        one(&order("[dependencies]\nmillpond-tests.workspace = true\n", ""), "millpond-tests, which is not published");
    }
}
