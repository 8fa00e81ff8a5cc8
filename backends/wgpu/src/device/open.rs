//! Ways to a device: opening an adapter, or adopting a device of an application.

use std::sync::Arc;

use wgpu::{AdapterInfo, Backends, InstanceFlags};

use super::{Shared, Wgpu};
use crate::error::WgpuError;
use crate::memory::Memory;
use crate::open::{Opened, WgpuBuilder};
use crate::probe::{self, TOTAL_BYTES, device_bytes};
use crate::streams::Streams;
use crate::time::Time;
use crate::transfer::Transfers;

impl Wgpu {
    /// Lists the adapters, in the order of their numbers. Loads drivers, which takes tens of milliseconds.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NoAdapter`] if there is none.
    pub fn adapters() -> Result<Vec<AdapterInfo>, WgpuError> {
        let adapters = pollster::block_on(probe::adapters(Backends::all(), InstanceFlags::empty()))?;
        Ok(adapters.iter().map(wgpu::Adapter::get_info).collect())
    }

    /// Opens an adapter by its place in [`adapters`](Wgpu::adapters). It has no stream yet.
    ///
    /// # Errors
    ///
    /// The errors of [`WgpuBuilder::build`].
    pub fn open(adapter: usize) -> Result<Wgpu, WgpuError> {
        Wgpu::builder().adapter(adapter).build()
    }

    /// Creates a [`Wgpu`] on a device and its queue that other code has opened, and shares them. Works like
    /// [`WgpuBuilder::adopt`] with the default settings.
    pub fn adopt(device: wgpu::Device, queue: wgpu::Queue) -> Wgpu {
        Wgpu::builder().adopt(device, queue)
    }

    /// Returns a builder of a device.
    pub fn builder() -> WgpuBuilder {
        WgpuBuilder::new()
    }
}

impl WgpuBuilder {
    /// Opens the device, with all the limits that its adapter has. It has no stream yet. Blocks for tens of
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NoAdapter`], [`WgpuError::NoSuchAdapter`], or [`WgpuError::NoDevice`] (for example if the adapter
    /// lacks a feature).
    pub fn build(self) -> Result<Wgpu, WgpuError> {
        pollster::block_on(self.request())
    }

    /// Works like [`build`](WgpuBuilder::build) without blocking, for callers that have an executor.
    ///
    /// # Errors
    ///
    /// The errors of [`build`](WgpuBuilder::build).
    pub async fn request(self) -> Result<Wgpu, WgpuError> {
        Ok(Wgpu::compose(self.open().await?))
    }

    /// Creates a [`Wgpu`] on a device and its queue that other code has opened, and shares them. Neither the device's
    /// handler of uncaptured errors nor its callback for its loss is changed: see [`Wgpu::report_lost`]. The builder's
    /// settings for adapters and features have no effect. Blocks are limited by the limits that the device was
    /// requested with: wgpu's defaults are 256 MiB for a buffer and 128 MiB for a binding, so request
    /// `adapter.limits()`.
    pub fn adopt(self, device: wgpu::Device, queue: wgpu::Queue) -> Wgpu {
        Wgpu::compose(self.take(device, queue))
    }
}

impl Wgpu {
    /// Composes the rooms of a device that was opened or adopted.
    pub(super) fn compose(opened: Opened) -> Wgpu {
        let Opened { driver, under, settings } = opened;
        let limits = driver.device.limits();
        let total_bytes = settings.total_bytes.or_else(|| device_bytes(&driver.device)).unwrap_or(TOTAL_BYTES);
        let mut caps = probe::caps(driver.device.adapter_info().name, &limits, total_bytes);
        if let Some(under) = &under {
            under.amend(&mut caps);
        }
        let streams = Arc::new(Streams::new(Arc::clone(&driver)));
        let time = Arc::new(Time::new(Arc::clone(&driver), under.clone(), settings.semaphore));
        let memory = Memory::new(Arc::clone(&driver), under, caps, settings.usage, &limits);
        let transfers = Transfers::new(
            Arc::clone(&driver),
            Arc::clone(&streams),
            Arc::clone(&time),
            Arc::clone(&memory.account),
            settings.staging_bytes,
        );
        Wgpu { shared: Arc::new(Shared { transfers, memory, time, streams, driver }) }
    }
}
