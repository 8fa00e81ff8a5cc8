//! The keys of the configuration, each with its names and what sets it, and the step from pairs to options.

use alloc::vec::Vec;

use super::Parsed;
use super::error::{ConfError, ConfErrorKind as Kind};
use super::grammar::{Given, Pair, Value};
use super::value::{
    backend, boolean, divisions, limit, mib, mib_above, one_of, policy, reserve, reserve_by_class, share, threads,
};
use crate::settings::{Growth, Options, Scrub};
use crate::units::MIB;

/// A key of the configuration.
struct Key {
    /// Its names: the CUDA spelling, which messages use, and perhaps the HIP one.
    names: &'static [&'static str],
    /// Whether it is accepted for compatibility with PyTorch and has no effect here.
    is_ignored: bool,
    set: Set,
}

/// What sets a key.
enum Set {
    Word(SetWord),
    /// It takes a list as well, or only a list.
    Value(fn(&mut Options, &'static str, &Value<'_>) -> Result<(), ConfError>),
}

type SetWord = fn(&mut Options, Given<'_>) -> Result<(), ConfError>;

const fn key(names: &'static [&'static str], set: SetWord) -> Key {
    Key { names, is_ignored: false, set: Set::Word(set) }
}

const fn ignored(names: &'static [&'static str], set: SetWord) -> Key {
    Key { names, is_ignored: true, set: Set::Word(set) }
}

const LARGE: &str = "large_segment_size_mb";
const MAX_NON_SPLIT: &str = "max_non_split_rounding_mb";
const MAX_SPLIT: &str = "max_split_size_mb";

/// Every key, in alphabetical order.
static KEYS: [Key; 24] = [
    ignored(&["backend"], |_, word| backend(word)),
    key(&["expandable_segments"], |to, word| boolean(word).map(|on| to.policy.expandable_segments = on)),
    ignored(&["expandable_segments_reserve"], |_, word| reserve(word)),
    Key {
        names: &["expandable_segments_reserve_by_class"],
        is_ignored: true,
        set: Set::Value(|_, key, value| reserve_by_class(key, value)),
    },
    key(&["garbage_collection_threshold"], |to, word| {
        let accepted = "above 0 and below 1; leave the key out to turn it off";
        share(|share| share > 0.0 && share < 1.0, word, accepted).map(|share| to.gc_threshold = share)
    }),
    ignored(&["graph_capture_record_stream_reuse"], |_, word| boolean(word).map(drop)),
    key(&["growth"], |to, word| {
        let growth = one_of([Growth::Tight, Growth::Balanced], Growth::name, word, "`tight` or `balanced`");
        growth.map(|growth| to.policy.growth = growth)
    }),
    key(&[LARGE], |to, word| mib_above(10, word, "more than 10 (MiB)").map(|mib| to.large_segment_bytes = mib * MIB)),
    key(&[MAX_NON_SPLIT], |to, word| limit(to, word).map(|limit| to.max_non_split_rounding_bytes = Some(limit))),
    key(&[MAX_SPLIT], |to, word| limit(to, word).map(|limit| to.max_split_bytes = Some(limit))),
    key(&["per_process_memory_fraction"], |to, word| {
        share(|share| share <= 1.0, word, "from 0 to 1").map(|share| to.memory_fraction = share)
    }),
    ignored(&["pinned_free_catch_all"], |_, word| boolean(word).map(drop)),
    ignored(&["pinned_max_cached_size_mb"], |_, word| mib(word).map(drop)),
    ignored(&["pinned_max_round_threshold_mb"], |_, word| mib(word).map(drop)),
    ignored(&["pinned_num_register_threads"], |_, word| threads(word)),
    ignored(&["pinned_reserve_segment_size_mb"], |_, word| mib_above(0, word, "more than 0 (MiB)").map(drop)),
    ignored(&["pinned_use_background_threads"], |_, word| boolean(word).map(drop)),
    ignored(&["pinned_use_cuda_host_register", "pinned_use_hip_host_register"], |_, word| boolean(word).map(drop)),
    key(&["policy"], |to, word| policy(word).map(|policy| to.policy.policy = policy)),
    ignored(&["release_lock_on_cudamalloc", "release_lock_on_hipmalloc"], |_, word| boolean(word).map(drop)),
    Key {
        names: &["roundup_power2_divisions"],
        is_ignored: false,
        set: Set::Value(|to, key, value| divisions(key, value).map(|all| to.divisions = all)),
    },
    key(&["scrub"], |to, word| {
        let values = [Scrub::Off, Scrub::OtherStreams, Scrub::Always];
        let scrub = one_of(values, Scrub::name, word, "`off`, `other_streams` or `always`");
        scrub.map(|scrub| to.scrub = scrub)
    }),
    key(&["slack"], |to, word| {
        share(|share| share <= 1000.0, word, "from 0 to 1000").map(|share| to.policy.slack = Some(share))
    }),
    key(&["throw_on_cudamalloc_oom"], |to, word| boolean(word).map(|on| to.throw_on_oom = on)),
];

