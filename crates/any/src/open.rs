//! From a name and a configuration to an allocator, in one call.

use millpond::Allocator;

use crate::device::{AnyDevice, Best};
use crate::error::{AnyError, PassedOver};

/// An allocator on the best device of this machine, as [`open_best`] found it.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenedBest {
    /// The allocator.
    pub allocator: Allocator<AnyDevice>,
    /// The name with which [`open`] opens the same device.
    pub name: String,
    /// The backends that were tried before, and why they gave no device.
    pub passed_over: Vec<PassedOver>,
}

/// Opens a [device by its name](AnyDevice::open) and creates an allocator on it, for the device's own memory.
///
/// `conf` is a configuration in PyTorch's grammar, such as `policy:paged,slack:0.02`; an empty one means the default
/// settings. The environment is not read; use [`Allocator::builder`] for that, and for all other settings.
///
/// ```
/// let allocator = millpond_any::open("sim", "policy:paged")?;
/// let stream = allocator.create_stream()?;
/// let buffer = stream.allocate(1000)?;
/// assert_eq!((buffer.len(), buffer.capacity()), (1000, 1024));
/// # Ok::<(), millpond_any::AnyError>(())
/// ```
///
/// # Errors
///
/// The errors of [`AnyDevice::open`], and [`AnyError::Build`] for a malformed configuration, a setting outside its
/// range, and settings that the device cannot serve.
pub fn open(name: &str, conf: &str) -> Result<Allocator<AnyDevice>, AnyError> {
    allocator(AnyDevice::open(name)?, name, conf)
}

/// Creates an allocator on the [best device](AnyDevice::open_best) of this machine: the first GPU by `cuda`, `vulkan`
/// and `wgpu` in this order, or else the simulated device. `conf` is that of [`open`].
///
/// # Errors
///
/// [`AnyError::NoneOpens`] if nothing opens, which needs a build without the feature `sim`; [`AnyError::Build`] for the
/// configuration, also for one that the device cannot serve: no other device is tried then.
pub fn open_best(conf: &str) -> Result<OpenedBest, AnyError> {
    let Best { device, name, passed_over } = AnyDevice::open_best()?;
    Ok(OpenedBest { allocator: allocator(device, &name, conf)?, name, passed_over })
}

/// Creates an allocator, whose messages have the number of the device that its name has.
fn allocator(device: AnyDevice, name: &str, conf: &str) -> Result<Allocator<AnyDevice>, AnyError> {
    Ok(Allocator::builder(device).device(number(name)).conf(conf).build()?)
}

fn number(name: &str) -> u32 {
    name.split([':', ',']).find_map(|part| part.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn the_number_of_a_device_is_in_its_name() {
        let names = ["cuda:3", "vulkan:validation,2", "wgpu", "sim:bytes=16", "cuda:1,alloc=async"];
        assert_eq!(names.map(number), [3, 2, 0, 0, 1]);
    }
}
