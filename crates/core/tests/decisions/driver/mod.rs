//! The one driver of these tests: it keeps an allocator, performs the steps of its plans on a simulated GPU, and
//! reports the outcomes. A test says what the streams do, up to which step a plan goes, and what fails.

mod device;
mod facts;
mod gpu;
mod meddled;
mod steps;

use std::ops::Deref;

use millpond_backend::{Point, StreamId, Tick};
use millpond_core::settings::Growth;
use millpond_core::{BlockId, Grant, Plan, ShardId, Step};

pub(crate) use device::Device;
pub(crate) use facts::{Facts, Lane};
pub(crate) use gpu::{ASKED, Gpu, polled};
pub(crate) use meddled::Meddled;
pub(crate) use steps::{
    is_pages, is_pause, is_poll, is_release, is_reserve, is_stream_wait, is_wait, mapped, maps, released, unmapped,
};

pub(crate) const MIB: u64 = 1 << 20;

/// A block that is held, with the shard that it belongs to and its place there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) shard: usize,
    pub(crate) grant: Grant,
}

impl Held {
    pub(crate) fn id(&self) -> (ShardId, BlockId) {
        (ShardId(self.shard as u32), self.grant.block)
    }

    /// Returns its shard, its slot and its offset.
    pub(crate) fn place(&self) -> (usize, u32, u64) {
        (self.shard, self.grant.slot.0, self.grant.offset)
    }

    pub(crate) fn overlaps(&self, other: &Held) -> bool {
        let apart = self.offset + self.size <= other.offset || other.offset + other.size <= self.offset;
        (self.shard, self.slot) == (other.shard, other.slot) && !apart
    }
}

impl Deref for Held {
    type Target = Grant;

    fn deref(&self) -> &Grant {
        &self.grant
    }
}

pub(crate) fn point(stream: u32, tick: u64) -> Point {
    Point { stream: StreamId(stream), tick: Tick(tick) }
}

pub(crate) fn empty_cache() -> Plan {
    Plan::empty_cache([0; 2])
}

/// Returns what a plan was granted, if it was. A block that is not lent belongs to the shard that asked.
pub(crate) fn granted(end: &Step, asked: usize) -> Option<Held> {
    match end {
        Step::Grant(grant) => Some(Held { shard: asked, grant: *grant }),
        Step::Lend { lender, grant } => Some(Held { shard: lender.0 as usize, grant: *grant }),
        _ => None,
    }
}

/// Sets up a stream with blocks of these lengths in MiB, one behind the other, of which every other one is free,
/// beginning with the first. They are all that the limit allows. Returns the blocks between them.
pub(crate) fn with_gaps(growth: Growth, shard: usize, mib: &[u64]) -> (Device, Vec<Held>) {
    let limit = mib.iter().sum::<u64>() * MIB;
    gaps_on(Device::new(growth, limit), shard, mib)
}

/// Does the work of [`with_gaps`] on a device.
pub(crate) fn gaps_on(mut device: Device, shard: usize, mib: &[u64]) -> (Device, Vec<Held>) {
    let between = device.gaps(shard, mib, 1);
    (device, between)
}
