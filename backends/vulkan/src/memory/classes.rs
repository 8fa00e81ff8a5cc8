//! The memory classes: the memory type of each class, and the properties of its buffers.

use ash::vk;
use millpond_backend::{Class, ClassId, ClassKind};

use crate::error::VulkanError;
use crate::open::{COUNT, Settings, TRANSFER};
use crate::probe::{ExportKind, Probe};

/// What memory of a class is for, by which its memory type is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    Device,
    Upload,
    Readback,
}

/// The classes of every Vulkan device, by their id.
const CLASSES: [(&str, ClassKind, Location); COUNT] = [
    ("device", ClassKind::Device, Location::Device),
    ("upload", ClassKind::Host, Location::Upload),
    ("readback", ClassKind::Host, Location::Readback),
    ("image", ClassKind::Device, Location::Device),
];

/// The class of device memory that images may be bound to.
pub(crate) const IMAGE: ClassId = ClassId(3);

/// The class of host memory that the device writes and the host reads.
pub(crate) const READBACK: ClassId = ClassId(2);

/// The properties of memory that the host sees without flushes.
const HOST: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw() | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);

/// How segments of a class are created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassFacts {
    pub(crate) usage: vk::BufferUsageFlags,
    pub(crate) memory_type: u32,
    /// The most bytes of one allocation: no more than the heap has.
    pub(crate) max_memory_bytes: u64,
    /// Whether memory is for its buffer alone, as Vulkan calls it. Nothing else may be bound to it then.
    pub(crate) is_dedicated: bool,
    /// How the memory of segments can be exported.
    pub(crate) exports: Option<ExportKind>,
    /// Whether segments are mapped: the host sees memory of this type, and agrees with the device without flushes.
    pub(crate) is_mapped: bool,
}

/// Returns how buffers of this device are created. `size` and `usage` are still to be set.
pub(crate) fn buffer_info(families: &[u32]) -> vk::BufferCreateInfo<'_> {
    let info = vk::BufferCreateInfo::default();
    match families {
        [] | [_] => info.sharing_mode(vk::SharingMode::EXCLUSIVE),
        _ => info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(families),
    }
}

/// Returns what a buffer is created with besides, whose memory can be exported. It is for none if there is no kind.
pub(crate) fn external(exports: Option<ExportKind>) -> vk::ExternalMemoryBufferCreateInfo<'static> {
    let types = exports.map(ExportKind::handle_type).unwrap_or_default();
    vk::ExternalMemoryBufferCreateInfo::default().handle_types(types)
}

/// Returns the memory types of plain color images. They are the same for all formats, usages and ways of sharing,
/// except for transient images.
fn image_types(device: &ash::Device) -> Result<u32, VulkanError> {
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: 256, height: 256, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
    // SAFETY: every device supports such images of this format.
    let image = unsafe { device.create_image(&info, None) }.map_err(VulkanError::driver("vkCreateImage"))?;
    // SAFETY: the image was just created.
    let requirements = unsafe { device.get_image_memory_requirements(image) };
    // SAFETY: no other code has the image.
    unsafe { device.destroy_image(image, None) };
    Ok(requirements.memory_type_bits)
}

/// Chooses memory types and builds the table of classes.
pub(crate) fn classes(
    device: &ash::Device,
    probe: &Probe,
    families: &[u32],
    address: bool,
    settings: &Settings,
) -> Result<(Vec<Class>, Vec<ClassFacts>), VulkanError> {
    let (mut classes, mut facts) = (Vec::new(), Vec::new());
    for (index, (name, kind, location)) in CLASSES.into_iter().enumerate() {
        let mut usage = settings.usages[index] | TRANSFER;
        if address {
            usage |= vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        }
        let class = ClassId(index as u16);
        let exports = settings.exports.filter(|_| index == usize::from(ClassId::DEVICE.0));
        let requirements = requirements(device, families, usage, exports)?;
        let bits = requirements.memory_type_bits;
        // Where no memory serves both buffers and images, the class is there all the same, and of no use for images.
        let both = if class == IMAGE { bits & image_types(device)? } else { bits };
        let chosen = choose(&probe.memory, both, location).or_else(|| choose(&probe.memory, bits, location));
        let Some(memory_type) = chosen else {
            let location = if kind == ClassKind::Device { "device local" } else { "host visible and coherent" };
            return Err(VulkanError::NoMemoryType { class, location, usage });
        };
        let vk::MemoryType { heap_index: heap, property_flags } = probe.memory.memory_types[memory_type as usize];
        let limits = &probe.properties.limits;
        let alignment = requirements
            .alignment
            .max(limits.min_storage_buffer_offset_alignment)
            .max(limits.min_uniform_buffer_offset_alignment)
            .max(limits.min_texel_buffer_offset_alignment);
        let total_bytes = probe.memory.memory_heaps[heap as usize].size;
        let max_memory_bytes = probe.max_allocation_bytes.min(total_bytes);
        let facts_of = Class::new(kind, name, total_bytes).with_alignment(alignment);
        classes.push(facts_of.with_max_segment_bytes(max_memory_bytes.min(probe.max_buffer_bytes)));
        let is_mapped = property_flags.contains(HOST);
        let is_dedicated = class == ClassId::DEVICE;
        facts.push(ClassFacts { usage, memory_type, max_memory_bytes, is_dedicated, exports, is_mapped });
    }
    Ok((classes, facts))
}

