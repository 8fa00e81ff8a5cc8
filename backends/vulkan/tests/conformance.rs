//! The conformance suite on this machine's first Vulkan device, watched by the validation layer.

use millpond_conformance::{DeviceUnderTest as _, Need, VulkanDevice, conformance_tests};

conformance_tests!(VulkanDevice::new(0).validation(true), differences: []);

/// Without a device every scenario is skipped, which is not to go unnoticed.
#[test]
fn the_device_is_there() {
    if let Err(missing) = VulkanDevice::new(0).validation(true).open(&Need::default()) {
        eprintln!("SKIPPED: {missing}");
        let required = std::env::var("MILLPOND_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|each| each.trim() == "vulkan"), "MILLPOND_REQUIRE names vulkan: {missing}");
    }
}
