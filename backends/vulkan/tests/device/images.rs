//! Images of the application's own, bound to blocks of an allocator.

use millpond::{Allocator, Buffer, Stream};
use millpond_backend::{Backend, ClassId};
use millpond_trace::Random;
use millpond_vulkan::Vulkan;
use millpond_vulkan::ash::vk;

use crate::lab::{Lab, skip};

const SIDE: u32 = 64;
const TEXELS: u64 = SIDE as u64 * SIDE as u64;
const TILINGS: [vk::ImageTiling; 2] = [vk::ImageTiling::OPTIMAL, vk::ImageTiling::LINEAR];

/// An image, and the block that it is bound to.
struct Bound<'a> {
    lab: &'a Lab,
    image: vk::Image,
    block: Buffer<Vulkan>,
}

/// Creates an image that is bound to nothing, and returns it with what it requires.
fn unbound(lab: &Lab, tiling: vk::ImageTiling) -> (vk::Image, vk::MemoryRequirements) {
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: SIDE, height: SIDE, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(tiling)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
    // SAFETY: all devices support such images of this format, and no work is on another family.
    let image = unsafe { lab.raw_device().create_image(&info, None) }.unwrap();
    // SAFETY: the image was just created.
    (image, lab.apart(unsafe { lab.raw_device().get_image_memory_requirements(image) }))
}

/// Returns the tilings of which an image can be bound to the class's memory. A device may have no memory that suits
/// buffers and all images.
fn tilings(lab: &Lab) -> Vec<vk::ImageTiling> {
    let segment = lab.reserve(Vulkan::IMAGE, 4096).unwrap();
    let suits = |tiling: &vk::ImageTiling| {
        let (image, needed) = unbound(lab, *tiling);
        // SAFETY: the image is bound to nothing, and no other code has it.
        unsafe { lab.raw_device().destroy_image(image, None) };
        let suits = needed.memory_type_bits & (1 << segment.memory_type()) != 0;
        if !suits {
            skip("images", &format!("no memory suits both buffers and images of {tiling:?} tiling"));
        }
        suits
    };
    let suited = TILINGS.into_iter().filter(suits).collect();
    lab.give_back(segment);
    suited
}

impl Bound<'_> {
    fn new<'a>(lab: &'a Lab, stream: &Stream<Vulkan>, tiling: vk::ImageTiling) -> Bound<'a> {
        let (image, needed) = unbound(lab, tiling);
        let block = stream.allocate_aligned(needed.size, needed.alignment).unwrap();
        let place = block.segment().unwrap().memory().unwrap();
        assert!(!place.is_dedicated && needed.memory_type_bits & (1 << place.memory_type) != 0);
        // SAFETY: the memory is of a type that the image allows, the block has the size and the alignment, and it lives
        // until `drop`.
        unsafe { lab.raw_device().bind_image_memory(image, place.memory, place.offset + block.offset()) }.unwrap();
        Bound { lab, image, block }
    }

    /// Clears it to a value, and copies it to a buffer, on the block's stream.
    fn paint(&self, value: u8, to: &Buffer<Vulkan>) {
        let device = self.lab.raw_device();
        let raw = to.segment().unwrap().buffer();
        let range =
            vk::ImageSubresourceRange::default().aspect_mask(vk::ImageAspectFlags::COLOR).level_count(1).layer_count(1);
        let color = vk::ClearColorValue { float32: [f32::from(value) / 255.0; 4] };
        let transfer = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
        let becomes = |commands, from, layout| {
            let barrier = vk::ImageMemoryBarrier2::default()
                .src_stage_mask(transfer.0)
                .src_access_mask(transfer.1)
                .dst_stage_mask(transfer.0)
                .dst_access_mask(transfer.1 | vk::AccessFlags2::TRANSFER_READ)
                .old_layout(from)
                .new_layout(layout)
                .image(self.image)
                .subresource_range(range);
            // SAFETY: the device has synchronization2, and the image lives until the work is done.
            unsafe {
                device
                    .cmd_pipeline_barrier2(commands, &vk::DependencyInfo::default().image_memory_barriers(&[barrier]));
            }
        };
        let region = vk::BufferImageCopy::default()
            .buffer_offset(to.offset())
            .image_subresource(
                vk::ImageSubresourceLayers::default().aspect_mask(vk::ImageAspectFlags::COLOR).layer_count(1),
            )
            .image_extent(vk::Extent3D { width: SIDE, height: SIDE, depth: 1 });
        let record = |commands| {
            use vk::ImageLayout as Layout;
            becomes(commands, Layout::UNDEFINED, Layout::TRANSFER_DST_OPTIMAL);
            // SAFETY: the image is in this layout, and the barriers order the work.
            unsafe {
                device.cmd_clear_color_image(commands, self.image, Layout::TRANSFER_DST_OPTIMAL, &color, &[range]);
            }
            becomes(commands, Layout::TRANSFER_DST_OPTIMAL, Layout::TRANSFER_SRC_OPTIMAL);
            // SAFETY: as above, and the buffer has room for all texels.
            unsafe {
                device.cmd_copy_image_to_buffer(commands, self.image, Layout::TRANSFER_SRC_OPTIMAL, raw, &[region]);
            }
        };
        self.lab.record(self.block.stream(), record).unwrap();
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        // SAFETY: the tests have waited for all work on it.
        unsafe { self.lab.raw_device().destroy_image(self.image, None) };
    }
}

