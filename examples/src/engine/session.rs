//! An engine's use of an allocator: moving values and launching kernels.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use millpond::backend::Backend;
use millpond::text::format_bytes;
use millpond::{Allocator, Buffer, Stream};

use super::{Bound, Kernel, Kernels, Result, Shape};

/// A device with kernels, and an allocator over its memory.
pub struct Session<K: Kernels> {
    kernels: K,
    allocator: Allocator<K::Backend>,
}

impl<K: Kernels> Session<K> {
    /// Creates an engine on this device, with the allocator's default settings.
    pub fn new(kernels: K) -> Session<K> {
        let allocator = Allocator::new(kernels.device());
        Session { kernels, allocator }
    }

    /// Creates an engine on this device, with an allocator configured by a text: see `millpond::conf`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is malformed or does not suit the device.
    pub fn with(kernels: K, conf: &str) -> Result<Session<K>> {
        let allocator = Allocator::builder(kernels.device()).conf(conf).build()?;
        Ok(Session { kernels, allocator })
    }

    /// Returns the allocator.
    pub fn allocator(&self) -> &Allocator<K::Backend> {
        &self.allocator
    }

    /// Allocates a device buffer and uploads these values to it, in the order of the stream.
    ///
    /// # Errors
    ///
    /// Returns the errors of the allocator and of the device.
    pub fn upload<T: Pod>(&self, stream: &Stream<K::Backend>, values: &[T]) -> Result<Buffer<K::Backend>> {
        let bytes: &[u8] = cast_slice(values);
        let buffer = stream.allocate(bytes.len() as u64)?;
        stream.upload(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// Returns the values of a buffer, after everything recorded on the stream, which this submits. Blocks until then.
    ///
    /// # Errors
    ///
    /// Returns the error of the device.
    pub fn download(&self, stream: &Stream<K::Backend>, buffer: &Buffer<K::Backend>) -> Result<Vec<f32>> {
        let mut values = vec![0.0; buffer.len() as usize / size_of::<f32>()];
        stream.download(buffer, 0, cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Records a kernel on the stream.
    ///
    /// # Errors
    ///
    /// Returns the error of the device.
    pub fn launch(
        &self,
        stream: &Stream<K::Backend>,
        kernel: Kernel,
        shape: &Shape,
        bound: &Bound<'_, K::Backend>,
    ) -> Result<()> {
        self.dispatch(stream, kernel, bound, shape.groups())
    }

    /// Records a kernel on the stream with a number of workgroups across and down.
    ///
    /// # Errors
    ///
    /// Returns the error of the device.
    pub fn dispatch(
        &self,
        stream: &Stream<K::Backend>,
        kernel: Kernel,
        bound: &Bound<'_, K::Backend>,
        groups: [u32; 2],
    ) -> Result<()> {
        self.kernels.dispatch(stream, kernel, bound, groups)
    }
}

/// Prints how much the allocator handed out and how much it reserved from the driver for that.
pub fn print_statistics<B: Backend>(allocator: &Allocator<B>) {
    let stats = allocator.stats();
    let (handed_out, reserved) = (stats.allocated_bytes.all.allocated, stats.reserved_bytes.all.peak);
    println!(
        "{} handed out in {} blocks, out of {} from the driver: {:.1} times less than without reuse",
        format_bytes(handed_out),
        stats.allocation.all.allocated,
        format_bytes(reserved),
        handed_out as f64 / reserved as f64
    );
}
