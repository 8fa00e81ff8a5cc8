//! Segments: one buffer with memory of its own.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use ash::vk;
use gpu_allocator::AllocationError;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use millpond_backend::{ClassId, HostMemory};

use crate::classes::buffer_info;
use crate::descriptor::DescriptorLimits;
use crate::device::Device;
use crate::{Vulkan, VulkanError};

/// A segment of a Vulkan device: one `VkBuffer` with memory of its own, for all queue families that the device was
/// opened with (concurrent sharing where there are several), so that queue ownership is never transferred.
///
/// It is owned, as the contract requires. A segment that is dropped without `release` stays with the device until the
/// device's last handle is dropped. The buffer is destroyed with the device, even if the segment still exists.
pub struct Segment {
    /// The device's number within the process.
    pub(crate) device: u64,
    /// Unique on its device, never reused.
    pub(crate) id: u64,
    pub(crate) buffer: vk::Buffer,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
    pub(crate) memory_type: u32,
    pub(crate) address: Option<u64>,
    pub(crate) mapped: Option<HostPointer>,
    pub(crate) limits: DescriptorLimits,
}

/// The address at which the host sees the beginning of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPointer(pub(crate) NonNull<u8>);

// SAFETY: it is an address of mapped device memory, valid on every thread; code that writes through it orders that.
unsafe impl Send for HostPointer {}
// SAFETY: as for `Send`: a shared reference gives only the address.
unsafe impl Sync for HostPointer {}

impl Segment {
    /// Returns the buffer. Bytes 0 to [`bytes`](Segment::bytes) of it are the segment.
    pub fn buffer(&self) -> vk::Buffer {
        self.buffer
    }

    /// Returns its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the class that it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Returns the index of its memory type.
    pub fn memory_type(&self) -> u32 {
        self.memory_type
    }

    /// Returns whether the host sees it.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("buffer", &self.buffer)
            .field("bytes", &self.bytes)
            .field("class", &self.class.0)
            .finish_non_exhaustive()
    }
}

/// A buffer with memory of its own, and the means to destroy both.
pub(crate) struct Backed {
    pub(crate) buffer: vk::Buffer,
    pub(crate) allocation: Allocation,
    /// The bytes that were asked for; the allocation may be larger.
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
}

impl Device {
    /// Creates a buffer of a class with memory of its own. Makes both calls that may fail for lack of memory.
    pub(crate) fn create_backed(&self, class: ClassId, bytes: u64) -> Result<Backed, VulkanError> {
        self.reclaiming(|| self.count_allocation(|| self.try_create_backed(class, bytes)))
    }

    /// Runs `make`, which makes one allocation, if the device allows one more.
    pub(crate) fn count_allocation<T>(&self, make: impl FnOnce() -> Result<T, VulkanError>) -> Result<T, VulkanError> {
        let max = u64::from(self.probe.properties.limits.max_memory_allocation_count);
        // The allocation is counted before the driver is called, so that concurrent threads cannot exceed the limit.
        if self.allocations.fetch_add(1, Ordering::Relaxed) >= max {
            self.allocations.fetch_sub(1, Ordering::Relaxed);
            return Err(VulkanError::TooMany { max });
        }
        let made = make();
        if made.is_err() {
            self.allocations.fetch_sub(1, Ordering::Relaxed);
        }
        made
    }

    fn try_create_backed(&self, class: ClassId, bytes: u64) -> Result<Backed, VulkanError> {
        let facts = self.classes[usize::from(class.0)];
        let info = buffer_info(&self.families).size(bytes).usage(facts.usage);
        // SAFETY: the families belong to the device, and flags that need features are only set where those are enabled.
        let buffer = unsafe { self.raw.create_buffer(&info, None) }.map_err(self.failed("vkCreateBuffer"))?;
        // SAFETY: the buffer was just created, and is destroyed only here if anything fails.
        let mut requirements = unsafe { self.raw.get_buffer_memory_requirements(buffer) };
        // The library takes the first type that fits, so it is offered only the one that was chosen.
        requirements.memory_type_bits &= 1 << facts.memory_type;
        let description = AllocationCreateDesc {
            name: "millpond segment",
            requirements,
            location: facts.location,
            linear: true,
            allocation_scheme: AllocationScheme::DedicatedBuffer(buffer),
        };
        let allocated = self.allocator.lock().allocate(&description);
        let allocation = match allocated {
            Ok(allocation) => allocation,
            Err(error) => {
                // SAFETY: no other code has the buffer.
                unsafe { self.raw.destroy_buffer(buffer, None) };
                return Err(match error {
                    AllocationError::OutOfMemory => VulkanError::OutOfMemory { asked: bytes, class },
                    source => VulkanError::Memory { bytes, class, source },
                });
            }
        };
        let backed = Backed { buffer, allocation, bytes, class };
        // SAFETY: the memory is of a type, a size and an alignment that the buffer requires, and nothing else is in it.
        let bound =
            unsafe { self.raw.bind_buffer_memory(buffer, backed.allocation.memory(), backed.allocation.offset()) };
        if let Err(result) = bound {
            self.destroy_memory_of(backed);
            return Err(self.failed("vkBindBufferMemory")(result));
        }
        Ok(backed)
    }

