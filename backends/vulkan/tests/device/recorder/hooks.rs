//! Functions that record a call and make it.

use std::ffi::{CStr, c_void};

use millpond_vulkan::ash::vk;
use parking_lot::{Mutex, RwLock};

use super::calls::{At, Barrier, Bind, Call, Command, Mapping, Submit};
use super::state::{STATE, is_held, note, refusal};
use crate::lab::Lab;

/// The driver's own functions, which the recording ones call.
#[derive(Clone, Copy)]
pub(super) struct Real {
    pub(super) find_of_instance: vk::PFN_vkGetInstanceProcAddr,
    pub(super) find: vk::PFN_vkGetDeviceProcAddr,
    pub(super) families: vk::PFN_vkGetPhysicalDeviceQueueFamilyProperties,
    pub(super) memory: vk::PFN_vkGetPhysicalDeviceMemoryProperties,
    pub(super) properties: vk::PFN_vkGetPhysicalDeviceProperties2,
    pub(super) features: vk::PFN_vkGetPhysicalDeviceFeatures2,
    create_buffer: vk::PFN_vkCreateBuffer,
    destroy_buffer: vk::PFN_vkDestroyBuffer,
    allocate: vk::PFN_vkAllocateMemory,
    bind_buffer: vk::PFN_vkBindBufferMemory,
    map: vk::PFN_vkMapMemory,
    free: vk::PFN_vkFreeMemory,
    create_pool: vk::PFN_vkCreateCommandPool,
    create_semaphore: vk::PFN_vkCreateSemaphore,
    destroy_semaphore: vk::PFN_vkDestroySemaphore,
    counter: vk::PFN_vkGetSemaphoreCounterValue,
    wait: vk::PFN_vkWaitSemaphores,
    begin: vk::PFN_vkBeginCommandBuffer,
    end: vk::PFN_vkEndCommandBuffer,
    fill: vk::PFN_vkCmdFillBuffer,
    copy: vk::PFN_vkCmdCopyBuffer,
    barrier: vk::PFN_vkCmdPipelineBarrier2,
    submit: vk::PFN_vkQueueSubmit2,
    bind: vk::PFN_vkQueueBindSparse,
    wait_idle: vk::PFN_vkQueueWaitIdle,
}

static REAL: RwLock<Option<Real>> = RwLock::new(None);

/// Keeps threads apart whose queues lead to the same one.
static QUEUE: Mutex<()> = Mutex::new(());

pub(super) fn real() -> Real {
    REAL.read().expect("the driver's functions are found before any is replaced")
}

/// Finds the driver's own functions for the lab's device: another device may have others.
pub(super) fn find_real(lab: &Lab) {
    let (instance, device) = (lab.raw_instance(), lab.raw_device());
    let (one, two, three) = (device.fp_v1_0(), device.fp_v1_2(), device.fp_v1_3());
    *REAL.write() = Some(Real {
        find_of_instance: lab.entry().static_fn().get_instance_proc_addr,
        find: instance.fp_v1_0().get_device_proc_addr,
        families: instance.fp_v1_0().get_physical_device_queue_family_properties,
        memory: instance.fp_v1_0().get_physical_device_memory_properties,
        properties: instance.fp_v1_1().get_physical_device_properties2,
        features: instance.fp_v1_1().get_physical_device_features2,
        create_buffer: one.create_buffer,
        destroy_buffer: one.destroy_buffer,
        allocate: one.allocate_memory,
        bind_buffer: one.bind_buffer_memory,
        map: one.map_memory,
        free: one.free_memory,
        create_pool: one.create_command_pool,
        create_semaphore: one.create_semaphore,
        destroy_semaphore: one.destroy_semaphore,
        counter: two.get_semaphore_counter_value,
        wait: two.wait_semaphores,
        begin: one.begin_command_buffer,
        end: one.end_command_buffer,
        fill: one.cmd_fill_buffer,
        copy: one.cmd_copy_buffer,
        barrier: three.cmd_pipeline_barrier2,
        submit: three.queue_submit2,
        bind: one.queue_bind_sparse,
        wait_idle: one.queue_wait_idle,
    });
}

