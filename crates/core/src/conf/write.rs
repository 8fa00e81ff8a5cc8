//! The way from options back to text.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::keys::Key;
use crate::settings::{Divisions, Options};
use crate::units::MIB;

/// Returns the canonical text of `options`: the keys that differ from the defaults, in a fixed order, without white
/// space.
///
/// [`parse`](super::parse) of the text gives the same options, as far as keys can express them: `search_after_wait`,
/// `gc_without_limit`, `shorter_pages`, `open_ranges` and `ties` have no key, values set in code may lie outside what
/// the keys accept, and a size that is not a whole number of MiB is written with a fraction, which the parser refuses.
pub fn write(options: &Options) -> String {
    let default = Options::default();
    let mut pairs = Vec::new();
    let mut pair = |key: Key, value: String| pairs.push(format!("{}:{value}", key.name()));

    let choice = &options.policy;
    if let Some(name) = choice.policy {
        pair(Key::Policy, name.as_str().into());
    }
    if choice.growth != default.policy.growth {
        pair(Key::Growth, choice.growth.name().into());
    }
    if choice.expandable_segments {
        pair(Key::ExpandableSegments, "True".into());
    }
    if options.large_segment_bytes != default.large_segment_bytes {
        pair(Key::LargeSegmentSize, mib(options.large_segment_bytes));
    }
    if let Some(bytes) = options.max_split_bytes {
        pair(Key::MaxSplitSize, mib(bytes));
    }
    if let Some(bytes) = options.max_non_split_rounding_bytes {
        pair(Key::MaxNonSplitRounding, mib(bytes));
    }
    if let Some(slack) = choice.slack {
        pair(Key::Slack, format!("{slack}"));
    }
    if options.gc_threshold != default.gc_threshold {
        pair(Key::GarbageCollectionThreshold, format!("{}", options.gc_threshold));
    }
    if options.divisions != default.divisions {
        pair(Key::RoundupDivisions, divisions(&options.divisions));
    }
    if options.memory_fraction != default.memory_fraction {
        pair(Key::MemoryFraction, format!("{}", options.memory_fraction));
    }
    if options.scrub != default.scrub {
        pair(Key::Scrub, options.scrub.name().into());
    }
    if options.throw_on_oom {
        pair(Key::ThrowOnOom, "True".into());
    }
    pairs.join(",")
}

fn mib(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{}", bytes / MIB) } else { format!("{}", bytes as f64 / MIB as f64) }
}

/// Returns a plain number where all slots agree, and otherwise the shortest list: the first run in one entry, the last
/// in `>`, and one entry for each slot between them. A slot at 0 needs no entry, unless `>` would then include it.
fn divisions(Divisions(slots): &Divisions) -> String {
    let first_run = slots.iter().take_while(|number| **number == slots[0]).count();
    if first_run == slots.len() {
        return format!("{}", slots[0]);
    }
    let last = slots[slots.len() - 1];
    let last_run = slots.iter().rev().take_while(|number| **number == last).count();
    let tail = slots.len() - last_run;
    let mut entries = vec![format!("{}:{}", 1_u64 << (first_run - 1), slots[0])];
    for (slot, number) in slots.iter().enumerate().take(tail).skip(first_run) {
        if *number != 0 || (slot + 1 == tail && last != 0) {
            entries.push(format!("{}:{number}", 1_u64 << slot));
        }
    }
    if last != 0 {
        entries.push(format!(">:{last}"));
    }
    format!("[{}]", entries.join(","))
}
