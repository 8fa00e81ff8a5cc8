//! Opening: the description of a device, its context, and the link to it through which all rooms call the driver.

mod builder;
pub(crate) mod context;
pub(crate) mod link;

pub use builder::{Alloc, CudaBuilder};
pub(crate) use builder::{bind, open_peer, pool_stream, retain, told, untracked};
