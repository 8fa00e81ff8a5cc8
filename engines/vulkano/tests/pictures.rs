//! Images and buffers of vulkano in Millpond's memory, on whatever Vulkan device there is. Without one, says so loudly.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use millpond_vulkano::{MillpondMemory, NewError};
use vulkano::buffer::{Buffer, BufferCreateInfo, BufferMemory, BufferUsage, Subbuffer};
use vulkano::command_buffer::allocator::StandardCommandBufferAllocator;
use vulkano::command_buffer::{
    AutoCommandBufferBuilder, CommandBufferUsage, CopyBufferToImageInfo, CopyImageToBufferInfo,
};
use vulkano::device::{Device, DeviceCreateInfo, DeviceFeatures, Queue, QueueCreateInfo, QueueFlags};
use vulkano::format::Format;
use vulkano::image::{AllocateImageError, Image, ImageCreateInfo, ImageType, ImageUsage};
use vulkano::instance::debug::{DebugUtilsMessageSeverity, DebugUtilsMessengerCallback, DebugUtilsMessengerCreateInfo};
use vulkano::instance::{Instance, InstanceCreateInfo};
use vulkano::memory::allocator::{AllocationCreateInfo, MemoryAllocatorError, MemoryTypeFilter};
use vulkano::sync::GpuFuture;
use vulkano::{Validated, Version, VulkanError, VulkanLibrary};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SIDE: u32 = 256;
const BYTES: usize = (SIDE * SIDE * 4) as usize;

/// What the validation layer objects to.
type Objections = Arc<Mutex<Vec<String>>>;

/// Opens a device, with the validation layer where it is installed.
fn open(objections: &Objections, synchronization2: bool) -> Result<Option<Arc<Queue>>> {
    let Ok(library) = VulkanLibrary::new() else { return Ok(None) };
    let layer = "VK_LAYER_KHRONOS_validation";
    let is_there = library.layer_properties()?.any(|found| found.name() == layer);
    let mut info = InstanceCreateInfo { max_api_version: Some(Version::V1_3), ..InstanceCreateInfo::default() };
    if is_there {
        info.enabled_layers = vec![layer.to_owned()];
        info.enabled_extensions.ext_debug_utils = true;
        info.debug_utils_messengers = vec![messenger(Arc::clone(objections))];
    }
    let instance = Instance::new(library, info)?;
    let Some(physical) = instance.enumerate_physical_devices()?.next() else { return Ok(None) };
    let families = physical.queue_family_properties();
    let family = families.iter().position(|family| family.queue_flags.contains(QueueFlags::GRAPHICS));
    let queue_family_index = family.ok_or("no queue draws")? as u32;
    let info = DeviceCreateInfo {
        queue_create_infos: vec![QueueCreateInfo { queue_family_index, ..QueueCreateInfo::default() }],
        enabled_features: DeviceFeatures { timeline_semaphore: true, synchronization2, ..DeviceFeatures::default() },
        ..DeviceCreateInfo::default()
    };
    let (_, mut queues) = Device::new(physical, info)?;
    Ok(queues.next())
}

/// Notes the layer's errors.
fn messenger(objections: Objections) -> DebugUtilsMessengerCreateInfo {
    // SAFETY: the closure calls nothing of Vulkan's, and a poisoned lock does not make it panic.
    let note = unsafe {
        DebugUtilsMessengerCallback::new(move |_, _, data| {
            objections.lock().unwrap_or_else(PoisonError::into_inner).push(data.message.to_owned());
        })
    };
    DebugUtilsMessengerCreateInfo {
        message_severity: DebugUtilsMessageSeverity::ERROR,
        ..DebugUtilsMessengerCreateInfo::user_callback(note)
    }
}

/// What the tests use.
struct Bench {
    objections: Objections,
    queue: Arc<Queue>,
    memory: Arc<MillpondMemory>,
    commands: Arc<StandardCommandBufferAllocator>,
}