/// Returns the keys that a text may name, in alphabetical order except for the HIP spellings, which follow the CUDA
/// ones. It costs nothing.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().flat_map(|key| key.names).copied()
}

impl Key {
    /// Returns the name that messages use.
    fn name(&self) -> &'static str {
        self.names[0]
    }

    fn set(&self, options: &mut Options, value: &Value<'_>) -> Result<(), ConfError> {
        match (&self.set, value) {
            (Set::Value(set), value) => set(options, self.name(), value),
            (Set::Word(set), Value::Word(word)) => set(options, word.of(self.name())),
            (_, Value::List { at, .. }) => Err(ConfError::new(*at, Kind::ListNotAccepted(self.name()))),
        }
    }
}

/// Sets every pair over `base`.
pub(super) fn apply(base: Options, pairs: &[Pair<'_>]) -> Result<Parsed, ConfError> {
    let keys = resolve(pairs)?;
    let mut parsed = Parsed { options: base, ignored: Vec::new() };
    // Other keys are checked against the large segment size, so it is set first, wherever it is in the text.
    for first in [true, false] {
        for (key, pair) in keys.iter().zip(pairs) {
            if (key.name() == LARGE) == first {
                key.set(&mut parsed.options, &pair.value)?;
            }
        }
    }
    check_inherited(&parsed.options, &keys, pairs)?;
    parsed.ignored = keys.iter().filter(|key| key.is_ignored).map(|key| key.name()).collect();
    Ok(parsed)
}

/// Returns the key of every pair, and verifies that each is named once.
fn resolve(pairs: &[Pair<'_>]) -> Result<Vec<&'static Key>, ConfError> {
    let mut keys: Vec<&'static Key> = Vec::new();
    for Pair { key: word, .. } in pairs {
        let Some(key) = KEYS.iter().find(|key| key.names.contains(&word.text)) else {
            return Err(ConfError::new(word.at, Kind::UnknownKey { key: word.shown() }));
        };
        if let Some(first) = keys.iter().position(|known| known.name() == key.name()) {
            let kind = Kind::DuplicateKey { key: key.name(), first: pairs[first].key.at };
            return Err(ConfError::new(word.at, kind));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// Refuses a new large segment size that puts a limit of the base out of its range.
fn check_inherited(options: &Options, keys: &[&Key], pairs: &[Pair<'_>]) -> Result<(), ConfError> {
    let Some(index) = keys.iter().position(|key| key.name() == LARGE) else { return Ok(()) };
    for (key, bytes) in [(MAX_SPLIT, options.max_split_bytes), (MAX_NON_SPLIT, options.max_non_split_rounding_bytes)] {
        if let Some(bytes) = bytes.filter(|bytes| *bytes < options.large_segment_bytes) {
            let large_mib = options.large_segment_bytes / MIB;
            let kind = Kind::LargeSegmentAbove { key, large_mib, bytes };
            return Err(ConfError::new(pairs[index].key.at, kind));
        }
    }
    Ok(())
}
