//! The allocator in a program's logs and metrics: events for [`tracing`](https://docs.rs/tracing) with the feature
//! `tracing`, gauges and counters for [`metrics`](https://docs.rs/metrics) with the feature `metrics`. Without these
//! features there is nothing here.

#[cfg(feature = "tracing")]
mod log;
#[cfg(feature = "metrics")]
mod meter;

#[cfg(feature = "tracing")]
pub use log::Tracing;
#[cfg(feature = "metrics")]
pub use meter::describe_metrics;