impl Bench {
    fn new() -> Result<Option<Bench>> {
        let objections = Objections::default();
        let Some(queue) = open(&objections, true)? else {
            eprintln!("SKIPPED: no Vulkan device");
            return Ok(None);
        };
        let commands = StandardCommandBufferAllocator::new(queue.device().clone(), Default::default());
        // SAFETY: the library is the system's, and nothing here uses the memory by itself.
        let memory = unsafe { MillpondMemory::new(&queue) }?;
        Ok(Some(Bench { objections, queue, memory, commands: Arc::new(commands) }))
    }

    fn image(&self) -> Result<Arc<Image>> {
        let info = ImageCreateInfo {
            image_type: ImageType::Dim2d,
            format: Format::R8G8B8A8_UNORM,
            extent: [SIDE, SIDE, 1],
            usage: ImageUsage::TRANSFER_SRC | ImageUsage::TRANSFER_DST,
            ..ImageCreateInfo::default()
        };
        Ok(Image::new(self.memory.clone(), info, AllocationCreateInfo::default())?)
    }

    /// A buffer of vulkano's that the host maps.
    fn host(&self, usage: BufferUsage, filter: MemoryTypeFilter) -> Result<Subbuffer<[u8]>> {
        let info = BufferCreateInfo { usage, ..BufferCreateInfo::default() };
        let create = AllocationCreateInfo { memory_type_filter: filter, ..AllocationCreateInfo::default() };
        Ok(Buffer::new_slice(self.memory.clone(), info, create, BYTES as u64)?)
    }

    /// Copies bytes into an image and back.
    fn through(&self, image: &Arc<Image>, bytes: &[u8]) -> Result<Vec<u8>> {
        let from = self
            .host(BufferUsage::TRANSFER_SRC, MemoryTypeFilter::PREFER_HOST | MemoryTypeFilter::HOST_SEQUENTIAL_WRITE)?;
        let to =
            self.host(BufferUsage::TRANSFER_DST, MemoryTypeFilter::PREFER_HOST | MemoryTypeFilter::HOST_RANDOM_ACCESS)?;
        from.write()?.copy_from_slice(bytes);
        let family = self.queue.queue_family_index();
        let usage = CommandBufferUsage::OneTimeSubmit;
        let mut record = AutoCommandBufferBuilder::primary(self.commands.clone(), family, usage)?;
        record.copy_buffer_to_image(CopyBufferToImageInfo::buffer_image(from, image.clone()))?;
        record.copy_image_to_buffer(CopyImageToBufferInfo::image_buffer(image.clone(), to.clone()))?;
        let start = vulkano::sync::now(self.queue.device().clone());
        start.then_execute(self.queue.clone(), record.build()?)?.then_signal_fence_and_flush()?.wait(None)?;
        let copied = to.read()?.to_vec();
        Ok(copied)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let objections = self.objections.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(objections.is_empty(), "the validation layer: {objections:#?}");
    }
}

#[test]
fn images_come_and_go_in_memory_that_is_reserved_once() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let kept = bench.image()?;
    let first: Vec<u8> = (0..BYTES).map(|at| at as u8).collect();
    assert!(bench.through(&kept, &first)? == first);
    let reserved = bench.memory.allocator().memory_reserved();
    for round in 0..50u8 {
        let image = bench.image()?;
        let picture: Vec<u8> = (0..BYTES).map(|at| (at as u8).wrapping_mul(7).wrapping_add(round)).collect();
        assert!(bench.through(&image, &picture)? == picture, "round {round}");
        assert_eq!(bench.memory.allocator().memory_reserved(), reserved, "round {round}");
    }
    assert!(bench.memory.allocator().memory_allocated() >= BYTES as u64, "the image that is kept is Millpond's");
    Ok(())
}

