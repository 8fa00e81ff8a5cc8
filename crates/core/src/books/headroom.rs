//! What is reserved, what the driver is being asked for, and how much more may be: of memory, and of addresses.

use crate::ids::Side;
use crate::stats::{Stat, StatByPool};

/// The bytes got from the driver, the limits on them, and PyTorch's counters of segments and driver calls.
#[derive(Clone, Default)]
pub(crate) struct Headroom {
    pub(crate) total_bytes: u64,
    /// The limit on reserved bytes, if there is one. What is reserved beyond it stays.
    pub(crate) limit: Option<u64>,
    pub(crate) reserved: StatByPool,
    /// Bytes that plans are asking the driver for right now, and those of plans that were lost meanwhile.
    asked: u64,
    pub(crate) segments: StatByPool,
    pub(crate) oversize_segments: Stat,
    /// Segments from this size count as oversize.
    oversize_bytes: u64,
    pub(crate) allocations: u64,
    pub(crate) releases: u64,
}

impl Headroom {
    /// Returns the book of a device with `total_bytes` bytes of which nothing is reserved. Segments of at least
    /// `oversize_bytes` bytes are counted as oversize.
    pub(crate) fn new(total_bytes: u64, oversize_bytes: u64) -> Self {
        Self { total_bytes, oversize_bytes, ..Self::default() }
    }

    /// Sets the limit as a share of the device's bytes; 1 is no limit.
    pub(crate) fn set_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then(|| self.share(fraction));
    }

    /// Returns a share of the device's bytes.
    pub(crate) fn share(&self, fraction: f64) -> u64 {
        (fraction * self.total_bytes as f64) as u64
    }

    /// Returns the bytes got from the driver and not given back.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved.all.current
    }

    /// Returns the bytes reserved, with those that the driver is being asked for.
    pub(crate) fn with_asked(&self) -> u64 {
        self.reserved.all.current + self.asked
    }

    /// Returns how many more bytes may be asked for. `allowance` is what a plan has to stay within besides the limit.
    pub(crate) fn room(&self, allowance: Option<u64>) -> u64 {
        let most = self.limit.unwrap_or(u64::MAX).min(allowance.unwrap_or(u64::MAX));
        most.saturating_sub(self.with_asked())
    }

    /// Returns whether `bytes` more may be asked for: the one rule of admission.
    pub(crate) fn admits(&self, bytes: u64, allowance: Option<u64>) -> bool {
        bytes <= self.room(allowance)
    }

    /// Returns whether a request of `bytes` could be served if nothing else were reserved.
    pub(crate) fn could_hold(&self, bytes: u64) -> bool {
        bytes <= self.limit.unwrap_or(u64::MAX).min(self.total_bytes)
    }

    /// Counts bytes that the driver is about to be asked for: they count against the limit until the answer is known.
    pub(crate) fn ask(&mut self, bytes: u64) {
        self.asked += bytes;
    }

    /// Ends what [`ask`](Self::ask) began, whatever the driver answered.
    pub(crate) fn end_ask(&mut self, bytes: u64) {
        self.asked -= bytes;
    }

    /// Books memory that the driver gave.
    pub(crate) fn gain(&mut self, side: Side, bytes: u64) {
        self.reserved.change(side, |stat| stat.increase(bytes));
        self.allocations += 1;
    }

    /// Books memory that goes back to the driver.
    pub(crate) fn lose(&mut self, side: Side, bytes: u64) {
        self.reserved.change(side, |stat| stat.decrease(bytes));
        self.releases += 1;
    }

    /// Books a plain segment that the driver gave, with its memory.
    pub(crate) fn gain_segment(&mut self, side: Side, bytes: u64) {
        self.gain(side, bytes);
        self.segments.change(side, |stat| stat.increase(1));
        if bytes >= self.oversize_bytes {
            self.oversize_segments.increase(1);
        }
    }

    /// Books a plain segment that goes back, with its memory.
    pub(crate) fn lose_segment(&mut self, side: Side, bytes: u64) {
        self.lose(side, bytes);
        self.segments.change(side, |stat| stat.decrease(1));
        if bytes >= self.oversize_bytes {
            self.oversize_segments.decrease(1);
        }
    }

    /// Sets the size from which segments count as oversize. `segments` are the bytes of all plain segments.
    pub(crate) fn set_oversize(&mut self, bytes: u64, segments: impl Iterator<Item = u64>) {
        let before = core::mem::replace(&mut self.oversize_bytes, bytes);
        for segment in segments {
            match (segment >= before, segment >= bytes) {
                (false, true) => self.oversize_segments.increase(1),
                (true, false) => self.oversize_segments.decrease(1),
                _ => {}
            }
        }
    }

    /// Sets every peak to what is there now.
    pub(crate) fn reset_peaks(&mut self) {
        self.reserved.each(Stat::reset_peak);
        self.segments.each(Stat::reset_peak);
        self.oversize_segments.reset_peak();
    }

    /// Sets what came and what went, and the counts of driver calls, to 0.
    pub(crate) fn reset_totals(&mut self) {
        self.reserved.each(Stat::reset_totals);
        self.segments.each(Stat::reset_totals);
        self.oversize_segments.reset_totals();
        (self.allocations, self.releases) = (0, 0);
    }

    /// Verifies that `held`, the bytes in segments and spare pages by side, is what is reserved, and that of the plain
    /// `segments`, in bytes, those are counted that are oversize.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(crate) fn check(&self, held: [u64; 2], segments: &[u64]) {
        let oversize = segments.iter().filter(|bytes| **bytes >= self.oversize_bytes).count() as u64;
        assert_eq!(oversize, self.oversize_segments.current, "oversize segments against those counted");
        let reserved = [self.reserved.small_pool.current, self.reserved.large_pool.current];
        assert_eq!(held, reserved, "bytes in segments and spare pages against bytes reserved, by side");
        let sum: u64 = reserved.iter().sum();
        assert_eq!(sum, self.reserved.all.current, "bytes reserved on both sides against those of the device");
    }
}

