//! Adopting an engine's device: its queues, its timeline, its own submits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millpond_backend::{Backend, ClassId, Point, StreamId, StreamWait, Tick, Transfer};
use millpond_vulkan::ash::vk::Handle as _;
use millpond_vulkan::ash::{self, ext, vk};
use millpond_vulkan::{
    Adopted, AdoptedQueue, EnabledFeatures, PendingSubmit, QueueLock, Timeline, ValidationLog, Vulkan, VulkanError,
};
use parking_lot::Mutex;

use crate::lab::{Lab, skip};

/// An engine's lock, which counts how often it is taken.
#[derive(Default)]
struct Counting {
    inner: Mutex<()>,
    taken: AtomicU64,
}

impl QueueLock for Counting {
    fn locked(&self, work: &mut dyn FnMut()) {
        let _guard = self.inner.lock();
        self.taken.fetch_add(1, Ordering::Relaxed);
        work();
    }

    fn try_locked(&self, _work: &mut dyn FnMut()) -> bool {
        false
    }
}

/// An engine's lock, which records the marked tick at the moment when a submit reaches the driver.
#[derive(Default)]
struct Looking {
    device: Mutex<Option<Vulkan>>,
    marked: Mutex<Vec<Tick>>,
}

impl QueueLock for Looking {
    fn locked(&self, work: &mut dyn FnMut()) {
        let device = self.device.lock();
        self.marked.lock().extend(device.as_ref().map(|device| device.mark(StreamId(0))));
        work();
    }

    fn try_locked(&self, _work: &mut dyn FnMut()) -> bool {
        false
    }
}

#[test]
fn what_is_marked_while_the_driver_takes_a_submit_belongs_to_the_next() {
    let Some(lab) = Lab::open() else { return };
    let lock = Arc::new(Looking::default());
    let device = adopt(handles(&lab, Some(lock.clone()))).unwrap();
    let stream = device.create_stream().unwrap();
    *lock.device.lock() = Some(device.clone());
    assert_eq!(device.submit(stream).unwrap(), Tick(1));
    assert_eq!(device.submit(stream).unwrap(), Tick(2));
    assert_eq!(*lock.marked.lock(), [Tick(2), Tick(3)]);
    *lock.device.lock() = None;
}

/// Returns what an engine would pass of the lab's device: its first queue, and this lock.
pub(crate) fn handles(lab: &Lab, lock: Option<Arc<dyn QueueLock>>) -> Adopted {
    let ((family, index), _) = lab.queues()[0];
    // SAFETY: the device was opened with that queue.
    let queue = unsafe { lab.raw_device().get_device_queue(family, index) };
    Adopted {
        entry: lab.entry().clone(),
        instance: lab.raw_instance().clone(),
        physical_device: lab.physical_device(),
        device: lab.raw_device().clone(),
        queues: vec![AdoptedQueue { family, queue, lock }],
        enabled: lab.enabled(),
        engine_submits: true,
        exports: None,
        validation: lab.validation().cloned(),
        keep: None,
    }
}

pub(crate) fn adopt(adopted: Adopted) -> Result<Vulkan, VulkanError> {
    // SAFETY: the lab outlives what is made from it, has timeline semaphores and synchronization2 enabled, and does not
    // use the queue at the same time.
    unsafe { Vulkan::adopt(adopted) }
}

#[test]
fn an_engines_device_outlives_what_stood_on_it() {
    let Some(lab) = Lab::open() else { return };
    let lock = Arc::new(Counting::default());
    let device = adopt(handles(&lab, Some(lock.clone()))).unwrap();
    assert!(device.caps().needs_barrier && !lab.caps().needs_barrier);
    let stream = device.create_stream().unwrap();
    let segment = device.reserve(ClassId::DEVICE, 4096).unwrap();
    device.fill(stream, &segment, 3, 4000, 6).unwrap();
    let mut read = [0; 4096];
    device.download(stream, &segment, 0, &mut read).unwrap();
    assert_eq!(read[3..4003], [6; 4000]);
    assert_eq!(lock.taken.load(Ordering::Relaxed), 1, "one submit, under the engine's lock");
    drop(device);
    let stream = lab.create_stream().unwrap();
    lab.finish(stream);
}

/// A value that reads an engine's semaphore and lock when it is dropped, and destroys the semaphore.
struct Last {
    semaphore: vk::Semaphore,
    raw: ash::Device,
    lock: Weak<Counting>,
    seen: Arc<Mutex<Option<(u64, usize)>>>,
}

