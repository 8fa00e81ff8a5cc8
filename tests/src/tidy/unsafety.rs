//! Unsafe code is allowed in certain files only, its rooms, and every unsafe block needs a reason.

use super::Finding;
use crate::lexer::{line_of, words};
use crate::workspace::TextFile;

/// The number of lines above an unsafe block among which its reason has to begin.
const REASON_LINES: usize = 5;

/// What a file may use `unsafe` for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Anything.
    Open,
    /// Unsafe traits, methods and functions, but no unsafe block.
    Declarations,
}

/// The rooms, by the start of their paths.
const ROOMS: [(&str, Room); 28] = [
    ("backends/", Room::Open),
    ("benches/trial/", Room::Open),
    ("crates/any/src/contract.rs", Room::Open),
    ("crates/any/tests/any/source.rs", Room::Open),
    ("crates/capi/", Room::Open),
    ("crates/conformance/src/contract/bench.rs", Room::Open),
    ("crates/conformance/tests/checks/broken/", Room::Open),
    ("crates/millpond/src/raw.rs", Room::Open),
    ("crates/millpond/src/raw/", Room::Open),
    ("crates/replay/src/own.rs", Room::Open),
    ("engines/candle/examples/", Room::Open),
    ("engines/candle/src/hook.rs", Room::Open),
    ("engines/candle/src/rows.rs", Room::Open),
    ("engines/candle/tests/", Room::Open),
    ("engines/vulkano/src/memory.rs", Room::Open),
    ("engines/vulkano/tests/", Room::Open),
    ("engines/wgpu/src/", Room::Open),
    ("examples/src/cuda_kernel.rs", Room::Open),
    ("examples/src/cuda_slices.rs", Room::Open),
    ("examples/src/engine/cuda.rs", Room::Open),
    ("examples/own_backend/src/lib.rs", Room::Open),
    ("examples/src/engine/vulkan", Room::Open),
    ("examples/src/vulkan_", Room::Open),
    ("tests/loom/tests/", Room::Open),
    ("tests/cuda-driver/src/ffi", Room::Open),
    ("tests/cuda-driver/tests/", Room::Open),
    ("tests/tests/growth/counting.rs", Room::Open),
    ("crates/backend/", Room::Declarations),
];

/// Checks that `unsafe` is used in its rooms only, and that no other file lifts the lint against it.
pub fn unsafe_in_its_rooms(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let room = ROOMS.iter().find(|(start, _)| file.path.starts_with(start)).map(|(_, room)| *room);
        for (offset, word) in words(&file.code) {
            let what = match (word, room) {
                ("unsafe", None) => "unsafe outside its rooms: ask the module that has it",
                ("unsafe", Some(Room::Declarations)) if opens(&file.code, offset, "{") => "this room only declares",
                ("unsafe_code", None) if lifts(&file.code, offset) => "the lint is lifted outside the rooms of unsafe",
                _ => continue,
            };
            findings.push(Finding::new(&file.path, line_of(&file.code, offset), what));
        }
    }
    findings
}

/// Checks that every unsafe block and implementation has a comment in the five lines above that names the fact it rests
/// on.
pub fn unsafe_is_justified(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let comments: Vec<&str> = file.comments.lines().collect();
        for (offset, _) in words(&file.code).filter(|(_, word)| *word == "unsafe") {
            let line = line_of(&file.code, offset);
            let claims = opens(&file.code, offset, "{") || opens(&file.code, offset, "impl");
            let above = &comments[line.saturating_sub(REASON_LINES + 1)..line];
            if claims && !above.iter().any(|comment| comment.contains("SAFETY:")) {
                let what = "no SAFETY comment in the five lines above: name the fact and who guarantees it";
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// Returns whether `token` follows the word `unsafe` at `offset`.
fn opens(code: &str, offset: usize, token: &str) -> bool {
    code[offset + "unsafe".len()..].trim_start().starts_with(token)
}

/// Returns whether the attribute of the lint's name at `offset` allows or expects the lint, and does not deny it.
fn lifts(code: &str, offset: usize) -> bool {
    let attribute = code[..offset].rfind('#').map_or("", |start| &code[start..offset]);
    ["allow", "expect", "warn"].iter().any(|level| attribute.contains(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "\n// SAFETY: the caller says so.\nfn a() { unsafe { b() } }\n";

    fn rooms(path: &str, text: &str) -> Vec<Finding> {
        unsafe_in_its_rooms(&[TextFile::new(path, text)])
    }

    #[test]
    fn rooms_are_open_and_the_rest_is_not() {
        for path in ["backends/sim/src/lib.rs", "crates/capi/src/lib.rs", "crates/millpond/src/raw.rs"] {
            assert_eq!(rooms(path, BLOCK), [], "{path}");
        }
        for path in
            ["crates/millpond/src/buffer.rs", "crates/core/src/lib.rs", "crates/cli/src/main.rs", "tests/src/a.rs"]
        {
            assert_eq!(rooms(path, BLOCK).len(), 1, "{path}");
        }
        assert_eq!(rooms("crates/millpond/src/buffer.rs", "// unsafe\nconst A: &str = \"unsafe { }\";"), []);
    }

    #[test]
    fn a_package_may_have_a_room_and_keep_the_rest_closed() {
        for path in
            ["tests/cuda-driver/src/ffi.rs", "tests/cuda-driver/src/ffi/reserve.rs", "tests/cuda-driver/tests/a.rs"]
        {
            assert_eq!(rooms(path, BLOCK), [], "{path}");
        }
        assert_eq!(rooms("tests/cuda-driver/src/driver/lane.rs", BLOCK).len(), 1);
    }

    #[test]
    fn the_contract_declares_and_does_nothing() {
        assert_eq!(rooms("crates/backend/src/a.rs", "pub unsafe trait A { unsafe fn b(); }"), []);
        assert_eq!(rooms("crates/backend/src/a.rs", BLOCK)[0].line, 3);
    }

    #[test]
    fn lifting_the_lint_is_found() {
        assert_eq!(rooms("crates/cli/src/main.rs", "#![allow(dead_code, unsafe_code)]").len(), 1);
        assert_eq!(rooms("crates/cli/src/main.rs", "#[expect(unsafe_code)]").len(), 1);
        assert_eq!(rooms("crates/cli/src/main.rs", "#![forbid(unsafe_code)]"), []);
        assert_eq!(rooms("crates/capi/src/lib.rs", "#![allow(unsafe_code)]"), []);
    }

    #[test]
    fn a_block_without_a_reason_is_found() {
        let check = |text: &str| unsafe_is_justified(&[TextFile::new("backends/sim/src/lib.rs", text)]);
        assert_eq!(check(BLOCK), []);
        assert_eq!(check("// SAFETY: one.\n//\n//\n//\n//\nunsafe impl Send for A {}"), []);
        assert_eq!(check("// SAFETY: one.\n//\n//\n//\n//\n//\nunsafe impl Send for A {}")[0].line, 7);
        assert_eq!(check("let a = \"SAFETY:\";\nunsafe {\n}\n")[0].line, 2);
        assert_eq!(check("unsafe fn a() {}\nunsafe trait B {}\n"), [], "a declaration claims nothing");
    }
}
