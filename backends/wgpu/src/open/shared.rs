//! Opening a wgpu device so that the Vulkan backend can use it as well: with sparse buffers, synchronization2, and
//! where there is one, a queue for binds that wgpu does not know of.

use ash::{ext, khr, vk};
use millpond_vulkan::EnabledFeatures;
use wgpu::BufferUsages;
use wgpu::hal::api::Vulkan as Hal;

use crate::error::WgpuError;

/// The family and the number of the queue that wgpu takes.
const WGPU_QUEUE: (u32, u32) = (0, 0);

/// What the Vulkan backend needs to know of the device: the features and the queue that it was opened with.
pub(crate) struct Shared {
    pub(crate) enabled: EnabledFeatures,
    /// The family and the number of a queue only for binds.
    pub(crate) binder: Option<(u32, u32)>,
}

/// Opens a wgpu device of an adapter, and returns it with its queue and with what else it was opened with.
pub(crate) fn open(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
    usage: BufferUsages,
) -> Result<(wgpu::Device, wgpu::Queue, Shared), WgpuError> {
    let name = || adapter.get_info().name;
    let lacks = |missing| WgpuError::NoVulkanSegments { adapter: name(), missing };
    let fits = BufferUsages::STORAGE
        | BufferUsages::UNIFORM
        | BufferUsages::INDIRECT
        | BufferUsages::INDEX
        | BufferUsages::VERTEX
        | BufferUsages::COPY_SRC
        | BufferUsages::COPY_DST;
    if !fits.contains(usage) {
        return Err(lacks("segments for other usages than storage, uniform, indirect, index, vertex and copies"));
    }
    // SAFETY: the handles are used to make a device, and no object of wgpu's is destroyed.
    let Some(hal) = (unsafe { adapter.as_hal::<Hal>() }) else { return Err(lacks("Vulkan")) };
    if hal.shared_instance().instance_api_version() < vk::API_VERSION_1_2 {
        return Err(lacks("Vulkan 1.2"));
    }
    let (device, opened) = create(&hal, descriptor, &lacks)?;
    drop(hal);
    // SAFETY: the device was made from this adapter, with the features of the descriptor.
    let made = unsafe { adapter.create_device_from_hal(device, descriptor) };
    let (device, queue) = made.map_err(|source| WgpuError::NoDevice { adapter: name(), source })?;
    Ok((device, queue, opened))
}

fn create(
    hal: &wgpu::hal::vulkan::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
    lacks: &dyn Fn(&'static str) -> WgpuError,
) -> Result<(wgpu::hal::OpenDevice<Hal>, Shared), WgpuError> {
    let (instance, physical) = (hal.shared_instance().raw_instance(), hal.raw_physical_device());
    let facts = hal.physical_device_capabilities();
    let mut extensions = hal.required_device_extensions(descriptor.required_features);
    if facts.properties().api_version < vk::API_VERSION_1_3 {
        if !facts.supports_extension(khr::synchronization2::NAME) {
            return Err(lacks("synchronization2"));
        }
        extensions.push(khr::synchronization2::NAME);
    }
    let names: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: the physical device belongs to the instance.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let binder = binder(&families);
    let [own, other] = [WGPU_QUEUE.0, binder.map_or(WGPU_QUEUE.0, |(family, _)| family)];
    let priorities = [1.0; 2];
    let in_own = if binder.is_some_and(|(_, index)| index > 0) { 2 } else { 1 };
    let queue = |family, count: usize| {
        vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities[..count])
    };
    let mut queues = vec![queue(own, in_own)];
    if other != own {
        queues.push(queue(other, 1));
    }
    let mut wanted = hal.physical_device_features(&extensions, descriptor.required_features);
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&names);
    let info = wanted.add_to_device_create(info);
    // SAFETY: wgpu has just set the pointer to the features that it wants, which live as long as `wanted`.
    let mut core = unsafe { *info.p_enabled_features };
    // SAFETY: the physical device belongs to the instance.
    let there = unsafe { instance.get_physical_device_features(physical) };
    let binds = binder.is_some() || families[own as usize].queue_flags.contains(vk::QueueFlags::SPARSE_BINDING);
    let sparse = binds && there.sparse_binding == vk::TRUE && there.sparse_residency_buffer == vk::TRUE;
    let aliased = sparse && there.sparse_residency_aliased == vk::TRUE;
    core = core.sparse_binding(sparse).sparse_residency_buffer(sparse).sparse_residency_aliased(aliased);
    let mut synchronization = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
    let info = info.enabled_features(&core).push_next(&mut synchronization);
    let enabled = EnabledFeatures {
        sparse_binding: sparse,
        sparse_residency: sparse,
        sparse_aliased: aliased,
        memory_budget: extensions.contains(&ext::memory_budget::NAME),
        ..EnabledFeatures::default()
    };
    // SAFETY: the physical device reported that it has the queues, extensions and features, and everything that the
    // structure points to lives until the call returns.
    let raw = unsafe { instance.create_device(physical, &info, None) }
        .map_err(|_| lacks("a device with sparse buffers and synchronization2"))?;
    // SAFETY: the device was made from this adapter with all that wgpu needs for these features, and becomes wgpu's.
    let device = unsafe {
        hal.device_from_raw(
            raw,
            None,
            &extensions,
            descriptor.required_features,
            &descriptor.required_limits,
            &descriptor.memory_hints,
            WGPU_QUEUE.0,
            WGPU_QUEUE.1,
        )
    };
    Ok((device.map_err(|_| lacks("memory for a device"))?, Shared { enabled, binder }))
}

/// Returns a queue that can bind, other than wgpu's: of the same family if that has two, so that buffers need not be
/// shared among families.
fn binder(families: &[vk::QueueFamilyProperties]) -> Option<(u32, u32)> {
    let able = |family: &vk::QueueFamilyProperties| family.queue_flags.contains(vk::QueueFlags::SPARSE_BINDING);
    let own = families.get(WGPU_QUEUE.0 as usize)?;
    if able(own) && own.queue_count > 1 {
        return Some((WGPU_QUEUE.0, 1));
    }
    let other = (0..).zip(families).find(|&(index, family)| index != WGPU_QUEUE.0 && able(family));
    other.map(|(index, _)| (index, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(flags: vk::QueueFlags, count: u32) -> vk::QueueFamilyProperties {
        vk::QueueFamilyProperties { queue_flags: flags, queue_count: count, ..Default::default() }
    }

    #[test]
    fn binds_have_a_queue_of_their_own_where_there_is_one() {
        let [all, compute] = [vk::QueueFlags::COMPUTE | vk::QueueFlags::SPARSE_BINDING, vk::QueueFlags::COMPUTE];
        let bind = vk::QueueFlags::SPARSE_BINDING;
        assert_eq!(binder(&[family(all, 16), family(bind, 2)]), Some((0, 1)), "of wgpu's family first");
        assert_eq!(binder(&[family(all, 1), family(compute, 8), family(bind, 1)]), Some((2, 0)));
        assert_eq!(binder(&[family(compute, 4), family(all, 1)]), Some((1, 0)));
        assert_eq!(binder(&[family(all, 1)]), None, "wgpu's own must do");
        assert_eq!(binder(&[family(compute, 4)]), None);
    }
}
