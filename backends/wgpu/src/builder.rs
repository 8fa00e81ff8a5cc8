//! The builder of a device: opening an adapter, or adopting a device.

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

/// The memory that the device is assumed to have where it is not known: 8 GiB.
const TOTAL_BYTES: u64 = 8 << 30;
/// The least alignment of segments in bytes. Each segment starts a buffer, so its start is a multiple of any number.
const ALIGNMENT: u64 = 512;

/// The usages that all segments have.
const TRANSFERS: BufferUsages = BufferUsages::COPY_SRC.union(BufferUsages::COPY_DST);

/// The builder of a device. [`Wgpu::builder`] starts one, and [`build`](WgpuBuilder::build),
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

impl Wgpu {
    /// Lists the adapters, in the order of their numbers. Loads drivers, which takes tens of milliseconds.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NoAdapter`] if there is none.
    pub fn adapters() -> Result<Vec<AdapterInfo>, WgpuError> {
        let adapters = pollster::block_on(adapters(Backends::all(), InstanceFlags::empty()))?;
        Ok(adapters.iter().map(wgpu::Adapter::get_info).collect())
    }

    /// Opens an adapter by its place in [`adapters`](Wgpu::adapters). It has no stream yet.
    ///
    /// # Errors
    ///
    /// The errors of [`WgpuBuilder::build`].
    pub fn open(adapter: usize) -> Result<Wgpu, WgpuError> {
        Wgpu::builder().adapter(adapter).build()
    }

    /// Creates a [`Wgpu`] on a device and its queue that other code has opened, and shares them. Does the same as
    /// [`WgpuBuilder::adopt`] with the default settings.
    pub fn adopt(device: wgpu::Device, queue: wgpu::Queue) -> Wgpu {
        Wgpu::builder().adopt(device, queue)
    }

    /// Returns a builder of a device.
    pub fn builder() -> WgpuBuilder {
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
}

impl WgpuBuilder {
    /// Sets the interfaces in which adapters are looked for. The default is all that were compiled in.
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

    /// Sets the bytes of the device's memory, for limits that are shares of it and for messages. The default is the
    /// largest heap of the device's own memory on Vulkan, and 8 GiB elsewhere, because wgpu itself does not report it.
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
    /// All work that uses the memory is then submitted through [`Wgpu`] (use [`Wgpu::submit_with`]), which binds pages
    /// first. Fresh memory holds any bytes: wgpu does not zero memory that it did not allocate. And where the device
    /// has a single queue that binds, as software devices do, no other code may submit to it, not even by
    /// `Queue::write_buffer`.
    #[cfg(feature = "vulkan-segments")]
    pub fn vulkan_segments(mut self, vulkan_segments: bool) -> WgpuBuilder {
        self.vulkan_segments = vulkan_segments;
        self
    }

    /// Opens the device, with all the limits that its adapter has. It has no stream yet. Blocks for tens of
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NoAdapter`], [`WgpuError::NoSuchAdapter`], or [`WgpuError::NoDevice`] (for example if the adapter
    /// lacks a feature).
    pub fn build(self) -> Result<Wgpu, WgpuError> {
        pollster::block_on(self.request())
    }

    /// Does the same as [`build`](WgpuBuilder::build) without blocking, for callers that have an executor.
    ///
    /// # Errors
    ///
    /// The errors of [`build`](WgpuBuilder::build).
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

    /// Installs the handlers of a device that was opened here, and finishes it.
    fn finish(self, device: wgpu::Device, queue: wgpu::Queue, memory: Option<Memory>) -> Wgpu {
        let (loss, uncaptured) = (Arc::new(Loss::default()), Arc::new(Uncaptured::default()));
        let (told, kept) = (Arc::clone(&loss), Arc::clone(&uncaptured));
        device.set_device_lost_callback(move |reason, text| told.note(format!("{reason:?}. {text}").trim_end()));
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| kept.note(error.to_string())));
        self.stand_on(device, queue, memory, (loss, uncaptured))
    }

    /// Creates a [`Wgpu`] on a device and its queue that other code has opened, and shares them. Neither the device's
    /// handler of uncaptured errors nor its callback for its loss is changed: see [`Wgpu::report_lost`]. The builder's
    /// settings for adapters and features have no effect. Blocks are limited by the limits that the device was
    /// requested with: wgpu's defaults are 256 MiB for a buffer and 128 MiB for a binding, so request
    /// `adapter.limits()`.
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
    // The first instance is never dropped: some drivers cannot be loaded again an unlimited number of times after their
    // last instance was dropped.
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
