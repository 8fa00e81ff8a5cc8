//! The properties and features of a physical device, read once.

use std::ffi::CStr;

use ash::{ext, khr, vk};

use super::export::{ExportKind, exports};
use crate::error::VulkanError;

/// The facts of one physical device.
pub(crate) struct Probe {
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) properties: vk::PhysicalDeviceProperties,
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) families: Vec<vk::QueueFamilyProperties>,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) features: Features,
    /// The kinds in which memory of buffers can be exported.
    pub(crate) exports: Vec<ExportKind>,
    /// The largest allocation in bytes.
    pub(crate) max_allocation_bytes: u64,
    /// The largest buffer in bytes.
    pub(crate) max_buffer_bytes: u64,
}

/// The features that the device could be opened with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) timeline: bool,
    pub(crate) synchronization2: bool,
    /// Whether `synchronization2` is available only as an extension.
    pub(crate) synchronization2_khr: bool,
    pub(crate) address: bool,
    pub(crate) sparse_binding: bool,
    pub(crate) sparse_residency: bool,
    pub(crate) sparse_aliased: bool,
    pub(crate) budget: bool,
    /// Whether the driver leaves out some of what Vulkan requires. Such a device is opened with the extension that says
    /// so.
    pub(crate) portable: bool,
}

impl Probe {
    /// Reads the facts of a device of this instance.
    pub(crate) fn new(raw: &ash::Instance, physical: vk::PhysicalDevice) -> Result<Probe, VulkanError> {
        // SAFETY: the callers pass a physical device of this instance.
        let extensions = unsafe { raw.enumerate_device_extension_properties(physical) }
            .map_err(VulkanError::driver("vkEnumerateDeviceExtensionProperties"))?;
        let has = |name: &CStr| extensions.iter().any(|each| each.extension_name_as_c_str() == Ok(name));
        // SAFETY: as above.
        let plain = unsafe { raw.get_physical_device_properties(physical) };
        let core_1_2 = plain.api_version >= vk::API_VERSION_1_2;
        let core_1_3 = plain.api_version >= vk::API_VERSION_1_3;
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut identity = vk::PhysicalDeviceIDProperties::default();
        let mut maintenance3 = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut identity).push_next(&mut maintenance3);
        if core_1_2 {
            all = all.push_next(&mut driver);
        }
        let limits_buffers = core_1_3 || has(khr::maintenance4::NAME);
        if limits_buffers {
            all = all.push_next(&mut maintenance4);
        }
        // SAFETY: the structures chained are of versions or extensions that the device has.
        unsafe { raw.get_physical_device_properties2(physical, &mut all) };
        let properties = all.properties;
        let text = |name: Result<&CStr, _>| name.map_or_else(|_| String::new(), |name| name.to_string_lossy().into());
        let name = text(properties.device_name_as_c_str().map_err(drop));
        let driver_name: String = text(driver.driver_name_as_c_str().map_err(drop));
        let driver_info: String = text(driver.driver_info_as_c_str().map_err(drop));
        Ok(Probe {
            physical,
            properties,
            name,
            driver: format!("{driver_name} {driver_info}").trim().to_owned(),
            uuid: identity.device_uuid,
            // SAFETY: the physical device belongs to the instance.
            families: unsafe { raw.get_physical_device_queue_family_properties(physical) },
            // SAFETY: as above.
            memory: unsafe { raw.get_physical_device_memory_properties(physical) },
            features: Features::new(raw, physical, plain.api_version, &has),
            exports: exports(raw, physical, &has),
            max_allocation_bytes: maintenance3.max_memory_allocation_size,
            max_buffer_bytes: if limits_buffers { maintenance4.max_buffer_size } else { u64::MAX },
        })
    }

    /// Returns whether the device lacks a feature that its version cannot lack. NVIDIA's driver hides it from instances
    /// of an older version.
    pub(crate) fn hides_features(&self) -> bool {
        self.properties.api_version >= vk::API_VERSION_1_2 && !self.features.timeline
    }

    /// Returns what this backend needs and the device lacks, if anything.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        if self.properties.api_version < vk::API_VERSION_1_2 {
            Some("Vulkan 1.2")
        } else if !self.features.timeline {
            Some("timelineSemaphore")
        } else if !self.features.synchronization2 {
            Some("synchronization2 (Vulkan 1.3 or VK_KHR_synchronization2)")
        } else if self.families.iter().all(|family| !transfers(family.queue_flags)) {
            Some("a queue that computes or copies")
        } else {
            None
        }
    }

    /// Returns an error if this backend cannot use the device.
    pub(crate) fn usable(&self) -> Result<(), VulkanError> {
        let Some(missing) = self.missing() else { return Ok(()) };
        Err(VulkanError::Lacks { device: self.name.clone(), version: version(self.properties.api_version), missing })
    }

    /// Returns an error if memory of buffers cannot be exported in that kind.
    pub(crate) fn expect_export(&self, kind: ExportKind) -> Result<(), VulkanError> {
        use vk::ExternalMemoryHandleTypeFlags as Types;
        if self.exports.contains(&kind) {
            return Ok(());
        }
        let flags = |kinds: &[ExportKind]| kinds.iter().fold(Types::empty(), |all, kind| all | kind.handle_type());
        let (refused, exports) = (kind.handle_type(), flags(&self.exports));
        Err(VulkanError::NoExport { device: self.name.clone(), refused, exports })
    }

    /// Returns whether the device has sparse buffers: the features, and a queue that binds.
    pub(crate) fn sparse(&self) -> bool {
        let binds = |family: &vk::QueueFamilyProperties| family.queue_flags.contains(vk::QueueFlags::SPARSE_BINDING);
        self.features.sparse_binding && self.features.sparse_residency && self.families.iter().any(binds)
    }
}

