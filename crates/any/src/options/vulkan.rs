//! Vulkan devices, and the options that `vulkan:...` takes.

use millpond_vulkan::ash::vk::PhysicalDeviceType;
use millpond_vulkan::{DeviceInfo, Vulkan, VulkanBuilder, VulkanError};

use super::{listed, twice};

/// The choice of a Vulkan device, and how it is opened.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct VulkanOptions {
    /// The device's place in the loader's list. If `None`, the first GPU, or else the first device.
    pub index: Option<usize>,
    /// Whether the validation layer is enabled.
    pub validation: bool,
    /// Whether the device is opened without virtual memory, even where it has it.
    pub no_pages: bool,
}

/// Returns whether a device can be used, and is not in software.
fn is_gpu(device: &DeviceInfo) -> bool {
    device.missing.is_none() && device.kind != PhysicalDeviceType::CPU
}

/// Returns whether there is a device, usable or not, that is not in software.
#[cfg(all(feature = "wgpu", target_os = "linux"))]
pub(super) fn has_gpu() -> bool {
    Vulkan::devices().is_ok_and(|devices| devices.iter().any(|device| device.kind != PhysicalDeviceType::CPU))
}

impl VulkanOptions {
    /// Parses the options after `vulkan:`, separated by commas.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the options.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in listed(text) {
            let again = match option {
                "validation" => std::mem::replace(&mut options.validation, true),
                "pages=none" => std::mem::replace(&mut options.no_pages, true),
                number => match number.parse() {
                    Ok(index) => options.index.replace(index).is_some(),
                    Err(_) => {
                        return Err(format!(
                            "`{option}` is no option; write the device's number, validation or pages=none, with commas \
                             between them, such as vulkan:0,validation"
                        ));
                    }
                },
            };
            if again {
                return Err(twice(option));
            }
        }
        Ok(options)
    }

    /// Returns the first device that is a GPU.
    ///
    /// # Errors
    ///
    /// Returns the reason, if there is none.
    pub fn preferred() -> Result<Self, String> {
        let devices = Vulkan::devices().map_err(|error| millpond::text::with_causes(&error))?;
        match devices.iter().find(|device| is_gpu(device)) {
            Some(device) => Ok(Self { index: Some(device.index), ..Self::default() }),
            None => Err(super::no_gpu("vulkan", devices.iter().map(|device| device.name.as_str()))),
        }
    }

    /// Returns the device's place in the loader's list.
    ///
    /// # Errors
    ///
    /// Returns the loader's error, if the list is needed.
    pub fn index(&self) -> Result<usize, VulkanError> {
        match self.index {
            Some(index) => Ok(index),
            None => Ok(Vulkan::devices()?.iter().find(|device| is_gpu(device)).map_or(0, |device| device.index)),
        }
    }

    /// Returns a builder of the device.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`index`](Self::index).
    pub fn builder(&self) -> Result<VulkanBuilder, VulkanError> {
        Ok(Vulkan::builder().device(self.index()?).validation(self.validation).sparse(!self.no_pages))
    }

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// Returns what is missing, or the driver's error.
    pub fn open(&self) -> Result<Vulkan, VulkanError> {
        self.builder()?.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_which_device_and_how() {
        let parsed = |text| VulkanOptions::parse(text).expect(text);
        assert_eq!(parsed(""), VulkanOptions::default());
        assert_eq!(parsed("3"), VulkanOptions { index: Some(3), ..VulkanOptions::default() });
        let all = VulkanOptions { index: Some(0), validation: true, no_pages: true };
        assert_eq!((parsed("0,validation,pages=none"), parsed("pages=none,validation,0")), (all.clone(), all));
        for text in ["x", "-1", "0,", "0,,1", "0,1", "validation,validation", "pages=2MiB", "0:validation"] {
            let error = VulkanOptions::parse(text).expect_err(text);
            assert!(error.contains("is no option") || error.contains("comes on top"), "{text}: {error}");
        }
    }
}