impl Drop for Last {
    fn drop(&mut self) {
        // SAFETY: the lab's device is alive, and so is the semaphore, because it is destroyed only below.
        let reached = unsafe { self.raw.get_semaphore_counter_value(self.semaphore) }.unwrap();
        // SAFETY: as above; submitted work is done, or the layer reports an error.
        unsafe { self.raw.destroy_semaphore(self.semaphore, None) };
        *self.seen.lock() = Some((reached, self.lock.strong_count()));
    }
}

#[test]
fn what_an_engine_wants_kept_goes_behind_everything_else() {
    let Some(lab) = Lab::open() else { return };
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device has timeline semaphores.
    let semaphore = unsafe { lab.raw_device().create_semaphore(&info, None) }.unwrap();
    let (seen, lock) = (Arc::default(), Arc::new(Counting::default()));
    let last = Last { semaphore, raw: lab.raw_device().clone(), lock: Arc::downgrade(&lock), seen: Arc::clone(&seen) };
    let device = adopt(Adopted { keep: Some(Arc::new(last)), ..handles(&lab, Some(lock)) }).unwrap();
    let timeline = Timeline::Engine { semaphore, next_value: 1 };
    // SAFETY: the semaphore is destroyed when the device drops what it keeps, and no submit signals it yet.
    let stream = unsafe { device.register_stream(device.queues()[0].0, timeline) }.unwrap();
    let segment = device.reserve(ClassId::DEVICE, 4096).unwrap();
    device.fill(stream, &segment, 0, 4096, 6).unwrap();
    device.submit(stream).unwrap();
    let other = device.clone();
    drop((device, segment));
    assert_eq!(*seen.lock(), None, "there is another handle");
    drop(other);
    assert_eq!(*seen.lock(), Some((1, 0)), "all work is done, and the lock is given up");
}

#[test]
fn what_is_kept_goes_when_there_is_nothing_to_keep_it_for() {
    let Some(lab) = Lab::open() else { return };
    let keep: Arc<()> = Arc::default();
    let mut wrong = handles(&lab, None);
    wrong.queues.clear();
    wrong.keep = Some(keep.clone());
    adopt(wrong).map(drop).unwrap_err();
    assert_eq!(Arc::strong_count(&keep), 1);
}

#[test]
fn an_engines_instance_writes_to_the_same_log() {
    let Some(lab) = Lab::open().filter(Lab::is_watched) else { return };
    let log = ValidationLog::installed(lab.entry()).unwrap();
    let utils = ext::debug_utils::Instance::new(lab.entry(), lab.raw_instance());
    // SAFETY: the lab's instance has the extension; the log lives longer than the messenger.
    let messenger = unsafe { utils.create_debug_utils_messenger(&log.messenger(), None) }.unwrap();
    let device = adopt(Adopted { validation: Some(log.clone()), ..handles(&lab, None) }).unwrap();
    let text = c"said to both logs";
    let data = vk::DebugUtilsMessengerCallbackDataEXT::default().message(text).message_id_name(c"told");
    let (severity, kind) = (vk::DebugUtilsMessageSeverityFlagsEXT::ERROR, vk::DebugUtilsMessageTypeFlagsEXT::GENERAL);
    // SAFETY: the structure and what it points to live until the call returns.
    unsafe { utils.submit_debug_utils_message(severity, kind, &data) };
    assert_eq!(device.validation().unwrap().errors(), ["told: said to both logs"]);
    drop(device);
    // SAFETY: the messenger was made above, and is destroyed only here.
    unsafe { utils.destroy_debug_utils_messenger(messenger, None) };
    assert_eq!(lab.close(), ["told: said to both logs"]);
}

/// Submits an empty batch as an engine would.
fn engine_submit(lab: &Lab, device: &Vulkan, stream: StreamId, pending: &PendingSubmit<'_>) {
    let signals = [pending.signal()];
    let batch = vk::SubmitInfo2::default().wait_semaphore_infos(pending.waits()).signal_semaphore_infos(&signals);
    // SAFETY: the test has only one thread, and the queue is the stream's.
    unsafe { lab.raw_device().queue_submit2(device.queue_of(stream).1, &[batch], vk::Fence::null()) }.unwrap();
}

