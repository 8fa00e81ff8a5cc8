//! The conformance suite, once for each way to learn what is done.

use millpond_conformance::{WgpuDevice, conformance_tests};
use millpond_wgpu::Wgpu;

mod common;

mod with_a_semaphore {
    use super::*;
    conformance_tests!(WgpuDevice::new("with a semaphore", Wgpu::builder()), differences: []);
}

mod by_polls {
    use super::*;
    conformance_tests!(WgpuDevice::new("by polls", Wgpu::builder().semaphore(false)), differences: []);
}

/// The suite skips what it cannot open; here it shows.
#[test]
fn there_is_a_device() {
    common::open(Wgpu::builder());
}