#[test]
fn buffers_of_the_device_are_served_too_at_the_alignment_that_they_need() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let info = BufferCreateInfo { usage: BufferUsage::STORAGE_BUFFER, ..BufferCreateInfo::default() };
    let before = bench.memory.allocator().memory_allocated();
    let buffers = (1..20u64)
        .map(|count| {
            let buffer = Buffer::new_slice::<u32>(
                bench.memory.clone(),
                info.clone(),
                AllocationCreateInfo::default(),
                count * 100,
            )?;
            Ok(buffer)
        })
        .collect::<Result<Vec<_>>>()?;
    let asked: u64 = buffers.iter().map(Subbuffer::size).sum();
    assert!(bench.memory.allocator().memory_allocated() - before >= asked);
    drop(buffers);
    assert_eq!(bench.memory.allocator().memory_allocated(), before);
    Ok(())
}

#[test]
fn a_refusal_is_vulkanos_error_for_memory_that_is_out() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let kept = bench.image()?;
    bench.memory.allocator().set_limit(Some(bench.memory.allocator().memory_reserved()));
    let images: Vec<_> = (0..1000).map_while(|_| bench.image().ok()).collect();
    assert!(images.len() < 1000, "the limit refuses");
    let error = bench.image().unwrap_err();
    let error = error.downcast_ref::<Validated<AllocateImageError>>();
    let Some(Validated::Error(AllocateImageError::AllocateMemory(cause))) = error else { panic!("{error:?}") };
    let MemoryAllocatorError::AllocateDeviceMemory(Validated::Error(code)) = cause else { panic!("{cause:?}") };
    assert_eq!(*code, VulkanError::OutOfDeviceMemory);
    drop((images, kept));
    bench.image()?;
    Ok(())
}

#[test]
fn everything_goes_back_with_the_last_handle() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let vulkan = bench.memory.allocator().backend().clone();
    let device: Weak<Device> = Arc::downgrade(bench.queue.device());
    let image = bench.image()?;
    let again = bench.image()?;
    bench.through(&image, &vec![7; BYTES])?;
    drop((image, bench));
    assert!(vulkan.held_bytes() > 0, "an image is alive");
    drop(again);
    assert_eq!(vulkan.held_bytes(), 0);
    drop(vulkan);
    assert!(device.upgrade().is_none(), "vulkano's device is kept by {} handles", device.strong_count());
    Ok(())
}

#[test]
fn memory_that_is_free_serves_a_longer_request_and_goes_back() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let allocator = bench.memory.allocator();
    let info = BufferCreateInfo { usage: BufferUsage::STORAGE_BUFFER, ..BufferCreateInfo::default() };
    let buffer = |mib: u64| {
        Buffer::new_slice::<u8>(bench.memory.clone(), info.clone(), AllocationCreateInfo::default(), mib << 20)
    };
    allocator.set_limit(Some(200 << 20));
    drop((0..8).map(|_| buffer(20)).collect::<std::result::Result<Vec<_>, _>>()?);
    drop(buffer(150)?);
    bench.memory.empty_cache()?;
    assert_eq!(allocator.memory_reserved(), 0);
    Ok(())
}

/// Against the rule, a program keeps vulkano's object for memory: it frees nothing.
#[test]
fn an_object_for_memory_that_is_kept_frees_nothing() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let before = bench.queue.device().allocation_count();
    let info = BufferCreateInfo { usage: BufferUsage::STORAGE_BUFFER, ..BufferCreateInfo::default() };
    let buffer = Buffer::new_slice::<u8>(bench.memory.clone(), info, AllocationCreateInfo::default(), 1 << 20)?;
    let BufferMemory::Normal(memory) = buffer.buffer().memory() else { return Err("sparse".into()) };
    let kept = Arc::clone(memory.device_memory());
    drop(buffer);
    drop(kept);
    // vulkano counts frees.
    assert_eq!(bench.queue.device().allocation_count(), before);
    Ok(())
}

#[test]
fn a_device_without_the_features_is_refused() -> Result<()> {
    let Some(queue) = open(&Objections::default(), false)? else {
        eprintln!("SKIPPED: no Vulkan device");
        return Ok(());
    };
    // SAFETY: the library is the system's, and nothing here uses the memory by itself.
    let made = unsafe { MillpondMemory::new(&queue) };
    assert!(matches!(made, Err(NewError::Features)));
    Ok(())
}
