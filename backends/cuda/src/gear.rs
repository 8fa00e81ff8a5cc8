//! The test gear of a device, as a type: a device without has no trace of it.

use std::fmt;

use millpond_backend::StreamId;

use crate::error::CudaError;

/// What a device does for tests. [`Plain`], for every device that is not under test, does nothing, so that the compiler
/// leaves no call of it in. The feature `testing` has another, with which driver calls fail and streams are held.
///
/// No other type implements it.
pub trait Gear: sealed::Sealed + Default + fmt::Debug + Send + Sync + 'static {
    /// Called before each fallible driver call.
    ///
    /// # Errors
    ///
    /// The failure that is planned for the call, which is then not made.
    #[inline(always)]
    fn strike(&self, _call: &'static str) -> Result<(), CudaError> {
        Ok(())
    }

    /// Called before the host waits for a stream. Lets go on what the gear holds of that stream.
    #[inline(always)]
    fn before_waiting_for(&self, _stream: StreamId) {}

    /// Called before a driver call that waits for the whole device. Lets go on all that the gear holds.
    #[inline(always)]
    fn before_waiting_for_all(&self) {}

    /// Called where the host is about to block, with a question that does not block and has an answer once the wait is
    /// over. Returns an answer if there was one while the gear held a stream; the caller blocks where there was none.
    #[inline(always)]
    fn watch<T>(&self, _ask: impl FnMut() -> Option<T>) -> Option<T> {
        None
    }
}

/// No gear: a device as programs use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Plain;

impl Gear for Plain {}

/// Keeps [`Gear`] to the types of this crate.
pub(crate) mod sealed {
    /// Implemented by the gears.
    pub trait Sealed {}
}

impl sealed::Sealed for Plain {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_gear_takes_no_space_and_fails_nothing() {
        assert_eq!(size_of::<Plain>(), 0);
        assert_eq!(Plain.strike("a call"), Ok(()));
        assert_eq!(Plain.watch(|| -> Option<()> { panic!("nothing is held") }), None);
    }
}
