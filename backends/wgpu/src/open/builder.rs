//! The builder of a device: its settings, and opening an adapter with them.

use std::sync::Arc;

use wgpu::{Backends, BufferUsages, Features, InstanceFlags, MemoryHints};

use super::driver::Driver;
use super::under::Under;
use crate::error::WgpuError;
use crate::probe::{WORD, adapters};

/// The usages that all segments have.
const TRANSFERS: BufferUsages = BufferUsages::COPY_SRC.union(BufferUsages::COPY_DST);

/// The builder of a device. [`Wgpu::builder`](crate::Wgpu::builder) starts one, and [`build`](WgpuBuilder::build),
/// [`request`](WgpuBuilder::request) or [`adopt`](WgpuBuilder::adopt) makes the device.
#[derive(Clone, Debug)]
#[must_use = "nothing exists until build, request or adopt is called"]
pub struct WgpuBuilder {
    backends: Backends,
    flags: InstanceFlags,
    adapter: usize,
    features: Features,
    memory_hints: MemoryHints,
    usage: BufferUsages,
    total_bytes: Option<u64>,
    staging_bytes: u64,
    semaphore: bool,
    #[cfg(feature = "vulkan-segments")]
    vulkan_segments: bool,
}

impl WgpuBuilder {
    /// Creates the builder with its defaults.
    pub(crate) fn new() -> WgpuBuilder {
        WgpuBuilder {
            backends: Backends::all(),
            flags: InstanceFlags::from_build_config(),
            adapter: 0,
            features: Features::empty(),
            // wgpu takes memory from the driver in pieces and divides them. Large pieces would only delay the return of
            // memory that the allocator gives back: it requests few and large segments already.
            memory_hints: MemoryHints::MemoryUsage,
            usage: BufferUsages::STORAGE,
            total_bytes: None,
            staging_bytes: 64 << 20,
            semaphore: true,
            #[cfg(feature = "vulkan-segments")]
            vulkan_segments: false,
        }
    }

    /// Sets the interfaces that are searched for adapters. The default is all that were compiled in.
    pub fn backends(mut self, backends: Backends) -> WgpuBuilder {
        self.backends = backends;
        self
    }

    /// Sets what is checked: [`InstanceFlags::VALIDATION`] for example. The default is wgpu's: validation by the
    /// driver's layers in builds with debug assertions, where they are installed, and none in others.
    pub fn flags(mut self, flags: InstanceFlags) -> WgpuBuilder {
        self.flags = flags;
        self
    }

    /// Sets the adapter's place in the list. The default is 0.
    pub fn adapter(mut self, index: usize) -> WgpuBuilder {
        self.adapter = index;
        self
    }

    /// Sets the features that the device must have. The default is none.
    pub fn features(mut self, features: Features) -> WgpuBuilder {
        self.features = features;
        self
    }

    /// Sets how wgpu takes memory from the driver. The default is [`MemoryHints::MemoryUsage`].
    pub fn memory_hints(mut self, hints: MemoryHints) -> WgpuBuilder {
        self.memory_hints = hints;
        self
    }

    /// Sets the usages of segments. The default is `STORAGE`; `COPY_SRC` and `COPY_DST` are always added.
    pub fn usage(mut self, usage: BufferUsages) -> WgpuBuilder {
        self.usage = usage;
        self
    }

    /// Sets the bytes of the device's memory, for limits as a share of it and for messages. The default is the largest
    /// heap of the device's own memory on Vulkan, and 8 GiB elsewhere, because wgpu itself does not report it.
    pub fn total_bytes(mut self, bytes: u64) -> WgpuBuilder {
        self.total_bytes = Some(bytes);
        self
    }

    /// Sets the most bytes of staging buffers that uploads of one stream may have in recorded and submitted work, at
    /// least 4. An upload that needs more submits the stream and waits. The default is 64 MiB.
    pub fn staging_bytes(mut self, bytes: u64) -> WgpuBuilder {
        self.staging_bytes = bytes;
        self
    }

