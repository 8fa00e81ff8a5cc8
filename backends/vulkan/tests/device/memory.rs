//! Segments: they have the right kind of memory, share no bytes, and leave nothing behind.

use millpond_backend::{Backend, ClassId, ClassKind};
use millpond_vulkan::ash::vk::MemoryPropertyFlags as Flags;
use millpond_vulkan::{Misuse, VulkanError};

use crate::lab::Lab;
use crate::recorder::{Facts, Recorder, Setup};

/// Returns the flags and the heap's size of each memory type.
fn types(lab: &Lab) -> Vec<(Flags, u64)> {
    // SAFETY: the physical device belongs to the instance.
    let memory = unsafe { lab.raw_instance().get_physical_device_memory_properties(lab.physical_device()) };
    let heaps = memory.memory_heaps_as_slice();
    let each = memory.memory_types_as_slice().iter();
    each.map(|each| (each.property_flags, heaps[each.heap_index as usize].size)).collect()
}

#[test]
fn every_class_has_memory_of_the_right_kind() {
    let Some(lab) = Lab::open() else { return };
    let types = types(&lab);
    for (index, class) in lab.caps().classes.iter().enumerate() {
        let segment = lab.reserve(ClassId(index as u16), 1 << 20).unwrap();
        let (flags, heap) = types[segment.memory_type() as usize];
        assert_eq!(heap, class.total_bytes, "{}", class.name);
        match class.kind {
            ClassKind::Device => {
                assert!(flags.contains(Flags::DEVICE_LOCAL), "{flags:?}");
                let local = |&&(flags, _): &&(Flags, u64)| flags.contains(Flags::DEVICE_LOCAL);
                let largest = types.iter().filter(local).map(|(_, heap)| *heap).max().unwrap();
                assert_eq!(heap, largest);
                let hidden = |(flags, heap): &(Flags, u64)| {
                    *heap == largest && flags.contains(Flags::DEVICE_LOCAL) && !flags.contains(Flags::HOST_VISIBLE)
                };
                assert!(!flags.contains(Flags::HOST_VISIBLE) || !types.iter().any(hidden), "{flags:?}");
            }
            ClassKind::Host => assert!(flags.contains(Flags::HOST_VISIBLE | Flags::HOST_COHERENT), "{flags:?}"),
            other => panic!("no class of this device is of the kind {other:?}"),
        }
        lab.give_back(segment);
    }
}

#[test]
fn segments_are_aligned_apart_and_counted() {
    let Some(lab) = Lab::open() else { return };
    let alignment = lab.caps().class(ClassId::DEVICE).alignment;
    let segments: Vec<_> = (1..20).map(|number| lab.segment(number * 1000)).collect();
    assert_eq!(lab.held_bytes(), segments.iter().map(|segment| segment.bytes()).sum::<u64>());
    if lab.enabled().buffer_device_address {
        let mut ranges: Vec<_> = segments.iter().map(|each| (lab.address(each).unwrap(), each.bytes())).collect();
        ranges.sort_unstable();
        assert!(ranges.iter().all(|(address, _)| address % alignment == 0), "{ranges:x?}");
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{ranges:x?}");
    } else {
        assert!(segments.iter().all(|segment| lab.address(segment).is_none()));
    }
    segments.into_iter().for_each(|segment| lab.give_back(segment));
    assert_eq!(lab.held_bytes(), 0);
}

#[test]
fn a_usage_of_ones_own_replaces_the_defaults() {
    use millpond_vulkan::ash::vk::BufferUsageFlags;
    let builder = millpond_vulkan::Vulkan::builder().usage(ClassId::DEVICE, BufferUsageFlags::STORAGE_BUFFER);
    let Some(lab) = Lab::build(builder) else { return };
    let stream = lab.create_stream().unwrap();
    let segment = lab.segment(64);
    millpond_backend::Transfer::fill(&*lab, stream, &segment, 0, 64, 1).unwrap();
    assert_eq!(lab.read(stream, &segment, 0, 64), [1; 64]);
    lab.give_back(segment);
}

#[test]
fn a_window_begins_where_a_descriptor_can() {
    let Some(lab) = Lab::open() else { return };
    // SAFETY: the physical device belongs to the instance.
    let limits = unsafe { lab.raw_instance().get_physical_device_properties(lab.physical_device()) }.limits;
    let step = limits.min_storage_buffer_offset_alignment;
    let segment = lab.segment(4096);
    for (offset, before) in [(step, 0), (step + step / 2, step / 2), (step - 1, step - 1), (0, 0)] {
        let (found, skipped) = segment.window(offset, 5).unwrap();
        assert_eq!((found.offset, found.range, skipped), (offset - before, before + 5, before));
    }
    let outside = segment.window(4095, 2).unwrap_err();
    assert!(matches!(outside, VulkanError::Misuse(Misuse::OutOfRange { .. })), "{outside}");
    assert!(segment.window(0, 0).is_err() && segment.window(4095, 1).is_ok());
    lab.give_back(segment);
}

#[test]
fn descriptors_name_exactly_the_bytes_that_a_shader_may_see() {
    let Some(lab) = Lab::open() else { return };
    // SAFETY: the physical device belongs to the instance.
    let limits = unsafe { lab.raw_instance().get_physical_device_properties(lab.physical_device()) }.limits;
    let step = limits.min_storage_buffer_offset_alignment;
    let segment = lab.segment(2 * step.max(256));
    let found = segment.descriptor(step, 5).unwrap();
    assert_eq!((found.buffer, found.offset, found.range), (segment.buffer(), step, 5));

    assert!(matches!(segment.descriptor(0, 0).unwrap_err(), VulkanError::Misuse(Misuse::Empty { call: "descriptor" })));
    let bytes = segment.bytes();
    let error = segment.descriptor(step, bytes).unwrap_err();
    assert!(matches!(error, VulkanError::Misuse(Misuse::OutOfRange { offset, bytes: asked, .. })
            if (offset, asked) == (step, bytes)));
    if step > 1 {
        let error = segment.descriptor(1, 4).unwrap_err();
        assert!(matches!(error, VulkanError::DescriptorOffset { offset: 1, alignment } if alignment == step));
    }
    lab.give_back(segment);
}

#[test]
fn a_descriptor_is_no_longer_than_the_device_allows() {
    const MOST: u64 = 1 << 20;
    let Some(lab) = Lab::open() else { return };
    let facts = Facts { limits: Some(|limits| limits.max_storage_buffer_range = MOST as u32), ..Facts::default() };
    let device = Recorder::with(&lab, Setup { facts, ..Setup::default() }).unwrap();
    let segment = device.reserve(ClassId::DEVICE, MOST + 256).unwrap();
    assert_eq!(segment.descriptor(0, MOST).unwrap().range, MOST);
    let error = segment.descriptor(0, MOST + 1).unwrap_err();
    assert!(matches!(error, VulkanError::DescriptorTooLarge { bytes, max: MOST } if bytes == MOST + 1), "{error}");
    // SAFETY: no work touches it.
    unsafe { device.release(segment) };
}
