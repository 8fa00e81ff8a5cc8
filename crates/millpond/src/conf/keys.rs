//! The keys of the configuration, each with its names and what sets it, and the steps from words to values and options.

use std::time::Duration;

use millpond_core::settings::{Divisions, Growth, Options, PolicyName, RecordStream, Scrub};
use millpond_core::units::{MIB, REQUEST_BYTES_MAX};

use super::Parsed;
use super::error::{ConfError, ConfErrorKind as Kind, shorten};
use super::grammar::{Given, Pair, Value, Word};

/// A key of the configuration.
struct Key {
    /// Its names: the CUDA spelling, which messages use, and perhaps the HIP one.
    names: &'static [&'static str],
    role: Role,
    set: Set,
}

/// What a key does here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It has its effect.
    Acts,
    /// It is accepted for compatibility with PyTorch and has no effect here: it belongs to a part that is PyTorch's
    /// alone, or asks for what is so anyway.
    Meaningless,
    /// It is accepted, and asks for what is not done here; with a value, that value alone does.
    Unserved(Option<&'static str>),
}

/// What sets a key.
enum Set {
    Word(SetWord),
    /// It takes a list as well, or only a list.
    Value(fn(&mut Options, &'static str, &Value<'_>) -> Result<(), ConfError>),
}

type SetWord = fn(&mut Options, Given<'_>) -> Result<(), ConfError>;

const fn key(names: &'static [&'static str], set: SetWord) -> Key {
    Key { names, role: Role::Acts, set: Set::Word(set) }
}

const fn ignored(names: &'static [&'static str], set: SetWord) -> Key {
    Key { names, role: Role::Meaningless, set: Set::Word(set) }
}

const fn unserved(names: &'static [&'static str], value: Option<&'static str>, set: SetWord) -> Key {
    Key { names, role: Role::Unserved(value), set: Set::Word(set) }
}

const LARGE: &str = "large_segment_size_mb";
const MAX_NON_SPLIT: &str = "max_non_split_rounding_mb";
const MAX_SPLIT: &str = "max_split_size_mb";

