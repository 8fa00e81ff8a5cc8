//! The loader and the instance.

use std::ffi::{OsString, c_char};
use std::sync::atomic::{AtomicBool, Ordering};

use ash::{ext, khr, vk};

use super::validation::ValidationLog;
use crate::error::VulkanError;
use crate::probe::version;

/// The Vulkan version that this backend is written for, and the oldest whose functions it can do with.
const VERSION: u32 = vk::API_VERSION_1_3;
const OLDEST: u32 = vk::API_VERSION_1_2;

/// Whether an instance was kept. The first instance that is no longer needed is never destroyed, so that the loader
/// does not unload the drivers, because not all of them survive that. NVIDIA's driver crashes if other threads are
/// running, and can no longer be loaded after about thirty times.
static KEPT: AtomicBool = AtomicBool::new(false);

/// An instance that was created here or by an engine. One that was created here is destroyed with this value, except
/// the first.
pub(crate) struct Instance {
    pub(crate) entry: ash::Entry,
    pub(crate) raw: ash::Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// The log that the messenger writes to. It must outlive the raw instance, and does, because fields are dropped
    /// after `drop` ran.
    pub(crate) log: Option<ValidationLog>,
    owned: bool,
}

impl Instance {
    /// Wraps an instance that an engine made and destroys.
    pub(crate) fn adopted(entry: ash::Entry, raw: ash::Instance, log: Option<ValidationLog>) -> Instance {
        Instance { entry, raw, messenger: None, log, owned: false }
    }

    /// Loads the loader and creates an instance.
    pub(crate) fn open(loader: Option<&OsString>, validation: bool) -> Result<Instance, VulkanError> {
        let entry = load(loader)?;
        // SAFETY: the entry is loaded; the call has no other condition.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(VulkanError::driver("vkEnumerateInstanceVersion"))?;
        let version = version_to_use(version)?;
        let log = if validation { Some(ValidationLog::installed(&entry)?) } else { None };
        let layers: &[*const c_char] = if validation { &[ValidationLog::LAYER.as_ptr()] } else { &[] };
        let mut extensions: Vec<*const c_char> = Vec::new();
        if validation {
            extensions.extend([ext::debug_utils::NAME.as_ptr(), ext::validation_features::NAME.as_ptr()]);
        }
        let mut flags = vk::InstanceCreateFlags::empty();
        if lists_portable_devices(&entry)? {
            extensions.push(khr::portability_enumeration::NAME.as_ptr());
            flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        let application = vk::ApplicationInfo::default().application_name(c"millpond").api_version(version);
        let enables = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&enables);
        let mut messenger = log.as_ref().map(ValidationLog::messenger).unwrap_or_default();
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_layer_names(layers)
            .enabled_extension_names(&extensions)
            .flags(flags);
        if validation {
            info = info.push_next(&mut features).push_next(&mut messenger);
        }
        // SAFETY: everything that the structure points to lives until the call returns, and the log longer than the
        // instance.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => VulkanError::NoDriver { reason: format!("{result:?}") },
            _ => VulkanError::Driver { call: "vkCreateInstance", result },
        })?;
        let mut instance = Instance { entry, raw, messenger: None, log, owned: true };
        if let Some(log) = &instance.log {
            let utils = ext::debug_utils::Instance::new(&instance.entry, &instance.raw);
            // SAFETY: the extension is enabled, and the log outlives the messenger.
            let messenger = unsafe { utils.create_debug_utils_messenger(&log.messenger(), None) }
                .map_err(VulkanError::driver("vkCreateDebugUtilsMessengerEXT"))?;
            instance.messenger = Some((utils, messenger));
        }
        Ok(instance)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((utils, messenger)) = self.messenger.take() {
            // SAFETY: the messenger belongs to this instance, and is destroyed only here.
            unsafe { utils.destroy_debug_utils_messenger(messenger, None) };
        }
        if self.owned && KEPT.swap(true, Ordering::Relaxed) {
            // SAFETY: the instance was created here, and its holder destroys the device made from it first.
            unsafe { self.raw.destroy_instance(None) };
        }
    }
}

/// Returns the version to ask a loader for that knows this one. Loaders for 1.0 have none to tell.
fn version_to_use(known: Option<u32>) -> Result<u32, VulkanError> {
    let known = known.unwrap_or(vk::API_VERSION_1_0);
    if known < OLDEST {
        return Err(VulkanError::OldLoader { version: version(known) });
    }
    Ok(known.min(VERSION))
}

/// Returns whether the loader lists devices whose drivers do not do all that Vulkan requires, if asked to: MoltenVK's.
fn lists_portable_devices(entry: &ash::Entry) -> Result<bool, VulkanError> {
    // SAFETY: the entry is loaded; the call has no other condition.
    let there = unsafe { entry.enumerate_instance_extension_properties(None) }
        .map_err(VulkanError::driver("vkEnumerateInstanceExtensionProperties"))?;
    Ok(there.iter().any(|each| each.extension_name_as_c_str() == Ok(khr::portability_enumeration::NAME)))
}

fn load(loader: Option<&OsString>) -> Result<ash::Entry, VulkanError> {
    let loaded = match loader {
        // SAFETY: the caller of `VulkanBuilder::loader` guarantees that the library, if any, is a Vulkan loader.
        Some(path) => unsafe { ash::Entry::load_from(path) },
        // SAFETY: the system's Vulkan loader may be loaded and initialised at any time.
        None => unsafe { ash::Entry::load() },
    };
    let entry = loaded.map_err(|error| VulkanError::NoLoader {
        loader: loader.map_or_else(|| "libvulkan".to_owned(), |path| path.to_string_lossy().into_owned()),
        reason: error.to_string(),
    })?;
    // The loader is not unloaded, for the same reason as the drivers: see `KEPT`.
    std::mem::forget(entry.clone());
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_whose_functions_do_not_suffice_are_refused() {
        for old in [None, Some(vk::API_VERSION_1_0), Some(vk::make_api_version(0, 1, 1, 290))] {
            let error = version_to_use(old).unwrap_err();
            assert!(error.to_string().contains("1.2 is needed"), "{error}");
        }
        let used = [(1, 2), (1, 3), (1, 4)]
            .map(|(major, minor)| version_to_use(Some(vk::make_api_version(0, major, minor, 0))).unwrap());
        assert_eq!(used, [vk::API_VERSION_1_2, vk::API_VERSION_1_3, vk::API_VERSION_1_3]);
    }
}
