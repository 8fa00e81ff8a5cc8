//! What observes an allocator: statistics as people read them, what is alive, the history, snapshots, logs and metrics.
//!
//! All of it stands on the allocator, which passes [events](crate::events) to sinks and has its lanes write
//! [notes](crate::notes). It knows no observer.

pub(crate) mod activity;
pub mod history;
pub mod live;
pub(crate) mod peak;
mod sinks;
pub mod snapshot;
mod stats;
pub mod summary;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub mod telemetry;
pub(crate) mod usage;
