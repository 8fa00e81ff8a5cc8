//! The calls of the driver, as far as rules and tests look at them.

use millpond_vulkan::ash::vk;

/// A memory barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Barrier {
    pub(crate) before: (vk::PipelineStageFlags2, vk::AccessFlags2),
    pub(crate) after: (vk::PipelineStageFlags2, vk::AccessFlags2),
}

impl Barrier {
    /// The barrier that orders everything after everything.
    pub(crate) fn full() -> Barrier {
        use vk::{AccessFlags2 as Access, PipelineStageFlags2 as Stage};
        Barrier {
            before: (Stage::ALL_COMMANDS, Access::MEMORY_WRITE),
            after: (Stage::ALL_COMMANDS, Access::MEMORY_READ | Access::MEMORY_WRITE),
        }
    }

    /// The barrier that makes everything written available to the host. `ALL_COMMANDS` does not include the host.
    pub(crate) fn to_host() -> Barrier {
        use vk::{AccessFlags2 as Access, PipelineStageFlags2 as Stage};
        Barrier { before: (Stage::ALL_COMMANDS, Access::MEMORY_WRITE), after: (Stage::HOST, Access::HOST_READ) }
    }
}

/// A command in a command buffer. Places are a buffer and an offset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Barrier(Barrier),
    Fill { to: (vk::Buffer, u64), bytes: u64, word: u32 },
    Copy { from: (vk::Buffer, u64), to: (vk::Buffer, u64), bytes: u64 },
}

/// A semaphore with the value and the stages at which a submit waits for it or signals it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) semaphore: vk::Semaphore,
    pub(crate) value: u64,
    pub(crate) stages: vk::PipelineStageFlags2,
}

/// A batch that was submitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Submit {
    pub(crate) queue: vk::Queue,
    /// Whether this thread held the queue's lock.
    pub(crate) locked: bool,
    pub(crate) waits: Vec<At>,
    pub(crate) commands: Vec<vk::CommandBuffer>,
    pub(crate) signals: Vec<At>,
    pub(crate) result: vk::Result,
}

/// The mapping of some bytes of a range. No memory unmaps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) range: vk::Buffer,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) memory_offset: u64,
}

/// A bind of sparse memory. Waits and signals are semaphores with values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bind {
    pub(crate) queue: vk::Queue,
    /// Whether this thread held the queue's lock.
    pub(crate) locked: bool,
    pub(crate) waits: Vec<(vk::Semaphore, u64)>,
    pub(crate) signals: Vec<(vk::Semaphore, u64)>,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) result: vk::Result,
}

/// One call of the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    CreateBuffer {
        buffer: vk::Buffer,
        flags: vk::BufferCreateFlags,
        usage: vk::BufferUsageFlags,
        families: Vec<u32>,
    },
    DestroyBuffer(vk::Buffer),
    /// An allocation that was made, with the buffer that it is for alone.
    Allocate {
        memory: vk::DeviceMemory,
        bytes: u64,
        buffer: vk::Buffer,
        flags: vk::MemoryAllocateFlags,
        /// What it can be exported as.
        exports: vk::ExternalMemoryHandleTypeFlags,
    },
    BindBuffer(vk::Buffer, vk::DeviceMemory),
    Map(vk::DeviceMemory),
    Free(vk::DeviceMemory),
    CreateSemaphore(vk::Semaphore),
    DestroySemaphore(vk::Semaphore),
    /// The value that a semaphore was seen to have.
    Known(vk::Semaphore, u64),
    Begin(vk::CommandBuffer, vk::CommandBufferUsageFlags),
    Record(vk::CommandBuffer, Command),
    End(vk::CommandBuffer, vk::Result),
    Submit(Submit),
    Bind(Bind),
    /// A wait for a queue, and whether this thread held its lock.
    WaitIdle(vk::Queue, bool),
}
