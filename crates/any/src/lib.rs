#![doc = include_str!("../README.md")]
// Without any device the types have no values, and the functions nothing to do: a library can be checked in that form
// and leave the choice of devices to the program.
#![cfg_attr(
    not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")),
    allow(unused, unreachable_code, clippy::all)
)]

mod contract;
mod device;
mod error;
mod found;
mod macros;
mod memory;
mod open;
pub mod options;

pub use device::{AnyDevice, BACKENDS, Best};
pub use error::{AnyError, DriverError, PassedOver};
pub use found::{Found, devices};
pub use memory::{AnyPage, AnySegment};
pub use open::{OpenedBest, open, open_best};

/// An [`Allocator`](millpond::Allocator) on a device that is chosen at run time.
pub type AnyAllocator = millpond::Allocator<AnyDevice>;

/// An allocator that is being configured: the [`Builder`](millpond::Builder) of an [`AnyAllocator`].
pub type AnyBuilder = millpond::Builder<AnyDevice>;

/// A [`Stream`](millpond::Stream) to allocate on.
pub type AnyStream = millpond::Stream<AnyDevice>;

/// A [`Buffer`](millpond::Buffer): a block that the program holds. Its [`segment`](millpond::Buffer::segment) has what
/// only one backend has, such as the `VkBuffer`: `as_vulkan` of [`AnySegment`].
pub type AnyBuffer = millpond::Buffer<AnyDevice>;

/// A buffer of elements: [`TypedBuffer`](millpond::typed::TypedBuffer).
pub type AnyTypedBuffer<T> = millpond::typed::TypedBuffer<T, AnyDevice>;

/// A range of a buffer, borrowed from it: [`Slice`](millpond::typed::Slice).
pub type AnySlice<'b, T> = millpond::typed::Slice<'b, T, AnyBuffer>;

/// A range of a buffer that keeps the buffer alive: [`View`](millpond::typed::View).
pub type AnyView<T> = millpond::typed::View<T, AnyBuffer>;

/// A reference to a private pool: [`Pool`](millpond::Pool).
pub type AnyPool = millpond::Pool<AnyDevice>;

/// The capture of streams into a graph: [`Capture`](millpond::Capture).
pub type AnyCapture = millpond::Capture<AnyDevice>;

/// A group of memory that can be paused: [`Group`](millpond::Group).
pub type AnyGroup = millpond::Group<AnyDevice>;

/// A cache of page-locked host memory: [`Pinned`](millpond::Pinned).
pub type AnyPinned = millpond::Pinned<AnyDevice>;

/// Page-locked host memory: [`PinnedBuffer`](millpond::PinnedBuffer).
pub type AnyPinnedBuffer = millpond::PinnedBuffer<AnyDevice>;

/// A future that completes once a point is reached: [`Reached`](millpond::later::Reached).
pub type AnyReached = millpond::later::Reached<AnyDevice>;

/// A future of elements that are being copied from the device: [`Download`](millpond::later::Download).
pub type AnyDownload<T> = millpond::later::Download<T, AnyDevice>;

/// A part of a program whose peaks are measured apart: [`PeakScope`](millpond::PeakScope).
pub type AnyPeakScope = millpond::PeakScope<AnyDevice>;

pub use millpond;
pub use millpond::ErrorKind;
pub use millpond_backend::{Caps, ClassId, Point, StreamId, Tick};
#[cfg(feature = "cuda")]
pub use millpond_cuda;
#[cfg(feature = "sim")]
pub use millpond_sim;
#[cfg(feature = "vulkan")]
pub use millpond_vulkan;
#[cfg(feature = "wgpu")]
pub use millpond_wgpu;
