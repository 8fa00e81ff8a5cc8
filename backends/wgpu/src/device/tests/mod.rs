//! Tests of how the rooms work together that need to see inside of them.

#[cfg(feature = "vulkan-segments")]
mod recorded;

use std::sync::Arc;

use ash::vk;
use millpond_backend::{Backend, Point, Tick};
use wgpu::hal::api::Vulkan;

use super::Wgpu;
use crate::common;
use crate::streams::Flight;
use crate::time::Hint;

/// Other code submits between attaching and submitting: its submission takes the signal along, and gives it while
/// the submission of this backend still waits for a gate.
#[test]
fn a_signal_that_came_early_reaches_nothing() {
    let Some(device) = common::open(Wgpu::builder().flags(wgpu::InstanceFlags::empty())) else { return };
    let shared = &*device.shared;
    let Some(hint) = &shared.time.hint else {
        eprintln!("SKIPPED: the device does not run on Vulkan");
        return;
    };
    let stream = device.create_stream().unwrap();
    let clock = Arc::clone(&shared.streams.lane(stream).clock);
    let gate = Hint::new(&shared.driver.device).unwrap();
    let (index, value) = hint.submit(&shared.driver.queue, || {
        shared.driver.queue.submit([]);
        // SAFETY: the gate outlives the submission that waits for it.
        let queue = unsafe { shared.driver.queue.as_hal::<Vulkan>() }.unwrap();
        queue.add_wait_semaphore(gate.semaphore, Some(1), vk::PipelineStageFlags::ALL_COMMANDS);
        shared.driver.queue.submit([])
    });
    let tick = clock.ticks.close();
    clock.depart(Flight { tick, index, value, staged_bytes: 0 });
    let told = Arc::clone(&clock);
    shared.driver.queue.on_submitted_work_done(move || told.arrive(tick));
    hint.wait(value.unwrap());
    assert!(hint.may_be_done(value.unwrap()), "the signal came early");
    assert_eq!(device.reached(stream).unwrap(), Tick(0), "wgpu knows better");
    let open = vk::SemaphoreSignalInfo::default().semaphore(gate.semaphore).value(1);
    // SAFETY: the gate is alive and closed.
    unsafe { gate.device.signal_semaphore(&open) }.unwrap();
    assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
    gate.destroy();
}
