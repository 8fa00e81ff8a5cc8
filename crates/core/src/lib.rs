#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod block;
pub mod conf;
mod coordinator;
mod heap;
mod ids;
mod index;
mod last_use;
mod ledger;
mod meter;
mod page;
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

pub use coordinator::{Coordinator, DeviceFacts, FreeRange, Outcome, PageCall, Pin, Plan, Report, Shards, Step};
pub use ids::{BlockId, PageId, Place, PoolId, SegmentId, ShardId, Side, Slot};
pub use last_use::LastUse;
pub use ledger::WasteLedger;
pub use shard::{BlockState, BlockView, Freed, Grant, PageView, SegmentView, Shard, Uses};
pub use size::{Sizes, Want};
