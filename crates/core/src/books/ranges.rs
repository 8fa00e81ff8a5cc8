//! The addresses that ranges take, and how many the driver has as far as that is known.

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
