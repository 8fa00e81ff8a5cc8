//! Where packages come from: the public index, and nowhere else.

use super::Finding;
use crate::workspace::TextFile;

/// Checks that no manifest or cargo configuration names a registry or a git repository of its own, and that the lock
/// file has only packages of ours and of the public index. So a fresh checkout builds anywhere, and no private host is
/// named.
pub fn package_origins(files: &[TextFile]) -> Vec<Finding> {
    let public = concat!("registry+https://github.com/rust-lang/", "crates", ".io-index");
    let mut findings = Vec::new();
    for file in files {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let settings = file.is_manifest() || file.path.contains(".cargo/config");
        for (index, line) in file.text.lines().enumerate() {
            let line = line.trim();
            if name == "Cargo.lock" {
                let foreign = line.strip_prefix("source = ").filter(|source| source.trim_matches('"') != public);
                let what = foreign.map(|source| format!("a package from {source}: lock only the public index"));
                findings.extend(what.map(|what| Finding::new(&file.path, index + 1, what)));
            } else if settings && names_an_origin(line) {
                let what = "names a registry or a repository of its own: use the public index or a path";
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

fn names_an_origin(line: &str) -> bool {
    let section = ["[source.", "[source]", "[registries", "[registry"].iter().any(|start| line.starts_with(start));
    let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    let key = ["registry=", "registry-index=", "git=", "replace-with="].iter().any(|key| {
        squeezed.starts_with(key) || squeezed.contains(&format!("{{{key}")) || squeezed.contains(&format!(",{key}"))
    });
    !line.starts_with('#') && (section || key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_index_and_paths_are_allowed() {
        let lock = concat!("source = \"registry+https://github.com/rust-lang/", "crates", ".io-index\"\n");
        let manifest = "[dependencies]\na = \"1\"\nb = { path = \"../b\", version = \"1\" }\n# git = \"x\"\n";
        assert_eq!(package_origins(&[TextFile::new("Cargo.lock", lock), TextFile::new("Cargo.toml", manifest)]), []);
    }

    #[test]
    fn other_origins_are_found() {
        let cases = [
            ("Cargo.lock", "[[package]]\nsource = \"sparse+https://example.com/index/\"\n"),
            ("tests/Cargo.toml", "[dependencies]\na = { version = \"1\", registry = \"mine\" }\n"),
            ("Cargo.toml", "[workspace.dependencies]\na = { git = \"https://example.com/a\" }\n"),
            (".cargo/config.toml", "\n[source.crates]\n"),
            ("tests/.cargo/config.toml", "\nreplace-with = \"mine\"\n"),
        ];
        for (path, text) in cases {
            let found = package_origins(&[TextFile::new(path, text)]);
            assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2], "{text}: {found:?}");
        }
    }
}
