//! What reaches the driver where segments are the Vulkan backend's. The drivers at hand run everything in order, so a
//! wait or a lock that is missing changes nothing there. The driver's calls are recorded here, and looked at.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, OnceLock};

use ash::vk;
use millpond_backend::{Backend, ClassId, Point, Transfer, VirtualMemory};
use parking_lot::Mutex;
use wgpu::InstanceFlags;
use wgpu::hal::Instance as _;
use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan::Instance;

use crate::common;
use crate::device::Wgpu;
use crate::open::Under;

/// The value of a timeline that a call waits for or signals.
type At = (vk::Semaphore, u64);

/// The value that wgpu gives a semaphore without a timeline.
const BINARY: u64 = !0;

/// A call that changes what runs on a queue.
enum Call {
    Bind { locked: bool, signals: Vec<At> },
    Submit { locked: bool, waits: Vec<(At, vk::PipelineStageFlags)>, signals: Vec<At> },
}

/// The driver's own functions.
struct Real {
    find: vk::PFN_vkGetDeviceProcAddr,
    submit: OnceLock<vk::PFN_vkQueueSubmit>,
    bind: OnceLock<vk::PFN_vkQueueBindSparse>,
}

static REAL: OnceLock<Real> = OnceLock::new();
static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
/// The Vulkan backend, and wgpu's queue, which is to be locked.
static UNDER: Mutex<Option<(Arc<Under>, vk::Queue)>> = Mutex::new(None);

fn real() -> &'static Real {
    REAL.get().expect("the driver's functions are found before any is replaced")
}

/// Replaces two functions of devices.
unsafe extern "system" fn find(device: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the arguments are the caller's, unchanged.
    let found = unsafe { (real().find)(device, name) }?;
    // SAFETY: the caller passes a string that ends with a zero; a function has the type that its name stands for.
    unsafe {
        match CStr::from_ptr(name).to_bytes() {
            b"vkQueueSubmit" => {
                let _ =
                    real().submit.set(std::mem::transmute::<unsafe extern "system" fn(), vk::PFN_vkQueueSubmit>(found));
                Some(std::mem::transmute::<vk::PFN_vkQueueSubmit, unsafe extern "system" fn()>(submit))
            }
            b"vkQueueBindSparse" => {
                let _ = real()
                    .bind
                    .set(std::mem::transmute::<unsafe extern "system" fn(), vk::PFN_vkQueueBindSparse>(found));
                Some(std::mem::transmute::<vk::PFN_vkQueueBindSparse, unsafe extern "system" fn()>(bind))
            }
            _ => Some(found),
        }
    }
}

/// Returns the elements of a C array.
///
/// # Safety
///
/// The pointer is to that many elements, which live as long as the result is used; or it is null, and there are none.
unsafe fn list<'a, T>(pointer: *const T, count: u32) -> &'a [T] {
    // SAFETY: the caller guarantees it.
    if pointer.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(pointer, count as usize) } }
}

/// Returns the values of timelines in the chain of a submit or a bind: those of waits and those of signals.
///
/// # Safety
///
/// The chain is one of valid structures.
unsafe fn values<'a>(mut next: *const c_void) -> (&'a [u64], &'a [u64]) {
    while !next.is_null() {
        // SAFETY: the caller guarantees it; every structure in a chain begins in this way, and has the type it says.
        unsafe {
            let base = &*next.cast::<vk::BaseInStructure<'_>>();
            if base.s_type == vk::StructureType::TIMELINE_SEMAPHORE_SUBMIT_INFO {
                let it = &*next.cast::<vk::TimelineSemaphoreSubmitInfo<'_>>();
                return (
                    list(it.p_wait_semaphore_values, it.wait_semaphore_value_count),
                    list(it.p_signal_semaphore_values, it.signal_semaphore_value_count),
                );
            }
            next = base.p_next.cast();
        }
    }
    (&[], &[])
}

/// Pairs the semaphores that have a timeline with their values.
fn timelines(semaphores: &[vk::Semaphore], values: &[u64]) -> Vec<At> {
    semaphores.iter().copied().zip(values.iter().copied()).filter(|(_, value)| *value != BINARY).collect()
}

/// Returns whether this thread has the queue locked, if it is one that submits and binds share.
fn has_turn(queue: vk::Queue) -> bool {
    UNDER.lock().as_ref().is_none_or(|(under, shared)| *shared != queue || under.has_turn())
}

unsafe extern "system" fn submit(
    queue: vk::Queue,
    count: u32,
    batches: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    let locked = has_turn(queue);
    // SAFETY: the caller passes as many structures, with as many semaphores and stages as they say.
    for it in unsafe { list(batches, count) } {
        // SAFETY: as above.
        let (waits, stages, signals, values) = unsafe {
            (
                list(it.p_wait_semaphores, it.wait_semaphore_count),
                list(it.p_wait_dst_stage_mask, it.wait_semaphore_count),
                list(it.p_signal_semaphores, it.signal_semaphore_count),
                values(it.p_next),
            )
        };
        let waits = waits.iter().copied().zip(values.0.iter().copied()).zip(stages.iter().copied());
        let waits = waits.filter(|((_, value), _)| *value != BINARY).collect();
        CALLS.lock().push(Call::Submit { locked, waits, signals: timelines(signals, values.1) });
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().submit.get().expect("the driver's own was found before"))(queue, count, batches, fence) }
}

unsafe extern "system" fn bind(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::BindSparseInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: the caller passes as many structures, with as many semaphores as they say.
    for it in unsafe { list(infos, count) } {
        // SAFETY: as above.
        let (signals, values) = unsafe { (list(it.p_signal_semaphores, it.signal_semaphore_count), values(it.p_next)) };
        CALLS.lock().push(Call::Bind { locked: has_turn(queue), signals: timelines(signals, values.1) });
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().bind.get().expect("the driver's own was found before"))(queue, count, infos, fence) }
}

