//! Test gear for what is built on a backend: driver calls that shall fail. A backend has it behind a feature of its
//! own, `testing`, which release builds lack.

mod plan;

pub use plan::{FaultPlan, Planned};
