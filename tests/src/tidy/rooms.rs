//! The rooms of the core: who decides what, found by the folder names.

use std::collections::BTreeMap;

use super::Finding;
use crate::lexer::{line_of, words};
use crate::workspace::TextFile;

/// The folder of the policies.
const POLICIES: &str = "crates/core/src/policy/";

/// The lines outside of its folder that a policy needs: the module, the variant of the enum, the entry of the list.
const REGISTERED: usize = 3;

/// What else names a policy outside of its folder, with the reason.
const BESIDES: [(&str, usize, &str); 2] = [
    ("classic", 4, "its settings are public; it is a default of devices and of host memory, and what PyTorch is"),
    ("paged", 9, "its settings are public; it is a default; it has a ladder and phases of its own"),
];

/// Checks that a policy touches its folder and at most three lines elsewhere in the core, but for what is listed with a
/// reason.
pub fn policies_keep_to_their_rooms(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, kind) in rooms(files) {
        let own = format!("{POLICIES}{folder}/");
        let mut lines = Vec::new();
        let others =
            files.iter().filter(|file| file.path.starts_with("crates/core/src/") && !file.path.starts_with(&own));
        for file in others {
            let code = before_tests(&file.code);
            let names = words(code).filter(|(_, word)| *word == folder || *word == kind);
            let mut at: Vec<usize> = names.map(|(offset, _)| line_of(code, offset)).collect();
            at.dedup();
            lines.extend(at.into_iter().map(|line| (file.path.clone(), line)));
        }
        let besides = BESIDES.iter().find(|(name, ..)| *name == folder).map_or(0, |(_, lines, _)| *lines);
        if lines.len() > REGISTERED + besides {
            let what = format!(
                "the policy {folder} is named on {} lines outside of its folder, and may be on {}: {lines:?}",
                lines.len(),
                REGISTERED + besides
            );
            findings.push(Finding::new(&own, 0, what));
        }
    }
    findings
}

/// Returns the folders with a policy in them, and the name of its type.
fn rooms(files: &[TextFile]) -> BTreeMap<String, String> {
    let inside = files.iter().filter_map(|file| Some((file, file.path.strip_prefix(POLICIES)?.split_once('/')?.0)));
    let kind = |code: &str| {
        let at = code.find("impl Room for ")? + "impl Room for ".len();
        words(&code[at..]).next().map(|(_, name)| name.to_owned())
    };
    inside.filter_map(|(file, folder)| Some((folder.to_owned(), kind(&file.code)?))).collect()
}

/// Returns the code before the unit tests.
fn before_tests(code: &str) -> &str {
    code.find("#[cfg(test)]").map_or(code, |at| &code[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(elsewhere: &str) -> [TextFile; 2] {
        let room = "pub(super) struct Toy;\nimpl Room for Toy {}\nfn toy() {}\nfn more_toy(toy: Toy) {}";
        [
            TextFile::new("crates/core/src/policy/toy/mod.rs", room),
            TextFile::new("crates/core/src/policy/mod.rs", elsewhere),
        ]
    }

    #[test]
    fn three_lines_register_a_policy() {
        let registered = "mod toy;\nenum Policy {\n    Toy,\n}\nstatic ROOMS: [&dyn Room; 1] = [&toy::Toy];\n";
        assert_eq!(policies_keep_to_their_rooms(&files(registered)), []);
        let tested = format!("{registered}#[cfg(test)]\nmod tests {{ fn a(a: Toy) {{}} }}");
        assert_eq!(policies_keep_to_their_rooms(&files(&tested)), []);
        let more = format!("{registered}fn is_toy(policy: Policy) -> bool {{ policy == Policy::Toy }}");
        assert_eq!(policies_keep_to_their_rooms(&files(&more)).len(), 1);
    }
}
