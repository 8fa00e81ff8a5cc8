//! What the core and the contract must not know.

use super::Finding;
use crate::lexer::{closing_brace, line_of, words};
use crate::workspace::TextFile;

/// Names that would give the core a driver, a clock, a lock, an order that differs between runs, or the host.
const IMPURE: [&str; 10] = [
    "HashMap",
    "HashSet",
    "RandomState",
    "Instant",
    "SystemTime",
    "Mutex",
    "RwLock",
    "Condvar",
    "OnceLock",
    "thread_local",
];

/// What counts for tests of growth, under a feature, on each thread by itself. No decision rests on it.
const COUNTER: &str = "crates/core/src/looks.rs";

/// Vendors and interfaces, in lower case. None is part of an ordinary word.
const VENDORS: [&str; 12] =
    ["cuda", "vulkan", "wgpu", "webgpu", "nvidia", "radeon", "rocm", "metal", "directx", "d3d12", "opencl", "opengl"];

/// Checks that the core decides and does nothing else: outside its unit tests it names neither the trait of the
/// contract nor anything in `IMPURE`, no atomics and no standard library, and it declares so at its top. `COUNTER` is
/// left out.
pub fn core_is_pure(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with("crates/core/src/")) {
        if file.path == COUNTER {
            continue;
        }
        if file.path == "crates/core/src/lib.rs" {
            for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
                if !file.code.contains(attribute) {
                    findings.push(Finding::new(&file.path, 0, format!("the core must declare {attribute}")));
                }
            }
        }
        let code = without_tests(&file.code);
        for (offset, word) in words(&code) {
            let contract = word == "millpond_backend" && names_the_trait(&code[offset..], &code[..offset]);
            let standard = word == "std" && names_a_path(&code, offset);
            if contract || standard || IMPURE.contains(&word) || word.starts_with("Atomic") {
                let word = if contract { "the trait Backend, nor open a way to it" } else { word };
                let what = format!("the core must not name {word}: return the decision as data, the shell performs it");
                findings.push(Finding::new(&file.path, line_of(&code, offset), what));
            }
        }
    }
    findings
}

/// Checks that the contract speaks of devices in general: no name of a vendor or of one interface outside its comments.
pub fn contract_names_no_vendor(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with("crates/backend/src/")) {
        for (offset, word) in words(&file.uncommented) {
            if VENDORS.iter().any(|vendor| word.to_lowercase().contains(vendor)) {
                let what = format!("the contract must not name {word}: say what is true of every device like it");
                findings.push(Finding::new(&file.path, line_of(&file.text, offset), what));
            }
        }
    }
    findings
}

/// Returns whether the path or import that starts with the contract's name reaches its trait, by name, by a glob or by
/// giving the contract another name. The word alone proves nothing: a setting and a tick's closing have it too.
fn names_the_trait(from: &str, before: &str) -> bool {
    let imported = before.trim_end().ends_with("use");
    let end = if imported { from.find(';').unwrap_or(from.len()) } else { from.len() };
    let mut path = words(&from[..end]).skip(1);
    if imported {
        from[..end].contains('*') || path.any(|(_, word)| word == "Backend" || word == "as")
    } else {
        path.next().is_some_and(|(offset, word)| from[..offset].ends_with("::") && word == "Backend")
    }
}

/// Returns whether the word at `offset` starts a path or is in an import.
fn names_a_path(code: &str, offset: usize) -> bool {
    let before = code[..offset].trim_end();
    code[offset..].trim_start_matches(char::is_alphanumeric).trim_start().starts_with("::")
        || before.ends_with("use")
        || before.ends_with("crate")
}

/// Returns the code with every item under `#[cfg(test)]` blank. Lines stay where they are.
pub(super) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let (mut kept, mut at) = (String::with_capacity(code.len()), 0);
    while let Some(found) = code[at..].find(MARK) {
        let start = at + found;
        let item = start + MARK.len();
        let end = match code[item..].find([';', '{']).map(|first| item + first) {
            Some(brace) if code.as_bytes()[brace] == b'{' => closing_brace(code, brace),
            Some(semicolon) => semicolon + 1,
            None => code.len(),
        };
        kept.push_str(&code[at..start]);
        kept.extend(code[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    kept.push_str(&code[at..]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &str = "#![no_std]\n#![forbid(unsafe_code)]\n";

    fn core(text: &str) -> Vec<Finding> {
        core_is_pure(&[TextFile::new("crates/core/src/lib.rs", &format!("{TOP}{text}"))])
    }

    #[test]
    fn pure_code_passes() {
        let text = "//! Knows no Backend, no Instant.\nuse alloc::vec::Vec;\nuse millpond_backend::{Caps, Closing};
            fn std_bytes(_: millpond_backend::Tick) -> Closing { Closing::Backend }
            #[cfg(test)]\nextern crate std;\n#[cfg(test)]\nmod tests { use std::collections::HashMap; }\n";
        assert_eq!(core(text), []);
        assert_eq!(core_is_pure(&[TextFile::new("crates/millpond/src/lib.rs", "use std::sync::Mutex;")]), []);
    }

    #[test]
    fn impure_names_are_found_where_they_stand() {
        let cases = [
            "use millpond_backend::{Backend, Caps};",
            "use millpond_backend::*;",
            "use millpond_backend as contract;",
            "fn a<B: millpond_backend::Backend>() {}",
            "extern crate std;",
            "use std as host;",
            "fn a() -> std::string::String {}",
            "type A = HashMap<u32, u32>;",
            "struct A(HashSet<u32>);",
            "fn a() { Instant::now(); }",
            "fn a(_: SystemTime) {}",
            "static A: Mutex<u32> = Mutex::new(0);",
            "use spin::RwLock;",
            "use core::sync::atomic::AtomicU64;",
        ];
        for text in cases {
            let found = core(&format!("{text}\n#[cfg(test)]\nmod tests {{}}\n"));
            assert!(!found.is_empty() && found.iter().all(|finding| finding.line == 3), "{text}: {found:?}");
        }
        assert_eq!(core("#[cfg(test)]\nmod tests {}\nuse std::fmt;\n").len(), 1, "code behind the tests counts");
    }

    #[test]
    fn a_missing_declaration_is_found() {
        let found =
            core_is_pure(&[TextFile::new("crates/core/src/lib.rs", "// #![no_std]\n#![forbid(unsafe_code)]\n")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("no_std"), "{}", found[0]);
    }

    #[test]
    fn a_vendor_in_the_contract_is_found_in_names_and_strings_but_not_in_comments() {
        let contract = |text| contract_names_no_vendor(&[TextFile::new("crates/backend/src/caps.rs", text)]);
        assert_eq!(contract("/// CUDA has it.\nstruct Caps; // not Vulkan\n"), []);
        assert_eq!(contract("\nstruct CudaCaps;")[0].line, 2);
        assert_eq!(contract("const NAME: &str = \"vulkan\";").len(), 1);
        assert_eq!(contract("fn is_nvidia() {}").len(), 1);
    }
}
