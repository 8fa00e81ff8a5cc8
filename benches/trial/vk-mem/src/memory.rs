//! Buffers whose memory is vk-mem's: the Vulkan Memory Allocator, in C++.

use ash::vk;
use vk_mem::{
    Alloc, Allocation, AllocationCreateFlags, AllocationCreateInfo, Allocator, AllocatorCreateInfo, MemoryUsage,
};

use crate::engine::Result;

pub struct Memory {
    allocator: Allocator,
}

pub struct Block {
    pub buffer: vk::Buffer,
    allocation: Allocation,
    /// Where it is mapped; null for memory of the device.
    mapped: *mut u8,
}

// SAFETY: the mapping belongs to the block, and whoever has the block may use it on any thread.
unsafe impl Send for Block {}
// SAFETY: `write` is called before a block is shared, and `read` changes nothing.
unsafe impl Sync for Block {}

impl Block {
    pub fn write(&self, bytes: &[u8]) {
        // SAFETY: the block has at least as many bytes, is new, and nothing else has it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.mapped, bytes.len()) };
    }

    pub fn read(&self, bytes: &mut [u8]) {
        // SAFETY: the block has at least as many bytes, and the work that writes them is done.
        unsafe { std::ptr::copy_nonoverlapping(self.mapped, bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Memory {
    pub fn new(instance: &ash::Instance, device: &ash::Device, physical_device: vk::PhysicalDevice) -> Result<Memory> {
        let mut info = AllocatorCreateInfo::new(instance, device, physical_device);
        info.vulkan_api_version = vk::API_VERSION_1_3;
        // SAFETY: the engine drops the allocator before the device and the instance.
        Ok(Memory { allocator: unsafe { Allocator::new(info)? } })
    }

    pub fn take(&self, bytes: u64, is_host: bool) -> Result<Block> {
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(usage | vk::BufferUsageFlags::STORAGE_BUFFER);
        let mut wanted = AllocationCreateInfo { usage: MemoryUsage::AutoPreferDevice, ..Default::default() };
        if is_host {
            wanted.usage = MemoryUsage::AutoPreferHost;
            wanted.flags = AllocationCreateFlags::HOST_ACCESS_RANDOM | AllocationCreateFlags::MAPPED;
            wanted.required_flags = vk::MemoryPropertyFlags::HOST_COHERENT;
        }
        // SAFETY: the structures live for the calls.
        let (buffer, allocation) = unsafe { self.allocator.create_buffer(&info, &wanted)? };
        let mapped = self.allocator.get_allocation_info(&allocation).mapped_data.cast();
        Ok(Block { buffer, allocation, mapped })
    }

    /// Gives a block back that no work uses.
    pub fn give_back(&self, mut block: Block) {
        // SAFETY: no work uses the buffer.
        unsafe { self.allocator.destroy_buffer(block.buffer, &mut block.allocation) };
    }

    pub fn reserved(&self) -> Result<(u64, usize)> {
        let total = self.allocator.calculate_statistics()?.total.statistics;
        Ok((total.blockBytes, total.blockCount as usize))
    }
}
