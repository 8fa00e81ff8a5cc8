#![doc = include_str!("../README.md")]
// Without any device the types have no values, and the functions nothing to do: a library can be checked in that form
// and leave the choice of devices to the program.
#![cfg_attr(
    not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")),
    allow(unused, unreachable_code, clippy::all)
)]

mod allocator;
mod buffer;
mod builder;
mod device;
mod error;
mod found;
mod history;
mod later;
mod live;
mod macros;
mod open;
pub mod options;
mod pinned;
mod stream;
mod typed;

pub use allocator::AnyAllocator;
pub use buffer::AnyBuffer;
pub use builder::AnyBuilder;
pub use device::{AnyDevice, BACKENDS, Best};
pub use error::{AnyError, DriverError, ErrorKind, PassedOver};
pub use found::{Found, devices};
pub use later::{AnyDownload, AnyReached};
pub use open::{OpenedBest, open, open_best};
pub use pinned::{AnyPinned, AnyPinnedBuffer};
pub use stream::AnyStream;
pub use typed::{AnySlice, AnyTypedBuffer, AnyView};

pub use millpond;
pub use millpond_backend::{Caps, ClassId, Point, StreamId, Tick};
#[cfg(feature = "cuda")]
pub use millpond_cuda;
#[cfg(feature = "sim")]
pub use millpond_sim;
#[cfg(feature = "vulkan")]
pub use millpond_vulkan;
#[cfg(feature = "wgpu")]
pub use millpond_wgpu;
