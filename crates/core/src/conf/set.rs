//! The step from pairs to options.

use alloc::vec::Vec;

use super::Parsed;
use super::error::{ConfError, ConfErrorKind as Kind};
use super::grammar::{Pair, Value, Word};
use super::keys::Key;
use super::value::{boolean, decimal, divisions, mib, out_of_range, reserve, reserve_by_class, whole};
use crate::settings::{Growth, Options, PolicyName, Scrub};
use crate::units::MIB;

/// Sets every pair over `base`.
pub(super) fn apply(base: Options, pairs: &[Pair<'_>]) -> Result<Parsed, ConfError> {
    let keys = resolve(pairs)?;
    let mut parsed = Parsed { options: base, ignored: Vec::new() };
    // Other keys are checked against the large segment size, so it is set first, wherever it is in the text.
    for first in [true, false] {
        for (key, pair) in keys.iter().zip(pairs) {
            if (*key == Key::LargeSegmentSize) == first {
                set(&mut parsed.options, *key, &pair.value)?;
            }
        }
    }
    check_inherited(&parsed.options, &keys, pairs)?;
    parsed.ignored = keys.iter().filter(|key| key.is_ignored()).map(|key| key.name()).collect();
    Ok(parsed)
}

/// Returns the key of every pair, and verifies that each is named once.
fn resolve(pairs: &[Pair<'_>]) -> Result<Vec<Key>, ConfError> {
    let mut keys: Vec<Key> = Vec::new();
    for Pair { key: word, .. } in pairs {
        let Some(key) = Key::find(word.text) else {
            return Err(ConfError::new(word.at, Kind::UnknownKey { key: word.shown() }));
        };
        if let Some(first) = keys.iter().position(|known| *known == key) {
            let kind = Kind::DuplicateKey { key: key.name(), first: pairs[first].key.at };
            return Err(ConfError::new(word.at, kind));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn set(options: &mut Options, key: Key, value: &Value<'_>) -> Result<(), ConfError> {
    let name = key.name();
    match key {
        Key::RoundupDivisions => options.divisions = divisions(name, value)?,
        Key::ExpandableSegmentsReserveByClass => reserve_by_class(name, value)?,
        _ => match value {
            Value::Word(word) => set_word(options, key, *word)?,
            Value::List { at, .. } => return Err(ConfError::new(*at, Kind::ListNotAccepted { key: name })),
        },
    }
    Ok(())
}

fn set_word(options: &mut Options, key: Key, word: Word<'_>) -> Result<(), ConfError> {
    let name = key.name();
    match key {
        Key::Backend => backend(name, word)?,
        Key::Growth => options.policy.growth = growth(name, word)?,
        Key::Policy => options.policy.policy = policy(name, word)?,
        Key::Scrub => options.scrub = scrub(name, word)?,
        Key::ExpandableSegments => options.policy.expandable_segments = boolean(name, word)?,
        Key::ThrowOnOom => options.throw_on_oom = boolean(name, word)?,
        Key::LargeSegmentSize => match mib(name, word)? {
            0..=10 => return Err(out_of_range(name, word, "more than 10 (MiB)")),
            large => options.large_segment_bytes = large * MIB,
        },
        Key::MaxSplitSize => options.max_split_bytes = Some(limit(options, name, word)?),
        Key::MaxNonSplitRounding => options.max_non_split_rounding_bytes = Some(limit(options, name, word)?),
        Key::GarbageCollectionThreshold => match decimal(name, word)? {
            share if share > 0.0 && share < 1.0 => options.gc_threshold = share,
            _ => return Err(out_of_range(name, word, "above 0 and below 1; leave the key out to turn it off")),
        },
        Key::Slack => match decimal(name, word)? {
            share if share <= 1000.0 => options.policy.slack = Some(share),
            _ => return Err(out_of_range(name, word, "from 0 to 1000")),
        },
        Key::MemoryFraction => match decimal(name, word)? {
            share if share <= 1.0 => options.memory_fraction = share,
            _ => return Err(out_of_range(name, word, "from 0 to 1")),
        },
        Key::ExpandableSegmentsReserve => reserve(name, word)?,
        Key::GraphCaptureRecordStreamReuse
        | Key::PinnedFreeCatchAll
        | Key::PinnedUseBackgroundThreads
        | Key::PinnedUseHostRegister
        | Key::ReleaseLock => {
            boolean(name, word)?;
        }
        Key::PinnedMaxCachedSize | Key::PinnedMaxRoundThreshold => {
            mib(name, word)?;
        }
        Key::PinnedReserveSegmentSize => {
            if mib(name, word)? == 0 {
                return Err(out_of_range(name, word, "more than 0 (MiB)"));
            }
        }
        Key::PinnedNumRegisterThreads => threads(name, word)?,
        Key::RoundupDivisions | Key::ExpandableSegmentsReserveByClass => unreachable!("`{name}` takes lists too"),
    }
    Ok(())
}

/// Reads a size in MiB that may not be below the large segment size, and returns it in bytes.
fn limit(options: &Options, key: &'static str, word: Word<'_>) -> Result<u64, ConfError> {
    let mib = mib(key, word)?;
    if mib * MIB < options.large_segment_bytes {
        let large_mib = options.large_segment_bytes.div_ceil(MIB);
        return Err(ConfError::new(word.at, Kind::BelowLargeSegment { key, mib, large_mib }));
    }
    Ok(mib * MIB)
}

fn backend(key: &'static str, word: Word<'_>) -> Result<(), ConfError> {
    match word.text {
        "native" => Ok(()),
        "cudaMallocAsync" => Err(ConfError::new(word.at, Kind::DriverBackend)),
        _ => Err(unknown_word(key, word, "`native`")),
    }
}

fn policy(key: &'static str, word: Word<'_>) -> Result<Option<PolicyName>, ConfError> {
    match PolicyName::find(word.text) {
        _ if word.text == "auto" => Ok(None),
        Some(name) => Ok(Some(name)),
        None => Err(unknown_word(key, word, "`paged`, `classic`, `direct` or `auto`")),
    }
}

fn growth(key: &'static str, word: Word<'_>) -> Result<Growth, ConfError> {
    [Growth::Tight, Growth::Balanced]
        .into_iter()
        .find(|growth| growth.name() == word.text)
        .ok_or_else(|| unknown_word(key, word, "`tight` or `balanced`"))
}

fn scrub(key: &'static str, word: Word<'_>) -> Result<Scrub, ConfError> {
    [Scrub::Off, Scrub::OtherStreams, Scrub::Always]
        .into_iter()
        .find(|scrub| scrub.name() == word.text)
        .ok_or_else(|| unknown_word(key, word, "`off`, `other_streams` or `always`"))
}

fn threads(key: &'static str, word: Word<'_>) -> Result<(), ConfError> {
    match whole(key, word)? {
        value if !value.is_power_of_two() => Err(ConfError::new(word.at, Kind::NotAPowerOfTwo { key, value })),
        1..=128 => Ok(()),
        _ => Err(out_of_range(key, word, "at most 128")),
    }
}

fn unknown_word(key: &'static str, word: Word<'_>, accepted: &'static str) -> ConfError {
    ConfError::new(word.at, Kind::UnknownWord { key, value: word.shown(), accepted })
}

/// Refuses a new large segment size that puts a limit of the base out of its range.
fn check_inherited(options: &Options, keys: &[Key], pairs: &[Pair<'_>]) -> Result<(), ConfError> {
    let Some(index) = keys.iter().position(|key| *key == Key::LargeSegmentSize) else { return Ok(()) };
    let limits = [
        (Key::MaxSplitSize, options.max_split_bytes),
        (Key::MaxNonSplitRounding, options.max_non_split_rounding_bytes),
    ];
    for (key, bytes) in limits {
        if let Some(bytes) = bytes.filter(|bytes| *bytes < options.large_segment_bytes) {
            let large_mib = options.large_segment_bytes / MIB;
            let kind = Kind::LargeSegmentAbove { key: key.name(), large_mib, bytes };
            return Err(ConfError::new(pairs[index].key.at, kind));
        }
    }
    Ok(())
}
