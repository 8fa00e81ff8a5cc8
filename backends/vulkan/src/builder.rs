//! Describing the device to open, and opening it.

use std::ffi::{CStr, OsString, c_char};
use std::path::Path;

use ash::{ext, khr, vk};
use millpond_backend::ClassId;

use crate::assemble::{Parts, assemble};
use crate::classes::{COUNT, USAGE};
use crate::device::RawDevice;
use crate::devices::{self, physical_devices};
use crate::instance::Instance;
use crate::pages::GRANULARITY;
use crate::probe::Probe;
use crate::queue::{Queue, describe_families};
use crate::{DeviceInfo, EnabledFeatures, QueueChoice, Vulkan, VulkanError};

/// A device to be opened. Start with [`Vulkan::builder`], end with [`build`](VulkanBuilder::build).
#[derive(Clone, Debug)]
#[must_use = "nothing is opened until build is called"]
pub struct VulkanBuilder {
    loader: Option<OsString>,
    index: usize,
    validation: bool,
    queues: QueueChoice,
    sparse: bool,
    budget: bool,
    engine_submits: bool,
    page_granularity: u64,
    usages: [vk::BufferUsageFlags; COUNT],
}

impl Vulkan {
    /// Lists the devices of this machine. Costs an instance: tens of milliseconds.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoLoader`] and [`VulkanError::NoDriver`] say what to install; else the driver's.
    pub fn devices() -> Result<Vec<DeviceInfo>, VulkanError> {
        devices::list(None)
    }

    /// Opens a device by its place in [`devices`](Vulkan::devices), with all it has.
    ///
    /// # Errors
    ///
    /// As [`VulkanBuilder::build`].
    pub fn open(index: usize) -> Result<Vulkan, VulkanError> {
        Vulkan::builder().device(index).build()
    }

    /// A device to be described; what is left unsaid is device 0 with all it has, without validation.
    pub fn builder() -> VulkanBuilder {
        VulkanBuilder {
            loader: None,
            index: 0,
            validation: false,
            queues: QueueChoice::default(),
            sparse: true,
            budget: true,
            engine_submits: false,
            page_granularity: GRANULARITY,
            usages: [USAGE; COUNT],
        }
    }
}

impl VulkanBuilder {
    /// Which device, by its place in [`Vulkan::devices`]. 0 unless set.
    pub fn device(mut self, index: usize) -> VulkanBuilder {
        self.index = index;
        self
    }

    /// The Vulkan loader to use instead of the system's, as a path to the library.
    ///
    /// # Safety
    ///
    /// The library, if there is one, is a Vulkan loader: its code is run.
    pub unsafe fn loader(mut self, path: impl AsRef<Path>) -> VulkanBuilder {
        self.loader = Some(path.as_ref().as_os_str().to_owned());
        self
    }

    /// Whether the validation layer watches, synchronization included, for [`Vulkan::validation`] to read. Off unless
    /// set; it makes every call slower.
    pub fn validation(mut self, validation: bool) -> VulkanBuilder {
        self.validation = validation;
        self
    }

    /// Which queues. All that can copy unless set.
    pub fn queues(mut self, queues: QueueChoice) -> VulkanBuilder {
        self.queues = queues;
        self
    }

    /// Whether to use sparse binding, for virtual memory, where the device has it. On unless set.
    pub fn sparse(mut self, sparse: bool) -> VulkanBuilder {
        self.sparse = sparse;
        self
    }

    /// What the sizes of pages are multiples of, in bytes; the driver may want more. 2 MiB unless set: smaller pages
    /// cost more binds and, on most devices, slower accesses.
    ///
    /// # Panics
    ///
    /// If it is not a power of two.
    pub fn page_granularity(mut self, bytes: u64) -> VulkanBuilder {
        assert!(bytes.is_power_of_two(), "a page granularity of {bytes} bytes: it must be a power of two");
        self.page_granularity = bytes;
        self
    }

    /// Whether to ask the driver for its memory budget, where it tells. On unless set.
    pub fn budget(mut self, budget: bool) -> VulkanBuilder {
        self.budget = budget;
        self
    }

    /// Whether somebody else submits work that touches memory of this device, around the device. It then says that
    /// reuse in order wants a barrier ([`Vulkan::reuse_barrier`]). Off unless set: every submit goes through the
    /// device, which places the barriers.
    pub fn engine_submits(mut self, engine_submits: bool) -> VulkanBuilder {
        self.engine_submits = engine_submits;
        self
    }

