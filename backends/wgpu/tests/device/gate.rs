//! Work that is really in progress: a submission that waits on the device for a gate, which the test opens.
//!
//! There is one submission at a time: wgpu chains them, and behind a gated one the next blocks the host on some
//! drivers.

#![cfg(all(feature = "vulkan", not(target_vendor = "apple")))]

use std::time::{Duration, Instant};

use ash::vk;
use millpond::Allocator;
use millpond_backend::{Backend, ClassId, Point, StreamWait, Tick, Transfer};
use millpond_wgpu::{Wgpu, wgpu};

use crate::common;

/// A timeline semaphore at 0. When it is destroyed, no submission waits for it.
struct Gate {
    device: Wgpu,
    raw: ash::Device,
    semaphore: vk::Semaphore,
}

impl Gate {
    /// Makes the next submission wait for the gate.
    fn before_next_submit(device: &Wgpu) -> Gate {
        // SAFETY: the handle is used to make an object of its own.
        let raw = unsafe { device.device().as_hal::<wgpu::hal::api::Vulkan>() }.unwrap().raw_device().clone();
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive and has timeline semaphores.
        let semaphore = unsafe { raw.create_semaphore(&info, None) }.unwrap();
        // SAFETY: the semaphore outlives the submission: the gate waits for the device before it destroys it.
        let queue = unsafe { device.queue().as_hal::<wgpu::hal::api::Vulkan>() }.unwrap();
        queue.add_wait_semaphore(semaphore, Some(1), vk::PipelineStageFlags::ALL_COMMANDS);
        Gate { device: device.clone(), raw, semaphore }
    }

    fn open(&self) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(1);
        // SAFETY: the semaphore is alive; opening it twice is a mistake of a test, and panics.
        unsafe { self.raw.signal_semaphore(&info) }.unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // The gate is also opened when a test failed before: no submission may wait for ever.
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(1);
        // SAFETY: as above; an open gate refuses a second signal, or takes it.
        let closed = unsafe { self.raw.get_semaphore_counter_value(self.semaphore) }.is_ok_and(|value| value == 0);
        if closed {
            // SAFETY: as above.
            let _ = unsafe { self.raw.signal_semaphore(&info) };
        }
        let _ = self.device.device().poll(wgpu::PollType::wait_indefinitely());
        // SAFETY: all submissions are done.
        unsafe { self.raw.destroy_semaphore(self.semaphore, None) };
    }
}

/// Opens the devices that run on Vulkan, which gates need, without its validation layer: some versions wait seconds for
/// a signal that the host has not given yet.
fn both() -> Vec<Wgpu> {
    let on_vulkan = |device: &Wgpu| device.device().adapter_info().backend == wgpu::Backend::Vulkan;
    common::both_of(Wgpu::builder().flags(wgpu::InstanceFlags::empty())).into_iter().filter(on_vulkan).collect()
}

#[test]
fn a_tick_is_reached_when_its_work_is_done_and_not_before() {
    for device in both() {
        let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
        let segment = device.reserve(ClassId::DEVICE, 4096).unwrap();
        device.fill(stream, &segment, 0, 4096, 6).unwrap();
        let done = device.submit(other).unwrap();
        assert_eq!(device.wait(Point { stream: other, tick: done }).unwrap(), done);
        let gate = Gate::before_next_submit(&device);
        let tick = device.submit(stream).unwrap();
        for _ in 0..10 {
            assert_eq!(device.reached(stream).unwrap(), Tick(0), "the gate is closed");
        }
        assert_eq!(device.reached(other).unwrap(), done, "older work is done all the same");
        StreamWait::wait_for(&device, other, Point { stream, tick }).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| device.wait(Point { stream, tick }).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished(), "nothing is reached before the gate opens");
            assert_eq!(device.reached(stream).unwrap(), Tick(0), "others look meanwhile");
            gate.open();
            assert_eq!(waiter.join().unwrap(), tick);
        });
        assert_eq!(device.reached(stream).unwrap(), tick);
        let mut seen = [0; 4];
        device.download(other, &segment, 0, &mut seen).unwrap();
        assert_eq!(seen, [6; 4]);
    }
}

/// wgpu makes no submission of commands that it refuses, so nothing is done with it: neither its tick nor those before.
#[test]
fn a_refused_submit_reaches_no_tick() {
    for device in both() {
        let stream = device.create_stream().unwrap();
        let segment = device.reserve(ClassId::DEVICE, 4096).unwrap();
        device.fill(stream, &segment, 0, 4096, 6).unwrap();
        let gate = Gate::before_next_submit(&device);
        let tick = device.submit(stream).unwrap();
        let bad = device.record(stream, |encoder| encoder.clear_buffer(segment.buffer(), 4096, Some(4))).unwrap();
        device.submit(stream).unwrap_err();
        for _ in 0..10 {
            assert_eq!(device.reached(stream).unwrap(), Tick(0), "the gate is closed");
        }
        assert_eq!(device.submitted(stream), tick);
        gate.open();
        assert_eq!(
            device.wait(Point { stream, tick: bad }).unwrap(),
            tick,
            "the refused tick is reached by a later one"
        );
        let next = device.submit(stream).unwrap();
        assert_eq!(device.wait(Point { stream, tick: bad }).unwrap(), next);
    }
}

#[test]
fn memory_that_gated_work_of_another_stream_uses_is_not_granted_again() {
    for device in both() {
        let allocator = Allocator::builder(device.clone()).conf("policy:classic").build().unwrap();
        let [home, other] = [(); 2].map(|()| allocator.create_stream().unwrap());
        let used = home.allocate(4096).unwrap();
        let place = (used.segment_id(), used.offset());
        used.record_stream(&other).unwrap();
        device.fill(other.id(), used.segment().unwrap(), used.offset(), 4096, 8).unwrap();
        drop(used);
        let gate = Gate::before_next_submit(&device);
        let tick = device.submit(other.id()).unwrap();
        let early = home.allocate(4096).unwrap();
        assert_ne!((early.segment_id(), early.offset()), place, "the other stream still writes there");
        gate.open();
        assert_eq!(device.wait(Point { stream: other.id(), tick }).unwrap(), tick);
        allocator.poll().unwrap();
        let late = home.allocate(4096).unwrap();
        assert_eq!((late.segment_id(), late.offset()), place);
    }
}

/// A query of work in progress costs almost nothing with the semaphore: far less than the poll that it replaces.
#[test]
fn looking_is_cheap_with_a_semaphore() {
    const LOOKS: u32 = 1000;
    let mut costs = Vec::new();
    for device in both() {
        let stream = device.create_stream().unwrap();
        let gate = Gate::before_next_submit(&device);
        let tick = device.submit(stream).unwrap();
        let began = Instant::now();
        for _ in 0..LOOKS {
            assert_eq!(device.reached(stream).unwrap(), Tick(0));
        }
        costs.push(began.elapsed() / LOOKS);
        gate.open();
        assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
    }
    eprintln!("a look costs {costs:?}");
    if let [semaphore, poll] = costs[..] {
        assert!(semaphore < poll, "{semaphore:?} with the semaphore, {poll:?} by polling");
    }
}
