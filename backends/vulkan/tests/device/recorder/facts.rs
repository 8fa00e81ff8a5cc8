//! Facts of a device that it does not have: other queues, smaller heaps, other limits, older functions.

use std::ffi::{CStr, c_char, c_void};

use millpond_vulkan::ash::vk::TaggedStructure as _;
use millpond_vulkan::ash::{self, vk};

use super::hooks;
use super::state::STATE;
use crate::lab::Lab;

/// What a device says of itself, where it is to differ from the truth.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    /// The queue families, with a queue of each. All of them lead to the device's first queue.
    pub(crate) families: Vec<vk::QueueFlags>,
    /// The size of each heap, in bytes.
    pub(crate) heap_bytes: Option<u64>,
    /// Changes its limits.
    pub(crate) limits: Option<fn(&mut vk::PhysicalDeviceLimits)>,
    /// Functions of the instance and the device that there are not.
    pub(crate) hidden: Vec<&'static CStr>,
    /// Whether it hides its timeline semaphores, as NVIDIA's driver does from instances for an older version.
    pub(crate) hides_timelines: bool,
}

/// Returns another handle of the lab's loader, which hides the functions that there are not to be.
pub(super) fn entry() -> ash::Entry {
    // SAFETY: the function is one of a loader, with the same arguments, that calls it.
    unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr: find_of_instance }) }
}

unsafe extern "system" fn find_of_instance(instance: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller passes a string that ends with a zero.
    if STATE.lock().facts.hidden.contains(&unsafe { CStr::from_ptr(name) }) {
        return None;
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (hooks::real().find_of_instance)(instance, name) }
}

/// Returns another handle of the lab's instance, whose devices record what they are called with.
pub(super) fn instance(lab: &Lab) -> ash::Instance {
    let (entry, raw) = (lab.entry(), lab.raw_instance().handle());
    let load = |name: &CStr| match name.to_bytes() {
        b"vkGetDeviceProcAddr" => find as *const c_void,
        b"vkGetPhysicalDeviceQueueFamilyProperties" => families as *const c_void,
        b"vkGetPhysicalDeviceMemoryProperties" => memory as *const c_void,
        b"vkGetPhysicalDeviceProperties2" => properties as *const c_void,
        b"vkGetPhysicalDeviceFeatures2" => features as *const c_void,
        // SAFETY: the instance is alive and of this loader, and the name ends with a zero.
        _ => unsafe { entry.get_instance_proc_addr(raw, name.as_ptr()) }
            .map_or(std::ptr::null(), |found| found as *const c_void),
    };
    // SAFETY: every function is the loader's under its own name, or one with the same arguments that calls it.
    unsafe { ash::Instance::load_with(load, raw) }
}

unsafe extern "system" fn find(device: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller passes a string that ends with a zero.
    let text = unsafe { CStr::from_ptr(name) };
    if STATE.lock().facts.hidden.contains(&text) {
        return None;
    }
    if let Some(hook) = hooks::named(text) {
        // SAFETY: every hook has the type of the function that it has the name of, and so is a function.
        return Some(unsafe { std::mem::transmute::<*const c_void, unsafe extern "system" fn()>(hook) });
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (hooks::real().find)(device, name) }
}

unsafe extern "system" fn families(
    physical: vk::PhysicalDevice,
    count: *mut u32,
    list: *mut vk::QueueFamilyProperties,
) {
    let families = STATE.lock().facts.families.clone();
    if families.is_empty() {
        // SAFETY: the arguments are the caller's, unchanged.
        return unsafe { (hooks::real().families)(physical, count, list) };
    }
    if !list.is_null() {
        for (at, queue_flags) in families.iter().copied().enumerate() {
            let family = vk::QueueFamilyProperties { queue_flags, queue_count: 1, ..Default::default() };
            // SAFETY: the caller has room for as many as were counted.
            unsafe { list.add(at).write(family) };
        }
    }
    // SAFETY: the caller passes a number to write.
    unsafe { count.write(families.len() as u32) };
}

unsafe extern "system" fn memory(physical: vk::PhysicalDevice, to: *mut vk::PhysicalDeviceMemoryProperties) {
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (hooks::real().memory)(physical, to) };
    if let Some(bytes) = STATE.lock().facts.heap_bytes {
        // SAFETY: the caller passes a structure to write, which is written above.
        unsafe { &mut *to }.memory_heaps.iter_mut().for_each(|heap| heap.size = bytes);
    }
}

unsafe extern "system" fn properties(physical: vk::PhysicalDevice, to: *mut vk::PhysicalDeviceProperties2<'_>) {
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (hooks::real().properties)(physical, to) };
    if let Some(change) = STATE.lock().facts.limits {
        // SAFETY: the caller passes a structure to write, which is written above.
        change(&mut unsafe { &mut *to }.properties.limits);
    }
}

unsafe extern "system" fn features(physical: vk::PhysicalDevice, to: *mut vk::PhysicalDeviceFeatures2<'_>) {
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (hooks::real().features)(physical, to) };
    if !STATE.lock().facts.hides_timelines {
        return;
    }
    let mut next: *mut c_void = to.cast();
    while !next.is_null() {
        // SAFETY: the caller passes a valid chain, whose structures all begin in this way.
        let base = unsafe { &*next.cast::<vk::BaseOutStructure<'_>>() };
        let (kind, after) = (base.s_type, base.p_next.cast());
        if kind == vk::PhysicalDeviceTimelineSemaphoreFeatures::STRUCTURE_TYPE {
            // SAFETY: the type says so, and the caller has it written to.
            unsafe { (*next.cast::<vk::PhysicalDeviceTimelineSemaphoreFeatures<'_>>()).timeline_semaphore = vk::FALSE };
        }
        next = after;
    }
}