/// Returns the recording function of that name.
pub(super) fn named(name: &CStr) -> Option<*const c_void> {
    Some(match name.to_bytes() {
        b"vkCreateBuffer" => create_buffer as *const c_void,
        b"vkDestroyBuffer" => destroy_buffer as *const c_void,
        b"vkAllocateMemory" => allocate as *const c_void,
        b"vkBindBufferMemory" => bind_buffer as *const c_void,
        b"vkMapMemory" => map as *const c_void,
        b"vkFreeMemory" => free as *const c_void,
        b"vkCreateCommandPool" => create_pool as *const c_void,
        b"vkCreateSemaphore" => create_semaphore as *const c_void,
        b"vkDestroySemaphore" => destroy_semaphore as *const c_void,
        b"vkGetSemaphoreCounterValue" => counter as *const c_void,
        b"vkWaitSemaphores" => wait as *const c_void,
        b"vkBeginCommandBuffer" => begin as *const c_void,
        b"vkEndCommandBuffer" => end as *const c_void,
        b"vkCmdFillBuffer" => fill as *const c_void,
        b"vkCmdCopyBuffer" => copy as *const c_void,
        b"vkCmdPipelineBarrier2" => barrier as *const c_void,
        b"vkQueueSubmit2" => submit as *const c_void,
        b"vkQueueBindSparse" => bind as *const c_void,
        b"vkQueueWaitIdle" => wait_idle as *const c_void,
        _ => return None,
    })
}

/// Returns the elements of a C array.
///
/// # Safety
///
/// The pointer is to that many elements, which live as long as the result is used.
unsafe fn list<'a, T>(pointer: *const T, count: u32) -> &'a [T] {
    // SAFETY: the caller guarantees it.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, count as usize) } }
}

/// Returns the first structure of that type in a chain.
///
/// # Safety
///
/// The chain is one of valid structures, which live as long as the result is used.
unsafe fn chained<'a, T: vk::TaggedStructure>(mut next: *const c_void) -> Option<&'a T> {
    while !next.is_null() {
        // SAFETY: the caller guarantees it; every structure in a chain begins in this way.
        let base = unsafe { &*next.cast::<vk::BaseInStructure<'_>>() };
        if base.s_type == T::STRUCTURE_TYPE {
            // SAFETY: the type says so.
            return Some(unsafe { &*next.cast::<T>() });
        }
        next = base.p_next.cast();
    }
    None
}

type Host = *const vk::AllocationCallbacks<'static>;

unsafe extern "system" fn create_buffer(
    device: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    host: Host,
    to: *mut vk::Buffer,
) -> vk::Result {
    if let Some(refused) = refusal("vkCreateBuffer") {
        return refused;
    }
    // SAFETY: the caller passes a valid structure.
    let mut info = unsafe { *info };
    // SAFETY: the structure names as many families.
    let families = unsafe { list(info.p_queue_family_indices, info.queue_family_index_count) }.to_vec();
    let is_shared = info.sharing_mode == vk::SharingMode::CONCURRENT;
    // Families may be made up.
    info.sharing_mode = vk::SharingMode::EXCLUSIVE;
    // SAFETY: the arguments are the caller's, with a structure that is as valid.
    let result = unsafe { (real().create_buffer)(device, &raw const info, host, to) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the driver has written the buffer.
        let buffer = unsafe { *to };
        let families = if is_shared { families } else { Vec::new() };
        note(Call::CreateBuffer { buffer, flags: info.flags, usage: info.usage, families });
    }
    result
}

unsafe extern "system" fn destroy_buffer(device: vk::Device, buffer: vk::Buffer, host: Host) {
    note(Call::DestroyBuffer(buffer));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().destroy_buffer)(device, buffer, host) }
}

unsafe extern "system" fn allocate(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    host: Host,
    to: *mut vk::DeviceMemory,
) -> vk::Result {
    if let Some(refused) = refusal("vkAllocateMemory") {
        return refused;
    }
    // SAFETY: the arguments are the caller's, unchanged.
    let result = unsafe { (real().allocate)(device, info, host, to) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the caller passes a valid structure with a valid chain, and the driver has written the memory.
        let (memory, bytes, dedicated, flags, exports) = unsafe {
            let next = (*info).p_next;
            let dedicated = chained::<vk::MemoryDedicatedAllocateInfo<'_>>(next);
            let exports = chained::<vk::ExportMemoryAllocateInfo<'_>>(next);
            (*to, (*info).allocation_size, dedicated, chained::<vk::MemoryAllocateFlagsInfo<'_>>(next), exports)
        };
        let (buffer, flags) = (dedicated.map(|it| it.buffer), flags.map(|it| it.flags));
        let (buffer, flags) = (buffer.unwrap_or_default(), flags.unwrap_or_default());
        let exports = exports.map(|it| it.handle_types).unwrap_or_default();
        note(Call::Allocate { memory, bytes, buffer, flags, exports });
    }
    result
}

unsafe extern "system" fn bind_buffer(
    device: vk::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    offset: u64,
) -> vk::Result {
    if let Some(refused) = refusal("vkBindBufferMemory") {
        return refused;
    }
    // SAFETY: the arguments are the caller's, unchanged.
    let result = unsafe { (real().bind_buffer)(device, buffer, memory, offset) };
    if result == vk::Result::SUCCESS {
        note(Call::BindBuffer(buffer, memory));
    }
    result
}

unsafe extern "system" fn map(
    device: vk::Device,
    memory: vk::DeviceMemory,
    offset: u64,
    bytes: u64,
    flags: vk::MemoryMapFlags,
    to: *mut *mut c_void,
) -> vk::Result {
    if let Some(refused) = refusal("vkMapMemory") {
        return refused;
    }
    note(Call::Map(memory));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().map)(device, memory, offset, bytes, flags, to) }
}

