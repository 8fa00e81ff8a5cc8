//! Ways to a device: opening one, or adopting an engine's.

use std::sync::Arc;

use millpond_kit::Leavings;

use super::{Device, Vulkan};
use crate::error::VulkanError;
use crate::memory::Memory;
use crate::open::{Adopted, Driver, Settings, VulkanBuilder, list};
use crate::pages::{Pages, Sparse};
use crate::probe::DeviceInfo;
use crate::streams::Streams;
use crate::time::Time;
use crate::transfer::Transfers;

impl Vulkan {
    /// Lists the devices of this machine. Creates an instance for this, which takes tens of milliseconds.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoLoader`] and [`VulkanError::NoDriver`] say what to install; else the driver's errors.
    pub fn devices() -> Result<Vec<DeviceInfo>, VulkanError> {
        list(None)
    }

    /// Opens a device by its place in [`devices`](Vulkan::devices), with all its capabilities.
    ///
    /// # Errors
    ///
    /// The errors of [`VulkanBuilder::build`].
    pub fn open(index: usize) -> Result<Vulkan, VulkanError> {
        Vulkan::builder().device(index).build()
    }

    /// Returns a builder of a device. The defaults are device 0 with all its capabilities, without validation.
    pub fn builder() -> VulkanBuilder {
        VulkanBuilder::new()
    }

    /// Creates a [`Vulkan`] on an engine's device. It never destroys the engine's objects. Its own objects are
    /// destroyed with the last handle, which waits for the work that was submitted through it. Queues are numbered
    /// within their family in the order given. If this fails, nothing was made, and [`keep`](Adopted::keep) is dropped.
    ///
    /// # Errors
    ///
    /// [`VulkanError::Lacks`] and [`Misuse::Unsupported`](crate::Misuse::Unsupported) for a device that lacks something
    /// that this backend needs, [`VulkanError::NoQueue`] for a family that the device does not have,
    /// [`VulkanError::NoQueues`] for none, [`VulkanError::QueueTwice`] for a queue that is named twice,
    /// [`VulkanError::OldInstance`] for an instance of Vulkan 1.1 or older; else the driver's errors.
    ///
    /// # Safety
    ///
    /// The handles are valid, belong together, and outlive the last handle of the result. Allocators and buffers hold
    /// such handles too: the drop of [`keep`](Adopted::keep) shows that the last one is gone. The device was created
    /// with timeline semaphores, synchronization2, and the features in `enabled`. No other code uses a queue without a
    /// lock at the same time as the result does.
    pub unsafe fn adopt(adopted: Adopted) -> Result<Vulkan, VulkanError> {
        // SAFETY: the caller guarantees it.
        let (driver, settings) = unsafe { adopted.open() }?;
        Vulkan::compose(driver, &settings)
    }

    /// Composes the rooms of a device that was opened or adopted.
    fn compose(driver: Driver, settings: &Settings) -> Result<Vulkan, VulkanError> {
        let driver = Arc::new(driver);
        let mut memory = Memory::new(Arc::clone(&driver), settings)?;
        let sparse = Sparse::find(&driver, &memory, settings.page_granularity)?;
        memory.caps.pages = sparse.as_ref().map(|sparse| sparse.caps);
        let memory = Arc::new(memory);
        let pages = Arc::new(Pages::new(Arc::clone(&driver), Arc::clone(&memory), sparse)?);
        let streams = Arc::new(Streams::new(Arc::clone(&driver)));
        let time = Arc::new(Time::new(Arc::clone(&driver), Arc::clone(&streams), pages.clone()));
        let transfers = Transfers::new(
            Arc::clone(&driver),
            Arc::clone(&streams),
            Arc::clone(&time),
            Arc::clone(&memory),
            Arc::clone(&pages),
        );
        let leavings = Leavings::default();
        Ok(Vulkan { device: Arc::new(Device { leavings, transfers, time, pages, memory, streams, driver }) })
    }
}

impl VulkanBuilder {
    /// Opens the device. Takes tens of milliseconds.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoLoader`], [`VulkanError::OldLoader`], [`VulkanError::NoDriver`], [`VulkanError::NoDevice`],
    /// [`VulkanError::NoValidation`], [`VulkanError::Lacks`], [`VulkanError::NoQueue`] and [`VulkanError::NoQueues`]
    /// name what is missing; [`VulkanError::QueueTwice`] and [`VulkanError::Usage`] what cannot be had so; else the
    /// driver's errors.
    pub fn build(self) -> Result<Vulkan, VulkanError> {
        let (driver, settings) = self.open()?;
        Vulkan::compose(driver, &settings)
    }
}
