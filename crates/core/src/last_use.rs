//! When memory was used last, and whether it ever was.

use core::fmt;

use millpond_backend::Tick;

/// The last use of some memory on the stream that has it: the tick that covers it, or that there was none.
///
/// Memory that was used at no tick of that stream, because another stream used it and is done, was used all the same:
/// that is the tick 0, which every stream has reached. Of two last uses the greater one covers both, and never used is
/// less than everything; so what is joined from several parts is unused only if each of them is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastUse(u64);

impl LastUse {
    /// The memory is as the driver gave it.
    pub const NEVER: LastUse = LastUse(0);

    /// The memory was used, and this tick covers the last use.
    #[inline(always)]
    pub const fn at(tick: Tick) -> Self {
        Self(tick.0.saturating_add(1))
    }

    /// The tick that covers the last use; 0, which is always reached, if there was none.
    #[inline(always)]
    pub const fn tick(self) -> Tick {
        Tick(self.0.saturating_sub(1))
    }

    /// The memory was not used since it came from the driver.
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
