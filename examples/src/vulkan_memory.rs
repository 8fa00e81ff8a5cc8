//! Memory for an engine that binds images and buffers of its own: what such an engine asks of gpu-allocator or VMA,
//! served by Millpond.

#![allow(unsafe_code)] // Pointers into memory that the host sees.

use std::ptr::NonNull;

use millpond::backend::{Backend, ClassId};
use millpond::{Allocator, Buffer, Stream};
use millpond_vulkan::Vulkan;
use millpond_vulkan::ash::vk;

use crate::engine::Result;

/// Where memory has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// In the device's own memory.
    Device,
    /// Where the host writes and the device reads.
    Upload,
    /// Where the device writes and the host reads.
    Readback,
}

/// An engine's memory: one allocator for each kind, all on one stream, in whose order memory is used again.
pub struct EngineMemory {
    device: Vulkan,
    streams: [Stream<Vulkan>; 3],
}

/// Memory to bind an image or a buffer to. Drop it once the last use is recorded on its stream: later work there may
/// have the memory. Destroy what is bound to it when that work is done, as always in Vulkan.
pub struct Allocation {
    /// The memory and the offset, for `vkBindImageMemory` and `vkBindBufferMemory`.
    pub memory: vk::DeviceMemory,
    /// The offset in the memory, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where the host sees it, if it does.
    mapped: Option<NonNull<u8>>,
    block: Buffer<Vulkan>,
}

impl EngineMemory {
    /// Creates the allocators of a device, and a stream.
    ///
    /// # Errors
    ///
    /// Returns the driver's error if it has no further queue.
    pub fn new(device: Vulkan) -> Result<EngineMemory> {
        let allocator = |class| Allocator::builder(device.clone()).class(class).build();
        let images = allocator(Vulkan::IMAGE)?;
        let stream = images.create_stream()?;
        let [upload, readback] =
            [ClassId(1), ClassId(2)].map(|class| allocator(class).map(|of| of.stream(stream.id())));
        Ok(EngineMemory { streams: [stream, upload??, readback??], device })
    }

    /// Returns the device.
    pub fn device(&self) -> &Vulkan {
        &self.device
    }

    /// Returns the stream whose work uses the memory.
    pub fn stream(&self) -> &Stream<Vulkan> {
        &self.streams[0]
    }

    /// Allocates what the driver requires of an image or a buffer.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors, and one if this memory's type does not suit: then the engine needs memory of
    /// its own for it.
    pub fn allocate(&self, required: vk::MemoryRequirements, location: Location) -> Result<Allocation> {
        let needed = self.device.apart(required);
        let block = self.streams[location as usize].allocate_aligned(needed.size, needed.alignment)?;
        let segment = block.segment().ok_or("nothing takes no memory")?;
        let place = segment.memory().ok_or("a range has no memory of its own")?;
        if needed.memory_type_bits & (1 << place.memory_type) == 0 {
            return Err(format!("memory type {} does not serve {required:?}", place.memory_type).into());
        }
        let host = self.device.host_memory().and_then(|host| host.host_address(segment));
        let begin = usize::try_from(block.offset())?;
        // SAFETY: the pointer is valid for the whole segment, and the block lies in it.
        let mapped = host.map(|pointer| unsafe { pointer.add(begin) });
        Ok(Allocation {
            memory: place.memory,
            offset: place.offset + block.offset(),
            bytes: needed.size,
            mapped,
            block,
        })
    }
}

impl Allocation {
    /// Copies bytes into it, before work that reads them is submitted.
    ///
    /// # Panics
    ///
    /// If the host does not see it, or the bytes do not fit.
    pub fn write(&mut self, bytes: &[u8]) {
        let to = self.mapped.expect("memory for uploads is mapped");
        assert!(bytes.len() as u64 <= self.bytes, "{} bytes for {}", bytes.len(), self.bytes);
        // SAFETY: the block is live and borrowed mutably, and has as many bytes. No work was submitted that uses them.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Returns its first bytes, once the work that writes them was waited for.
    ///
    /// # Panics
    ///
    /// If the host does not see it, or there are fewer bytes.
    pub fn read(&self, count: usize) -> Vec<u8> {
        let from = self.mapped.expect("memory for readbacks is mapped");
        assert!(count as u64 <= self.bytes, "{count} bytes of {}", self.bytes);
        let mut bytes = vec![0; count];
        // SAFETY: the block is live and has as many bytes, and the work that writes them is done.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut bytes[..]).cast(), count) };
        bytes
    }

    /// Returns the block behind it, to record uses on other streams.
    pub fn block(&self) -> &Buffer<Vulkan> {
        &self.block
    }
}
