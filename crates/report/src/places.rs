//! Which frames are of a program itself, and which of a library that it calls.

use millpond_trace::Details;

use crate::owners::Block;

/// What the path of a library's file has in it.
const LIBRARY_PARTS: [&str; 5] = ["site-packages/", "dist-packages/", "lib/python", "/rustc/", ".cargo/registry/"];

/// What a frame of a library written in C++ or of the interpreter has in it.
const NATIVE_PARTS: [&str; 9] = [".cpp:", ".cc:", ".cu:", ".h:", ".hpp:", ".so", "::", "<frozen ", "??"];

/// Returns whether a frame looks like one of a library's, by its text. This is a guess: a frame has no other mark.
pub(crate) fn is_library(frame: &str) -> bool {
    LIBRARY_PARTS.iter().any(|part| frame.contains(part)) || NATIVE_PARTS.iter().any(|part| frame.contains(part))
}

/// Returns the text of the place that allocates a block: the innermost frame that is not a library's, or else the
/// innermost one, or else the label. Costs a search from the innermost frame outwards.
pub(crate) fn place<'a>(block: &Block, details: &'a Details) -> Option<&'a str> {
    let own = |stack| details.frames_of(stack).find(|frame| !is_library(frame));
    let of_stack = block.stack.and_then(|stack| own(stack).or_else(|| details.frames_of(stack).next()));
    of_stack.or_else(|| Some(details.label_text(block.label?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_libraries_are_known_by_their_files() {
        for own in ["train.py:12 forward", "benches/torch/model.py:40 __call__", "src/engine.rs:7", "?"] {
            assert!(!is_library(own), "{own}");
        }
        for library in [
            "site-packages/transformers/trainer.py:9 step",
            "lib/python3.12/threading.py:1012 run",
            "at::native::empty_cuda",
            "CUDACachingAllocator.cpp:0 malloc",
            "<frozen runpy>:88 _run_code",
        ] {
            assert!(is_library(library), "{library}");
        }
    }
}