/// Returns the driver's requirements on memory for buffers of this kind, whatever their size.
fn requirements(
    device: &ash::Device,
    families: &[u32],
    usage: vk::BufferUsageFlags,
    exports: Option<ExportKind>,
) -> Result<vk::MemoryRequirements, VulkanError> {
    let mut external = external(exports);
    let info = buffer_info(families).size(1 << 16).usage(usage).push_next(&mut external);
    // SAFETY: the families belong to the device, each once. `Settings::check` has refused usages whose features are
    // off, and an adopted device has the default usages, which need none.
    let buffer = unsafe { device.create_buffer(&info, None) }.map_err(VulkanError::driver("vkCreateBuffer"))?;
    // SAFETY: the buffer was just created.
    let requirements = unsafe { device.get_buffer_memory_requirements(buffer) };
    // SAFETY: no other code has the buffer.
    unsafe { device.destroy_buffer(buffer, None) };
    Ok(requirements)
}

/// Returns the memory type for a class among those in `bits`. Memory in the wrong place is slower by factors, so the
/// largest heap decides first: a small window onto the device's memory that the host can see is not meant for large
/// segments.
pub(crate) fn choose(memory: &vk::PhysicalDeviceMemoryProperties, bits: u32, location: Location) -> Option<u32> {
    use vk::MemoryPropertyFlags as Flags;
    let (needed, liked, disliked) = match location {
        Location::Upload => (Flags::HOST_VISIBLE | Flags::HOST_COHERENT, Flags::DEVICE_LOCAL, Flags::HOST_CACHED),
        Location::Readback => (Flags::HOST_VISIBLE | Flags::HOST_COHERENT, Flags::HOST_CACHED, Flags::DEVICE_LOCAL),
        Location::Device => (Flags::DEVICE_LOCAL, Flags::empty(), Flags::HOST_VISIBLE),
    };
    let refused = Flags::PROTECTED | Flags::LAZILY_ALLOCATED;
    let fits = |(index, each): &(usize, &vk::MemoryType)| {
        bits & (1 << index) != 0 && each.property_flags.contains(needed) && !each.property_flags.intersects(refused)
    };
    let heap = |each: &vk::MemoryType| memory.memory_heaps[each.heap_index as usize].size;
    let types = memory.memory_types_as_slice().iter().enumerate().filter(fits);
    // Among equals the first is taken: drivers list faster types first.
    let best = types.reduce(|best, next| {
        let rank = |(_, each): &(usize, &vk::MemoryType)| {
            let flags = each.property_flags;
            let matches = (flags.contains(liked), !flags.intersects(disliked));
            if location == Location::Device { (heap(each), matches) } else { (0, matches) }
        };
        if rank(&next) > rank(&best) { next } else { best }
    });
    best.map(|(index, _)| index as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vk::MemoryPropertyFlags as Flags;

    /// Returns memory properties with heaps of these sizes in GiB, and with types as (flags, heap).
    fn memory(heaps: &[u64], types: &[(Flags, u32)]) -> vk::PhysicalDeviceMemoryProperties {
        let mut memory = vk::PhysicalDeviceMemoryProperties {
            memory_type_count: types.len() as u32,
            memory_heap_count: heaps.len() as u32,
            ..Default::default()
        };
        for (index, &gib) in heaps.iter().enumerate() {
            memory.memory_heaps[index].size = gib << 30;
        }
        for (index, &(property_flags, heap_index)) in types.iter().enumerate() {
            memory.memory_types[index] = vk::MemoryType { property_flags, heap_index };
        }
        memory
    }

    fn all(memory: &vk::PhysicalDeviceMemoryProperties) -> [Option<u32>; COUNT] {
        CLASSES.map(|(_, _, location)| choose(memory, u32::MAX, location))
    }

    #[test]
    fn a_discrete_device_keeps_its_own_memory_for_itself() {
        let types =
            [(HOST | Flags::DEVICE_LOCAL, 2), (Flags::DEVICE_LOCAL, 0), (HOST, 1), (HOST | Flags::HOST_CACHED, 1)];
        assert_eq!(all(&memory(&[16, 32, 1], &types)), [Some(1), Some(0), Some(3), Some(1)]);
    }

    #[test]
    fn where_all_device_memory_is_visible_a_plain_type_of_the_same_heap_wins() {
        let types = [(HOST | Flags::DEVICE_LOCAL, 0), (Flags::DEVICE_LOCAL, 0), (HOST | Flags::HOST_CACHED, 1)];
        assert_eq!(all(&memory(&[16, 32], &types)), [Some(1), Some(0), Some(2), Some(1)]);
    }

    #[test]
    fn a_larger_heap_matters_more_than_being_hidden() {
        let types = [(Flags::DEVICE_LOCAL, 0), (HOST | Flags::DEVICE_LOCAL, 1)];
        assert_eq!(all(&memory(&[1, 16], &types))[0], Some(1));
    }

    #[test]
    fn one_type_serves_all_on_a_device_in_software() {
        let types = [(HOST | Flags::DEVICE_LOCAL | Flags::HOST_CACHED, 0)];
        assert_eq!(all(&memory(&[2], &types)), [Some(0); COUNT]);
    }

    #[test]
    fn types_that_the_buffer_cannot_use_are_not_chosen() {
        let memory = memory(&[2], &[(Flags::DEVICE_LOCAL, 0), (Flags::DEVICE_LOCAL | Flags::PROTECTED, 0)]);
        assert_eq!(choose(&memory, 0b10, Location::Device), None);
        assert_eq!(choose(&memory, 0b01, Location::Upload), None);
    }
}
