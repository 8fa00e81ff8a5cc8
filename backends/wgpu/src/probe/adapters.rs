//! The adapters of this machine.

use std::sync::OnceLock;

use wgpu::{Backends, InstanceFlags};

use crate::error::WgpuError;

/// Loads the drivers and returns the adapters, in the order of their numbers. There is at least one.
pub(crate) async fn adapters(backends: Backends, flags: InstanceFlags) -> Result<Vec<wgpu::Adapter>, WgpuError> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    descriptor.flags = flags;
    let instance = wgpu::Instance::new(descriptor);
    // The first instance is never dropped: some drivers cannot be loaded again an unlimited number of times after their
    // last instance was dropped.
    static FIRST: OnceLock<wgpu::Instance> = OnceLock::new();
    let _ = FIRST.set(instance.clone());
    let adapters = instance.enumerate_adapters(backends).await;
    if adapters.is_empty() { Err(WgpuError::NoAdapter { backends }) } else { Ok(adapters) }
}
