//! Lock files of workspaces that the tests do not build.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::Finding;
use crate::workspace::TextFile;

/// Checks that each lock file names the dependencies that our manifests have. Cargo refuses one that is out of date
/// where it is told to keep to it, and only the root's is built with every change.
pub fn locks_are_up_to_date(files: &[TextFile]) -> Vec<Finding> {
    let parsed = |file: &TextFile| file.text.parse::<Table>().ok();
    let manifests = files.iter().filter(|file| file.is_manifest()).filter_map(parsed);
    let packages: BTreeMap<String, Table> = manifests
        .filter_map(|manifest| Some((manifest.get("package")?.get("name")?.as_str()?.to_owned(), manifest)))
        .collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("/Cargo.lock")) {
        let lock = parsed(file).unwrap_or_default();
        for locked in lock.get("package").and_then(Value::as_array).into_iter().flatten() {
            let name = locked.get("name").and_then(Value::as_str).unwrap_or_default();
            if let Some(manifest) = packages.get(name).filter(|_| locked.get("source").is_none()) {
                let what = |what| Finding::new(&file.path, 0, format!("{name}: {what}: let cargo write it anew"));
                findings.extend(differences(locked, manifest).into_iter().map(what));
            }
        }
    }
    findings
}

/// Returns in what the dependencies of a locked package differ from those of its manifest. Optional ones may be left
/// out. Those of tests are locked only for the workspace's own packages.
fn differences(locked: &Value, manifest: &Table) -> Vec<String> {
    let locked = locked.get("dependencies").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let locked: BTreeSet<&str> = locked.filter_map(|entry| entry.split(' ').next()).collect();
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let targets: Vec<&Table> = targets.filter_map(|(_, target)| target.as_table()).collect();
    let tables = targets.into_iter().chain([manifest]);
    let all = tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)));
    let all: Vec<(&str, &Value)> =
        all.flatten().filter_map(Value::as_table).flatten().map(|(k, v)| (&**k, v)).collect();
    let is_optional = |wanted: &Value| wanted.get("optional").and_then(Value::as_bool) == Some(true);
    let lacking = all.iter().filter(|(name, wanted)| !is_optional(wanted) && !locked.contains(name));
    let lacking = lacking.map(|(name, _)| format!("{name} is not locked"));
    let of_tests = manifest.get("dev-dependencies").and_then(Value::as_table).into_iter().flatten();
    let names: BTreeSet<&str> = all.iter().map(|(name, _)| *name).chain(of_tests.map(|(name, _)| &**name)).collect();
    lacking.chain(locked.difference(&names).map(|name| format!("{name} is locked and not asked for"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lock: &str) -> Vec<String> {
        let manifest = "[package]\nname = \"ours\"\n\
            [dependencies]\na = \"1\"\nb = { version = \"1\", optional = true }\n\
            [target.'cfg(unix)'.dependencies]\nc = \"1\"\n[dev-dependencies]\nd = \"1\"\n";
        let files = [TextFile::new("crates/ours/Cargo.toml", manifest), TextFile::new("engines/x/Cargo.lock", lock)];
        locks_are_up_to_date(&files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn what_a_lock_lacks_or_has_besides_is_found() {
        let lock = |list: &str| format!("[[package]]\nname = \"ours\"\ndependencies = [{list}]\n");
        assert_eq!(found(&lock("\"a\", \"c 1.0.0\"")), [""; 0]);
        assert_eq!(found(&lock("\"a\", \"b\", \"c\"")), [""; 0]);
        assert_eq!(found(&lock("\"a\", \"c\", \"d\"")), [""; 0]);
        assert_eq!(found(&lock("\"a\"")), ["ours: c is not locked: let cargo write it anew"]);
        let besides = found(&lock("\"a\", \"c\", \"e\""));
        assert_eq!(besides, ["ours: e is locked and not asked for: let cargo write it anew"]);
        assert_eq!(found("[[package]]\nname = \"ours\"\nsource = \"elsewhere\"\n"), [""; 0]);
    }
}
