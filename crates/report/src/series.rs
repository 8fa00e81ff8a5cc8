//! Series of numbers as the page reads them: short, and each written once.

use serde::{Serialize, Serializer};

/// Numbers that are written as text, because that is a third of a list of them: the differences of neighbours, the
/// first as it is, divided by what divides all of them. A space follows that divisor.
///
/// A difference is a number in digits of five bits, the lowest first; its lowest bit says whether it is negative. A
/// digit is one of `DIGITS`, in the upper half of them if another digit follows. A point and a number stand for that
/// many differences of zero.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Series(pub Vec<u64>);

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// From how many differences of zero on it is shorter to count them.
const FLAT_MIN: usize = 3;

impl Series {
    fn text(&self) -> String {
        let before = std::iter::once(0).chain(self.0.iter().copied());
        let steps = self.0.iter().zip(before).map(|(&now, before)| now.wrapping_sub(before).cast_signed());
        let steps: Vec<i64> = steps.collect();
        let unit = steps.iter().fold(0, |unit, step| divisor(step.unsigned_abs(), unit)).max(1);
        let mut text = format!("{unit} ");
        for equal in steps.chunk_by(|one, next| *one == 0 && *next == 0) {
            if equal.len() >= FLAT_MIN {
                text.push('.');
                number(&mut text, equal.len() as u128);
                continue;
            }
            for step in equal {
                // One bit more than the number has: the largest takes 65.
                let size = u128::from(step.unsigned_abs() / unit);
                number(&mut text, size << 1 | u128::from(*step < 0));
            }
        }
        text
    }
}

/// Returns the greatest common divisor.
fn divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

fn number(text: &mut String, mut number: u128) {
    loop {
        let (digit, rest) = ((number & 31) as usize, number >> 5);
        text.push(char::from(DIGITS[if rest > 0 { digit + 32 } else { digit }]));
        if rest == 0 {
            return;
        }
        number = rest;
    }
}

impl Serialize for Series {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl FromIterator<u64> for Series {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(series: &[u64]) -> String {
        series.iter().copied().collect::<Series>().text()
    }

    /// Reads what [`Series`] writes, as the script of the page does.
    fn read(text: &str) -> Vec<u64> {
        let (unit, text) = text.split_once(' ').expect("a divisor");
        let unit: u64 = unit.parse().expect("a number");
        let (mut numbers, mut now, mut bytes) = (Vec::new(), 0_u64, text.bytes().peekable());
        while bytes.peek().is_some() {
            let is_flat = bytes.next_if_eq(&b'.').is_some();
            let (mut value, mut shift) = (0_u128, 0);
            loop {
                let byte = bytes.next().expect("a digit");
                let digit = DIGITS.iter().position(|digit| *digit == byte).expect("a digit");
                value |= (digit as u128 & 31) << shift;
                shift += 5;
                if digit < 32 {
                    break;
                }
            }
            if is_flat {
                numbers.extend((0..value).map(|_| now));
                continue;
            }
            let step = unit * u64::try_from(value >> 1).expect("64 bits");
            now = if value & 1 == 1 { now.wrapping_sub(step) } else { now.wrapping_add(step) };
            numbers.push(now);
        }
        numbers
    }

    #[test]
    fn a_series_is_written_as_differences() {
        assert_eq!(written(&[]), "1 ");
        assert_eq!(written(&[0; 720]), "1 .wW");
        assert_eq!(written(&[1024, 1536, 1536, 1536, 1536, 512]), "512 EC.DF");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let random = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (at % 60);
        let lists: [Vec<u64>; 4] =
            [vec![5, 7, 7, 0, 1 << 40], vec![u64::MAX, 0, 1 << 63, 1], (0..300).map(random).collect(), vec![3; 50]];
        for list in lists {
            assert_eq!(read(&written(&list)), list);
        }
    }
}
