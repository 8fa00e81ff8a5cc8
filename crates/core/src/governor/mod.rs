//! How much memory `paged` creates, and how large its pages are.
//!
//! A [`Governor`] works like a congestion controller: it is told numbers and asked for numbers. It sees no block, no
//! shard and no plan. [`Fixed`] is the baseline of every comparison. [`Adaptive`] finds out how streams share the
//! device.

mod adaptive;
mod fixed;
mod pace;
pub(crate) mod sizes;

use alloc::boxed::Box;
use core::fmt;

use adaptive::Adaptive;
use fixed::Fixed;
use millpond_backend::{Point, StreamId, Tick};
use sizes::Slack;

use crate::settings::Growth;
use crate::stats::Sharing;

/// What is known when a request needs memory. All numbers are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// What the request gets.
    pub(crate) wanted: u64,
    /// The most that was ever live in the request's pool, the request among it.
    pub(crate) high_live: u64,
    /// What is reserved for that pool.
    pub(crate) reserved: u64,
    /// Whether the device still uses free memory for which the request would have to wait.
    pub(crate) is_behind: bool,
}

/// How much may be created for a request. Both are numbers of reserved bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Creation {
    /// Up to here pages are created before free memory is used after waits, or gathered.
    pub(crate) eager: u64,
    /// Up to here pages are created instead of having the stream wait. `None`: it waits at once.
    pub(crate) instead_of_waiting: Option<u64>,
}

/// What decides how much is created.
pub(crate) trait Governor: fmt::Debug + Send + Sync {
    /// Returns whether [`Situation::is_behind`] matters, which costs a look at each free block to find out.
    fn asks_whether_behind(&self) -> bool {
        false
    }

    /// Returns how much may be created for a request.
    fn creation(&self, situation: &Situation) -> Creation;

    /// Takes in how far streams were at a time.
    fn look(&mut self, _reached: &mut dyn Iterator<Item = Point>, _now: u64) {}

    /// Notes that a number of blocks was granted to a stream since the last mark. The device does their work before it
    /// reaches a tick, which is reached or not.
    fn mark(&mut self, _point: Point, _is_reached: bool, _granted: u64) {}

    /// Notes that a stream waits for others on the device. `covered` is a tick of it that covers the wait.
    fn wait(&mut self, _stream: StreamId, _covered: Tick) {}

    /// Returns how streams share the device, as far as that is known.
    fn sharing(&self) -> Sharing {
        Sharing::Untold
    }

    /// Returns the largest page to create where this many bytes will be reserved.
    fn page_bytes(&self, reserved: u64, granularity: u64) -> u64 {
        sizes::page_cap(reserved, granularity)
    }
}

/// Returns the governor of a setting.
pub(crate) fn governor(growth: Growth, slack: Slack) -> Box<dyn Governor> {
    match growth {
        Growth::Tight => Box::new(Fixed::new(slack)),
        Growth::Balanced => Box::new(Adaptive::new(slack)),
    }
}
