//! What a program takes in that embeds the library: few packages, and none that needs a C compiler.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::Finding;

/// The library, and the devices that a program may embed with it, by type or by name.
const LIBRARY: &str = "millpond";
const DEVICES: [&str; 5] = ["millpond-any", "millpond-sim", "millpond-cuda", "millpond-vulkan", "millpond-wgpu"];

/// All packages that the library may stand on, on any platform.
const ALLOWED: [&str; 25] = [
    "bitflags",
    "boxcar",
    "bytemuck",
    "bytemuck_derive",
    "cfg-if",
    "crossbeam-utils",
    "libc",
    "lock_api",
    "memmap2",
    "millpond",
    "millpond-backend",
    "millpond-core",
    "parking_lot",
    "parking_lot_core",
    "proc-macro2",
    "quote",
    "redox_syscall",
    "scopeguard",
    "smallvec",
    "strsim",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "windows-link",
];

/// Packages with which a build script compiles C, or looks for a library that was compiled from it.
const COMPILERS: [&str; 8] = ["autotools", "bindgen", "cc", "clang-sys", "cmake", "nasm-rs", "pkg-config", "vcpkg"];

/// The output of `cargo metadata`, as far as the rule needs it.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    /// The foreign library that it links.
    links: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

/// A package and the packages that it names.
#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `dev`, `build`, or nothing.
    kind: Option<String>,
    target: Option<String>,
}

impl Dependency {
    /// Returns whether a build of the package takes it in: not for tests alone, and not for loom alone.
    fn is_built(&self) -> bool {
        let built =
            |kind: &DependencyKind| kind.kind.as_deref() != Some("dev") && kind.target.as_deref() != Some("cfg(loom)");
        self.dep_kinds.iter().any(built)
    }
}

/// Checks the output of `cargo metadata`: the library stands on no package but those in `ALLOWED`, and neither it nor a
/// device stands on one that links a foreign library or has a C compiler among its own dependencies.
///
/// # Errors
///
/// Returns a message if the text is not such an output, or lacks one of these packages.
pub fn embedding_needs_no_c_compiler(metadata: &str) -> Result<Vec<Finding>, String> {
    let metadata: Metadata = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|package| (&*package.id, package)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (&*node.id, node)).collect();
    let mut findings = Vec::new();
    for root in [LIBRARY].into_iter().chain(DEVICES) {
        let start = metadata.packages.iter().find(|package| package.name == root);
        let start = start.ok_or_else(|| format!("there is no package {root}"))?;
        let mut seen = BTreeSet::new();
        let mut next = vec![start.id.as_str()];
        while let Some(id) = next.pop() {
            if !seen.insert(id) {
                continue;
            }
            let package = packages.get(id).ok_or_else(|| format!("{id} is no package of the list"))?;
            let node = nodes.get(id).ok_or_else(|| format!("{id} has no dependencies in the list"))?;
            next.extend(node.deps.iter().filter(|to| to.is_built()).map(|to| &*to.pkg));
            findings.extend(objection(root, package).map(|what| Finding::new("Cargo.lock", 0, what)));
        }
    }
    Ok(findings)
}

/// Returns what is wrong with a package that `root` stands on.
fn objection(root: &str, package: &Package) -> Option<String> {
    let name = package.name.as_str();
    if COMPILERS.contains(&name) || package.links.is_some() {
        Some(format!("{root} stands on {name}, which asks for foreign code: embedding must need no C compiler"))
    } else if root == LIBRARY && !ALLOWED.contains(&name) {
        Some(format!("{root} stands on {name}: do without it, or add it to the packages that are allowed"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Checks the library and its devices with these further packages: who names it, its name, the kind of the
    /// dependency, its target, and what it links.
    fn found(planted: &[[Option<&str>; 5]]) -> Vec<String> {
        let ours = [LIBRARY, "millpond-core"].into_iter().chain(DEVICES);
        let mut packages: Vec<Value> = ours.map(|name| json!({"id": name, "name": name, "links": null})).collect();
        let mut edges = vec![[Some("millpond"), Some("millpond-core"), None, None, None]];
        edges.extend(planted);
        for [_, name, _, _, links] in planted {
            packages.push(json!({"id": name, "name": name, "links": links}));
        }
        let node = |package: &Value| {
            let of = edges.iter().filter(|[from, ..]| *from == package["id"].as_str());
            let deps = of.map(
                |[_, name, kind, target, _]| json!({"pkg": name, "dep_kinds": [{"kind": kind, "target": target}]}),
            );
            json!({"id": package["id"], "deps": deps.collect::<Vec<_>>()})
        };
        let nodes: Vec<Value> = packages.iter().map(node).collect();
        let metadata = json!({"packages": packages, "resolve": {"nodes": nodes}}).to_string();
        let findings = embedding_needs_no_c_compiler(&metadata).expect("metadata");
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn allowed_packages_and_those_of_tests_and_of_loom_pass() {
        assert_eq!(found(&[]), [""; 0]);
        let (core, sim) = (Some("millpond-core"), Some("millpond-sim"));
        assert_eq!(found(&[[core, Some("thiserror"), None, None, None]]), [""; 0]);
        assert_eq!(found(&[[core, Some("zstd-sys"), Some("dev"), None, Some("zstd")]]), [""; 0]);
        assert_eq!(found(&[[core, Some("loom"), None, Some("cfg(loom)"), None]]), [""; 0]);
        assert_eq!(found(&[[sim, Some("serde"), None, None, None]]), [""; 0], "a device may stand on more");
    }

    #[test]
    fn a_further_package_and_foreign_code_are_found() {
        let core = Some("millpond-core");
        let further = found(&[[core, Some("serde"), None, None, None]]);
        assert!(further.len() == 1 && further[0].contains("millpond stands on serde: do without it"), "{further:?}");
        for (target, kind) in [(None, None), (Some("cfg(windows)"), None), (None, Some("build"))] {
            assert_eq!(found(&[[core, Some("serde"), kind, target, None]]).len(), 1, "{target:?} {kind:?}");
        }
        let linked = [core, Some("zstd-sys"), None, None, Some("zstd")];
        let compiled = [Some("zstd-sys"), Some("cc"), Some("build"), None, None];
        let foreign = found(&[linked, compiled]);
        assert!(foreign.len() == 2 && foreign.iter().all(|what| what.contains("no C compiler")), "{foreign:?}");
        let device = found(&[
            [Some("millpond-vulkan"), Some("vma"), None, None, None],
            [Some("vma"), Some("cmake"), Some("build"), None, None],
        ]);
        assert!(device.len() == 1 && device[0].contains("millpond-vulkan stands on cmake"), "{device:?}");
    }

    #[test]
    fn what_is_no_metadata_is_an_error() {
        assert!(embedding_needs_no_c_compiler("").is_err());
        let empty = json!({"packages": [], "resolve": {"nodes": []}}).to_string();
        assert_eq!(embedding_needs_no_c_compiler(&empty), Err("there is no package millpond".into()));
    }
}