    /// Sets whether a semaphore may show when it is worth polling wgpu, where the device runs on Vulkan. On by default.
    pub fn semaphore(mut self, semaphore: bool) -> WgpuBuilder {
        self.semaphore = semaphore;
        self
    }

    /// Returns whether the device may have virtual memory: whether segments come from the Vulkan backend.
    pub fn may_have_pages(&self) -> bool {
        #[cfg(feature = "vulkan-segments")]
        return self.vulkan_segments;
        #[cfg(not(feature = "vulkan-segments"))]
        false
    }

    /// Sets whether segments come from `millpond-vulkan`, which runs on the same device: with virtual memory, for the
    /// policy `paged`, and a memory budget, where the driver has them. Off by default; for devices that are opened
    /// here, on Vulkan.
    ///
    /// All work that uses the memory is then submitted through [`Wgpu`](crate::Wgpu) (use
    /// [`Wgpu::submit_with`](crate::Wgpu::submit_with)), which binds pages
    /// first. Fresh memory holds any bytes: wgpu does not zero memory that it did not allocate. And where the device
    /// has a single queue that binds, as software devices do, no other code may submit to it, not even by
    /// `Queue::write_buffer`.
    #[cfg(feature = "vulkan-segments")]
    pub fn vulkan_segments(mut self, vulkan_segments: bool) -> WgpuBuilder {
        self.vulkan_segments = vulkan_segments;
        self
    }

    /// Opens the device, with all the limits that its adapter has, and installs its handlers.
    pub(crate) async fn open(self) -> Result<Opened, WgpuError> {
        let mut adapters = adapters(self.backends, self.flags).await?;
        let (index, count) = (self.adapter, adapters.len());
        if index >= count {
            return Err(WgpuError::NoSuchAdapter { index, count });
        }
        self.open_adapter(adapters.swap_remove(index)).await
    }

    /// Opens the device of an adapter.
    pub(crate) async fn open_adapter(self, adapter: wgpu::Adapter) -> Result<Opened, WgpuError> {
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("millpond"),
            required_features: self.features,
            required_limits: adapter.limits(),
            memory_hints: self.memory_hints.clone(),
            ..Default::default()
        };
        #[cfg(feature = "vulkan-segments")]
        if self.vulkan_segments {
            let (device, queue, shared) = super::shared::open(&adapter, &descriptor, self.usage | TRANSFERS)?;
            let driver = Driver::opened(device, queue);
            let under = Under::adopt(&driver, shared)?;
            return Ok(Opened { driver, under: Some(Arc::new(under)), settings: self.settings() });
        }
        let opened = adapter.request_device(&descriptor).await;
        let (device, queue) =
            opened.map_err(|source| WgpuError::NoDevice { adapter: adapter.get_info().name, source })?;
        Ok(Opened { driver: Driver::opened(device, queue), under: None, settings: self.settings() })
    }

    /// Takes a device that other code has opened. Its handlers stay as they are.
    pub(crate) fn take(self, device: wgpu::Device, queue: wgpu::Queue) -> Opened {
        Opened { driver: Driver::adopted(device, queue), under: None, settings: self.settings() }
    }

    fn settings(&self) -> Settings {
        Settings {
            usage: self.usage | TRANSFERS,
            total_bytes: self.total_bytes,
            staging_bytes: (self.staging_bytes / WORD * WORD).max(WORD),
            semaphore: self.semaphore,
        }
    }
}

/// A device that was opened or adopted, and what its builder determined for the rooms that stand on it.
pub(crate) struct Opened {
    pub(crate) driver: Arc<Driver>,
    /// The Vulkan backend, if segments come from it.
    pub(crate) under: Option<Arc<Under>>,
    pub(crate) settings: Settings,
}

/// The builder's settings that do not concern opening.
pub(crate) struct Settings {
    /// The usages of segments.
    pub(crate) usage: BufferUsages,
    /// Bytes of the device's memory, if the application has given them.
    pub(crate) total_bytes: Option<u64>,
    /// The most bytes of staging buffers of one stream: whole words, and at least one.
    pub(crate) staging_bytes: u64,
    /// Whether a semaphore may show when to poll.
    pub(crate) semaphore: bool,
}
