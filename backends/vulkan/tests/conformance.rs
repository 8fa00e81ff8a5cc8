//! The conformance suite on this machine's first Vulkan device, checked by the validation layer.

use millpond_conformance::{DeviceUnderTest as _, Need, VulkanDevice, conformance_tests};

conformance_tests!(VulkanDevice::new(0).validation(true), differences: []);

/// Without a device every scenario is skipped, and without the layer nothing is checked: this test reports both.
#[test]
fn the_device_is_there_and_watched() {
    let watched = VulkanDevice::new(0).validation(true);
    let _turn = watched.turn();
    let missing = match watched.open(&Need::default()) {
        Ok(device) if device.validation().is_some() => return,
        Ok(_) => ("validation", "the validation layer is not installed".to_owned()),
        Err(missing) => ("vulkan", missing.to_string()),
    };
    let (power, reason) = missing;
    eprintln!("SKIPPED: {reason}");
    let required = std::env::var("MILLPOND_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|each| each.trim() == power), "MILLPOND_REQUIRE names {power}: {reason}");
}

/// A group is running or paused after each failure, with its contents, where the device binds sparsely.
#[test]
fn groups_are_paused_and_resumed() {
    match millpond_conformance::sleep::pause_and_resume(&VulkanDevice::new(0).validation(true)) {
        Ok(None) => {}
        Ok(Some(reason)) => eprintln!("SKIPPED: {reason}"),
        Err(text) => panic!("{text}"),
    }
}