    /// What buffers of a class are good for, besides copies and, where the device has them, addresses. Storage,
    /// uniform, texel, vertex, index and indirect buffers unless set.
    ///
    /// # Panics
    ///
    /// If there is no such class: a Vulkan device has 3.
    pub fn usage(mut self, class: ClassId, usage: vk::BufferUsageFlags) -> VulkanBuilder {
        assert!(usize::from(class.0) < COUNT, "class {} asked of a device that has {COUNT}", class.0);
        self.usages[usize::from(class.0)] = usage;
        self
    }

    /// Lists the devices that this builder could open.
    ///
    /// # Errors
    ///
    /// As [`Vulkan::devices`].
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, VulkanError> {
        devices::list(self.loader.as_ref())
    }

    /// Opens the device. Costs tens of milliseconds.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoLoader`], [`VulkanError::NoDriver`], [`VulkanError::NoDevice`], [`VulkanError::NoValidation`],
    /// [`VulkanError::Lacks`] and [`VulkanError::NoQueue`] say what is missing; else the driver's.
    pub fn build(self) -> Result<Vulkan, VulkanError> {
        let instance = Instance::open(self.loader.as_ref(), self.validation)?;
        let physical = physical_devices(&instance)?;
        let Some(&physical) = physical.get(self.index) else {
            return Err(VulkanError::NoDevice { index: self.index, count: physical.len() });
        };
        let probe = Probe::new(&instance, physical)?;
        probe.usable()?;
        let families = self.queues.resolve(&probe.families).map_err(|(family, index)| VulkanError::NoQueue {
            family,
            index,
            available: describe_families(&probe.families),
        })?;
        let features = probe.features;
        let sparse = self.sparse && probe.sparse();
        let enabled = EnabledFeatures {
            buffer_device_address: features.address,
            sparse_binding: sparse,
            sparse_residency: sparse,
            sparse_aliased: sparse && features.sparse_aliased,
            memory_budget: self.budget && features.budget,
        };
        let raw = RawDevice { raw: create_device(&instance, &probe, &families, enabled)?, owned: true };
        let mut queues = Vec::new();
        for (family, count) in families {
            let flags = probe.families[family as usize].queue_flags;
            for index in 0..count {
                // SAFETY: the device was created with this many queues of the family.
                let queue = unsafe { raw.get_device_queue(family, index) };
                queues.push(Queue::new(queue, (family, index), flags, None));
            }
        }
        let (usages, engine_submits, page_granularity) = (self.usages, self.engine_submits, self.page_granularity);
        assemble(Parts { raw, instance, probe, enabled, queues, usages, engine_submits, page_granularity })
    }
}

fn create_device(
    instance: &Instance,
    probe: &Probe,
    families: &[(u32, u32)],
    enabled: EnabledFeatures,
) -> Result<ash::Device, VulkanError> {
    let most = families.iter().map(|&(_, count)| count as usize).max().unwrap_or(0);
    let priorities = vec![1.0; most];
    let queue = |&(family, count): &(u32, u32)| {
        vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities[..count as usize])
    };
    let queues: Vec<_> = families.iter().map(queue).collect();
    let mut extensions: Vec<*const c_char> = Vec::new();
    let mut extend = |name: &'static CStr, wanted: bool| {
        if wanted {
            extensions.push(name.as_ptr());
        }
    };
    extend(khr::synchronization2::NAME, probe.features.synchronization2_khr);
    extend(ext::memory_budget::NAME, enabled.memory_budget);
    let core = vk::PhysicalDeviceFeatures::default()
        .sparse_binding(enabled.sparse_binding)
        .sparse_residency_buffer(enabled.sparse_residency)
        .sparse_residency_aliased(enabled.sparse_aliased);
    let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
    let mut synchronization = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
    let mut address =
        vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(enabled.buffer_device_address);
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .enabled_features(&core)
        .push_next(&mut timeline)
        .push_next(&mut synchronization)
        .push_next(&mut address);
    // SAFETY: the device has the queues, extensions and features asked for, by its own account; all that the structure
    // points to lives until the call returns.
    unsafe { instance.raw.create_device(probe.physical, &info, None) }.map_err(VulkanError::driver("vkCreateDevice"))
}
