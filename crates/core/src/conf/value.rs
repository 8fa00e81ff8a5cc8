//! The step from words to values.

use alloc::vec::Vec;

use super::error::{ConfError, ConfErrorKind as Kind};
use super::grammar::{Value, Word};
use crate::settings::Divisions;
use crate::units::{MIB, REQUEST_BYTES_MAX};

/// The largest number of MiB that a key accepts. No larger request is served.
const MIB_MAX: u64 = REQUEST_BYTES_MAX / MIB;
/// The largest number of divisions, the same as in PyTorch's 32-bit parser. 512 times this number still fits in 64
/// bits.
const DIVISIONS_MAX: u64 = 1 << 30;
/// The size that the last slot of [`Divisions`] serves, in MiB.
const LAST_SLOT_MIB: u64 = 1 << 15;

/// Reads `True` or `False`.
pub(super) fn boolean(key: &'static str, word: Word<'_>) -> Result<bool, ConfError> {
    match word.text {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(ConfError::new(word.at, Kind::NotABoolean { key, value: word.shown() })),
    }
}

/// Reads a whole number.
pub(super) fn whole(key: &'static str, word: Word<'_>) -> Result<u64, ConfError> {
    if word.text.is_empty() || !word.text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ConfError::new(word.at, Kind::NotANumber { key, value: word.shown() }));
    }
    word.text.parse().map_err(|_| ConfError::new(word.at, Kind::Overflow { key, value: word.shown() }))
}

/// Reads a number of MiB, and returns it in MiB. Its bytes are within what requests may have.
pub(super) fn mib(key: &'static str, word: Word<'_>) -> Result<u64, ConfError> {
    match whole(key, word)? {
        mib if mib <= MIB_MAX => Ok(mib),
        _ => Err(out_of_range(key, word, "at most 1099511627776 (1 EiB in MiB)")),
    }
}

/// Reads a decimal number: digits, optionally followed by a point and more digits.
pub(super) fn decimal(key: &'static str, word: Word<'_>) -> Result<f64, ConfError> {
    let refuse = || ConfError::new(word.at, Kind::NotADecimal { key, value: word.shown() });
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = match word.text.split_once('.') {
        None => digits(word.text),
        Some((before, after)) => digits(before) && digits(after),
    };
    if !well_formed {
        return Err(refuse());
    }
    word.text.parse().map_err(|_| refuse())
}

/// Checks the size of a reservation of addresses: a share of the device's memory, or a number of GiB. The value is not
/// kept.
pub(super) fn reserve(key: &'static str, word: Word<'_>) -> Result<(), ConfError> {
    const ACCEPTED: &str = "more than 0: a share of the device's memory such as 1.125, or GiB such as 80G";
    if let Some(number) = word.text.strip_suffix('G') {
        return match whole(key, Word { text: number, at: word.at })? {
            1..=1_073_741_824 => Ok(()),
            _ => Err(out_of_range(key, word, ACCEPTED)),
        };
    }
    let share = decimal(key, word)?;
    if share > 0.0 && share.is_finite() { Ok(()) } else { Err(out_of_range(key, word, ACCEPTED)) }
}

/// Checks a list of [reservations](reserve) by the name of a class. The values are not kept.
pub(super) fn reserve_by_class(key: &'static str, value: &Value<'_>) -> Result<(), ConfError> {
    let entries = match value {
        Value::List { entries, .. } => entries,
        Value::Word(word) => return Err(ConfError::new(word.at, Kind::ListExpected { key, value: word.shown() })),
    };
    let mut names: Vec<&str> = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        reserve(key, *value)?;
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
        Value::Word(word) => match division(key, *word)? {
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
                return Err(ConfError::new(after.at, Kind::AfterRest { key }));
            }
            slots[next_slot..].fill(division(key, *number)?);
            break;
        }
        let mib = whole(key, *size)?;
        if !mib.is_power_of_two() {
            return Err(ConfError::new(size.at, Kind::NotAPowerOfTwo { key, value: mib }));
        }
        if mib > LAST_SLOT_MIB {
            return Err(out_of_range(key, *size, "a size from 1 to 32768 MiB, or `>`"));
        }
        if mib <= previous_mib {
            return Err(ConfError::new(size.at, Kind::ListOrder { key, mib, previous_mib }));
        }
        let slot = mib.ilog2() as usize;
        let first = if index == 0 { 0 } else { slot };
        slots[first..=slot].fill(division(key, *number)?);
        next_slot = slot + 1;
        previous_mib = mib;
    }
    Ok(Divisions(slots))
}

/// Reads a number of divisions: 0 or a power of two.
fn division(key: &'static str, word: Word<'_>) -> Result<u64, ConfError> {
    let number = whole(key, word)?;
    if number != 0 && !number.is_power_of_two() {
        return Err(ConfError::new(word.at, Kind::NotAPowerOfTwo { key, value: number }));
    }
    if number > DIVISIONS_MAX {
        return Err(out_of_range(key, word, "at most 1073741824"));
    }
    Ok(number)
}

/// Creates the error for a value that is well formed and too small or too large.
pub(super) fn out_of_range(key: &'static str, word: Word<'_>, accepted: &'static str) -> ConfError {
    ConfError::new(word.at, Kind::OutOfRange { key, value: word.shown(), accepted })
}
