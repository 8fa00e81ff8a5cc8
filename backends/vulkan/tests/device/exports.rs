//! Memory of segments as a file descriptor, which another logical device imports.

use std::os::fd::{AsRawFd as _, IntoRawFd as _};

use millpond::Allocator;
use millpond_backend::{Backend, BackendError, ClassId, Fault, Transfer, VirtualMemory};
use millpond_vulkan::ash::{khr, vk};
use millpond_vulkan::{Adopted, ExportKind, ExportedMemory, Misuse, Vulkan, VulkanError};

use crate::adopted::{adopt, handles};
use crate::lab::{Lab, error, skip};
use crate::recorder::{Call, Recorder, Setup};

const BYTES: u64 = 1 << 20;

/// Opens the first device so that its memory is exported in that kind, if it has that.
fn opened(kind: ExportKind) -> Option<Lab> {
    let there = Lab::open()?;
    let has = Vulkan::devices().unwrap()[0].exports.clone();
    drop(there);
    if !has.contains(&kind) {
        let power = if kind == ExportKind::DmaBuf { "dma_buf" } else { "exports" };
        skip(power, &format!("the device exports no memory as {kind:?}, only as {has:?}"));
        return None;
    }
    Lab::build(Vulkan::builder().exports(kind))
}

/// Returns whether the device imports memory of buffers in that kind: it may only export it.
fn imports(lab: &Lab, kind: ExportKind) -> bool {
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
    let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(usage).handle_type(kind.handle_type());
    let mut found = vk::ExternalBufferProperties::default();
    let (instance, physical) = (lab.raw_instance(), lab.physical_device());
    // SAFETY: the physical device belongs to the instance, and has the extension of the handle type.
    unsafe { instance.get_physical_device_external_buffer_properties(physical, &info, &mut found) };
    let features = found.external_memory_properties.external_memory_features;
    features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE)
}

/// Returns the memory type, of those in `needed`, that the descriptor can be imported as.
fn memory_type(lab: &Lab, exported: &ExportedMemory, needed: u32) -> u32 {
    if exported.kind == ExportKind::OpaqueFd {
        return exported.memory_type;
    }
    let calls = khr::external_memory_fd::Device::new(lab.raw_instance(), lab.raw_device());
    let (handle_type, fd) = (exported.kind.handle_type(), exported.descriptor.as_raw_fd());
    let mut found = vk::MemoryFdPropertiesKHR::default();
    // SAFETY: the device has the extension, and the descriptor is open.
    unsafe { calls.get_memory_fd_properties(handle_type, fd, &mut found) }.unwrap();
    let both = found.memory_type_bits & needed;
    if both & (1 << exported.memory_type) != 0 { exported.memory_type } else { both.trailing_zeros() }
}

/// A buffer of another device, in memory that it has imported.
struct Imported<'a> {
    lab: &'a Lab,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
}

impl Imported<'_> {
    fn new(lab: &Lab, exported: ExportedMemory) -> Imported<'_> {
        let (raw, handle_type) = (lab.raw_device(), exported.kind.handle_type());
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(handle_type);
        let info = vk::BufferCreateInfo::default().size(exported.buffer_bytes).usage(exported.usage);
        // SAFETY: the device has the extension of the handle type, and one queue family is used.
        let buffer = unsafe { raw.create_buffer(&info.push_next(&mut external), None) }.unwrap();
        // SAFETY: the buffer was just created.
        let needed = unsafe { raw.get_buffer_memory_requirements(buffer) };
        let memory_type = memory_type(lab, &exported, needed.memory_type_bits);
        assert!(needed.size <= exported.bytes && needed.memory_type_bits >> memory_type & 1 != 0, "{needed:?}");
        let mut import =
            vk::ImportMemoryFdInfoKHR::default().handle_type(handle_type).fd(exported.descriptor.into_raw_fd());
        let mut alone = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(exported.bytes)
            .memory_type_index(memory_type)
            .push_next(&mut import)
            .push_next(&mut alone);
        if lab.enabled().buffer_device_address {
            info = info.push_next(&mut flags);
        }
        // SAFETY: the descriptor is of the same physical device, and is the driver's from here on.
        let memory = unsafe { raw.allocate_memory(&info, None) }.unwrap();
        // SAFETY: the memory was imported for this buffer.
        unsafe { raw.bind_buffer_memory(buffer, memory, 0) }.unwrap();
        Imported { lab, buffer, memory }
    }

    /// Fills a part of it on the device, and waits.
    fn fill(&self, offset: u64, bytes: u64, value: u8) {
        let stream = self.lab.create_stream().unwrap();
        let word = u32::from_ne_bytes([value; 4]);
        let fill = |commands| {
            // SAFETY: the range is the buffer's, which lives until the work is done.
            unsafe { self.lab.raw_device().cmd_fill_buffer(commands, self.buffer, offset, bytes, word) };
        };
        self.lab.record(stream, fill).unwrap();
        self.lab.finish(stream);
    }

    /// Returns its bytes.
    fn bytes(&self) -> Vec<u8> {
        let stream = self.lab.create_stream().unwrap();
        let to = self.lab.segment(BYTES);
        let regions = [vk::BufferCopy::default().size(BYTES)];
        let copy = |commands| {
            // SAFETY: the range is that of both buffers, which live until the work is done.
            unsafe { self.lab.raw_device().cmd_copy_buffer(commands, self.buffer, to.buffer(), &regions) };
        };
        self.lab.record(stream, copy).unwrap();
        let bytes = self.lab.read(stream, &to, 0, BYTES);
        self.lab.give_back(to);
        bytes
    }
}