    /// Destroys a buffer and its memory. No work may touch it.
    pub(crate) fn destroy_backed(&self, backed: Backed) {
        self.destroy_memory_of(backed);
        self.allocations.fetch_sub(1, Ordering::Relaxed);
    }

    fn destroy_memory_of(&self, backed: Backed) {
        // SAFETY: the callers own the buffer and know that no work touches it any more.
        unsafe { self.raw.destroy_buffer(backed.buffer, None) };
        let freed = self.allocator.lock().free(backed.allocation);
        assert!(freed.is_ok(), "memory of {} bytes could not be freed: {freed:?}", backed.bytes);
    }

    /// Implements `reserve`.
    pub(crate) fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, VulkanError> {
        let facts = self.caps.class(class);
        if bytes == 0 {
            return Err(VulkanError::Empty { call: "reserve" });
        }
        if bytes > facts.max_segment_bytes {
            return Err(VulkanError::TooLarge { asked: bytes, max: facts.max_segment_bytes });
        }
        self.enter("vkAllocateMemory")?;
        let backed = self.create_backed(class, bytes)?;
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        // The device's own memory may be of a type that the host sees through a cache that is not flushed. The memory
        // library maps it, but no address of it is handed out.
        let coherent = self.classes[usize::from(class.0)].coherent;
        let segment = Segment {
            device: self.id,
            id,
            buffer: backed.buffer,
            bytes,
            class,
            memory_type: self.memory_type(class),
            address: self.buffer_address(backed.buffer),
            mapped: backed.allocation.mapped_ptr().filter(|_| coherent).map(|pointer| HostPointer(pointer.cast())),
            limits: self.descriptor_limits(),
        };
        self.live.lock().insert(id, backed);
        Ok(segment)
    }

    /// Returns the memory type of a class.
    pub(crate) fn memory_type(&self, class: ClassId) -> u32 {
        self.classes[usize::from(class.0)].memory_type
    }

    /// Returns the address of a buffer, where buffers have addresses.
    pub(crate) fn buffer_address(&self, buffer: vk::Buffer) -> Option<u64> {
        let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        // SAFETY: the feature is enabled, and with it every buffer is created with the usage for it.
        self.enabled.buffer_device_address.then(|| unsafe { self.raw.get_buffer_device_address(&info) })
    }

    /// Implements `release`. The contract's caller guarantees that no work touches the segment.
    ///
    /// # Panics
    ///
    /// If the segment is another device's.
    pub(crate) fn release(&self, segment: Segment) {
        assert!(
            segment.device == self.id,
            "release: the segment is of Vulkan device {}, not of device {}",
            segment.device,
            self.id
        );
        let Some(backed) = self.live.lock().remove(&segment.id) else {
            panic!("release: segment {} of {} bytes is not in the device's books", segment.id, segment.bytes)
        };
        self.destroy_backed(backed);
    }
}

impl Vulkan {
    /// Returns the bytes of class 0 in segments and pages that were not given back. Makes no driver call.
    pub fn held_bytes(&self) -> u64 {
        let live = self.device.live.lock();
        let segments = live.values().filter(|backed| backed.class == ClassId::DEVICE).map(|backed| backed.bytes);
        segments.sum::<u64>() + self.page_bytes()
    }
}

impl HostMemory for Vulkan {
    type Segment = Segment;

    /// Returns the address at which the host sees the segment: for segments of classes 1 and 2, and of class 0 where
    /// all of the device's memory is coherent and visible to the host. The work of a submit sees what the host wrote
    /// before that submit. After waiting for transfers of this device, the host can read what they wrote; other work
    /// whose results the host reads ends with a barrier to the host stage.
    fn host_address(&self, segment: &Segment) -> Option<NonNull<u8>> {
        segment.mapped.map(|pointer| pointer.0)
    }
}
