//! A memory allocator for [vulkano](https://docs.rs/vulkano): images and buffers in the device's own memory are bound
//! to blocks of Millpond's.
//!
//! ```no_run
//! # fn main() {}
//! # fn of(queue: std::sync::Arc<vulkano::device::Queue>) -> Result<(), millpond_vulkano::NewError> {
//! // SAFETY: only vulkano's images and buffers use the memory.
//! let memory = unsafe { millpond_vulkano::MillpondMemory::new(&queue) }?;
//! // let image = Image::new(memory.clone(), ImageCreateInfo { .. }, AllocationCreateInfo::default())?;
//! println!("{}", memory.allocator().memory_summary(true));
//! # Ok(())
//! # }
//! ```
//!
//! # What is served
//!
//! Requests for which vulkano chooses the memory type of [`IMAGE`](millpond_vulkan::Vulkan::IMAGE): those for memory of
//! the device that the host does not map. The others go to vulkano's
//! [`StandardMemoryAllocator`](vulkano::memory::allocator::StandardMemoryAllocator):
//!
//! - memory that the host maps: vulkano maps it by itself, and memory cannot be mapped twice
//! - dedicated memory, where the driver requires it or the program asks for it
//! - requests with `NeverAllocate`: only vulkano's own blocks can promise that
//!
//! # Order
//!
//! vulkano frees memory when the last handle of an image or a buffer is dropped, and keeps such handles until the
//! device is done with them. So a freed block has no work in flight, and serves the next request at once.

mod memory;
mod queue;

use millpond::{BuildError, Error};
use millpond_vulkan::{VulkanError, ash};

pub use memory::MillpondMemory;

/// Why [`MillpondMemory::new`] made nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NewError {
    /// vulkano's device was created without features that Millpond's backend needs.
    #[error("create vulkano's device with the features `timeline_semaphore` and `synchronization2`")]
    Features,
    /// vulkano's device lacks something that Millpond's backend needs.
    #[error(transparent)]
    Device(#[from] VulkanError),
    /// The allocator cannot be made, for example because the device has no memory that images may be bound to.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The first block could not be allocated.
    #[error(transparent)]
    Allocate(#[from] Error<VulkanError>),
    /// The Vulkan library could not be loaded.
    #[error(transparent)]
    Library(#[from] ash::LoadingError),
}
