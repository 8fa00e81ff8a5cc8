//! The ways in: open an adapter, or bring a device.

use std::sync::{Arc, OnceLock};

use millpond_backend::{Caps, Class, ClassKind, Closing, FaultPlan, Reuse};
use wgpu::{AdapterInfo, Backends, BufferUsages, Features, InstanceFlags, MemoryHints};

use crate::device::Shared;
use crate::memory::Memory;
use crate::scope::{Loss, Uncaptured};
use crate::segment::{Account, WORD};
use crate::transfer::Movers;
use crate::vulkan::{Hint, device_bytes};
use crate::{Wgpu, WgpuError};

/// What the device is said to have where nobody can tell: 8 GiB.
const TOTAL_BYTES: u64 = 8 << 30;
/// The least that all segments start at a multiple of. Each starts a buffer, so they start at a multiple of anything.
const ALIGNMENT: u64 = 512;

/// What all segments can be used for.
const TRANSFERS: BufferUsages = BufferUsages::COPY_SRC.union(BufferUsages::COPY_DST);

/// A device to be. Start with [`Wgpu::builder`], end with [`build`](WgpuBuilder::build),
/// [`request`](WgpuBuilder::request) or [`adopt`](WgpuBuilder::adopt).
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

impl Wgpu {
    /// The adapters there are, in the order of their numbers. Loads drivers: tens of milliseconds.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NoAdapter`].
    pub fn adapters() -> Result<Vec<AdapterInfo>, WgpuError> {
        let adapters = pollster::block_on(adapters(Backends::all(), InstanceFlags::empty()))?;
        Ok(adapters.iter().map(wgpu::Adapter::get_info).collect())
    }

    /// Opens an adapter by its place in [`adapters`](Wgpu::adapters). It has no stream yet.
    ///
    /// # Errors
    ///
    /// As [`WgpuBuilder::build`].
    pub fn open(adapter: usize) -> Result<Wgpu, WgpuError> {
        Wgpu::builder().adapter(adapter).build()
    }

    /// Stands on a device and its queue that somebody else has opened, and shares them. As
    /// [`WgpuBuilder::adopt`] with nothing said.
    pub fn adopt(device: wgpu::Device, queue: wgpu::Queue) -> Wgpu {
        Wgpu::builder().adopt(device, queue)
    }

    /// A device to be described.
    pub fn builder() -> WgpuBuilder {
        WgpuBuilder {
            backends: Backends::all(),
            flags: InstanceFlags::from_build_config(),
            adapter: 0,
            features: Features::empty(),
            // wgpu takes memory from the driver in pieces and parts them. Large pieces would only delay that what
            // the allocator gives back gets back: it asks for few and large segments already.
            memory_hints: MemoryHints::MemoryUsage,
            usage: BufferUsages::STORAGE,
            total_bytes: None,
            staging_bytes: 64 << 20,
            semaphore: true,
            #[cfg(feature = "vulkan-segments")]
            vulkan_segments: false,
        }
    }
}

impl WgpuBuilder {
    /// Interfaces to look for adapters in. All that were compiled in unless set.
    pub fn backends(mut self, backends: Backends) -> WgpuBuilder {
        self.backends = backends;
        self
    }

    /// What to have checked: [`InstanceFlags::VALIDATION`] for example. Unless set, as wgpu has it: validation by the
    /// driver's layers in builds with debug assertions, where they are installed, and none in others.
    pub fn flags(mut self, flags: InstanceFlags) -> WgpuBuilder {
        self.flags = flags;
        self
    }

    /// The adapter's place in the list. 0 unless set.
    pub fn adapter(mut self, index: usize) -> WgpuBuilder {
        self.adapter = index;
        self
    }

    /// Features that the device must have. None unless set.
    pub fn features(mut self, features: Features) -> WgpuBuilder {
        self.features = features;
        self
    }

    /// How wgpu takes memory from the driver. [`MemoryHints::MemoryUsage`] unless set.
    pub fn memory_hints(mut self, hints: MemoryHints) -> WgpuBuilder {
        self.memory_hints = hints;
        self
    }

    /// What segments can be used for. `STORAGE` unless set; `COPY_SRC` and `COPY_DST` are always added.
    pub fn usage(mut self, usage: BufferUsages) -> WgpuBuilder {
        self.usage = usage;
        self
    }

    /// Bytes of the device's memory, for limits that are shares of it and for messages. Unless set, those of the
    /// largest heap of the device's own memory on Vulkan, and 8 GiB elsewhere: wgpu itself does not tell.
    pub fn total_bytes(mut self, bytes: u64) -> WgpuBuilder {
        self.total_bytes = Some(bytes);
        self
    }

    /// The most bytes of staging buffers that uploads of one stream may have in recorded and submitted work, at least
    /// 4; an upload that needs more submits the stream and waits. 64 MiB unless set.
    pub fn staging_bytes(mut self, bytes: u64) -> WgpuBuilder {
        self.staging_bytes = bytes;
        self
    }

    /// Whether a semaphore may tell when it is worth asking wgpu what is done, where the device runs on Vulkan. On
    /// unless set.
    pub fn semaphore(mut self, semaphore: bool) -> WgpuBuilder {
        self.semaphore = semaphore;
        self
    }

    /// Whether the device may have virtual memory: whether segments come from the Vulkan backend.
    pub fn may_have_pages(&self) -> bool {
        #[cfg(feature = "vulkan-segments")]
        return self.vulkan_segments;
        #[cfg(not(feature = "vulkan-segments"))]
        false
    }

