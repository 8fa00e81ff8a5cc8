//! The lent device: what it stands on, and the handles that an engine gets.

use std::fmt;
use std::sync::Arc;

use millpond::{Allocator, Error, Stream};
use millpond_wgpu::{Wgpu, WgpuError};
use parking_lot::{Mutex, ReentrantMutex};
use wgpu::BufferUsages;

use crate::count::{Counters, Counts};
use crate::device::LentDevice;
use crate::queue::LentQueue;

/// The usages that a buffer may have to become a block of Millpond's.
pub const LENT: BufferUsages =
    BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST).union(BufferUsages::INDIRECT);

/// A device and a queue of wgpu for an engine, whose storage buffers are Millpond's blocks.
///
/// Clones share all of it. It lives as long as any of them, or any object that the engine has made with it.
#[derive(Clone, Debug)]
pub struct Lent {
    home: Arc<Home>,
}

impl Lent {
    /// Creates a device on an allocator. The segments need all usages of [`LENT`]: make the backend with
    /// `Wgpu::builder().usage(LENT)`, and with the features and limits that the engine expects. The allocator is for
    /// this device alone, and nothing else submits to its queue.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocator::create_stream`].
    pub fn new(allocator: Allocator<Wgpu>) -> Result<Lent, Error<WgpuError>> {
        Lent::stocked(allocator, true)
    }

    /// Does the same as [`new`](Lent::new) for an engine that does all of its work in one order. A buffer that is
    /// dropped then gives its block back at once, and not only with the submit of the commands that use it, so that a
    /// step needs less memory. The engine must keep two rules, or its buffers hold wrong bytes:
    ///
    /// - It records commands with one encoder at a time, and submits that before it begins the next.
    /// - It submits what it has recorded before it writes to a buffer with the queue.
    ///
    /// CubeCL, and with it Burn, keeps them if one thread uses the device.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocator::create_stream`].
    pub fn in_order(allocator: Allocator<Wgpu>) -> Result<Lent, Error<WgpuError>> {
        Lent::stocked(allocator, false)
    }

    fn stocked(allocator: Allocator<Wgpu>, holds: bool) -> Result<Lent, Error<WgpuError>> {
        let wgpu = allocator.backend().clone();
        let stream = allocator.create_stream()?;
        let (device, queue) = (wgpu.device().clone(), wgpu.queue().clone());
        Ok(Lent::on(device, queue, Some(Pond { wgpu, allocator, stream, holds })))
    }

    /// Creates a device that counts buffers and has wgpu serve all of them: what an engine does without Millpond.
    pub fn plain(device: wgpu::Device, queue: wgpu::Queue) -> Lent {
        Lent::on(device, queue, None)
    }

    fn on(device: wgpu::Device, queue: wgpu::Queue, pond: Option<Pond>) -> Lent {
        let home = Home {
            device,
            queue,
            pond,
            order: ReentrantMutex::new(()),
            counters: Counters::default(),
            uncaptured: Mutex::new(None),
        };
        Lent { home: Arc::new(home) }
    }

    /// Returns the device for the engine.
    pub fn device(&self) -> wgpu::Device {
        wgpu::Device::from_custom(LentDevice::new(Arc::clone(&self.home)))
    }

    /// Returns its queue.
    pub fn queue(&self) -> wgpu::Queue {
        wgpu::Queue::from_custom(LentQueue::new(Arc::clone(&self.home)))
    }

    /// Returns the allocator, if there is one.
    pub fn allocator(&self) -> Option<&Allocator<Wgpu>> {
        self.home.pond.as_ref().map(|pond| &pond.allocator)
    }

    /// Returns what the engine has created so far.
    pub fn counts(&self) -> Counts {
        self.home.counters.read()
    }
}

/// What all objects of a lent device share.
pub(crate) struct Home {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) pond: Option<Pond>,
    /// Held while something is written, submitted or allocated: a bind of pages is a submit of its own where the device
    /// has a single queue. It is reentrant, because wgpu runs callbacks within submits.
    pub(crate) order: ReentrantMutex<()>,
    pub(crate) counters: Counters,
    pub(crate) uncaptured: Mutex<Option<Arc<dyn wgpu::UncapturedErrorHandler>>>,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("device", &self.device).field("pond", &self.pond).finish_non_exhaustive()
    }
}

/// Millpond under a lent device.
#[derive(Debug)]
pub(crate) struct Pond {
    pub(crate) wgpu: Wgpu,
    pub(crate) allocator: Allocator<Wgpu>,
    pub(crate) stream: Stream<Wgpu>,
    /// Whether recorded commands keep the memory that they name until they are submitted.
    pub(crate) holds: bool,
}

impl Home {
    /// Reports an error as wgpu does outside of error scopes.
    pub(crate) fn report(&self, error: &WgpuError) {
        let description = millpond::text::with_causes(error);
        let handler = self.uncaptured.lock().clone();
        match handler {
            Some(handler) => handler(wgpu::Error::Validation { source: description.clone().into(), description }),
            None => panic!("wgpu refused a submit: {description}"),
        }
    }
}
