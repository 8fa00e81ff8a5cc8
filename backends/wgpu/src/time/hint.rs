//! A semaphore of the Vulkan device under wgpu, which shows cheaply whether a submission is done.

use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;
use parking_lot::Mutex;
use wgpu::hal::api::Vulkan;

/// A timeline semaphore that every submit of this backend signals with a rising number.
///
/// It is a hint, and not always right: a submission of other code to the same queue between attaching and submitting
/// takes the signal along and gives it early. So a number that is reached means that wgpu is polled now; a number that
/// is not reached saves that poll, which is the common case. Reading it costs nanoseconds, and waiting for it takes
/// none of wgpu's locks.
pub(crate) struct Hint {
    pub(crate) device: ash::Device,
    pub(crate) semaphore: vk::Semaphore,
    /// The number of the newest submit.
    newest: AtomicU64,
    /// Held from attaching to submitting: two signals of this backend in one submission would not be in order.
    pairing: Mutex<()>,
}

impl Hint {
    /// Creates the semaphore. Returns `None` where the device does not run on Vulkan 1.2, which has timeline semaphores
    /// in its core, or has no memory for one.
    pub(crate) fn new(device: &wgpu::Device) -> Option<Hint> {
        // SAFETY: the handle is used to make an object of its own, and no object of wgpu's is destroyed.
        let hal = unsafe { device.as_hal::<Vulkan>() }?;
        let instance = hal.shared_instance();
        // SAFETY: the physical device is the one that this instance listed for wgpu.
        let facts = unsafe { instance.raw_instance().get_physical_device_properties(hal.raw_physical_device()) };
        if instance.instance_api_version() < vk::API_VERSION_1_2 || facts.api_version < vk::API_VERSION_1_2 {
            return None;
        }
        let device = hal.raw_device().clone();
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive, and wgpu enables timeline semaphores wherever they are supported, as Vulkan 1.2
        // requires them to be.
        let semaphore = unsafe { device.create_semaphore(&info, None) }.ok()?;
        Some(Hint { device, semaphore, newest: AtomicU64::new(0), pairing: Mutex::new(()) })
    }

    /// Submits with the next number attached, and returns that number, or `None` if wgpu has submitted nothing.
    pub(crate) fn submit<T>(&self, queue: &wgpu::Queue, submit: impl FnOnce() -> T) -> (T, Option<u64>) {
        let _paired = self.pairing.lock();
        let value = self.newest.load(Ordering::Relaxed) + 1;
        // SAFETY: the queue's handle is not changed; wgpu keeps the semaphore until its next submission.
        let hal = unsafe { queue.as_hal::<Vulkan>() };
        let Some(hal) = hal else { panic!("a device on Vulkan has a queue on something else") };
        hal.add_signal_semaphore(self.semaphore, Some(value));
        self.newest.store(value, Ordering::Relaxed);
        let answer = submit();
        let left = hal.remove_signal_semaphore(self.semaphore);
        (answer, (!left).then_some(value))
    }

    /// Returns whether that submit may be done: if not, wgpu need not be polled.
    pub(crate) fn may_be_done(&self, value: u64) -> bool {
        // SAFETY: the semaphore and the device are alive as long as this value.
        let counter = unsafe { self.device.get_semaphore_counter_value(self.semaphore) };
        counter.map_or(true, |counter| counter >= value)
    }

    /// Blocks until that submit may be done.
    pub(crate) fn wait(&self, value: u64) {
        let (semaphores, values) = ([self.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // An error here is not lost: wgpu is polled next, and reports it as well.
        // SAFETY: the semaphore and the device are alive as long as this value.
        let _ = unsafe { self.device.wait_semaphores(&info, u64::MAX) };
    }

    /// Destroys the semaphore. The device is idle, and stays alive.
    pub(crate) fn destroy(&self) {
        // SAFETY: the only caller is the drop of the backend, which has waited for all work and still holds the device.
        unsafe { self.device.destroy_semaphore(self.semaphore, None) };
    }
}
