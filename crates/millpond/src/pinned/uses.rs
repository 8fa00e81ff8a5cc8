//! The device's uses of a page-locked buffer that may not be complete.

use millpond_backend::{Backend, Point};

use crate::error::Error;
use crate::state::State;
use crate::sync::Mutex;

/// The kind of access that work makes to a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The points that cover the device's work on a buffer, at most one of each kind for a stream.
pub(crate) struct Uses(Mutex<Vec<(Access, Point)>>);

/// Proof that no device work is in progress that would conflict with the host's access. Only [`Uses`] creates it.
pub(crate) struct NoConflict(());

impl Uses {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn add(&self, access: Access, point: Point) {
        let mut uses = self.0.lock();
        match uses.iter_mut().find(|(kind, known)| (*kind, known.stream) == (access, point.stream)) {
            Some((_, known)) => known.tick = known.tick.max(point.tick),
            None => uses.push((access, point)),
        }
    }

    /// Checks that the host may read (no write is in progress) or write (no use is in progress). Removes the uses that
    /// are complete.
    pub(crate) fn expect_no_conflict<B: Backend>(
        &self,
        state: &State<B>,
        host: Access,
    ) -> Result<NoConflict, Error<B::Error>> {
        let mut uses = self.0.lock();
        let mut at = 0;
        while let Some(&(access, point)) = uses.get(at) {
            if host == Access::Read && access == Access::Read {
                at += 1;
                continue;
            }
            let reached = state.backend.reached(point.stream).map_err(|e| Error::of_driver("reached", e))?;
            if reached < point.tick {
                return Err(Error::InUse { point, reached });
            }
            uses.swap_remove(at);
        }
        Ok(NoConflict(()))
    }

    /// Submits the work that is not submitted yet, and blocks until all of it is complete.
    pub(crate) fn wait<B: Backend>(&self, state: &State<B>) -> Result<(), Error<B::Error>> {
        let uses = self.0.lock().clone();
        for (_, point) in uses {
            if state.backend.mark(point.stream) == point.tick {
                state.backend.submit(point.stream).map_err(|e| Error::of_driver("submit", e))?;
            }
            let reached = state.wait(point)?.tick;
            if reached < point.tick {
                return Err(Error::NotReached { point, reached });
            }
        }
        Ok(())
    }
}
