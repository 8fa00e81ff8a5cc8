//! What the tests of this folder share: the way to a device, or a loud word that there is none.

#![allow(dead_code, unreachable_pub)] // Each test file uses a part.

use std::process::Command;

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

/// What tells a test that it runs as a child of itself.
const CHILD: &str = "MILLPOND_WGPU_CHILD";

/// Whether this process was made by [`child`].
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// This test once more, in a process of its own, with at most so many KiB of addresses.
pub fn child(test: &str, address_kib: Option<u64>) -> Command {
    let this = std::env::current_exe().unwrap();
    let limit = address_kib.map_or(String::new(), |kib| format!("ulimit -v {kib} && "));
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{limit}exec \"$0\" --exact \"$1\" --nocapture")).arg(this).arg(test).env(CHILD, "1");
    command
}

/// Runs a child to its end and answers what it wrote.
pub fn expect_success(child: &mut Command) -> String {
    let output = child.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "the child failed: {}\n{text}", output.status);
    text
}
