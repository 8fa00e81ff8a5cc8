//! Binds: they come before the work that may use them, one after another, and what they use stays until they are made.

use millpond_backend::{Backend, ClassId, Transfer, VirtualMemory};
use millpond_vulkan::ash::vk::{self, Handle as _};

use super::{FULL, finish};
use crate::lab::Lab;
use crate::recorder::{At, Bind, Call, Mapping, Recorder};

/// Returns a device that records, with the size of its pages.
fn paged(lab: &Lab) -> Option<(Recorder, u64)> {
    let device = Recorder::open(lab);
    let bytes = device.caps().pages?.granularity;
    Some((device, bytes))
}

/// Returns the wait for a bind.
fn wait(bind: &Bind) -> At {
    let [(semaphore, value)] = bind.signals[..] else { panic!("{bind:?}") };
    At { semaphore, value, stages: FULL }
}

#[test]
fn every_stream_waits_once_for_the_newest_bind() {
    let Some(lab) = Lab::open() else { return };
    let Some((device, bytes)) = paged(&lab) else { return };
    let [first, second] = [(); 2].map(|()| device.create_stream().unwrap());
    let range = device.reserve_range(ClassId::DEVICE, 4 * bytes).unwrap();
    let pages = [(); 2].map(|()| device.create_page(ClassId::DEVICE, bytes).unwrap());
    device.calls();
    // SAFETY: nothing is mapped there, and no work touches it yet.
    unsafe { device.map(&range, bytes, &pages[0], first) }.unwrap();
    assert_eq!(device.calls(), [], "it is noted");
    device.submit(second).unwrap();
    let calls = device.calls();
    let [Call::Bind(bind), Call::Submit(submit)] = &calls[..] else { panic!("{calls:?}") };
    let memory = pages[0].memory();
    assert_eq!(bind.mappings, [Mapping { range: range.buffer(), offset: bytes, bytes, memory, memory_offset: 0 }]);
    assert_eq!(submit.waits, [wait(bind)]);
    device.submit(first).unwrap();
    assert_eq!(device.submits()[0].waits, [wait(bind)], "so does a stream that submits later");
    device.submit(first).unwrap();
    assert_eq!(device.submits()[0].waits, [], "and once");
    // SAFETY: as above; and the page was mapped there, and no work has touched it.
    unsafe {
        device.unmap(&range, bytes, &pages[0], first);
        device.map(&range, 0, &pages[1], first).unwrap();
    }
    device.flush_binds().unwrap();
    let binds = device.binds();
    assert_eq!((binds[0].waits[0], binds[0].mappings.len()), (bind.signals[0], 2), "binds are chained");
    let pending = device.begin_submit(first).unwrap();
    let waits: Vec<_> = pending.waits().iter().map(|it| (it.semaphore, it.value, it.stage_mask)).collect();
    assert_eq!(waits, [(wait(&binds[0]).semaphore, 2, FULL)], "an engine's submit waits, too");
    pending.abandon();
    device.submit(first).unwrap();
    assert_eq!(device.submits()[0].waits, [wait(&binds[0])], "what was abandoned has not");
    finish(&device, first);
    // SAFETY: the page is mapped there, and all work is done.
    unsafe {
        device.unmap(&range, 0, &pages[1], first);
        device.release_range(range);
        pages.into_iter().for_each(|page| device.release_page(page));
    }
    finish(&device, second);
}

/// The rules say that pages and ranges go once their binds are known to be made.
#[test]
fn what_is_given_back_goes_after_its_bind() {
    let Some(lab) = Lab::open() else { return };
    let Some((device, bytes)) = paged(&lab) else { return };
    let stream = device.create_stream().unwrap();
    for _ in 0..4 {
        let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
        let memory = page.memory();
        // SAFETY: nothing is mapped there; the work is waited for before the page is unmapped and given back.
        unsafe {
            device.map(&range, 0, &page, stream).unwrap();
            device.fill(stream, &range, 0, bytes, 7).unwrap();
            finish(&device, stream);
            device.unmap(&range, 0, &page, stream);
            device.release_page(page);
        }
        assert!(!device.calls().contains(&Call::Free(memory)), "it is mapped, as the driver knows");
        device.flush_binds().unwrap();
        finish(&device, stream);
        device.flush_binds().unwrap();
        let calls = device.calls();
        let unmapped = |call: &Call| matches!(call, Call::Bind(bind) if bind.mappings[0].memory.is_null());
        let at = |is: &dyn Fn(&Call) -> bool| calls.iter().position(is).unwrap_or_else(|| panic!("{calls:?}"));
        assert!(at(&unmapped) < at(&|call| *call == Call::Free(memory)));
        // SAFETY: nothing is mapped there, and no work touches it.
        unsafe { device.release_range(range) };
    }
    let left = device.create_page(ClassId::DEVICE, bytes).unwrap();
    let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
    // SAFETY: nothing is mapped there.
    unsafe { device.map(&range, 0, &left, stream) }.unwrap();
    finish(&device, stream);
    let (memory, buffer) = (left.memory(), range.buffer());
    let calls = device.close();
    let at = |wanted: &Call| calls.iter().position(|call| call == wanted).unwrap_or_else(|| panic!("{calls:?}"));
    assert!(at(&Call::DestroyBuffer(buffer)) < at(&Call::Free(memory)), "what is leaked goes with the device");
}

#[test]
fn ranges_are_sparse_and_pages_belong_to_no_buffer() {
    let Some(lab) = Lab::open() else { return };
    let Some((device, bytes)) = paged(&lab) else { return };
    device.calls();
    let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
    let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
    let segment = device.reserve(ClassId::DEVICE, bytes).unwrap();
    let calls = device.calls();
    use vk::BufferCreateFlags as Flags;
    let mut flags = Flags::SPARSE_BINDING | Flags::SPARSE_RESIDENCY;
    flags |= if device.enabled().sparse_aliased { Flags::SPARSE_ALIASED } else { Flags::empty() };
    let created = calls.iter().filter_map(|call| match call {
        Call::CreateBuffer { buffer, flags, usage, .. } => Some((*buffer, *flags, *usage)),
        _ => None,
    });
    let created: Vec<_> = created.collect();
    assert_eq!([created[0].0, created[1].0], [range.buffer(), segment.buffer()]);
    assert_eq!([created[0].1, created[1].1], [flags, Flags::empty()]);
    assert_eq!(created[0].2, created[1].2, "a block may lie in either");
    let allocated = calls.iter().filter_map(|call| match call {
        Call::Allocate { memory, buffer, flags, .. } => Some((*memory, *buffer, *flags)),
        _ => None,
    });
    let address = device.enabled().buffer_device_address;
    let flags = if address { vk::MemoryAllocateFlags::DEVICE_ADDRESS } else { vk::MemoryAllocateFlags::empty() };
    let allocated: Vec<_> = allocated.collect();
    assert_eq!(allocated[0], (page.memory(), vk::Buffer::null(), flags));
    assert_eq!((allocated[1].1, allocated[1].2), (segment.buffer(), flags), "a segment's memory is its buffer's alone");
    // SAFETY: no work touches any of it, and nothing is mapped.
    unsafe {
        device.release(segment);
        device.release_page(page);
        device.release_range(range);
    }
}
