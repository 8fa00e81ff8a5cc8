//! A small compute engine whose tensors live in Millpond.
//!
//! An engine adds to a device what an allocator need not know: its kernels. Here that is one trait, [`Kernels`], with
//! one method to launch them, implemented for CUDA ([`OnCuda`]), wgpu ([`OnWgpu`]), Vulkan ([`OnVulkan`]) and the
//! simulated device ([`OnHost`]). The network above it ([`Network`]) is written once.
//!
//! # Positions
//!
//! - **A kernel is bound to blocks.** A [`Buffer`] has a segment and an offset in it; the segment is what the device's
//!   own interface can bind, at that offset.
//! - **Dropping a tensor is all the engine does to free it**, while the device still works on it. Later work on the
//!   same stream may get the memory at once.
//! - **All kernels bind four blocks**, all for reading and writing, so that one layout serves them all.

use std::error::Error;

use millpond::backend::Backend;
use millpond::{Buffer, Stream};

mod cpu;
mod cuda;
mod host;
mod model;
mod network;
mod session;
mod vulkan;
mod wgpu;
mod wgsl;

pub use cpu::reference;
pub use cuda::OnCuda;
pub use host::OnHost;
pub use model::{Activation, Dense, Example, Model, largest_difference, sample};
pub use network::Network;
pub use session::{Session, print_statistics};
pub use vulkan::OnVulkan;
pub use wgpu::OnWgpu;

/// The result of an engine's functions. Errors are the allocator's, the backend's or the driver's.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The number of rows and of columns of the result that one workgroup computes.
pub const TILE: u32 = 16;

/// The kernels that a device must have. `kernels.wgsl` and `training.wgsl` define what each computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// The product of two matrices.
    Matmul,
    /// A bias added to each row, and an activation function.
    Activate,
    /// The product of two matrices, either of which may be turned, in either precision; for training, as all that
    /// follow.
    Product,
    /// The gradient of a squared error.
    Grade,
    /// The gradient of the rectifier.
    Mask,
    /// A matrix in another precision.
    Convert,
    /// A step of gradient descent.
    Descend,
    /// Whether a number is infinite.
    Inspect,
}

impl Kernel {
    /// All kernels, each at the index `kernel as usize`.
    pub const ALL: [Kernel; 8] = [
        Kernel::Matmul,
        Kernel::Activate,
        Kernel::Product,
        Kernel::Grade,
        Kernel::Mask,
        Kernel::Convert,
        Kernel::Descend,
        Kernel::Inspect,
    ];
}

/// The sizes of a kernel's matrices, and its activation. On the device they are these four words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Rows of the first matrix and of the result.
    pub rows: u32,
    /// Columns of the first matrix, rows of the second.
    pub inner: u32,
    /// Columns of the second matrix and of the result.
    pub columns: u32,
    /// The activation that [`Kernel::Activate`] applies.
    pub activation: Activation,
}

impl Shape {
    /// Returns the words that the device reads.
    pub fn words(&self) -> [u32; 4] {
        [self.rows, self.inner, self.columns, self.activation as u32]
    }

    /// Returns the number of workgroups that cover the result, across and down.
    pub fn groups(&self) -> [u32; 2] {
        [self.columns.div_ceil(TILE), self.rows.div_ceil(TILE)]
    }
}

/// The blocks that a kernel works on: two to read, one to write, and its [`Shape`].
pub struct Bound<'a, B: Backend> {
    /// The first operand.
    pub first: &'a Buffer<B>,
    /// The second operand.
    pub second: &'a Buffer<B>,
    /// The buffer that the result is written to.
    pub result: &'a Buffer<B>,
    /// The words of the shape.
    pub shape: &'a Buffer<B>,
}

impl<'a, B: Backend> Bound<'a, B> {
    /// Returns the blocks in the order of their bindings.
    pub fn in_order(&self) -> [&'a Buffer<B>; 4] {
        [self.first, self.second, self.result, self.shape]
    }
}

/// A device with the engine's kernels.
pub trait Kernels {
    /// The backend of the device.
    type Backend: Backend;

    /// Returns the device for the allocator: a cheap clone of its handle.
    fn device(&self) -> Self::Backend;

    /// Records a kernel on a stream, behind everything that was recorded there before, with `groups` workgroups across
    /// and down. Does not block, and submits nothing.
    ///
    /// # Errors
    ///
    /// Returns the error of the device; nothing was recorded then.
    fn dispatch(
        &self,
        stream: &Stream<Self::Backend>,
        kernel: Kernel,
        bound: &Bound<'_, Self::Backend>,
        groups: [u32; 2],
    ) -> Result<()>;
}

impl<K: Kernels> Kernels for &K {
    type Backend = K::Backend;

    fn device(&self) -> K::Backend {
        (**self).device()
    }

    fn dispatch(
        &self,
        stream: &Stream<K::Backend>,
        kernel: Kernel,
        bound: &Bound<'_, K::Backend>,
        groups: [u32; 2],
    ) -> Result<()> {
        (**self).dispatch(stream, kernel, bound, groups)
    }
}

/// Returns the segment that a buffer lies in, for binding.
///
/// # Errors
///
/// Returns an error for an empty buffer, which has no segment that could be bound.
pub(crate) fn segment<B: Backend>(buffer: &Buffer<B>) -> Result<&B::Segment> {
    buffer.segment().ok_or_else(|| "a buffer of 0 bytes cannot be bound: give the tensor at least one row".into())
}