unsafe extern "system" fn free(device: vk::Device, memory: vk::DeviceMemory, host: Host) {
    note(Call::Free(memory));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().free)(device, memory, host) }
}

unsafe extern "system" fn create_pool(
    device: vk::Device,
    info: *const vk::CommandPoolCreateInfo<'_>,
    host: Host,
    to: *mut vk::CommandPool,
) -> vk::Result {
    // SAFETY: the caller passes a valid structure.
    let mut info = unsafe { *info };
    // Families may be made up.
    info.queue_family_index = STATE.lock().family;
    // SAFETY: the arguments are the caller's, with a structure that is as valid.
    unsafe { (real().create_pool)(device, &raw const info, host, to) }
}

unsafe extern "system" fn create_semaphore(
    device: vk::Device,
    info: *const vk::SemaphoreCreateInfo<'_>,
    host: Host,
    to: *mut vk::Semaphore,
) -> vk::Result {
    // SAFETY: the arguments are the caller's, unchanged.
    let result = unsafe { (real().create_semaphore)(device, info, host, to) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the driver has written the semaphore.
        note(Call::CreateSemaphore(unsafe { *to }));
    }
    result
}

unsafe extern "system" fn destroy_semaphore(device: vk::Device, semaphore: vk::Semaphore, host: Host) {
    note(Call::DestroySemaphore(semaphore));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().destroy_semaphore)(device, semaphore, host) }
}

unsafe extern "system" fn counter(device: vk::Device, semaphore: vk::Semaphore, to: *mut u64) -> vk::Result {
    // SAFETY: the arguments are the caller's, unchanged.
    let result = unsafe { (real().counter)(device, semaphore, to) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the driver has written the value.
        note(Call::Known(semaphore, unsafe { *to }));
    }
    result
}

unsafe extern "system" fn wait(
    device: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    patience: u64,
) -> vk::Result {
    // SAFETY: the arguments are the caller's, unchanged.
    let result = unsafe { (real().wait)(device, info, patience) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the caller passes a valid structure with as many semaphores and values.
        let (semaphores, values) = unsafe {
            let count = (*info).semaphore_count;
            (list((*info).p_semaphores, count), list((*info).p_values, count))
        };
        semaphores.iter().zip(values).for_each(|(&semaphore, &value)| note(Call::Known(semaphore, value)));
    }
    result
}

unsafe extern "system" fn begin(
    commands: vk::CommandBuffer,
    info: *const vk::CommandBufferBeginInfo<'_>,
) -> vk::Result {
    if let Some(refused) = refusal("vkBeginCommandBuffer") {
        return refused;
    }
    // SAFETY: the caller passes a valid structure.
    note(Call::Begin(commands, unsafe { *info }.flags));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().begin)(commands, info) }
}

unsafe extern "system" fn end(commands: vk::CommandBuffer) -> vk::Result {
    // SAFETY: the argument is the caller's, unchanged.
    let ended = unsafe { (real().end)(commands) };
    // One that could not be ended may be begun again, as one that was.
    let result = refusal("vkEndCommandBuffer").unwrap_or(ended);
    note(Call::End(commands, result));
    result
}

unsafe extern "system" fn fill(commands: vk::CommandBuffer, to: vk::Buffer, offset: u64, bytes: u64, word: u32) {
    note(Call::Record(commands, Command::Fill { to: (to, offset), bytes, word }));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().fill)(commands, to, offset, bytes, word) }
}

