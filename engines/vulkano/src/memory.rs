//! The allocator, and what its allocations are.

use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

use millpond::{Allocator, Buffer, Error, Stream};
use millpond_vulkan::ash::{self, vk};
use millpond_vulkan::{Adopted, AdoptedQueue, EnabledFeatures, Segment, Vulkan, VulkanError};
use vulkano::device::{Device, DeviceOwned, Queue};
use vulkano::memory::allocator::{
    AllocationCreateInfo, AllocationHandle, AllocationType, DeviceLayout, MemoryAlloc, MemoryAllocatePreference,
    MemoryAllocator, MemoryAllocatorError, MemoryTypeFilter, StandardMemoryAllocator, Suballocation,
};
use vulkano::memory::{
    DedicatedAllocation, DeviceMemory, ExternalMemoryHandleTypes, MemoryAllocateInfo, MemoryPropertyFlags,
    MemoryRequirements,
};
use vulkano::{Validated, VulkanObject};

use crate::NewError;
use crate::queue::Lock;

/// A [`MemoryAllocator`] of vulkano's whose device memory is Millpond's. Put it in an [`Arc`], as vulkano's own.
pub struct MillpondMemory {
    stream: Stream<Vulkan>,
    allocator: Allocator<Vulkan>,
    device: Arc<Device>,
    memory_type: u32,
    others: StandardMemoryAllocator,
}

/// What an allocation's handle points to.
enum Owner {
    Millpond {
        block: Buffer<Vulkan>,
        /// Dropping one frees the memory, which is Millpond's. So this is the last one, and is never dropped.
        memory: ManuallyDrop<Arc<DeviceMemory>>,
    },
    Vulkano(AllocationHandle),
}

impl MillpondMemory {
    /// Adopts the device of a queue. Allocates and frees one block to learn the memory type.
    ///
    /// # Errors
    ///
    /// [`NewError`] says what is wrong.
    ///
    /// # Safety
    ///
    /// vulkano's library is the system's, which [`VulkanLibrary::new`](vulkano::VulkanLibrary::new) loads. The program
    /// uses memory from here only through the images and buffers that vulkano binds to it: it neither maps the
    /// [`DeviceMemory`] nor keeps its `Arc`.
    pub unsafe fn new(queue: &Arc<Queue>) -> Result<Arc<MillpondMemory>, NewError> {
        let device = queue.device();
        let features = device.enabled_features();
        if !(features.timeline_semaphore && features.synchronization2) {
            return Err(NewError::Features);
        }
        // SAFETY: loading the system's Vulkan library again runs no code that it has not run before.
        let entry = unsafe { ash::Entry::load() }?;
        // SAFETY: the instance is alive, as the device holds it, and of this library, as the caller promises.
        let instance = unsafe { ash::Instance::load(entry.static_fn(), device.instance().handle()) };
        // SAFETY: the device is alive and of this instance.
        let raw = unsafe { ash::Device::load(instance.fp_v1_0(), device.handle()) };
        let adopted = Adopted {
            physical_device: device.physical_device().handle(),
            queues: vec![AdoptedQueue {
                family: queue.queue_family_index(),
                queue: queue.handle(),
                lock: Some(Arc::new(Lock::new(queue))),
            }],
            enabled: EnabledFeatures::default(),
            // Memory comes back when the device is done with it. No submit of vulkano's is left to wait for.
            engine_submits: false,
            exports: None,
            validation: None,
            keep: Some(Arc::<Device>::clone(device)),
            device: raw,
            entry,
            instance,
        };
        // SAFETY: the handles belong together, `keep` keeps them alive, the features are on, and vulkano uses the queue
        // under the lock that is passed.
        let vulkan = unsafe { Vulkan::adopt(adopted) }?;
        let allocator = Allocator::builder(vulkan).class(Vulkan::IMAGE).build()?;
        let stream = allocator.create_stream()?;
        let first = stream.allocate(1)?;
        let memory_type = first.segment().map(Segment::memory_type).expect("a byte lies in a segment");
        let others = StandardMemoryAllocator::new_default(Arc::clone(device));
        Ok(Arc::new(MillpondMemory { stream, allocator, device: Arc::clone(device), memory_type, others }))
    }

    /// Returns the allocator: for its statistics, its report and its limit.
    pub fn allocator(&self) -> &Allocator<Vulkan> {
        &self.allocator
    }

    /// Gives memory that is not in use back to the driver. Like a request that finds too little memory, it takes the
    /// queue's lock: do not call it inside of [`Queue::with`].
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn empty_cache(&self) -> Result<(), Error<VulkanError>> {
        self.stream.submit()?;
        self.allocator.empty_cache()
    }

    fn serve(&self, layout: DeviceLayout, kind: AllocationType) -> Result<MemoryAlloc, MemoryAllocatorError> {
        let (size, alignment) = (layout.size(), layout.alignment().as_devicesize());
        let needed = vk::MemoryRequirements { size, alignment, memory_type_bits: 1 << self.memory_type };
        let needed = self.allocator.backend().apart(needed);
        let allocate = || self.stream.allocate_aligned(needed.size, needed.alignment);
        // Freed memory waits for a submit of this stream before it can go back, for a request of another length.
        let submitted = |_| self.stream.submit().and_then(|_| allocate());
        let block = allocate().or_else(submitted).map_err(|_| refused())?;
        let place = block.segment().and_then(Segment::memory).expect("a block of images lies in memory");
        let info = MemoryAllocateInfo {
            allocation_size: place.requirements.size,
            memory_type_index: place.memory_type,
            ..MemoryAllocateInfo::default()
        };
        // SAFETY: the memory is of this device and was allocated as the info says. The value is never dropped.
        let memory = unsafe { DeviceMemory::from_handle(Arc::clone(&self.device), place.memory, info) };
        let memory = Arc::new(memory);
        let offset = place.offset + block.offset();
        let owner = Owner::Millpond { block, memory: ManuallyDrop::new(Arc::clone(&memory)) };
        Ok(MemoryAlloc {
            device_memory: memory,
            suballocation: Some(Suballocation {
                offset,
                size: layout.size(),
                allocation_type: kind,
                handle: AllocationHandle::null(),
            }),
            allocation_handle: owner.into_handle(),
        })
    }
}

