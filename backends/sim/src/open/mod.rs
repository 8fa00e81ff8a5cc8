//! Opening: the description of a device, its costs, and the link to it through which all rooms make its calls.

mod builder;
mod cost;
pub(crate) mod link;
mod settings;

pub use builder::SimBuilder;
pub use cost::{CostModel, Curve};
pub use settings::{Completion, StreamOrder};
