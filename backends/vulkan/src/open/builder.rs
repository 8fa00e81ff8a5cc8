//! The builder of a device: describing it, and opening it.

use std::ffi::{CStr, OsString};
use std::path::Path;

use ash::{ext, khr, vk};
use millpond_backend::ClassId;

use super::devices::{self, physical_devices};
use super::driver::{Driver, EnabledFeatures, Parts, RawDevice};
use super::instance::Instance;
use super::queue::{Queue, QueueChoice};
use super::settings::{COUNT, Settings};
use crate::error::VulkanError;
use crate::probe::{DeviceInfo, ExportKind, Features, Probe};

/// The builder of a device. [`Vulkan::builder`](crate::Vulkan::builder) starts one, and [`build`](VulkanBuilder::build)
/// opens the device.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened until build is called"]
pub struct VulkanBuilder {
    loader: Option<OsString>,
    index: usize,
    validation: bool,
    queues: QueueChoice,
    sparse: bool,
    budget: bool,
    settings: Settings,
}

impl VulkanBuilder {
    /// Creates the builder with its defaults.
    pub(crate) fn new() -> VulkanBuilder {
        VulkanBuilder {
            loader: None,
            index: 0,
            validation: false,
            queues: QueueChoice::default(),
            sparse: true,
            budget: true,
            settings: Settings::default(),
        }
    }

    /// Sets the device, by its place in [`Vulkan::devices`](crate::Vulkan::devices). The default is 0.
    pub fn device(mut self, index: usize) -> VulkanBuilder {
        self.index = index;
        self
    }

    /// Sets the Vulkan loader to use instead of the system's, as a path to the library.
    ///
    /// # Safety
    ///
    /// The library, if there is one, is a Vulkan loader: its code is run.
    pub unsafe fn loader(mut self, path: impl AsRef<Path>) -> VulkanBuilder {
        self.loader = Some(path.as_ref().as_os_str().to_owned());
        self
    }

    /// Sets whether the validation layer checks the calls, synchronization included.
    /// [`Vulkan::validation`](crate::Vulkan::validation) returns its messages. Off by default; it makes every call
    /// slower.
    pub fn validation(mut self, validation: bool) -> VulkanBuilder {
        self.validation = validation;
        self
    }

    /// Sets the queues to open. The default is all that can copy.
    pub fn queues(mut self, queues: QueueChoice) -> VulkanBuilder {
        self.queues = queues;
        self
    }

    /// Sets whether to use sparse binding, for virtual memory, where the device has it. On by default.
    pub fn sparse(mut self, sparse: bool) -> VulkanBuilder {
        self.sparse = sparse;
        self
    }

    /// Sets the number of bytes that the sizes of pages are multiples of; the driver may require more. The default is 2
    /// MiB: smaller pages cost more binds and, on most devices, slower accesses.
    ///
    /// # Panics
    ///
    /// If it is not a power of two.
    pub fn page_granularity(mut self, bytes: u64) -> VulkanBuilder {
        assert!(bytes.is_power_of_two(), "a page granularity of {bytes} bytes: it must be a power of two");
        self.settings.page_granularity = bytes;
        self
    }

    /// Sets whether to query the driver for its memory budget, where it reports one. On by default.
    pub fn budget(mut self, budget: bool) -> VulkanBuilder {
        self.budget = budget;
        self
    }

    /// Sets whether other code submits work that touches memory of this device, without going through the device. The
    /// device then reports that reuse in order needs a barrier
    /// ([`Vulkan::reuse_barrier`](crate::Vulkan::reuse_barrier)), and keeps the memory of a dropped allocator until
    /// that code has submitted ([`Vulkan::release_left`](crate::Vulkan::release_left)). Off by default: every submit
    /// goes through the device, which places the barriers.
    pub fn engine_submits(mut self, engine_submits: bool) -> VulkanBuilder {
        self.settings.engine_submits = engine_submits;
        self
    }

    /// Sets the usages of a class's buffers, besides copies and, where the device has them, addresses. The default is
    /// storage, uniform, texel, vertex, index and indirect buffers: all that need no extension. Opening the device with
    /// others fails ([`VulkanError::Usage`](crate::VulkanError::Usage)).
    ///
    /// # Panics
    ///
    /// If there is no such class: a Vulkan device has 4.
    pub fn usage(mut self, class: ClassId, usage: vk::BufferUsageFlags) -> VulkanBuilder {
        assert!(usize::from(class.0) < COUNT, "class {} asked of a device that has {COUNT}", class.0);
        self.settings.usages[usize::from(class.0)] = usage;
        self
    }