fn refused() -> MemoryAllocatorError {
    MemoryAllocatorError::AllocateDeviceMemory(Validated::Error(vulkano::VulkanError::OutOfDeviceMemory))
}

impl Owner {
    fn into_handle(self) -> AllocationHandle {
        AllocationHandle::from_ptr(Box::into_raw(Box::new(self)).cast())
    }

    fn of_others(mut made: MemoryAlloc) -> MemoryAlloc {
        made.allocation_handle = Owner::Vulkano(made.allocation_handle).into_handle();
        made
    }
}

// SAFETY: a block serves one allocation until its handle comes back to `deallocate`, and its memory stays where it is
// until then. `apart` keeps linear and optimal resources in separate units of memory. Memory of others is vulkano's.
unsafe impl MemoryAllocator for MillpondMemory {
    fn find_memory_type_index(&self, memory_type_bits: u32, filter: MemoryTypeFilter) -> Option<u32> {
        self.others.find_memory_type_index(memory_type_bits, filter)
    }

    fn allocate_from_type(
        &self,
        memory_type_index: u32,
        layout: DeviceLayout,
        allocation_type: AllocationType,
        never_allocate: bool,
    ) -> Result<MemoryAlloc, MemoryAllocatorError> {
        let types = &self.device.physical_device().memory_properties().memory_types;
        let is_mapped = |at: u32| types[at as usize].property_flags.intersects(MemoryPropertyFlags::HOST_VISIBLE);
        // The caller may map what the host can see.
        if memory_type_index == self.memory_type && !is_mapped(memory_type_index) && !never_allocate {
            return self.serve(layout, allocation_type);
        }
        let made = self.others.allocate_from_type(memory_type_index, layout, allocation_type, never_allocate);
        made.map(Owner::of_others)
    }

    fn allocate(
        &self,
        requirements: MemoryRequirements,
        allocation_type: AllocationType,
        create_info: AllocationCreateInfo,
        dedicated_allocation: Option<DedicatedAllocation<'_>>,
    ) -> Result<MemoryAlloc, MemoryAllocatorError> {
        let bits = requirements.memory_type_bits & create_info.memory_type_bits;
        let filter = create_info.memory_type_filter;
        let is_mapped = filter.required_flags.intersects(MemoryPropertyFlags::HOST_VISIBLE);
        let is_best = self.find_memory_type_index(bits, filter) == Some(self.memory_type);
        let is_any = matches!(create_info.allocate_preference, MemoryAllocatePreference::Unknown);
        if is_best && is_any && !is_mapped && !requirements.requires_dedicated_allocation {
            return self.serve(requirements.layout, allocation_type);
        }
        self.others.allocate(requirements, allocation_type, create_info, dedicated_allocation).map(Owner::of_others)
    }

    fn allocate_dedicated(
        &self,
        memory_type_index: u32,
        allocation_size: u64,
        dedicated_allocation: Option<DedicatedAllocation<'_>>,
        export_handle_types: ExternalMemoryHandleTypes,
    ) -> Result<MemoryAlloc, MemoryAllocatorError> {
        let made = self.others.allocate_dedicated(
            memory_type_index,
            allocation_size,
            dedicated_allocation,
            export_handle_types,
        );
        made.map(Owner::of_others)
    }

    unsafe fn deallocate(&self, mut allocation: MemoryAlloc) {
        let owner = allocation.allocation_handle.as_ptr().cast::<Owner>();
        // SAFETY: every handle from here is such a box, and each comes back once, as the caller promises.
        let owner = unsafe { Box::from_raw(owner) };
        match *owner {
            Owner::Millpond { block, memory } => {
                drop(allocation);
                forget(ManuallyDrop::into_inner(memory));
                drop(block);
            }
            Owner::Vulkano(handle) => {
                allocation.allocation_handle = handle;
                // SAFETY: the allocation is as vulkano's allocator has made it.
                unsafe { self.others.deallocate(allocation) };
            }
        }
    }
}

/// Ends vulkano's object for memory that is Millpond's, without freeing the memory.
fn forget(memory: Arc<DeviceMemory>) {
    // Somebody may keep another handle against the rule. The object then stays for ever, and frees nothing.
    let memory = match Arc::try_unwrap(memory) {
        Ok(memory) => memory,
        Err(kept) => return mem::forget(kept),
    };
    let device = Arc::clone(memory.device());
    mem::forget(memory);
    // SAFETY: the forgotten object had one count of the device, which nothing else gives back.
    unsafe { Arc::decrement_strong_count(Arc::as_ptr(&device)) };
}

// SAFETY: it is the device that the memory is of.
unsafe impl DeviceOwned for MillpondMemory {
    fn device(&self) -> &Arc<Device> {
        &self.device
    }
}
