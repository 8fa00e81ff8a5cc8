//! The header and the library say the same: functions, codes, versions and layouts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use millpond_capi::api::{ABI, Usage};
use millpond_capi::{Code, table};

const HEADER: &str = include_str!("../../include/millpond.h");

/// Returns the header without its comments.
fn declarations() -> String {
    without_comments(HEADER)
}

/// Returns the names of functions, which are followed by a parenthesis.
fn functions(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let names = text.match_indices("millpond_").filter_map(|(at, _)| {
        let name: String = text[at..].chars().take_while(|&c| is_part(c)).collect();
        let is_whole = !text[..at].ends_with(is_part);
        (is_whole && text[at + name.len()..].starts_with('(')).then_some(name)
    });
    names.collect()
}

#[test]
fn every_function_is_declared_and_exported() {
    let files = ["api.rs", "api/groups.rs", "api/peaks.rs", "api/pools.rs", "api/shortage.rs", "shared.rs", "torch.rs"];
    let sources =
        files.map(|file| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).expect(file));
    let name = |text: &str| text.split_once("extern \"C\" fn ")?.1.split_once('(').map(|(name, _)| name.to_owned());
    let exported = sources.iter().flat_map(|text| text.split("#[unsafe(no_mangle)]").skip(1));
    let exported: BTreeSet<String> = exported.filter_map(name).collect();
    assert!(exported.len() > 20);
    assert_eq!(functions(&declarations()), exported);
}

/// Returns a header's text without its comments.
fn without_comments(text: &str) -> String {
    let parts = text.split("/*").enumerate();
    parts.map(|(at, part)| if at == 0 { part } else { part.split_once("*/").expect("a comment ends").1 }).collect()
}

#[test]
fn the_table_has_the_headers_entries_in_its_order() {
    let text = without_comments(include_str!("../../include/millpond_core.h"));
    assert!(text.contains(&format!("#define MILLPOND_CORE_ABI {}\n", table::types::ABI)));
    let entries = text.split("typedef struct millpond_core_v1 {").nth(1).and_then(|text| text.split('}').next());
    let declared: Vec<&str> =
        entries.expect("the table").split("(*").skip(1).filter_map(|e| e.split(')').next()).collect();
    let source = include_str!("../../src/table.rs");
    let fields = source.split("pub struct Core {").nth(1).and_then(|text| text.split('}').next()).expect("the table");
    let built = fields.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next()).skip(2);
    assert_eq!(declared, built.collect::<Vec<_>>());
    assert!(declared.len() > 25);
    assert_eq!(size_of::<table::Core>(), 8 + declared.len() * size_of::<usize>());
    assert_eq!(functions(&text), BTreeSet::from(["millpond_core_get".to_owned()]));
}

#[test]
fn codes_have_the_headers_numbers() {
    let text = declarations();
    let codes = text.split("typedef int32_t millpond_status;").nth(1).and_then(|text| text.split('}').next());
    let numbers: BTreeMap<&str, i32> = codes
        .expect("the codes")
        .lines()
        .filter_map(|line| line.trim().trim_end_matches(',').strip_prefix("MILLPOND_")?.split_once(" = "))
        .map(|(name, number)| (name, number.parse().expect("a number")))
        .collect();
    let codes = [
        ("OK", Code::Ok),
        ("OUT_OF_MEMORY", Code::OutOfMemory),
        ("BAD_ARGUMENT", Code::BadArgument),
        ("BAD_ALLOCATOR", Code::BadAllocator),
        ("NOT_A_BLOCK", Code::NotABlock),
        ("NO_DEVICE", Code::NoDevice),
        ("UNSUPPORTED", Code::Unsupported),
        ("DEVICE_LOST", Code::DeviceLost),
        ("DRIVER", Code::Driver),
        ("INTERNAL", Code::Internal),
        ("NO_ROOM", Code::NoRoom),
    ];
    assert_eq!(numbers, codes.map(|(name, code)| (name, code as i32)).into_iter().collect());
}

#[test]
fn the_interface_has_the_headers_version_and_layout() {
    assert!(HEADER.contains(&format!("#define MILLPOND_ABI {ABI}\n")));
    let text = declarations();
    let fields = text.split("typedef struct millpond_usage {").nth(1).and_then(|text| text.split('}').next());
    let fields: Vec<&str> = fields.expect("the struct").split(';').map(str::trim).filter(|f| !f.is_empty()).collect();
    let names = ["allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes"];
    assert_eq!(fields, names.map(|name| format!("uint64_t {name}")));
    assert_eq!(size_of::<Usage>(), 8 * names.len());
}
