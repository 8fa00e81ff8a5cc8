//! What the tests of this folder share: the way to a device, or a loud word that there is none.

#![allow(dead_code, unreachable_pub)] // Each test file uses a part.

use millpond_wgpu::{Wgpu, WgpuBuilder};

/// Opens a device, or says that the test is skipped. A device that `MILLPOND_REQUIRE` names must be there.
pub fn open(builder: WgpuBuilder) -> Option<Wgpu> {
    match builder.build() {
        Ok(device) => Some(device),
        Err(error) if required("wgpu") => panic!("MILLPOND_REQUIRE names wgpu, and {error}"),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// Both ways to learn what is done: with the semaphore, where the device runs on Vulkan, and by polls alone.
pub fn both() -> Vec<Wgpu> {
    [true, false].into_iter().filter_map(|semaphore| open(Wgpu::builder().semaphore(semaphore))).collect()
}

/// Whether `MILLPOND_REQUIRE`, a list with commas, has that word.
pub fn required(word: &str) -> bool {
    std::env::var("MILLPOND_REQUIRE").is_ok_and(|list| list.split(',').any(|entry| entry.trim() == word))
}
