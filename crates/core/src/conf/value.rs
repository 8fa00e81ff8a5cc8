//! The step from words to values.

use alloc::vec::Vec;

use super::error::{ConfError, ConfErrorKind as Kind, shorten};
use super::grammar::{Given, Value, Word};
use crate::settings::{Divisions, Options, PolicyName};
use crate::units::{MIB, REQUEST_BYTES_MAX};

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
    if mib * MIB < options.large_segment_bytes {
        let large_mib = options.large_segment_bytes.div_ceil(MIB);
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

/// Reads the name of a policy, or `auto`.
pub(super) fn policy(word: Given<'_>) -> Result<Option<PolicyName>, ConfError> {
    match PolicyName::find(word.text) {
        _ if word.text == "auto" => Ok(None),
        Some(name) => Ok(Some(name)),
        None => Err(refused(word, "`paged`, `classic`, `direct` or `auto`")),
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
