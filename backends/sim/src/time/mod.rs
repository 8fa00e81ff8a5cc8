//! Time: the work that is queued and not finished, the order in which it completes, and what is reached.
//!
//! `state` is what the device's lock guards, `schedule` completes work, `ticks` closes and queries them, and `hazard`
//! finds work that nothing orders, with `order` for that of one stream.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, MutexGuard};

use crate::open::{Completion, StreamOrder};
use crate::streams::Streams;

pub(crate) mod hazard;
mod order;
mod schedule;
pub(crate) mod state;
mod ticks;

use state::State;

/// The time of the streams: the storey above them.
pub(crate) struct Time {
    streams: Streams,
    completion: Completion,
    order: StreamOrder,
    /// Whether a marked tick stays open where work follows.
    pub(crate) closes_late: AtomicBool,
    state: Mutex<State>,
    /// The number of unfinished tasks of all lanes. Changed only under `state`.
    pub(crate) queued: AtomicU64,
}

impl Deref for Time {
    type Target = Streams;

    #[inline]
    fn deref(&self) -> &Streams {
        &self.streams
    }
}

impl Time {
    pub(crate) fn new(streams: Streams, completion: Completion, order: StreamOrder) -> Time {
        let state = Mutex::new(State::new(completion));
        let (closes_late, queued) = (AtomicBool::new(false), AtomicU64::new(0));
        Time { streams, completion, order, closes_late, state, queued }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
