//! The last use of memory, and whether it was ever used.

use core::fmt;

use millpond_backend::Tick;

/// The last use of some memory on the stream that has it: the tick that covers it, or that the memory was never used.
///
/// Memory may have been used at no tick of that stream, because another stream used it and that use is over. It counts
/// as used at the tick 0, which every stream has reached. Of two last uses the greater one covers both, and never used
/// is less than every use. So what is joined from several parts counts as unused only if each of them is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastUse(u64);

impl LastUse {
    /// No use: the memory is as the driver gave it.
    pub const NEVER: LastUse = LastUse(0);

    /// Creates the last use of memory that was used, covered by this tick.
    #[inline(always)]
    pub const fn at(tick: Tick) -> Self {
        Self(tick.0.saturating_add(1))
    }

    /// Returns the tick that covers the last use, or 0, which is always reached, if there was none.
    #[inline(always)]
    pub const fn tick(self) -> Tick {
        Tick(self.0.saturating_sub(1))
    }

    /// Returns whether the memory was never used since it came from the driver.
    #[inline(always)]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for LastUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() { f.write_str("never") } else { write!(f, "tick {}", self.tick().0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_used_at_no_tick_of_its_stream_was_used_all_the_same() {
        assert!(LastUse::NEVER.is_never() && !LastUse::at(Tick::ZERO).is_never());
        assert_eq!((LastUse::NEVER.tick(), LastUse::at(Tick::ZERO).tick()), (Tick::ZERO, Tick::ZERO));
        assert_eq!(LastUse::at(Tick(7)).tick(), Tick(7));
    }

    #[test]
    fn the_greater_of_two_covers_both() {
        let (never, long_ago, later) = (LastUse::NEVER, LastUse::at(Tick::ZERO), LastUse::at(Tick(3)));
        assert_eq!((never.max(long_ago), long_ago.max(later), never.max(later)), (long_ago, later, later));
    }
}
