//! Bugs to plant on purpose, so that tests can show that they would be caught.
//!
//! Only the feature `plant` can plant one. Without it every test for a planted bug is `false` at compile time, and no
//! code for it remains.

/// A bug. Each changes one line of the allocator's behaviour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Plant {
    /// Uses on other streams are not noted, so memory is granted while they still run.
    EarlyReuse,
    /// A freed block does not join the free block behind it.
    MissedMerge,
    /// A block that waits for a tick becomes free when the tick before it is reached.
    OffByOneTick,
    /// A cached segment is forgotten instead of released.
    LeakedSegment,
    /// `requested_bytes` counts sizes after rounding.
    WrongCounter,
}

#[cfg(feature = "plant")]
impl Plant {
    /// Every bug.
    pub const ALL: [Plant; 5] =
        [Plant::EarlyReuse, Plant::MissedMerge, Plant::OffByOneTick, Plant::LeakedSegment, Plant::WrongCounter];
}

/// The bug that is planted, if any. It takes no space without the feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "plant")]
    bug: Option<Plant>,
}

impl Planted {
    #[cfg(feature = "plant")]
    pub(crate) fn new(bug: Option<Plant>) -> Self {
        Self { bug }
    }

    /// Returns whether that bug is planted.
    #[inline(always)]
    pub(crate) fn is(self, bug: Plant) -> bool {
        #[cfg(feature = "plant")]
        return self.bug == Some(bug);
        #[cfg(not(feature = "plant"))]
        {
            let _ = bug;
            false
        }
    }
}
