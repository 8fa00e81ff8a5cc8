#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod block;
mod books;
mod coordinator;
mod governor;
mod ids;
mod index;
#[cfg(feature = "plant")]
pub mod looks;
#[cfg(not(feature = "plant"))]
mod looks;
mod memory;
mod meter;
mod paged;
mod plan;
#[cfg(feature = "plant")]
pub mod plant;
#[cfg(not(feature = "plant"))]
#[expect(unreachable_pub, reason = "public where bugs can be planted")]
mod plant;
mod segment;
pub mod settings;
mod shard;
mod size;
pub mod stats;
pub mod units;

pub use block::LastUse;
pub use books::{GroupState, Member, Points};
pub use coordinator::{
    Checkpoint, Coordinator, DeviceFacts, GroupBytes, GroupExtent, GroupPage, Holding, Obstacle, Restored, Shards,
};
pub use ids::{BlockId, GroupId, PageId, Place, PoolId, ScopeId, SegmentId, ShardBlock, ShardId, Side, Slot};
pub use memory::{NoRoom, Requester};
pub use paged::Growable;
pub use plan::{Conditions, Denied, Forecast, FreeRange, Outcome, PageCall, Pin, Plan, Polled, Relief, Report, Step};
pub use shard::{BlockState, BlockView, Extent, Freed, Grant, Grown, PageView, Retired, SegmentView, Shard, Uses};
pub use size::{Sizes, Want};
pub use stats::WasteLedger;
