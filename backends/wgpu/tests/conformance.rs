//! The conformance suite, once for each way to find out what is done.

use millpond_conformance::{WgpuDevice, conformance_tests};
use millpond_wgpu::Wgpu;

mod common;

fn device(name: &str, semaphore: bool) -> WgpuDevice {
    WgpuDevice::new(name, common::for_many_calls(Wgpu::builder().semaphore(semaphore)))
}

mod with_a_semaphore {
    use super::*;
    conformance_tests!(device("with a semaphore", true), differences: []);
}

mod by_polls {
    use super::*;
    conformance_tests!(device("by polls", false), differences: []);
}

/// The suite skips what it cannot open; this test shows whether there is a device.
#[test]
fn there_is_a_device() {
    common::open(Wgpu::builder());
}