/// Every key, in alphabetical order.
static KEYS: [Key; 28] = [
    ignored(&["backend"], |_, word| backend(word)),
    key(&["expandable_segments"], |to, word| boolean(word).map(|on| to.policy.expandable_segments = on)),
    unserved(&["expandable_segments_reserve"], None, |_, word| reserve(word)),
    Key {
        names: &["expandable_segments_reserve_by_class"],
        role: Role::Unserved(None),
        set: Set::Value(|_, key, value| reserve_by_class(key, value)),
    },
    key(&["garbage_collection_threshold"], |to, word| {
        let accepted = "above 0 and below 1; leave the key out to turn it off";
        share(|share| share > 0.0 && share < 1.0, word, accepted).map(|share| to.rest.gc_threshold = share)
    }),
    unserved(&["graph_capture_record_stream_reuse"], Some("True"), |_, word| boolean(word).map(drop)),
    key(&["growth"], |to, word| {
        one_of(Growth::ALL, Growth::name, word, "`tight` or `balanced`").map(|growth| to.policy.growth = growth)
    }),
    key(&["keep_idle_mb"], |to, word| mib(word).map(|mib| to.rest.idle.keep_bytes = mib * MIB)),
    key(&[LARGE], |to, word| {
        mib_above(10, word, "more than 10 (MiB)").map(|mib| to.rest.large_segment_bytes = mib * MIB)
    }),
    key(&[MAX_NON_SPLIT], |to, word| limit(to, word).map(|limit| to.rest.max_non_split_rounding_bytes = Some(limit))),
    key(&[MAX_SPLIT], |to, word| limit(to, word).map(|limit| to.rest.max_split_bytes = Some(limit))),
    key(&["per_process_memory_fraction"], |to, word| {
        share(|share| share <= 1.0, word, "from 0 to 1").map(|share| to.rest.memory_fraction = share)
    }),
    ignored(&["pinned_free_catch_all"], |_, word| boolean(word).map(drop)),
    ignored(&["pinned_max_cached_size_mb"], |_, word| mib(word).map(drop)),
    ignored(&["pinned_max_round_threshold_mb"], |_, word| mib(word).map(drop)),
    ignored(&["pinned_num_register_threads"], |_, word| threads(word)),
    ignored(&["pinned_reserve_segment_size_mb"], |_, word| mib_above(0, word, "more than 0 (MiB)").map(drop)),
    ignored(&["pinned_use_background_threads"], |_, word| boolean(word).map(drop)),
    ignored(&["pinned_use_cuda_host_register", "pinned_use_hip_host_register"], |_, word| boolean(word).map(drop)),
    key(&["policy"], |to, word| {
        let accepted = "`paged`, `classic`, `direct` or `auto`";
        to.policy.policy = match word.text {
            "auto" => None,
            _ => Some(one_of(PolicyName::ALL, PolicyName::as_str, word, accepted)?),
        };
        Ok(())
    }),
    key(&["record_stream"], |to, word| {
        let record_stream = one_of(RecordStream::ALL, RecordStream::name, word, "`wait` or `hold`");
        record_stream.map(|record_stream| to.rest.record_stream = record_stream)
    }),
    key(&["release_idle_after"], |to, word| time_or_off(word).map(|after| to.rest.idle.after = after)),
    key(&["release_idle_in_background"], |to, word| boolean(word).map(|on| to.rest.idle.in_background = on)),
    ignored(&["release_lock_on_cudamalloc", "release_lock_on_hipmalloc"], |_, word| boolean(word).map(drop)),
    Key {
        names: &["roundup_power2_divisions"],
        role: Role::Acts,
        set: Set::Value(|to, key, value| divisions(key, value).map(|all| to.rest.divisions = all)),
    },
    key(&["scrub"], |to, word| {
        let values = [Scrub::Off, Scrub::OtherStreams, Scrub::Always];
        let scrub = one_of(values, Scrub::name, word, "`off`, `other_streams` or `always`");
        scrub.map(|scrub| to.rest.scrub = scrub)
    }),
    key(&["slack"], |to, word| {
        share(|share| share <= 1000.0, word, "from 0 to 1000").map(|share| to.policy.slack = Some(share))
    }),
    key(&["throw_on_cudamalloc_oom"], |to, word| boolean(word).map(|on| to.rest.throw_on_oom = on)),
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

    /// Returns whether the value asks for what is not done here.
    fn is_unserved(&self, value: &Value<'_>) -> bool {
        match (self.role, value) {
            (Role::Unserved(Some(of)), Value::Word(word)) => word.text == of,
            (role, _) => role == Role::Unserved(None),
        }
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
    let mut parsed = Parsed { options: base, keys: Vec::new(), ignored: Vec::new(), unserved: Vec::new() };
    // Other keys are checked against the large segment size, so it is set first, wherever it is in the text.
    for first in [true, false] {
        for (key, pair) in keys.iter().zip(pairs) {
            if (key.name() == LARGE) == first {
                key.set(&mut parsed.options, &pair.value)?;
            }
        }
    }
    check_inherited(&parsed.options, &keys, pairs)?;
    for (key, pair) in keys.iter().zip(pairs) {
        parsed.keys.push(key.name());
        parsed.ignored.extend((key.role != Role::Acts).then_some(key.name()));
        parsed.unserved.extend(key.is_unserved(&pair.value).then_some(key.name()));
    }
    Ok(parsed)
}

/// Returns the key of every pair, and verifies that each is named once.
fn resolve(pairs: &[Pair<'_>]) -> Result<Vec<&'static Key>, ConfError> {
    let mut keys: Vec<&'static Key> = Vec::new();
    for Pair { key: word, .. } in pairs {
        let Some(key) = KEYS.iter().find(|key| key.names.contains(&word.text)) else {
            return Err(ConfError::new(word.at, Kind::UnknownKey { key: word.shown(), known: names().collect() }));
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
    for (key, bytes) in
        [(MAX_SPLIT, options.rest.max_split_bytes), (MAX_NON_SPLIT, options.rest.max_non_split_rounding_bytes)]
    {
        if let Some(bytes) = bytes.filter(|bytes| *bytes < options.rest.large_segment_bytes) {
            let large_mib = options.rest.large_segment_bytes / MIB;
            let kind = Kind::LargeSegmentAbove { key, large_mib, bytes };
            return Err(ConfError::new(pairs[index].key.at, kind));
        }
    }
    Ok(())
}

/// The largest number of MiB that a key accepts. No larger request is served.
const MIB_MAX: u64 = REQUEST_BYTES_MAX / MIB;
/// The largest number of divisions, the same as in PyTorch's 32-bit parser. 512 times this number still fits in 64
/// bits.
const DIVISIONS_MAX: u64 = 1 << 30;
/// The size that the last slot of [`Divisions`] serves, in MiB.
const LAST_SLOT_MIB: u64 = 1 << 15;

/// Reads `True` or `False`.
pub(super) fn boolean(word: Given<'_>) -> Result<bool, ConfError> {
    match word.text {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(refused(word, "`True` or `False`, spelled so")),
    }
}

/// Reads a whole number.
pub(super) fn whole(word: Given<'_>) -> Result<u64, ConfError> {
    if word.text.is_empty() || !word.text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused(word, "a whole number in decimal digits"));
    }
    word.text.parse().map_err(|_| ConfError::new(word.at, Kind::Overflow { key: word.key, value: shorten(word.text) }))
}

/// Reads a number of MiB, and returns it in MiB. Its bytes are within what requests may have.
pub(super) fn mib(word: Given<'_>) -> Result<u64, ConfError> {
    match whole(word)? {
        mib if mib <= MIB_MAX => Ok(mib),
        _ => Err(refused(word, "at most 1099511627776 (1 EiB in MiB)")),
    }
}

/// Reads a number of MiB that is above another one.
pub(super) fn mib_above(least: u64, word: Given<'_>, accepted: &'static str) -> Result<u64, ConfError> {
    match mib(word)? {
        mib if mib > least => Ok(mib),
        _ => Err(refused(word, accepted)),
    }
}

/// Reads a size in MiB that may not be below the large segment size, and returns it in bytes.
pub(super) fn limit(options: &Options, word: Given<'_>) -> Result<u64, ConfError> {
    let mib = mib(word)?;
    if mib * MIB < options.rest.large_segment_bytes {
        let large_mib = options.rest.large_segment_bytes.div_ceil(MIB);
        return Err(ConfError::new(word.at, Kind::BelowLargeSegment { key: word.key, mib, large_mib }));
    }
    Ok(mib * MIB)
}

/// Reads a decimal number: digits, optionally followed by a point and more digits.
fn decimal(word: Given<'_>) -> Result<f64, ConfError> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (before, after) = word.text.split_once('.').unwrap_or((word.text, "0"));
    let number = word.text.parse().ok().filter(|_| digits(before) && digits(after));
    number.ok_or_else(|| refused(word, "a decimal number such as 0.8 (no sign, no exponent)"))
}

/// Reads a decimal number of which some are accepted.
pub(super) fn share(accepts: impl Fn(f64) -> bool, word: Given<'_>, accepted: &'static str) -> Result<f64, ConfError> {
    let share = decimal(word)?;
    if accepts(share) { Ok(share) } else { Err(refused(word, accepted)) }
}

/// Reads a time: a whole number and its unit. `off` is none.
fn time_or_off(word: Given<'_>) -> Result<Option<Duration>, ConfError> {
    const ACCEPTED: &str = "more than 0, with the unit ms, s or min, such as 30s; or off";
    if word.text == "off" {
        return Ok(None);
    }
    let digits = word.text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = word.text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        _ => return Err(refused(word, ACCEPTED)),
    };
    match whole(Given { text: number, ..word })?.checked_mul(milliseconds) {
        Some(time @ 1..) => Ok(Some(Duration::from_millis(time))),
        _ => Err(refused(word, ACCEPTED)),
    }
}

/// Reads the name of one of a few values.
pub(super) fn one_of<T: Copy, const N: usize>(
    values: [T; N],
    name: fn(T) -> &'static str,
    word: Given<'_>,
    accepted: &'static str,
) -> Result<T, ConfError> {
    let named = values.into_iter().find(|value| name(*value) == word.text);
    named.ok_or_else(|| refused(word, accepted))
}

/// Checks that the backend is the native one.
pub(super) fn backend(word: Given<'_>) -> Result<(), ConfError> {
    match word.text {
        "native" => Ok(()),
        "cudaMallocAsync" => Err(ConfError::new(word.at, Kind::DriverBackend)),
        _ => Err(refused(word, "`native`")),
    }
}

/// Checks a number of threads: a power of two.
pub(super) fn threads(word: Given<'_>) -> Result<(), ConfError> {
    match whole(word)? {
        value if !value.is_power_of_two() => {
            Err(ConfError::new(word.at, Kind::NotAPowerOfTwo { key: word.key, value }))
        }
        1..=128 => Ok(()),
        _ => Err(refused(word, "at most 128")),
    }
}

/// Checks the size of a reservation of addresses: a share of the device's memory, or a number of GiB. The value is not
/// kept.
pub(super) fn reserve(word: Given<'_>) -> Result<(), ConfError> {
    const ACCEPTED: &str = "more than 0: a share of the device's memory such as 1.125, or GiB such as 80G";
    if let Some(number) = word.text.strip_suffix('G') {
        return match whole(Given { text: number, ..word })? {
            1..=1_073_741_824 => Ok(()),
            _ => Err(refused(word, ACCEPTED)),
        };
    }
    share(|share| share > 0.0 && share.is_finite(), word, ACCEPTED).map(drop)
}

/// Checks a list of [reservations](reserve) by the name of a class. The values are not kept.
pub(super) fn reserve_by_class(key: &'static str, value: &Value<'_>) -> Result<(), ConfError> {
    let entries = match value {
        Value::List { entries, .. } => entries,
        Value::Word(word) => return Err(refused(word.of(key), "a list such as `[class:value,class:value]`")),
    };
    let mut names: Vec<&str> = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        reserve(value.of(key))?;
        names.push(name.text);
    }
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]) {
        let (name, _) = entries.iter().rfind(|(name, _)| name.text == twice).expect("the name came from the entries");
        return Err(ConfError::new(name.at, Kind::DuplicateEntry { key, name: name.shown() }));
    }
    Ok(())
}