/// Opens a device whose submits and binds are recorded; `None` if there is none with pages.
fn open() -> Option<Wgpu> {
    let plain = common::open(Wgpu::builder().vulkan_segments(true).flags(InstanceFlags::empty()))?;
    if plain.caps().pages.is_none() {
        assert!(!common::required("sparse"), "MILLPOND_REQUIRE names sparse, and {plain:?} has no pages");
        eprintln!("SKIPPED: the device has no sparse buffers");
        return None;
    }
    let descriptor = wgpu::hal::InstanceDescriptor {
        name: "recorded",
        flags: InstanceFlags::empty(),
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds::default(),
        backend_options: wgpu::BackendOptions::default(),
        telemetry: None,
        display: None,
    };
    // SAFETY: the driver was loaded above; the first instance lives to the end of the process, for its handle is in use
    // by the second one, whose functions are the loader's or ones with the same arguments that call them.
    let instance = unsafe {
        let first = Box::leak(Box::new(Instance::init(&descriptor).expect("an instance as before")));
        let shared = first.shared_instance();
        let (entry, raw) = (shared.entry().clone(), shared.raw_instance());
        REAL.get_or_init(|| Real {
            find: raw.fp_v1_0().get_device_proc_addr,
            submit: OnceLock::new(),
            bind: OnceLock::new(),
        });
        let load = |name: &CStr| match name.to_bytes() {
            b"vkGetDeviceProcAddr" => find as *const c_void,
            _ => entry
                .get_instance_proc_addr(raw.handle(), name.as_ptr())
                .map_or(std::ptr::null(), |found| found as *const c_void),
        };
        let recorded = ash::Instance::load_with(load, raw.handle());
        Instance::from_raw(
            entry.clone(),
            recorded,
            shared.instance_api_version(),
            0,
            None,
            shared.extensions().to_vec(),
            InstanceFlags::empty(),
            wgpu::MemoryBudgetThresholds::default(),
            false,
            Some(Box::new(|| {})),
        )
    };
    // SAFETY: the instance is whole.
    let instance = unsafe { wgpu::Instance::from_hal::<Vulkan>(instance.expect("the same instance again")) };
    let adapter = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN)).swap_remove(0);
    let opened = pollster::block_on(Wgpu::builder().vulkan_segments(true).open_adapter(adapter)).expect("as before");
    let under = opened.under.clone().expect("the Vulkan backend is under the device");
    let device = Wgpu::compose(opened);
    // SAFETY: the handle is only compared.
    let queue = unsafe { device.queue().as_hal::<Vulkan>() }.expect("it is on Vulkan").as_raw();
    *UNDER.lock() = Some((under, queue));
    Some(device)
}

/// Maps, fills and submits some rounds, with a submit in each that wgpu refuses; returns what was called.
fn rounds(device: &Wgpu) -> Vec<Call> {
    let size = device.caps().pages.expect("a device with pages").granularity;
    let stream = device.create_stream().expect("a stream");
    let range = device.reserve_range(ClassId::DEVICE, size).expect("addresses");
    for round in 1..4 {
        let page = device.create_page(ClassId::DEVICE, size).expect("a page");
        // SAFETY: nothing is mapped in the range.
        unsafe { device.map(&range, 0, &page, stream) }.expect("a mapping");
        device.record(stream, |encoder| encoder.clear_buffer(range.buffer(), size, Some(4))).expect("an encoder");
        assert!(device.submit(stream).is_err(), "it is after the end");
        for _ in 0..2 {
            device.fill(stream, &range, 0, size, round).expect("a fill");
            let tick = device.submit(stream).expect("a submit");
            assert_eq!(device.wait(Point { stream, tick }).expect("a device"), tick);
        }
        // SAFETY: the page is mapped there, and all work was waited for. It is mapped nowhere then.
        unsafe {
            device.unmap(&range, 0, &page, stream);
            device.release_page(page);
        }
    }
    let tick = device.submit(stream).expect("a submit");
    assert_eq!(device.wait(Point { stream, tick }).expect("a device"), tick);
    // SAFETY: nothing is mapped there, and no work touches it.
    unsafe { device.release_range(range) };
    std::mem::take(&mut CALLS.lock())
}

/// A submit waits for every bind before it, at every stage, and once; a submit that was refused has not waited. What
/// signals a timeline raises it. All submits have the queue locked.
#[test]
fn submits_wait_for_binds_and_take_turns_with_them() {
    let Some(device) = open() else { return };
    let calls = rounds(&device);
    let (mut bound, mut waited, mut raised) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut submits = 0;
    for call in calls {
        match call {
            Call::Bind { locked, signals } => {
                assert!(locked, "a bind before submit {submits} is made without the lock");
                bound.extend(signals);
            }
            Call::Submit { locked, waits, signals } => {
                submits += 1;
                assert!(locked, "submit {submits} is made without the lock");
                for ((semaphore, value), stages) in waits {
                    assert_eq!(stages, vk::PipelineStageFlags::ALL_COMMANDS);
                    let before = waited.insert(semaphore, value);
                    assert!(before < Some(value), "submit {submits} waits for {value} after {before:?}");
                }
                for (semaphore, value) in signals {
                    let before = raised.insert(semaphore, value);
                    assert!(before < Some(value), "submit {submits} signals {value} after {before:?}");
                }
                for (semaphore, value) in &bound {
                    assert!(waited.get(semaphore) >= Some(value), "submit {submits} does not wait for a bind");
                }
            }
        }
    }
    assert!(!bound.is_empty() && submits >= 7, "{} timelines of binds, {submits} submits", bound.len());
    *UNDER.lock() = None;
}