unsafe extern "system" fn copy(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Buffer,
    count: u32,
    regions: *const vk::BufferCopy,
) {
    // SAFETY: the caller passes as many regions.
    for region in unsafe { list(regions, count) } {
        let (from, to) = ((from, region.src_offset), (to, region.dst_offset));
        note(Call::Record(commands, Command::Copy { from, to, bytes: region.size }));
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().copy)(commands, from, to, count, regions) }
}

unsafe extern "system" fn barrier(commands: vk::CommandBuffer, info: *const vk::DependencyInfo<'_>) {
    // SAFETY: the caller passes a valid structure with `memory_barrier_count` memory barriers.
    for it in unsafe { list((*info).p_memory_barriers, (*info).memory_barrier_count) } {
        let (before, after) = ((it.src_stage_mask, it.src_access_mask), (it.dst_stage_mask, it.dst_access_mask));
        note(Call::Record(commands, Command::Barrier(Barrier { before, after })));
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().barrier)(commands, info) }
}

/// Returns the semaphores of a submit.
///
/// # Safety
///
/// As for [`list`].
unsafe fn semaphores(pointer: *const vk::SemaphoreSubmitInfo<'_>, count: u32) -> Vec<At> {
    // SAFETY: the caller guarantees it.
    let all = unsafe { list(pointer, count) }.iter();
    all.map(|it| At { semaphore: it.semaphore, value: it.value, stages: it.stage_mask }).collect()
}

unsafe extern "system" fn submit(
    queue: vk::Queue,
    count: u32,
    batches: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    let (refused, actual) = (refusal("vkQueueSubmit2"), STATE.lock().queue);
    let make = || {
        let _alone = QUEUE.lock();
        // SAFETY: the arguments are the caller's, with the queue that this one leads to.
        unsafe { (real().submit)(actual, count, batches, fence) }
    };
    let result = refused.unwrap_or_else(make);
    // SAFETY: the caller passes as many structures, with as many semaphores and command buffers as they say.
    for it in unsafe { list(batches, count) } {
        // SAFETY: as above.
        let (waits, commands, signals) = unsafe {
            let waits = semaphores(it.p_wait_semaphore_infos, it.wait_semaphore_info_count);
            let commands = list(it.p_command_buffer_infos, it.command_buffer_info_count);
            (waits, commands, semaphores(it.p_signal_semaphore_infos, it.signal_semaphore_info_count))
        };
        let commands = commands.iter().map(|it| it.command_buffer).collect();
        note(Call::Submit(Submit { queue, locked: is_held(queue), waits, commands, signals, result }));
    }
    result
}

unsafe extern "system" fn bind(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::BindSparseInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    let (refused, actual) = (refusal("vkQueueBindSparse"), STATE.lock().queue);
    let make = || {
        let _alone = QUEUE.lock();
        // SAFETY: the arguments are the caller's, with the queue that this one leads to.
        unsafe { (real().bind)(actual, count, infos, fence) }
    };
    let result = refused.unwrap_or_else(make);
    // SAFETY: the caller passes as many structures.
    for it in unsafe { list(infos, count) } {
        // SAFETY: the structure has as many elements as it says, and values for its semaphores in its chain.
        let (waits, signals, buffers) = unsafe {
            let values = chained::<vk::TimelineSemaphoreSubmitInfo<'_>>(it.p_next).expect("binds have values");
            let at = |semaphores: *const vk::Semaphore, values: *const u64, count| {
                list(semaphores, count).iter().copied().zip(list(values, count).iter().copied()).collect()
            };
            let waits = at(it.p_wait_semaphores, values.p_wait_semaphore_values, it.wait_semaphore_count);
            let signals = at(it.p_signal_semaphores, values.p_signal_semaphore_values, it.signal_semaphore_count);
            (waits, signals, list(it.p_buffer_binds, it.buffer_bind_count))
        };
        let mut mappings = Vec::new();
        for of_one in buffers {
            // SAFETY: the structure has as many elements as it says.
            mappings.extend(unsafe { list(of_one.p_binds, of_one.bind_count) }.iter().map(|it| Mapping {
                range: of_one.buffer,
                offset: it.resource_offset,
                bytes: it.size,
                memory: it.memory,
                memory_offset: it.memory_offset,
            }));
        }
        note(Call::Bind(Bind { queue, locked: is_held(queue), waits, signals, mappings, result }));
    }
    result
}

unsafe extern "system" fn wait_idle(queue: vk::Queue) -> vk::Result {
    let actual = STATE.lock().queue;
    note(Call::WaitIdle(queue, is_held(queue)));
    let _alone = QUEUE.lock();
    // SAFETY: the argument is the queue that the caller's leads to.
    unsafe { (real().wait_idle)(actual) }
}