#[test]
fn ticks_are_the_values_of_the_engines_own_timeline() {
    let Some(lab) = Lab::open() else { return };
    let device = adopt(handles(&lab, None)).unwrap();
    let queue = device.queues()[0].0;
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE).initial_value(9);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device has timeline semaphores.
    let semaphore = unsafe { lab.raw_device().create_semaphore(&info, None) }.unwrap();
    // SAFETY: the semaphore is destroyed after the device that it is registered with, and no submit signals it yet.
    let stream = unsafe { device.register_stream(queue, Timeline::Engine { semaphore, next_value: 10 }) }.unwrap();
    assert_eq!((device.mark(stream), device.reached(stream).unwrap()), (Tick(10), Tick(9)));

    let pending = device.begin_submit_at(stream, 15).unwrap();
    assert_eq!(device.mark(stream), Tick(16), "what is recorded during the submit belongs to the next");
    engine_submit(&lab, &device, stream, &pending);
    assert_eq!(pending.finish(), Tick(15));
    assert_eq!(device.wait(Point { stream, tick: Tick(10) }).unwrap(), Tick(15));

    let error = device.begin_submit_at(stream, 15).map(drop).unwrap_err();
    assert!(matches!(error, VulkanError::Falls { value: 15, next: 16 }), "{error}");
    assert_eq!(device.submit(stream).unwrap(), Tick(16), "our own submits go on with the engine's values");
    assert_eq!(device.wait(Point { stream, tick: Tick(16) }).unwrap(), Tick(16));
    drop(device);
    // SAFETY: dropping the device has waited for all submitted work.
    assert_eq!(unsafe { lab.raw_device().get_semaphore_counter_value(semaphore) }, Ok(16));
    // SAFETY: as above.
    unsafe { lab.raw_device().destroy_semaphore(semaphore, None) };
}

/// A value from before the registration may never be signalled: an engine may have kept it for a submit that it has
/// given up.
#[test]
fn values_from_before_the_registration_are_not_waited_for() {
    let Some(lab) = Lab::open() else { return };
    for (counter, next_value, submits) in [(0, 10, false), (3, 10, false), (3, 10, true), (9, 10, true)] {
        let device = adopt(handles(&lab, None)).unwrap();
        let queue = device.queues()[0].0;
        let mut kind = vk::SemaphoreTypeCreateInfo::default();
        kind = kind.semaphore_type(vk::SemaphoreType::TIMELINE).initial_value(counter);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores.
        let semaphore = unsafe { lab.raw_device().create_semaphore(&info, None) }.unwrap();
        // SAFETY: the semaphore is destroyed after the device that it is registered with, and no submit signals it yet.
        let stream = unsafe { device.register_stream(queue, Timeline::Engine { semaphore, next_value }) }.unwrap();
        let other = device.create_stream().unwrap();
        let before = Point { stream, tick: Tick(next_value - 1) };
        assert_eq!(device.wait(before).unwrap(), before.tick);
        assert_eq!(device.reached(stream).unwrap(), before.tick);
        StreamWait::wait_for(&device, other, before).unwrap();
        let tick = device.submit(other).unwrap();
        assert_eq!(device.wait(Point { stream: other, tick }).unwrap(), tick);
        if submits {
            assert_eq!(device.submit(stream).unwrap(), Tick(next_value));
        }
        drop(device);
        let value = if submits { next_value } else { counter };
        // SAFETY: dropping the device has waited for all submitted work.
        assert_eq!(unsafe { lab.raw_device().get_semaphore_counter_value(semaphore) }, Ok(value));
        // SAFETY: as above.
        unsafe { lab.raw_device().destroy_semaphore(semaphore, None) };
    }
}

#[test]
fn an_engines_submit_comes_after_what_was_recorded_and_waits_for_what_was_asked() {
    let Some(lab) = Lab::open() else { return };
    let device = adopt(handles(&lab, None)).unwrap();
    let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
    device.hold(other).unwrap();
    let tick = device.submit(other).unwrap();
    StreamWait::wait_for(&device, stream, Point { stream: other, tick }).unwrap();
    let pending = device.begin_submit(stream).unwrap();
    assert_eq!((pending.tick(), pending.waits().len()), (Tick(1), 1));
    engine_submit(&lab, &device, stream, &pending);
    pending.finish();
    assert_eq!(device.reached(stream).unwrap(), Tick::ZERO);
    device.unhold(other);
    assert_eq!(device.wait(Point { stream, tick: Tick(1) }).unwrap(), Tick(1));

    device.record(stream, |_| ()).unwrap();
    let pending = device.begin_submit(stream).unwrap();
    assert_eq!((pending.tick(), pending.waits().len()), (Tick(3), 0), "tick 2 is what was recorded");
    pending.abandon();
    assert_eq!(device.mark(stream), Tick(4));
    assert_eq!(device.wait(Point { stream, tick: Tick(3) }).unwrap(), Tick(2), "nobody waits for what was abandoned");
    assert_eq!(device.submit(stream).unwrap(), Tick(4));
    assert_eq!(device.wait(Point { stream, tick: Tick(3) }).unwrap(), Tick(4));
}