fn opened(lab: &Lab, class: ClassId) -> (Allocator<Vulkan>, Stream<Vulkan>) {
    let allocator = Allocator::builder((*lab).clone()).class(class).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

/// Images and buffers share segments. The bytes of each stay what they are while the others are written.
#[test]
fn images_and_buffers_share_a_segment() {
    let Some(lab) = Lab::open() else { return };
    let tilings = tilings(&lab);
    if tilings.is_empty() {
        return;
    }
    let (allocator, stream) = opened(&lab, Vulkan::IMAGE);
    let mut random = Random::new(7);
    for round in 0..20 {
        let mut images = Vec::new();
        let mut buffers = Vec::new();
        for at in 0..6 {
            let value = round * 10 + at;
            images.push((value, Bound::new(&lab, &stream, tilings[random.index(tilings.len())])));
            let bytes = random.between(1, 300_000);
            let buffer = stream.allocate(bytes).unwrap();
            stream.fill(&buffer, 0, bytes, value).unwrap();
            buffers.push((value, buffer));
        }
        let segments: Vec<_> = images.iter().map(|(_, bound)| bound.block.segment_id()).collect();
        assert!(segments.windows(2).any(|pair| pair[0] == pair[1]), "{segments:?}");
        let read: Vec<_> = images.iter().map(|_| stream.allocate(TEXELS * 4).unwrap()).collect();
        for ((value, image), to) in images.iter().zip(&read) {
            image.paint(*value, to);
        }
        for ((value, _), from) in images.iter().zip(&read) {
            let mut bytes = vec![0; from.len() as usize];
            stream.download(from, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| byte == value), "round {round}, image {value}");
        }
        for (value, buffer) in &buffers {
            let mut bytes = vec![0; buffer.len() as usize];
            stream.download(buffer, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| byte == value), "round {round}, buffer {value}");
        }
        allocator.check();
    }
    drop((stream, allocator));
    assert_eq!(lab.live(), (0, 0, 0));
}

/// In class 0 the memory is for the segment's buffer alone, and a range has none of its own.
#[test]
fn the_memory_of_each_class_says_what_may_be_bound_to_it() {
    let Some(lab) = Lab::open() else { return };
    for (index, _) in lab.caps().classes.iter().enumerate() {
        let class = ClassId(index as u16);
        let segment = lab.reserve(class, 1 << 20).unwrap();
        let place = segment.memory().unwrap();
        assert_eq!((place.memory_type, place.offset), (segment.memory_type(), 0));
        assert_eq!(place.is_dedicated, class == ClassId::DEVICE);
        assert!(place.requirements.size >= 1 << 20 && place.requirements.alignment.is_power_of_two());
        assert!(place.requirements.memory_type_bits & (1 << place.memory_type) != 0);
        let is_device = matches!(class, ClassId::DEVICE | Vulkan::IMAGE);
        assert_eq!(lab.held_bytes(), if is_device { 1 << 20 } else { 0 }, "{class:?}");
        lab.give_back(segment);
        assert_eq!(lab.held_bytes(), 0);
    }
    let (_allocator, stream) = opened(&lab, ClassId::DEVICE);
    let buffer = stream.allocate(1 << 20).unwrap();
    assert_eq!(buffer.segment().unwrap().memory().is_none(), lab.caps().pages.is_some());
}

/// The alignment is that of the offset in the memory, whatever the address is.
#[test]
fn offsets_are_aligned() {
    let Some(lab) = Lab::open() else { return };
    for class in [ClassId::DEVICE, Vulkan::IMAGE] {
        let (_allocator, stream) = opened(&lab, class);
        let held: Vec<_> = (0..22)
            .map(|log| {
                let buffer = stream.allocate_aligned(1000, 1 << log).unwrap();
                assert!(buffer.offset().is_multiple_of(1 << log), "{buffer:?}");
                stream.fill(&buffer, 0, 1000, log).unwrap();
                buffer
            })
            .collect();
        for (log, buffer) in (0..).zip(&held) {
            let mut bytes = [0xEE; 1000];
            stream.download(buffer, 0, &mut bytes).unwrap();
            assert_eq!(bytes, [log; 1000]);
        }
    }
}

/// What two resources are bound to apart from each other shares no unit of the granularity.
#[test]
fn requirements_are_raised_to_the_granularity() {
    let Some(lab) = Lab::open() else { return };
    // SAFETY: the physical device belongs to the instance.
    let limits = unsafe { lab.raw_instance().get_physical_device_properties(lab.physical_device()) }.limits;
    let unit = limits.buffer_image_granularity;
    let plain = vk::MemoryRequirements { size: 1, alignment: 1, memory_type_bits: 5 };
    let apart = lab.apart(plain);
    assert_eq!((apart.size, apart.alignment, apart.memory_type_bits), (unit, unit, 5));
}
