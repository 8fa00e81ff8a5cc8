//! The free parts of a range of numbers: addresses, or offsets in a memory file.

use std::collections::BTreeMap;

/// The free parts. The first that fits is taken, so that what was given back is soon taken again, as drivers do.
pub(crate) struct Gaps {
    /// The end of each part, by its start.
    free: BTreeMap<u64, u64>,
}

impl Gaps {
    pub(crate) fn new(start: u64, end: u64) -> Gaps {
        Gaps { free: BTreeMap::from([(start, end)]) }
    }

    /// Takes a range that starts at a multiple of `align`: at `wish` if it is free there, or else at the first place
    /// that fits.
    pub(crate) fn take(&mut self, bytes: u64, align: u64, wish: u64) -> Option<u64> {
        let granted = Some(wish).filter(|wish| *wish != 0 && wish.is_multiple_of(align) && self.fits(*wish, bytes));
        let start = granted.or_else(|| self.first(bytes, align))?;
        let (&gap, &end) = self.free.range(..=start).next_back()?;
        self.free.remove(&gap);
        if gap < start {
            self.free.insert(gap, start);
        }
        if start + bytes < end {
            self.free.insert(start + bytes, end);
        }
        Some(start)
    }

    fn fits(&self, start: u64, bytes: u64) -> bool {
        self.free.range(..=start).next_back().is_some_and(|(_, &end)| start < end && bytes <= end - start)
    }

    fn first(&self, bytes: u64, align: u64) -> Option<u64> {
        self.free.iter().find_map(|(&gap, &end)| {
            let start = gap.checked_next_multiple_of(align)?;
            (start < end && bytes <= end - start).then_some(start)
        })
    }

    /// Gives back a range that was taken.
    pub(crate) fn give(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, &meets)) = self.free.range(..=start).next_back() {
            assert!(meets <= start, "{start:#x} is given back, but free to {meets:#x}");
            if meets == start {
                self.free.remove(&before);
                start = before;
            }
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_joined_and_taken_again() {
        let mut gaps = Gaps::new(16, 128);
        assert_eq!(gaps.take(16, 32, 0), Some(32), "aligned");
        assert_eq!(gaps.take(16, 16, 0), Some(16), "the first that fits");
        assert_eq!(gaps.take(32, 16, 64), Some(64), "as wished");
        assert_eq!(gaps.take(32, 16, 80), Some(96), "the wish is taken, so it is the first that fits");
        assert_eq!(gaps.take(32, 16, 0), None);
        gaps.give(64, 32);
        gaps.give(32, 16);
        gaps.give(16, 16);
        gaps.give(96, 32);
        assert_eq!(gaps.take(112, 16, 0), Some(16), "all of it is one again");
        assert_eq!(gaps.take(1, 1, 0), None);
    }

    #[test]
    #[should_panic(expected = "is given back, but free")]
    fn nothing_is_given_back_twice() {
        let mut gaps = Gaps::new(0, 64);
        gaps.take(32, 1, 0);
        gaps.give(0, 32);
        gaps.give(0, 32);
    }
}
