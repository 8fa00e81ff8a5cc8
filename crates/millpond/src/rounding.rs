//! How requests are rounded now: the rules of the core, of which one may change while other threads round.
//!
//! It is read without a lock by every request. So a change is not seen by all threads at once: a request is rounded by
//! the old numbers or by the new ones.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::settings::Divisions;
use millpond_core::units::REQUEST_BYTES_MAX;
use millpond_core::{Sizes, Want};

/// The rounding rules of an allocator. What does not depend on `roundup_power2_divisions` stays as it was.
pub(crate) struct Rounding {
    sizes: Sizes,
    /// Requests below this are rounded to multiples of 512. It is 0 while octaves are divided, and otherwise the size
    /// from which a request is too large for any device: so one comparison stands for both.
    plain_below: AtomicU64,
    divisions: [AtomicU64; 16],
}

impl Rounding {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let divisions = sizes.divisions();
        let rounding = Self { sizes, plain_below: AtomicU64::new(0), divisions: Default::default() };
        rounding.divide(divisions);
        rounding
    }

    /// Rounds a request (not 0), as [`Sizes::want`] does.
    #[inline(always)]
    pub(crate) fn want(&self, requested: u64) -> Option<Want> {
        let rounded = match requested < self.plain_below.load(Ordering::Relaxed) {
            true => Sizes::in_quanta(requested),
            false => self.rounded(requested)?.get(),
        };
        Some(self.sizes.want_of(requested, rounded))
    }

    #[inline(never)]
    fn rounded(&self, requested: u64) -> Option<NonZeroU64> {
        // 0 divisions round to multiples of 512.
        let divisions = self.divisions[Divisions::slot_of(requested)].load(Ordering::Relaxed);
        Sizes::in_steps(requested, divisions)
    }

    /// Divides octaves into these numbers of steps from now on.
    pub(crate) fn divide(&self, divisions: Option<Divisions>) {
        let numbers = divisions.unwrap_or_default().0;
        self.divisions.iter().zip(numbers).for_each(|(slot, number)| slot.store(number, Ordering::Relaxed));
        let plain_below = if divisions.is_some() { 0 } else { REQUEST_BYTES_MAX };
        self.plain_below.store(plain_below, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::settings::Settings;

    use super::*;

    fn sizes(divisions: [u64; 16]) -> Sizes {
        Sizes::new(&Settings { divisions: Divisions(divisions), ..Settings::default() })
    }

    #[test]
    fn requests_are_rounded_as_the_core_does_also_after_a_change() {
        let mut slots = [0; 16];
        (slots[0], slots[3], slots[15]) = (4, 1, 1 << 30);
        let tables = [[0; 16], [1; 16], [8; 16], slots, [0; 16], slots];
        let rounding = Rounding::new(sizes(slots));
        for table in tables {
            let expected = sizes(table);
            rounding.divide(expected.divisions());
            for shift in 0..64 {
                for bytes in
                    [(1 << shift) - 1, 1 << shift, (1 << shift) + 1, 3 << shift >> 1].into_iter().filter(|b| *b > 0)
                {
                    assert_eq!(rounding.want(bytes), expected.want(bytes), "{bytes} bytes, {table:?}");
                    assert_eq!(Rounding::new(expected.clone()).want(bytes), expected.want(bytes));
                }
            }
        }
    }
}
