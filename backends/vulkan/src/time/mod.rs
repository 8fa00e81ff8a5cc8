//! Time: submits, which close ticks, and what was reached.

mod external;
mod submit;
mod timeline;

pub use external::PendingSubmit;
pub use submit::{SemaphoreAt, Submission};
pub(crate) use timeline::{Before, Time};
