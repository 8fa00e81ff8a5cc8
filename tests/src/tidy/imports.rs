//! Which files of a package name which others, by the paths in their code.

use std::collections::{BTreeMap, BTreeSet};

use super::purity::without_tests;
use crate::lexer::words;
use crate::workspace::TextFile;

/// A module's path from the crate's root: empty for the root itself.
type Module = Vec<String>;

/// The files of a package, and for each the files that it names outside its tests.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// From the path of a file, without the package's folder, to those of the files that it names.
    pub(super) named: BTreeMap<String, BTreeSet<String>>,
}

impl Imports {
    /// Reads the files below a folder of sources, which ends with `/`. Files that hold only tests are left out.
    pub(super) fn read(files: &[TextFile], sources: &str) -> Imports {
        let is_test = |path: &str| path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let below = files.iter().filter(|file| file.is_rust());
        let below: Vec<(&str, &TextFile)> = below
            .filter_map(|file| Some((file.path.strip_prefix(sources)?, file)))
            .filter(|(path, _)| !is_test(path))
            .collect();
        let modules: BTreeMap<Module, &str> = below.iter().map(|(path, _)| (module(path), *path)).collect();
        let named = below.iter().map(|(path, file)| {
            let own = module(path);
            let paths = paths(&without_tests(&file.code), &|name| modules.contains_key(&child(&own, name)));
            let to = paths.iter().filter_map(|path| resolve(&modules, &own, path));
            ((*path).to_owned(), to.filter(|to| to != path).map(str::to_owned).collect())
        });
        Imports { named: named.collect() }
    }

    /// Returns circles of files that name each other: for each file that can be come back to, the shortest way, and of
    /// circles through the same files only the first.
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        let mut found: Vec<Vec<String>> = Vec::new();
        for start in self.named.keys() {
            if found.iter().flatten().any(|file| file == start) {
                continue;
            }
            found.extend(self.way_back(start));
        }
        found
    }

    /// Returns the shortest way from a file to itself.
    fn way_back(&self, start: &str) -> Option<Vec<String>> {
        let mut ways = vec![vec![start.to_owned()]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                for next in self.named.get(way.last()?).into_iter().flatten() {
                    if next == start {
                        return Some(way);
                    }
                    if seen.insert(next.clone()) {
                        longer.push(way.iter().cloned().chain([next.clone()]).collect());
                    }
                }
            }
            ways = longer;
        }
        None
    }
}

/// Returns the module that a file is: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    let parts: Vec<&str> = path.split('/').filter(|part| !["mod", "lib"].contains(part)).collect();
    parts.into_iter().map(str::to_owned).collect()
}

fn child(of: &[String], name: &str) -> Module {
    of.iter().cloned().chain([name.to_owned()]).collect()
}

/// Returns the file that a path of a module names: that of the innermost module on it. `None` for paths into other
/// packages.
fn resolve<'m>(modules: &BTreeMap<Module, &'m str>, own: &[String], path: &[String]) -> Option<&'m str> {
    let mut at: Module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => own.to_owned(),
        "super" => own.split_last()?.1.to_owned(),
        name if modules.contains_key(&child(own, name)) => child(own, name),
        _ => return None,
    };
    for part in &path[1..] {
        match part.as_str() {
            "super" => drop(at.pop()),
            _ if modules.contains_key(&child(&at, part)) => at.push(part.clone()),
            _ => break,
        }
    }
    modules.get(&at).copied()
}

/// Returns the paths in code: those of each import, taken apart, and those within the rest that begin with `crate`,
/// `self`, `super` or a module that is a child of this one.
fn paths(code: &str, is_child: &dyn Fn(&str) -> bool) -> Vec<Vec<String>> {
    let (mut paths, mut rest, mut from) = (Vec::new(), String::new(), 0);
    for (offset, _) in words(code).filter(|(_, word)| *word == "use") {
        let begin = offset + "use".len();
        // A `use<..>` among bounds is no import.
        if offset < from || code[begin..].trim_start().starts_with('<') {
            continue;
        }
        let end = code[begin..].find(';').map_or(code.len(), |end| begin + end);
        tree(&code[begin..end], &[], &mut paths);
        rest.push_str(&code[from..offset]);
        from = end;
    }
    rest.push_str(&code[from..]);
    let is_start = |word: &str| ["crate", "self", "super"].contains(&word) || is_child(word);
    for (offset, word) in words(&rest).filter(|(_, word)| is_start(word)) {
        let is_inside = rest[..offset].trim_end().ends_with("::");
        let behind = &rest[offset + word.len()..];
        if !is_inside && behind.starts_with("::") {
            let end = behind.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(behind.len());
            let parts = behind[..end].split("::").filter(|part| !part.is_empty());
            paths.push([word].into_iter().chain(parts).map(str::to_owned).collect());
        }
    }
    paths
}