    /// Whether segments come from `millpond-vulkan`, which stands on the same device: with virtual memory, for the
    /// policy `paged`, and a memory budget, where the driver has them. Off unless set; for devices that are opened
    /// here, on Vulkan.
    ///
    /// All work that uses the memory is then submitted through [`Wgpu`] (use [`Wgpu::submit_with`]), which binds pages
    /// first. Fresh memory holds any bytes: wgpu does not zero what it did not make. And where the device has a single
    /// queue that binds, as software devices do, nobody else submits to it, not even by `Queue::write_buffer`.
    #[cfg(feature = "vulkan-segments")]
    pub fn vulkan_segments(mut self, vulkan_segments: bool) -> WgpuBuilder {
        self.vulkan_segments = vulkan_segments;
        self
    }

    /// Opens the device, with all the limits that its adapter has. It has no stream yet. Blocks; takes tens of
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NoAdapter`], [`WgpuError::NoSuchAdapter`], [`WgpuError::NoDevice`] (for example if it lacks a
    /// feature).
    pub fn build(self) -> Result<Wgpu, WgpuError> {
        pollster::block_on(self.request())
    }

    /// [`build`](WgpuBuilder::build) for those who have an executor.
    ///
    /// # Errors
    ///
    /// As [`build`](WgpuBuilder::build).
    pub async fn request(self) -> Result<Wgpu, WgpuError> {
        let mut adapters = adapters(self.backends, self.flags).await?;
        let (index, count) = (self.adapter, adapters.len());
        if index >= count {
            return Err(WgpuError::NoSuchAdapter { index, count });
        }
        let adapter = adapters.swap_remove(index);
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("millpond"),
            required_features: self.features,
            required_limits: adapter.limits(),
            memory_hints: self.memory_hints.clone(),
            ..Default::default()
        };
        #[cfg(feature = "vulkan-segments")]
        if self.vulkan_segments {
            let usage = self.usage | TRANSFERS;
            let (device, queue, opened) = crate::opening::open(&adapter, &descriptor, usage)?;
            let memory = Memory::adopt(&device, opened)?;
            return Ok(self.finish(device, queue, Some(memory)));
        }
        let opened = adapter.request_device(&descriptor).await;
        let (device, queue) =
            opened.map_err(|source| WgpuError::NoDevice { adapter: adapter.get_info().name, source })?;
        Ok(self.finish(device, queue, None))
    }

    /// Takes charge of a device that was opened here.
    fn finish(self, device: wgpu::Device, queue: wgpu::Queue, memory: Option<Memory>) -> Wgpu {
        let (loss, uncaptured) = (Arc::new(Loss::default()), Arc::new(Uncaptured::default()));
        let (told, kept) = (Arc::clone(&loss), Arc::clone(&uncaptured));
        device.set_device_lost_callback(move |reason, text| told.note(format!("{reason:?}. {text}").trim_end()));
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| kept.note(error.to_string())));
        self.stand_on(device, queue, memory, (loss, uncaptured))
    }

    /// Stands on a device and its queue that somebody else has opened, and shares them. Neither the device's handler
    /// of uncaptured errors nor its callback for its loss is touched: see [`Wgpu::report_lost`]. What was said of
    /// adapters and features has no effect. Blocks are limited by the limits that the device was requested with: wgpu's
    /// defaults are 256 MiB for a buffer and 128 MiB for a binding, so request `adapter.limits()`.
    pub fn adopt(self, device: wgpu::Device, queue: wgpu::Queue) -> Wgpu {
        self.stand_on(device, queue, None, (Arc::default(), Arc::default()))
    }

    fn stand_on(
        self,
        device: wgpu::Device,
        queue: wgpu::Queue,
        memory: Option<Memory>,
        (loss, uncaptured): (Arc<Loss>, Arc<Uncaptured>),
    ) -> Wgpu {
        let limits = device.limits();
        let total_bytes = self.total_bytes.or_else(|| device_bytes(&device)).unwrap_or(TOTAL_BYTES);
        let hint = if self.semaphore { Hint::new(&device) } else { None };
        let mut caps = caps(device.adapter_info().name, &limits, total_bytes);
        if let Some(memory) = &memory {
            memory.amend(&mut caps);
        }
        let shared = Shared {
            memory,
            caps,
            usage: self.usage | TRANSFERS,
            staging_bytes: (self.staging_bytes / WORD * WORD).max(WORD),
            account: Account::new(&limits),
            lanes: boxcar::Vec::new(),
            hint,
            movers: Movers::default(),
            faults: FaultPlan::default(),
            loss,
            uncaptured,
            device,
            queue,
        };
        Wgpu { shared: Arc::new(shared) }
    }
}

async fn adapters(backends: Backends, flags: InstanceFlags) -> Result<Vec<wgpu::Adapter>, WgpuError> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    descriptor.flags = flags;
    let instance = wgpu::Instance::new(descriptor);
    // Never dropped: some drivers cannot be loaded again any number of times once their last instance has gone.
    static FIRST: OnceLock<wgpu::Instance> = OnceLock::new();
    let _ = FIRST.set(instance.clone());
    let adapters = instance.enumerate_adapters(backends).await;
    if adapters.is_empty() { Err(WgpuError::NoAdapter { backends }) } else { Ok(adapters) }
}

fn caps(name: String, limits: &wgpu::Limits, total_bytes: u64) -> Caps {
    let class = |name: &str| Class {
        name: name.to_owned(),
        kind: ClassKind::Device,
        alignment: ALIGNMENT,
        max_segment_bytes: limits.max_buffer_size / WORD * WORD,
        total_bytes,
    };
    Caps {
        name,
        classes: vec![class("device"), class("exclusive")],
        reuse: Reuse::InOrder,
        // wgpu places barriers itself.
        needs_barrier: false,
        closing: Closing::Submit,
        release_waits: false,
        oversubscribes: false,
        pages: None,
        stream_wait: true,
        host_memory: false,
        transfer: true,
        budget: false,
    }
}