/// Reads `roundup_power2_divisions`: one number for every slot, or a list by size.
pub(super) fn divisions(key: &'static str, value: &Value<'_>) -> Result<Divisions, ConfError> {
    match value {
        Value::Word(word) => match division(word.of(key))? {
            0 => Err(ConfError::new(word.at, Kind::NotAPowerOfTwo { key, value: 0 })),
            number => Ok(Divisions([number; 16])),
        },
        Value::List { entries, .. } => division_list(key, entries),
    }
}

/// Reads a list of divisions. The key of size 2^k MiB sets slot k, the first key also every slot below it, and `>`
/// every slot after the last key. Slots between two keys stay at 0, as in PyTorch.
fn division_list(key: &'static str, entries: &[(Word<'_>, Word<'_>)]) -> Result<Divisions, ConfError> {
    let mut slots = [0; 16];
    let mut next_slot = 0;
    let mut previous_mib = 0;
    for (index, (size, number)) in entries.iter().enumerate() {
        if size.text == ">" {
            if let Some((after, _)) = entries.get(index + 1) {
                return Err(ConfError::new(after.at, Kind::AfterRest(key)));
            }
            slots[next_slot..].fill(division(number.of(key))?);
            break;
        }
        let mib = whole(size.of(key))?;
        if !mib.is_power_of_two() {
            return Err(ConfError::new(size.at, Kind::NotAPowerOfTwo { key, value: mib }));
        }
        if mib > LAST_SLOT_MIB {
            return Err(refused(size.of(key), "a size from 1 to 32768 MiB, or `>`"));
        }
        if mib <= previous_mib {
            return Err(ConfError::new(size.at, Kind::ListOrder { key, mib, previous_mib }));
        }
        let slot = mib.ilog2() as usize;
        let first = if index == 0 { 0 } else { slot };
        slots[first..=slot].fill(division(number.of(key))?);
        next_slot = slot + 1;
        previous_mib = mib;
    }
    Ok(Divisions(slots))
}

/// Reads a number of divisions: 0 or a power of two.
fn division(word: Given<'_>) -> Result<u64, ConfError> {
    let number = whole(word)?;
    if number != 0 && !number.is_power_of_two() {
        return Err(ConfError::new(word.at, Kind::NotAPowerOfTwo { key: word.key, value: number }));
    }
    if number > DIVISIONS_MAX {
        return Err(refused(word, "at most 1073741824"));
    }
    Ok(number)
}

/// Creates the error for a value that the key does not accept.
fn refused(word: Given<'_>, accepted: &'static str) -> ConfError {
    ConfError::new(word.at, Kind::NotAccepted { key: word.key, value: shorten(word.text), accepted })
}