/// Adds the paths of an import, of which `before` has been read: `a::{b, c::d}` is two paths.
fn tree(text: &str, before: &[String], paths: &mut Vec<Vec<String>>) {
    let text = text.trim();
    let Some(open) = text.find('{') else {
        let parts = text.split("::").map(|part| part.split_whitespace().next().unwrap_or("").to_owned());
        paths.push(before.iter().cloned().chain(parts).collect());
        return;
    };
    let lead = text[..open].split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
    let lead: Vec<String> = before.iter().cloned().chain(lead).collect();
    // The group ends the import, so that its brace is the last.
    let inside = &text[open + 1..text.rfind('}').unwrap_or(text.len())];
    let (mut depth, mut from) = (0_usize, 0);
    for (at, mark) in inside.char_indices().chain([(inside.len(), ',')]) {
        match mark {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inside[from..at].trim().is_empty() {
                    tree(&inside[from..at], &lead, paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(sources: &[(&str, &str)]) -> Imports {
        let files: Vec<TextFile> =
            sources.iter().map(|(path, text)| TextFile::new(&format!("backends/x/src/{path}"), text)).collect();
        Imports::read(&files, "backends/x/src/")
    }

    fn named(imports: &Imports, path: &str) -> Vec<String> {
        imports.named[path].iter().cloned().collect()
    }

    #[test]
    fn every_way_to_name_a_file_is_found() {
        let text = "use std::{fmt, time::Duration};
            use super::{B, low::Low};
            pub(crate) use crate::{a::{x::X, y}, z};
            use inner::Inner;
            fn f() -> crate::deep::Deep { super::other::go(std::low::not()); self::inner::go() }
            // crate::comment::No
            fn g(text: &str) -> impl Sized + use<'_> { \"crate::text::No\" }
            #[cfg(test)]\nmod tests { use crate::test::No; }";
        let others = ["low", "other"].map(|name| format!("b/{name}.rs"));
        let roots = ["z", "deep", "comment", "text", "test"].map(|name| format!("{name}.rs"));
        let mut sources = vec![("b/c/mod.rs", text), ("b/mod.rs", ""), ("b/c/inner.rs", "")];
        sources.extend([("a/mod.rs", ""), ("a/x.rs", ""), ("a/y.rs", "")]);
        sources.extend(others.iter().chain(&roots).map(|path| (path.as_str(), "")));
        let expected = ["a/x.rs", "a/y.rs", "b/c/inner.rs", "b/low.rs", "b/mod.rs", "b/other.rs", "deep.rs", "z.rs"];
        assert_eq!(named(&imports(&sources), "b/c/mod.rs"), expected);
    }

    #[test]
    fn a_name_of_the_root_is_a_name_of_lib() {
        let imports = imports(&[("lib.rs", "mod a;"), ("a.rs", "use crate::Thing;")]);
        assert_eq!(named(&imports, "a.rs"), ["lib.rs"]);
    }

    #[test]
    fn a_circle_is_found_once_and_a_chain_is_none() {
        let sources = [("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::d::D;")];
        assert!(imports(&[sources[0], sources[1], sources[2], ("d.rs", "")]).circles().is_empty());
        let round = imports(&[sources[0], sources[1], sources[2], ("d.rs", "use super::b::B;")]);
        assert_eq!(round.circles(), [["b.rs", "c.rs", "d.rs"]]);
        let folder = imports(&[("a/mod.rs", "mod b; use b::B;"), ("a/b.rs", "use super::A;")]);
        assert_eq!(folder.circles(), [["a/b.rs", "a/mod.rs"]]);
    }
}
