//! Buffers whose memory is gpu-allocator's.

use std::sync::Mutex;

use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationError, MemoryLocation};

use crate::engine::{Error, Result};

pub struct Memory {
    device: ash::Device,
    allocator: Mutex<Allocator>,
}

pub struct Block {
    pub buffer: vk::Buffer,
    allocation: Allocation,
}

impl Block {
    pub fn write(&self, bytes: &[u8]) {
        let start = self.allocation.mapped_ptr().expect("memory of the host is mapped").as_ptr().cast();
        // SAFETY: the block has at least as many bytes, is new, and nothing else has it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
    }

    pub fn read(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.allocation.mapped_slice().expect("memory of the host is mapped")[..bytes.len()]);
    }
}

fn error(error: AllocationError) -> Error {
    match error {
        AllocationError::OutOfMemory => Error::OutOfMemory,
        other => Error::Other(other.to_string()),
    }
}

impl Memory {
    pub fn new(instance: &ash::Instance, device: &ash::Device, physical_device: vk::PhysicalDevice) -> Result<Memory> {
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: instance.clone(),
            device: device.clone(),
            physical_device,
            debug_settings: Default::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        });
        Ok(Memory { device: device.clone(), allocator: Mutex::new(allocator.map_err(error)?) })
    }

    pub fn take(&self, bytes: u64, is_host: bool) -> Result<Block> {
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(usage | vk::BufferUsageFlags::STORAGE_BUFFER);
        // SAFETY: the structure lives for the call.
        let buffer = unsafe { self.device.create_buffer(&info, None)? };
        // SAFETY: the buffer is this device's.
        let requirements = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        let location = if is_host { MemoryLocation::GpuToCpu } else { MemoryLocation::GpuOnly };
        let scheme = AllocationScheme::GpuAllocatorManaged;
        let wanted =
            AllocationCreateDesc { name: "trial", requirements, location, linear: true, allocation_scheme: scheme };
        let taken = self.allocator.lock().unwrap().allocate(&wanted).map_err(error).and_then(|allocation| {
            // SAFETY: the memory is new, large enough, and of a type that the buffer asks for.
            let bound = unsafe { self.device.bind_buffer_memory(buffer, allocation.memory(), allocation.offset()) };
            bound.map(|()| allocation).map_err(Error::from)
        });
        match taken {
            Ok(allocation) => Ok(Block { buffer, allocation }),
            Err(error) => {
                // SAFETY: nothing uses the buffer.
                unsafe { self.device.destroy_buffer(buffer, None) };
                Err(error)
            }
        }
    }

    /// Gives a block back that no work uses.
    pub fn give_back(&self, block: Block) {
        // SAFETY: no work uses the buffer.
        unsafe { self.device.destroy_buffer(block.buffer, None) };
        self.allocator.lock().unwrap().free(block.allocation).expect("the allocation is this allocator's");
    }

    pub fn reserved(&self) -> Result<(u64, usize)> {
        let report = self.allocator.lock().unwrap().generate_report();
        Ok((report.total_capacity_bytes, report.blocks.len()))
    }
}