/// What a range of addresses is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addresses {
    /// Pages have their homes there. The number is the bytes of new pages that the range is needed for.
    Home(u64),
    /// Windows. The number is the length in bytes of the one that the range is needed for.
    Windows(u64),
}

/// The book of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranges {
    /// The bytes of addresses that the device says it has. `u64::MAX` if it does not say, or has more than enough.
    told: u64,
    /// The same, or fewer where the driver has refused a range since ranges went back last.
    total: u64,
    /// The bytes of all ranges.
    taken: u64,
}

impl Ranges {
    /// Creates the book of a device that says it has this number of bytes of addresses.
    pub(crate) fn new(told: u64) -> Self {
        Self { told, total: told, taken: 0 }
    }

    /// Returns the bytes of addresses that no range has yet. `u64::MAX` if addresses are not known to be scarce.
    pub(crate) fn left(&self) -> u64 {
        if self.total == u64::MAX { u64::MAX } else { self.total.saturating_sub(self.taken) }
    }

    /// Notes that a range of this length is there.
    pub(crate) fn gain(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// Notes that a range of this length goes back.
    pub(crate) fn lose(&mut self, bytes: u64) {
        self.taken -= bytes;
        self.forget_refusals();
    }

    /// Notes that the driver has refused a range of this length: fewer addresses are left.
    pub(crate) fn refused(&mut self, bytes: u64) {
        self.total = self.total.min(self.taken + bytes - 1);
    }

    /// Has the driver asked again for what it refused.
    pub(crate) fn forget_refusals(&mut self) {
        self.total = self.told;
    }

    /// Verifies that `held`, the bytes of all ranges, is what was noted.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(crate) fn check(&self, held: u64) {
        assert_eq!(self.taken, held, "bytes of addresses noted against those in ranges");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_counts_against_the_limit_until_it_is_answered() {
        let mut book = Headroom::new(1000, u64::MAX);
        book.limit = Some(100);
        book.ask(60);
        assert!(book.admits(40, None) && !book.admits(41, None));
        book.end_ask(60);
        assert!(book.admits(100, None));
        book.gain(Side::Large, 60);
        assert_eq!((book.reserved_bytes(), book.room(None)), (60, 40));
    }

    #[test]
    fn an_allowance_below_the_limit_counts_as_one() {
        let mut book = Headroom::new(1000, u64::MAX);
        book.limit = Some(100);
        assert!(book.admits(100, Some(200)) && !book.admits(81, Some(80)));
        assert!(book.could_hold(100) && !book.could_hold(101), "an allowance is left once nothing else serves");
    }

    #[test]
    fn without_a_limit_the_device_is_one() {
        let book = Headroom::new(1000, u64::MAX);
        assert!(book.could_hold(1000) && !book.could_hold(1001));
        assert!(book.admits(1001, None), "the driver is asked");
    }

    #[test]
    fn sides_and_segments_are_counted_apart() {
        let mut book = Headroom::new(1000, 50);
        book.gain_segment(Side::Large, 50);
        book.gain_segment(Side::Small, 2);
        book.check([2, 50], &[2, 50]);
        let count = (book.reserved.all.current, book.segments.all.current, book.oversize_segments.current);
        assert_eq!(count, (52, 2, 1));
        assert_eq!((book.reserved.all.allocated, book.reserved.all.freed), (52, 0));
        book.lose_segment(Side::Large, 50);
        assert_eq!((book.allocations, book.releases), (2, 1));
    }

    #[test]
    #[should_panic(expected = "bytes reserved, by side")]
    fn bytes_on_the_wrong_side_are_found() {
        let mut book = Headroom::new(1000, 50);
        book.gain(Side::Large, 50);
        book.check([50, 0], &[]);
    }

    #[test]
    fn a_refused_range_says_how_many_addresses_are_left() {
        let mut ranges = Ranges::new(u64::MAX);
        ranges.gain(100);
        assert_eq!(ranges.left(), u64::MAX, "nothing says that they are scarce");
        ranges.refused(50);
        assert_eq!(ranges.left(), 49);
        ranges.refused(70);
        assert_eq!(ranges.left(), 49, "that is known already");
        ranges.gain(30);
        assert_eq!(ranges.left(), 19);
        ranges.lose(30);
        assert_eq!(ranges.left(), u64::MAX, "the driver may have more than it had");
        ranges.check(100);
    }

    #[test]
    fn where_the_device_says_it_no_more_than_that_is_left() {
        let mut ranges = Ranges::new(100);
        ranges.refused(80);
        assert_eq!(ranges.left(), 79);
        ranges.forget_refusals();
        ranges.gain(60);
        assert_eq!(ranges.left(), 40);
    }
}
