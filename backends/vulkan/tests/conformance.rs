//! The conformance suite on this machine's first Vulkan device, watched by the validation layer.

use millpond_conformance::{VulkanDevice, conformance_tests};

conformance_tests!(VulkanDevice::new(0).validation(true), differences: []);