impl Drop for Imported<'_> {
    fn drop(&mut self) {
        // SAFETY: the work on both was waited for.
        unsafe {
            self.lab.raw_device().destroy_buffer(self.buffer, None);
            self.lab.raw_device().free_memory(self.memory, None);
        }
    }
}

#[test]
fn two_devices_see_the_same_bytes() {
    for kind in [ExportKind::OpaqueFd, ExportKind::DmaBuf] {
        let Some(lab) = opened(kind) else { continue };
        if !imports(&lab, kind) {
            skip("import", &format!("the device imports no memory as {kind:?}"));
            continue;
        }
        let Some(other) = lab.beside_with(Vulkan::builder().exports(kind)) else { continue };
        let stream = lab.create_stream().unwrap();
        let segment = lab.segment(BYTES);
        lab.fill(stream, &segment, 0, BYTES, 7).unwrap();
        lab.finish(stream);
        let imported = Imported::new(&other, lab.export(&segment).unwrap());
        assert!(imported.bytes().iter().all(|&byte| byte == 7), "{kind:?}: one writes, and the other reads");
        imported.fill(4096, 4096, 9);
        let read = lab.read(stream, &segment, 0, BYTES);
        assert!(read.iter().enumerate().all(|(at, &byte)| byte == if at / 4096 == 1 { 9 } else { 7 }), "{kind:?}");
        // What was imported outlives the segment.
        lab.give_back(segment);
        assert_eq!(imported.bytes(), read, "{kind:?}");
    }
}

