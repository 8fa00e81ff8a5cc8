//! The stack: each package may name only those below it.

use toml::{Table, Value};

use super::Finding;
use crate::workspace::TextFile;

/// The packages of ours that a package may have under `[dependencies]`. Development dependencies are free: a test may
/// name any package.
const LAYERS: [(&str, &[&str]); 18] = [
    ("millpond-backend", &[]),
    ("millpond-kit", &["millpond-backend"]),
    ("millpond-core", &["millpond-backend"]),
    ("millpond", &["millpond-core", "millpond-backend"]),
    ("millpond-trace", &[]),
    ("millpond-snapshot", &["millpond", "millpond-trace"]),
    ("millpond-import", &["millpond-snapshot", "millpond-trace"]),
    ("millpond-replay", &["millpond", "millpond-sim", "millpond-trace", "millpond-backend"]),
    ("millpond-report", &["millpond-replay", "millpond-trace", "millpond", "millpond-backend"]),
    (
        "millpond-conformance",
        &[
            "millpond-replay",
            "millpond-trace",
            "millpond",
            "millpond-core",
            "millpond-backend",
            "millpond-sim",
            "millpond-cuda",
            "millpond-vulkan",
            "millpond-wgpu",
        ],
    ),
    ("millpond-sim", &["millpond-backend", "millpond-kit"]),
    ("millpond-cuda", &["millpond", "millpond-backend", "millpond-kit"]),
    ("millpond-vulkan", &["millpond-backend", "millpond-kit"]),
    ("millpond-wgpu", &["millpond-backend", "millpond-kit", "millpond-vulkan"]),
    ("millpond-lent", &["millpond", "millpond-wgpu"]),
    (
        "millpond-any",
        &["millpond", "millpond-backend", "millpond-sim", "millpond-cuda", "millpond-vulkan", "millpond-wgpu"],
    ),
    (
        "millpond-capi",
        &[
            "millpond",
            "millpond-core",
            "millpond-backend",
            "millpond-sim",
            "millpond-cuda",
            "millpond-trace",
            "millpond-replay",
        ],
    ),
    (
        "millpond-cli",
        &[
            "millpond-report",
            "millpond-replay",
            "millpond-import",
            "millpond-snapshot",
            "millpond-trace",
            "millpond",
            "millpond-core",
            "millpond-backend",
            "millpond-any",
            "millpond-conformance",
            "millpond-sim",
            "millpond-cuda",
            "millpond-vulkan",
            "millpond-wgpu",
        ],
    ),
];

/// Member packages beside the stack: they may name everything, and nothing in the stack may name them.
const BESIDE: [&str; 4] = ["millpond-tests", "millpond-benches", "millpond-examples", "millpond-cuda-driver"];

/// Checks that every package depends only on packages below it, as the table `LAYERS` says, and that every package is
/// in the table.
pub fn layer_order(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_manifest()) {
        match file.text.parse::<Table>() {
            Ok(manifest) => check(&file.path, &manifest, &mut findings),
            Err(error) => findings.push(Finding::new(&file.path, 0, format!("not a manifest: {error}"))),
        }
    }
    findings
}

fn check(path: &str, manifest: &Table, findings: &mut Vec<Finding>) {
    let package = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    let Some(package) = package.filter(|name| !BESIDE.contains(name)) else { return };
    let stacked = path.starts_with("crates/") || path.starts_with("backends/");
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == package) else {
        if stacked {
            let what = format!("{package} has no place in the stack: add it to the table of layers");
            findings.push(Finding::new(path, 0, what));
        }
        return;
    };
    for name in dependencies(manifest).filter(|name| ours(name) && !allowed.contains(&name.as_str())) {
        let what = format!("{package} must not depend on {name}: it may name only [{}]", allowed.join(", "));
        findings.push(Finding::new(path, 0, what));
    }
}

fn ours(name: &str) -> bool {
    name == "millpond" || name.starts_with("millpond-")
}

/// Returns the packages under `[dependencies]` and `[build-dependencies]`, for every target, whatever name they are
/// given.
fn dependencies(manifest: &Table) -> impl Iterator<Item = String> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    tables
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|key| table.get(key)))
        .filter_map(|section| section.and_then(Value::as_table))
        .flatten()
        .map(|(name, value)| value.get("package").and_then(Value::as_str).unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(path: &str, package: &str, rest: &str) -> TextFile {
        TextFile::new(path, &format!("[package]\nname = \"{package}\"\n{rest}"))
    }

    #[test]
    fn looking_down_is_allowed() {
        let files = [
            manifest("crates/core/Cargo.toml", "millpond-core", "[dependencies]\nmillpond-backend.workspace = true\n"),
            manifest("crates/core/Cargo.toml", "millpond-core", "[dev-dependencies]\nmillpond-sim.workspace = true\n"),
            manifest("tests/Cargo.toml", "millpond-tests", "[dependencies]\nmillpond-cli.workspace = true\n"),
            TextFile::new("Cargo.toml", "[workspace]\nmembers = []\n"),
            TextFile::new("crates/core/src/lib.rs", "[dependencies]"),
        ];
        assert_eq!(layer_order(&files), []);
    }

    #[test]
    fn looking_up_or_sideways_is_found_in_every_disguise() {
        let up = "[dependencies]\nmillpond.workspace = true\n";
        let renamed = "[dependencies]\npond = { package = \"millpond\", path = \"../millpond\" }\n";
        let target = "[target.'cfg(unix)'.dependencies]\nmillpond = \"1\"\n";
        let build = "[build-dependencies]\nmillpond = { path = \"../millpond\" }\n";
        for rest in [up, renamed, target, build] {
            let found = layer_order(&[manifest("crates/core/Cargo.toml", "millpond-core", rest)]);
            assert_eq!(found.len(), 1, "{rest}: {found:?}");
            assert!(found[0].what.contains("must not depend on millpond:"), "{}", found[0]);
        }
        let sideways = "[dependencies]\nmillpond-sim.workspace = true\n";
        assert_eq!(layer_order(&[manifest("backends/cuda/Cargo.toml", "millpond-cuda", sideways)]).len(), 1);
        let beside = "[dependencies]\nmillpond-tests.workspace = true\n";
        assert_eq!(layer_order(&[manifest("crates/cli/Cargo.toml", "millpond-cli", beside)]).len(), 1);
    }

    #[test]
    fn a_package_outside_the_table_is_found() {
        assert_eq!(layer_order(&[manifest("crates/extra/Cargo.toml", "millpond-extra", "")]).len(), 1);
        assert_eq!(layer_order(&[TextFile::new("crates/core/Cargo.toml", "[package")]).len(), 1);
    }
}
