//! Helpers that the tests of this folder share: opening a device, or printing that there is none.

#![allow(dead_code, unreachable_pub)] // Each test file uses a part.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_wgpu::{Wgpu, WgpuBuilder, wgpu};

/// Opens a device, or prints that the test is skipped. A device that `MILLPOND_REQUIRE` names must exist.
pub fn open(builder: WgpuBuilder) -> Option<Wgpu> {
    watch_validation();
    match builder.build() {
        Ok(device) => Some(device),
        Err(error) if required("wgpu") => panic!("MILLPOND_REQUIRE names wgpu, and {error}"),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// Opens one device for each way to find out what is done: with the semaphore, where the device runs on Vulkan, and
/// only by polls.
pub fn both() -> Vec<Wgpu> {
    both_of(Wgpu::builder())
}

/// Opens both on the device of a builder.
pub fn both_of(builder: WgpuBuilder) -> Vec<Wgpu> {
    [true, false].into_iter().filter_map(|semaphore| open(builder.clone().semaphore(semaphore))).collect()
}

/// Waits until no other test has a device that Vulkan's validation layer watches. The thread of a test keeps the turn
/// until it ends. The layer finds a device in a table of the process that it does not lock, so a call crashes while
/// another thread opens or closes a device (issue 4391 of Vulkan-ValidationLayers, seen with 1.3.239).
fn take_turn() {
    static TURN: Mutex<()> = Mutex::new(());
    thread_local! {
        static TAKEN: MutexGuard<'static, ()> = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    }
    TAKEN.with(|_| ());
}

/// Has the layer watch the devices of this test: no other test's at the same time, and an error ends the process.
pub fn watch_validation() {
    take_turn();
    end_at_objections();
}

/// Ends the process when Vulkan's validation layer finds an error. wgpu logs these errors from inside of the driver's
/// calls, through which a panic must not unwind.
fn end_at_objections() {
    struct Watch;
    impl log::Log for Watch {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() == log::Level::Error && metadata.target().starts_with("wgpu_hal::vulkan")
        }
        fn log(&self, record: &log::Record<'_>) {
            let text = record.args().to_string();
            // Drivers report refusals here too, and layers older than wgpu do not know shaders written in WGSL.
            let ours = text.starts_with("VALIDATION") && !text.contains("Invalid source language operand");
            if self.enabled(record.metadata()) && ours {
                eprintln!("the validation layer objects: {text}");
                std::process::abort();
            }
        }
        fn flush(&self) {}
    }
    if log::set_logger(&Watch).is_ok() {
        log::set_max_level(log::LevelFilter::Error);
    }
}

/// Returns a builder for tests that submit or look tens of thousands of times: without validation, unless
/// `MILLPOND_VALIDATION` is set. Some versions of the layer (1.3.239) crash once in a million calls of
/// `vkGetSemaphoreCounterValue`, which wgpu makes with every submit and every look. The other tests run with
/// validation.
pub fn for_many_calls(builder: WgpuBuilder) -> WgpuBuilder {
    let watched = std::env::var_os("MILLPOND_VALIDATION").is_some();
    if watched {
        watch_validation();
    }
    builder.flags(if watched { wgpu::InstanceFlags::VALIDATION } else { wgpu::InstanceFlags::empty() })
}

/// Returns whether `MILLPOND_REQUIRE`, a list with commas, has that word.
pub fn required(word: &str) -> bool {
    std::env::var("MILLPOND_REQUIRE").is_ok_and(|list| list.split(',').any(|entry| entry.trim() == word))
}

/// The variable that shows a test that it runs as a child of itself.
const CHILD: &str = "MILLPOND_WGPU_CHILD";

/// Returns whether this process was started by [`child`].
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Returns a command that runs this test again, in a process of its own, with at most this number of KiB of addresses.
pub fn child(test: &str, address_kib: Option<u64>) -> Command {
    let this = std::env::current_exe().unwrap();
    let limit = address_kib.map_or(String::new(), |kib| format!("ulimit -v {kib} && "));
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{limit}exec \"$0\" --exact \"$1\" --nocapture")).arg(this).arg(test).env(CHILD, "1");
    command
}

/// Runs a child to its end and returns its output.
pub fn expect_success(child: &mut Command) -> String {
    let output = child.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "the child failed: {}\n{text}", output.status);
    text
}
