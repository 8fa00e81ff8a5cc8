//! Opening the engine's own device.

use std::ffi::c_char;
use std::sync::Arc;

use millpond_vulkan::ash::{self, ext, vk};
use millpond_vulkan::{ValidationLog, VulkanError};

use super::{Handles, OwnDevice};
use crate::engine::Result;

/// The engine's Vulkan version, which includes timeline semaphores and synchronization2.
const VERSION: u32 = vk::API_VERSION_1_3;

impl OwnDevice {
    /// Opens the first device of Vulkan 1.3, with one queue that computes.
    ///
    /// # Errors
    ///
    /// Returns the error of the loader or of the driver, or that there is no such device.
    pub fn open() -> Result<OwnDevice> {
        // SAFETY: the system's Vulkan loader may be loaded and initialised at any time.
        let entry = unsafe { ash::Entry::load() }?;
        let application = vk::ApplicationInfo::default().application_name(c"engine").api_version(VERSION);
        let log = match ValidationLog::installed(&entry) {
            Ok(log) => Some(log),
            Err(VulkanError::NoValidation) => None,
            Err(error) => return Err(error.into()),
        };
        let (layers, extensions): (&[*const c_char], &[*const c_char]) = match &log {
            Some(_) => (&[ValidationLog::LAYER.as_ptr()], &[ext::debug_utils::NAME.as_ptr()]),
            None => (&[], &[]),
        };
        let info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_layer_names(layers)
            .enabled_extension_names(extensions);
        // SAFETY: what the structure points to is alive.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        let opened = find(&instance).and_then(|(physical, family)| {
            let device = create_device(&instance, physical, family)?;
            Ok((physical, family, device))
        });
        let (physical, family, device) = opened.inspect_err(|_| {
            // SAFETY: nothing was made from the instance that is still there.
            unsafe { instance.destroy_instance(None) };
        })?;
        // SAFETY: the device was created with one queue of this family.
        let queue = unsafe { device.get_device_queue(family, 0) };
        // From here on dropping the value destroys what there is; destroying null does nothing.
        let (timeline, commands) = (vk::Semaphore::null(), vk::CommandPool::null());
        let (messenger, lock) = (None, Arc::default());
        let mut own =
            Handles { entry, instance, log, messenger, physical, device, family, queue, lock, timeline, commands };
        own.equip()?;
        Ok(OwnDevice { own: Arc::new(own) })
    }
}

impl Handles {
    fn equip(&mut self) -> Result<()> {
        if let Some(log) = &self.log {
            let utils = ext::debug_utils::Instance::new(&self.entry, &self.instance);
            // SAFETY: the instance has the extension, and the log is kept until the messenger is destroyed.
            let messenger = unsafe { utils.create_debug_utils_messenger(&log.messenger(), None) }?;
            self.messenger = Some((utils, messenger));
        }
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores are enabled.
        self.timeline = unsafe { self.device.create_semaphore(&info, None) }?;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(self.family);
        // SAFETY: the family is one of the device's.
        self.commands = unsafe { self.device.create_command_pool(&info, None) }?;
        Ok(())
    }
}

/// Returns a device and a queue family of it that computes.
fn find(instance: &ash::Instance) -> Result<(vk::PhysicalDevice, u32)> {
    // SAFETY: the instance is alive; the call has no other condition.
    for physical in unsafe { instance.enumerate_physical_devices() }? {
        // SAFETY: the instance has just listed the device.
        let facts = unsafe { instance.get_physical_device_properties(physical) };
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let family = families.iter().position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE));
        if let Some(family) = family.filter(|_| facts.api_version >= VERSION) {
            return Ok((physical, u32::try_from(family)?));
        }
    }
    Err("no device has Vulkan 1.3 and a queue that computes: update the driver".into())
}

fn create_device(instance: &ash::Instance, physical: vk::PhysicalDevice, family: u32) -> Result<ash::Device> {
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let mut v12 = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
    let mut v13 = vk::PhysicalDeviceVulkan13Features::default().synchronization2(true);
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut v12).push_next(&mut v13);
    // SAFETY: the family is the device's, both features are part of Vulkan 1.3, and all that the structure points to is
    // alive.
    Ok(unsafe { instance.create_device(physical, &info, None) }?)
}