/// A barrier for one buffer does not cover what was written to the same memory through another.
#[test]
fn the_barrier_covers_all_memory() {
    let Some(lab) = Lab::open() else { return };
    let barrier: vk::MemoryBarrier2<'static> = Vulkan::reuse_barrier();
    assert_eq!(barrier.src_stage_mask, vk::PipelineStageFlags2::ALL_COMMANDS);
    assert_eq!(barrier.dst_stage_mask, vk::PipelineStageFlags2::ALL_COMMANDS);
    assert!(barrier.src_access_mask.contains(vk::AccessFlags2::MEMORY_WRITE));
    assert!(barrier.dst_access_mask.contains(vk::AccessFlags2::MEMORY_READ | vk::AccessFlags2::MEMORY_WRITE));
    let stream = lab.create_stream().unwrap();
    let record = |commands| {
        let barriers = [barrier];
        let info = vk::DependencyInfo::default().memory_barriers(&barriers);
        // SAFETY: the command buffer is recording.
        unsafe { lab.raw_device().cmd_pipeline_barrier2(commands, &info) };
    };
    lab.record(stream, record).unwrap();
    lab.finish(stream);
}

#[test]
fn queues_that_the_device_has_not_are_refused() {
    let Some(lab) = Lab::open() else { return };
    let mut none = handles(&lab, None);
    none.queues.clear();
    assert!(matches!(adopt(none), Err(VulkanError::NoQueues { .. })));
    let mut wrong = handles(&lab, None);
    wrong.queues[0].family = 77;
    assert!(matches!(adopt(wrong), Err(VulkanError::NoQueue { family: 77, index: 0, .. })));
    let mut many = handles(&lab, None);
    let family = many.queues[0].family;
    let count = Vulkan::devices().unwrap()[0].queue_families[family as usize].count;
    // No queue is named twice, and none is used before all were looked at.
    let made_up = (0..=u64::from(count)).map(|at| vk::Queue::from_raw(0x1000 + at));
    many.queues = made_up.map(|queue| AdoptedQueue { family, queue, lock: None }).collect();
    assert!(matches!(adopt(many), Err(VulkanError::NoQueue { index, .. }) if index == count));
}

/// The driver could do all that is needed, but an instance for an older version does not give its functions.
#[test]
fn devices_of_an_older_instance_are_refused() {
    let Some(lab) = Lab::open() else { return };
    for version in [vk::API_VERSION_1_0, vk::API_VERSION_1_1] {
        let application = vk::ApplicationInfo::default().api_version(version);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live until the call returns.
        let instance = unsafe { lab.entry().create_instance(&info, None) }.unwrap();
        // SAFETY: the instance is alive.
        let physical_device = unsafe { instance.enumerate_physical_devices() }.unwrap()[0];
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        // SAFETY: every device has a queue of family 0; the structures live until the call returns.
        let device = unsafe { instance.create_device(physical_device, &info, None) }.unwrap();
        // SAFETY: the device was created with that queue.
        let queue = AdoptedQueue { family: 0, queue: unsafe { device.get_device_queue(0, 0) }, lock: None };
        let adopted = Adopted {
            instance: instance.clone(),
            physical_device,
            device: device.clone(),
            queues: vec![queue],
            enabled: EnabledFeatures::default(),
            validation: None,
            ..handles(&lab, None)
        };
        // SAFETY: the device is alive and of this instance.
        let is_given =
            unsafe { instance.get_device_proc_addr(device.handle(), c"vkWaitSemaphores".as_ptr()) }.is_some();
        match adopt(adopted).map(drop) {
            Err(error) => assert!(matches!(error, VulkanError::OldInstance { .. }), "{error}"),
            Ok(()) if is_given => skip("hidden", "the driver gives an older instance the functions of Vulkan 1.2, too"),
            Ok(()) => panic!("a device without the functions of Vulkan 1.2 was adopted"),
        }
        // SAFETY: nothing was made of the device, and the instance has no other.
        unsafe {
            device.destroy_device(None);
            instance.destroy_instance(None);
        }
    }
}
