//! Opening a device, the calls on it, and the Vulkan backend that may stand under it.

mod builder;
mod driver;
mod loss;
#[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
mod shared;
#[cfg_attr(
    not(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm"))),
    path = "no_under.rs"
)]
mod under;

pub(crate) use builder::Opened;
pub use builder::WgpuBuilder;
pub(crate) use driver::Driver;
pub use under::Page;
#[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
pub(crate) use under::failed;
pub(crate) use under::{Announced, Backing, Under};
