//! The lent device: what it stands on, and the handles that an engine gets.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use millpond::{Allocator, Stream};
use millpond_wgpu::{Wgpu, WgpuError};
use parking_lot::Mutex;
use wgpu::BufferUsages;

use crate::arguments::Fetch;
use crate::count::{Counters, Counts};
use crate::device::LentDevice;
use crate::error::LentError;
use crate::fresh::Order;
use crate::queue::LentQueue;
use crate::scopes;

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
    /// Creates a device on an allocator. The segments need the usage `STORAGE`, which is the default of
    /// [`WgpuBuilder::usage`](millpond_wgpu::WgpuBuilder::usage), and no usage beyond [`LENT`]. Make the backend with
    /// the features and limits that the engine expects. The allocator is for this device alone, and nothing else
    /// submits to its queue.
    ///
    /// # Errors
    ///
    /// [`LentError::Usage`], and the errors of [`Allocator::create_stream`].
    pub fn new(allocator: Allocator<Wgpu>) -> Result<Lent, LentError> {
        Lent::stocked(allocator, true)
    }

    /// Creates a device as [`new`](Lent::new) does, for an engine that does all of its work in one order. A buffer that
    /// is dropped then gives its block back at once, and not only with the submit of the commands that use it, so that
    /// a step needs less memory. The engine must keep three rules, or its buffers hold wrong bytes:
    ///
    /// - It records commands with one encoder at a time, and submits that before it begins the next.
    /// - It submits what it has recorded before it writes to a buffer with the queue.
    /// - It writes to a buffer before it reads it, as for [`writes_first`](Lent::writes_first): a clear would run
    ///   before commands of the block's former owner.
    ///
    /// CubeCL, and with it Burn, keeps them if one thread uses the device.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Lent::new).
    pub fn in_order(allocator: Allocator<Wgpu>) -> Result<Lent, LentError> {
        Lent::stocked(allocator, false)
    }

    fn stocked(allocator: Allocator<Wgpu>, holds: bool) -> Result<Lent, LentError> {
        let wgpu = allocator.backend().clone();
        let usage = wgpu.usage();
        if !LENT.contains(usage) || !usage.contains(BufferUsages::STORAGE) {
            return Err(LentError::Usage { usage });
        }
        let stream = allocator.create_stream()?;
        let (device, queue) = (wgpu.device().clone(), wgpu.queue().clone());
        let clears = AtomicBool::new(holds);
        Ok(Lent::on(device, queue, Some(Pond { wgpu, allocator, stream, holds, clears })))
    }

    /// Leaves fresh buffers as they are from now on: they hold any bytes, where wgpu promises zeros. For an engine that
    /// writes to each byte of a buffer before it reads it: it saves a clear of each buffer.
    #[must_use]
    pub fn writes_first(self) -> Lent {
        if let Some(pond) = &self.home.pond {
            pond.clears.store(false, Ordering::Relaxed);
        }
        self
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
            order: Order::new(),
            fetch: OnceLock::new(),
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
    pub(crate) order: Order,
    /// The shader that fetches arguments of dispatches, made with its first use.
    pub(crate) fetch: OnceLock<Fetch>,
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
    clears: AtomicBool,
}

impl Pond {
    /// Returns whether fresh blocks read as zero.
    pub(crate) fn clears(&self) -> bool {
        self.clears.load(Ordering::Relaxed)
    }
}

impl Home {
    /// Returns the number of the device among those of this process.
    pub(crate) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Raises an error of a submit as wgpu does: in an error scope of this thread, or else to the handler of uncaptured
    /// errors. A lost device raises none: the callback for that is called.
    ///
    /// # Panics
    ///
    /// If no scope takes it and there is no handler.
    pub(crate) fn report(&self, error: WgpuError) {
        let error = match error {
            WgpuError::Lost { .. } => return,
            WgpuError::Refused { source, .. } | WgpuError::OutOfMemory { source, .. } => *source,
            other => {
                let description = millpond::text::with_causes(&other);
                wgpu::Error::Validation { source: Box::new(other), description }
            }
        };
        let Some(error) = scopes::raise(self.number(), error) else { return };
        let handler = self.uncaptured.lock().clone();
        match handler {
            Some(handler) => handler(error),
            None => panic!("wgpu refused a submit: {error}"),
        }
    }
}