#[test]
fn a_block_is_at_its_offset_in_what_was_exported() {
    let Some(lab) = opened(ExportKind::OpaqueFd) else { return };
    let Some(other) = lab.beside_with(Vulkan::builder().exports(ExportKind::OpaqueFd)) else { return };
    let allocator = Allocator::builder((*lab).clone()).conf("policy:classic").build().unwrap();
    let stream = allocator.create_stream().unwrap();
    let [first, second] = [1, 2].map(|value| {
        let buffer = stream.allocate(4096).unwrap();
        stream.fill(&buffer, 0, 4096, value).unwrap();
        buffer
    });
    lab.finish(stream.id());
    assert_eq!(first.segment_id(), second.segment_id());
    let imported = Imported::new(&other, lab.export(second.segment().unwrap()).unwrap());
    let bytes = imported.bytes();
    for (buffer, value) in [(&first, 1), (&second, 2)] {
        let begin = buffer.offset() as usize;
        assert!(bytes[begin..begin + 4096].iter().all(|&byte| byte == value), "{buffer:?}");
    }
    drop(imported);
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let Some(plain) = Lab::open() else { return };
    let said = |lab: &Lab, segment: &_| error(lab.export(segment)).to_string();
    let segment = plain.segment(BYTES);
    assert!(said(&plain, &segment).contains("open the device with `exports`"));
    let has = Vulkan::devices().unwrap()[0].exports.clone();
    for kind in [ExportKind::OpaqueFd, ExportKind::DmaBuf].into_iter().filter(|kind| !has.contains(kind)) {
        let refused = error(Vulkan::builder().exports(kind).build());
        assert!(
            matches!(&refused, VulkanError::NoExport { exports, .. } if !exports.contains(kind.handle_type())),
            "{refused}"
        );
    }
    if has.contains(&ExportKind::OpaqueFd) {
        let adopted = adopt(Adopted { exports: Some(ExportKind::OpaqueFd), ..handles(&plain, None) });
        let lacks = adopted.map(drop).unwrap_err().to_string();
        assert!(lacks.contains("VK_KHR_external_memory_fd"), "the engine's device has no such extension: {lacks}");
    }
    plain.give_back(segment);
    drop(plain);

    let Some(lab) = opened(ExportKind::OpaqueFd) else { return };
    let Some(other) = lab.beside() else { return };
    let segment = lab.segment(BYTES);
    assert!(matches!(other.export(&segment), Err(VulkanError::Misuse(Misuse::Foreign { .. }))));
    lab.fail_nth(1, Fault::Other);
    assert_eq!(error(lab.export(&segment)).fault(), Fault::Other);
    lab.export(&segment).unwrap();
    lab.give_back(segment);
    let image = lab.reserve(Vulkan::IMAGE, BYTES).unwrap();
    assert!(said(&lab, &image).contains("class 0"), "images are created without it");
    lab.give_back(image);
    let Some(pages) = lab.caps().pages else { return skip("sparse", "the device has no sparse binding") };
    let range = lab.reserve_range(ClassId::DEVICE, pages.granularity).unwrap();
    assert!(said(&lab, &range).contains("policy:classic"));
    // SAFETY: nothing is mapped there.
    unsafe { lab.release_range(range) };
}

/// Ranges are created for no export, so no page is.
#[test]
fn segments_are_created_to_be_exported_and_pages_are_not() {
    let Some(lab) = opened(ExportKind::OpaqueFd) else { return };
    let device = Recorder::with(&lab, Setup { exports: Some(ExportKind::OpaqueFd), ..Setup::default() }).unwrap();
    let exports = || {
        let calls = device.calls().into_iter();
        calls.filter_map(|call| if let Call::Allocate { exports, .. } = call { Some(exports) } else { None }).collect()
    };
    let segment = device.reserve(ClassId::DEVICE, BYTES).unwrap();
    let image = device.reserve(Vulkan::IMAGE, BYTES).unwrap();
    let created: Vec<_> = exports();
    assert_eq!(created, [ExportKind::OpaqueFd.handle_type(), vk::ExternalMemoryHandleTypeFlags::empty()]);
    // SAFETY: no work touches them.
    [segment, image].into_iter().for_each(|segment| unsafe { device.release(segment) });
    let Some(pages) = device.caps().pages else { return skip("sparse", "the device has no sparse binding") };
    let page = device.create_page(ClassId::DEVICE, pages.granularity).unwrap();
    let created: Vec<_> = exports();
    assert_eq!(created, [vk::ExternalMemoryHandleTypeFlags::empty()]);
    // SAFETY: it is mapped nowhere.
    unsafe { device.release_page(page) };
}

/// An engine's device may have its memory exported, too.
#[test]
fn a_device_that_was_adopted_exports() {
    let Some(lab) = opened(ExportKind::OpaqueFd) else { return };
    let adopted = Adopted { exports: Some(ExportKind::OpaqueFd), ..handles(&lab, None) };
    let device = adopt(adopted).unwrap();
    let stream = device.create_stream().unwrap();
    let segment = device.reserve(ClassId::DEVICE, BYTES).unwrap();
    device.fill(stream, &segment, 0, BYTES, 5).unwrap();
    let tick = device.submit(stream).unwrap();
    device.wait(millpond_backend::Point { stream, tick }).unwrap();
    let Some(other) = lab.beside_with(Vulkan::builder().exports(ExportKind::OpaqueFd)) else { return };
    let imported = Imported::new(&other, device.export(&segment).unwrap());
    assert!(imported.bytes().iter().all(|&byte| byte == 5));
    drop(imported);
    // SAFETY: the work on it was waited for.
    unsafe { device.release(segment) };
}