    /// Sets how memory of class 0 can be exported to other APIs and processes, by
    /// [`Vulkan::export`](crate::Vulkan::export). [`DeviceInfo::exports`] lists what the device has; opening it with
    /// another kind fails ([`VulkanError::NoExport`]). Off by default.
    ///
    /// It concerns segments: pages are not exported, so allocate with `policy:classic`.
    pub fn exports(mut self, kind: ExportKind) -> VulkanBuilder {
        self.settings.exports = Some(kind);
        self
    }

    /// Lists the devices that this builder could open.
    ///
    /// # Errors
    ///
    /// The errors of [`Vulkan::devices`](crate::Vulkan::devices).
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, VulkanError> {
        devices::list(self.loader.as_ref())
    }

    /// Opens the device.
    pub(crate) fn open(self) -> Result<(Driver, Settings), VulkanError> {
        let instance = Instance::open(self.loader.as_ref(), self.validation)?;
        let physical = physical_devices(&instance)?;
        let Some(&physical) = physical.get(self.index) else {
            return Err(VulkanError::NoDevice { index: self.index, count: physical.len() });
        };
        let probe = Probe::new(&instance.raw, physical)?;
        probe.usable()?;
        let families = self.queues.resolve(&probe.families)?;
        let features = probe.features;
        let sparse = self.sparse && probe.sparse();
        let enabled = EnabledFeatures {
            buffer_device_address: features.address,
            sparse_binding: sparse,
            sparse_residency: sparse,
            sparse_aliased: sparse && features.sparse_aliased,
            memory_budget: self.budget && features.budget,
        };
        self.settings.check(enabled)?;
        let exports = self.settings.exports;
        exports.map_or(Ok(()), |kind| probe.expect_export(kind))?;
        let mut extensions: Vec<_> = extensions(&probe.features, enabled).collect();
        extensions.extend(exports.into_iter().flat_map(ExportKind::extensions));
        let raw = create_device(&instance, &probe, &families, enabled, &extensions)?;
        let raw = RawDevice { raw, owned: true };
        let mut queues = Vec::new();
        for (family, count) in families {
            let flags = probe.families[family as usize].queue_flags;
            for index in 0..count {
                // SAFETY: the device was created with this many queues of the family.
                let queue = unsafe { raw.get_device_queue(family, index) };
                queues.push(Queue::new(queue, (family, index), flags, None));
            }
        }
        let driver = Driver::new(Parts { raw, instance, probe, enabled, queues, keep: None })?;
        Ok((driver, self.settings))
    }
}

/// Returns the extensions that a device with these features is opened with.
fn extensions(features: &Features, enabled: EnabledFeatures) -> impl Iterator<Item = &'static CStr> {
    let all = [
        (khr::synchronization2::NAME, features.synchronization2_khr),
        (ext::memory_budget::NAME, enabled.memory_budget),
        (khr::portability_subset::NAME, features.portable),
    ];
    all.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name)
}

fn create_device(
    instance: &Instance,
    probe: &Probe,
    families: &[(u32, u32)],
    enabled: EnabledFeatures,
    extensions: &[&CStr],
) -> Result<ash::Device, VulkanError> {
    let most = families.iter().map(|&(_, count)| count as usize).max().unwrap_or(0);
    let priorities = vec![1.0; most];
    let queue = |&(family, count): &(u32, u32)| {
        vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities[..count as usize])
    };
    let queues: Vec<_> = families.iter().map(queue).collect();
    let extensions: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
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
    // SAFETY: the device reported that it has the queues, extensions and features that are requested; everything that
    // the structure points to lives until the call returns.
    unsafe { instance.raw.create_device(probe.physical, &info, None) }.map_err(VulkanError::driver("vkCreateDevice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vulkan requires that a device which lists the extension is opened with it.
    #[test]
    fn a_portable_device_is_opened_as_one() {
        let extensions = |portable| {
            let features = Features { portable, ..Features::default() };
            extensions(&features, EnabledFeatures::default()).collect::<Vec<_>>()
        };
        assert_eq!(extensions(true), [khr::portability_subset::NAME]);
        assert_eq!(extensions(false), [c""; 0]);
    }
}