impl Features {
    fn new(
        raw: &ash::Instance,
        physical: vk::PhysicalDevice,
        api_version: u32,
        has: &dyn Fn(&CStr) -> bool,
    ) -> Features {
        let core_1_2 = api_version >= vk::API_VERSION_1_2;
        let core_1_3 = api_version >= vk::API_VERSION_1_3;
        let extension = has(khr::synchronization2::NAME);
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut address = vk::PhysicalDeviceBufferDeviceAddressFeatures::default();
        let mut synchronization = vk::PhysicalDeviceSynchronization2Features::default();
        let mut all = vk::PhysicalDeviceFeatures2::default();
        if core_1_2 {
            all = all.push_next(&mut timeline).push_next(&mut address);
        }
        if core_1_3 || extension {
            all = all.push_next(&mut synchronization);
        }
        // SAFETY: the physical device belongs to the instance, and the structures chained are of versions or extensions
        // that it has.
        unsafe { raw.get_physical_device_features2(physical, &mut all) };
        let core = all.features;
        let yes = |value: vk::Bool32| value == vk::TRUE;
        Features {
            timeline: yes(timeline.timeline_semaphore),
            synchronization2: yes(synchronization.synchronization2),
            synchronization2_khr: !core_1_3 && extension,
            address: yes(address.buffer_device_address),
            sparse_binding: yes(core.sparse_binding),
            sparse_residency: yes(core.sparse_residency_buffer),
            sparse_aliased: yes(core.sparse_residency_aliased),
            budget: has(ext::memory_budget::NAME),
            portable: has(khr::portability_subset::NAME),
        }
    }
}

/// Returns whether a queue with these flags can copy: queues that compute or draw can, even without the flag for it.
pub(crate) fn transfers(flags: vk::QueueFlags) -> bool {
    flags.intersects(vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE | vk::QueueFlags::TRANSFER)
}

/// Formats a Vulkan version for a message.
pub(crate) fn version(number: u32) -> String {
    let (major, minor) = (vk::api_version_major(number), vk::api_version_minor(number));
    format!("{major}.{minor}.{}", vk::api_version_patch(number))
}
