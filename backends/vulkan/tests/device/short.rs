//! Memory that is short, whatever the driver calls it: what is cached goes back and the request is made again, and an
//! error that is left says how much was asked for.

use millpond::{Allocator, Buffer, Error};
use millpond_backend::{Backend, BackendError, ClassId, Fault, Shortage, VirtualMemory};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{Vulkan, VulkanError};

use crate::lab::{Lab, skip};
use crate::recorder::{Call, Facts, Recorder, Setup};

const SHORT: [vk::Result; 3] =
    [vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, vk::Result::ERROR_OUT_OF_HOST_MEMORY, vk::Result::ERROR_TOO_MANY_OBJECTS];

#[test]
fn what_is_cached_goes_back_and_the_request_is_made_again() {
    let Some(lab) = Lab::open() else { return };
    for conf in ["policy:classic", "policy:paged", "policy:direct"] {
        for code in SHORT {
            let device = Recorder::open(&lab);
            if conf == "policy:paged" && device.caps().pages.is_none() {
                continue;
            }
            let allocator = Allocator::builder((*device).clone()).conf(conf).build().unwrap();
            let stream = allocator.create_stream().unwrap();
            let idle: Vec<_> = (0..16).map(|_| stream.allocate(3 << 20).unwrap()).collect();
            drop(idle);
            stream.submit().unwrap();
            device.calls();
            device.fail("vkAllocateMemory", 1, code);
            let block = stream.allocate(64 << 20).unwrap_or_else(|error| panic!("{conf}, {code:?}: {error}"));
            let calls = device.calls();
            let freed = calls.iter().filter(|call| matches!(call, Call::Free(_))).count();
            assert!(freed > 0 || conf != "policy:classic", "{conf}, {code:?}: {calls:?}");
            device.fail("vkAllocateMemory", u32::MAX, code);
            let error = stream.allocate(128 << 20).unwrap_err();
            let Error::OutOfMemory(report) = error else { panic!("{conf}, {code:?}: {error}") };
            assert!(report.to_string().contains("128.00 MiB"), "{report}");
            device.fail("vkAllocateMemory", 0, code);
            drop(stream.allocate(128 << 20).unwrap());
            drop((block, stream, allocator));
        }
    }
}

/// Every call that a request makes may be the one that is refused, and nothing of the request stays.
#[test]
fn each_call_of_a_request_may_be_short() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let upload = ClassId(1);
    let calls = [("vkCreateBuffer", &SHORT[..2]), ("vkAllocateMemory", &SHORT), ("vkMapMemory", &SHORT[..2])];
    for (call, codes) in calls {
        for &code in codes.iter().chain(&[vk::Result::ERROR_MEMORY_MAP_FAILED][..usize::from(call == "vkMapMemory")]) {
            device.calls();
            device.fail(call, 1, code);
            let error = device.reserve(upload, 1 << 20).unwrap_err();
            assert_eq!(error.fault(), Fault::OutOfMemory, "{call}, {code:?}: {error}");
            match error {
                VulkanError::TooMany { .. } => assert_eq!(code, vk::Result::ERROR_TOO_MANY_OBJECTS),
                VulkanError::BufferAddresses { call: "vkCreateBuffer", asked } => {
                    assert!(code == SHORT[0] && asked == 1 << 20);
                }
                VulkanError::OutOfMemory { asked, class } => assert!(asked >= 1 << 20 && class == upload),
                other => panic!("{call}, {code:?}: {other}"),
            }
            let calls = device.calls();
            let count = |of: fn(&Call) -> bool| calls.iter().filter(|call| of(call)).count();
            let buffers = |call: &Call| matches!(call, Call::CreateBuffer { .. });
            assert_eq!(count(buffers), count(|call| matches!(call, Call::DestroyBuffer(_))), "{calls:?}");
            let memory = |call: &Call| matches!(call, Call::Allocate { .. });
            assert_eq!(count(memory), count(|call| matches!(call, Call::Free(_))), "{calls:?}");
        }
    }
    assert_eq!(device.live(), (0, 0, 0));
}

#[test]
fn addresses_and_pages_may_be_short() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let Some(pages) = device.caps().pages else { return };
    for code in &SHORT[..2] {
        device.fail("vkCreateBuffer", 1, *code);
        let error = device.reserve_range(ClassId::DEVICE, pages.granularity).unwrap_err();
        assert_eq!(error.fault(), Fault::OutOfMemory, "{code:?}: {error}");
    }
    assert_eq!(device.range_bytes(), 0);
    for code in SHORT {
        device.fail("vkAllocateMemory", 1, code);
        let error = device.create_page(ClassId::DEVICE, pages.granularity).unwrap_err();
        assert_eq!(error.fault(), Fault::OutOfMemory, "{code:?}: {error}");
    }
    assert_eq!(device.page_bytes(), 0);
}

/// A failure that has nothing to do with memory is passed on as what it is.
#[test]
fn other_failures_stay_what_they_are() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let code = vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
    device.fail("vkAllocateMemory", 1, code);
    let error = device.reserve(ClassId::DEVICE, 1 << 20).unwrap_err();
    let is_driver = matches!(error, VulkanError::Driver { call: "vkAllocateMemory", result } if result == code);
    assert!(is_driver && error.fault() == Fault::Other, "{error}");
}

#[test]
fn allocations_are_counted_with_those_of_the_engine() {
    let Some(lab) = Lab::open() else { return };
    let facts = Facts { limits: Some(|limits| limits.max_memory_allocation_count = 4), ..Facts::default() };
    let device = Recorder::with(&lab, Setup { facts, ..Setup::default() }).unwrap();
    let elsewhere = lab.segment(1 << 20);
    let take = || device.reserve(ClassId::DEVICE, 1 << 20);
    device.fail("vkAllocateMemory", 1, SHORT[0]);
    take().map(drop).unwrap_err();
    let mut held: Vec<_> = (0..3).map(|_| take().unwrap()).collect();
    let full = |error: VulkanError, had: (u64, u64)| {
        let is_full = matches!(error, VulkanError::TooMany { max: 4, own, engine } if (own, engine) == had);
        assert!(is_full && error.fault() == Fault::OutOfMemory, "{error}");
    };
    full(take().unwrap_err(), (4, 0));
    lab.give_back(elsewhere);
    held.push(take().unwrap());
    full(take().unwrap_err(), (4, 0));
    // SAFETY: no work touches the segments.
    held.drain(2..).for_each(|segment| unsafe { device.release(segment) });
    device.set_engine_allocations(2);
    full(take().unwrap_err(), (2, 2));
    device.set_engine_allocations(1);
    held.push(take().unwrap());
    // SAFETY: as above.
    held.drain(..).for_each(|segment| unsafe { device.release(segment) });
}

/// The error of the allocator names what is short, and its advice helps.
#[test]
fn an_allocator_says_what_is_short_if_it_is_not_memory() {
    let Some(lab) = Lab::open() else { return };
    let facts = Facts { limits: Some(|limits| limits.max_memory_allocation_count = 4), ..Facts::default() };
    let device = Recorder::with(&lab, Setup { facts, ..Setup::default() }).unwrap();
    let opened = |conf: &str| {
        let allocator = Allocator::builder((*device).clone()).conf(conf).build().unwrap();
        let stream = allocator.create_stream().unwrap();
        (allocator, stream)
    };
    let (allocator, stream) = opened("policy:classic");
    // A stream's staging is no allocation of the device's until it transfers.
    let mut held: Vec<_> = (0..4).map(|_| stream.allocate(12 << 20).unwrap()).collect();
    let text = refused(stream.allocate(12 << 20), Shortage::Allocations);
    assert!(text.contains("maxMemoryAllocationCount") && text.contains("empty_cache"), "{text}");
    held.pop();
    stream.submit().unwrap();
    allocator.empty_cache().unwrap();
    drop((stream.allocate(16 << 20).unwrap(), held));
    drop((stream, allocator));

    let (_allocator, stream) = opened("policy:classic,large_segment_size_mb:64");
    let small: Vec<_> = (0..24).map(|_| stream.allocate(9 << 20).unwrap()).collect();
    drop((small, stream, _allocator));

    let (allocator, stream) = opened("policy:classic");
    for call in ["vkCreateBuffer", "vkBindBufferMemory"] {
        device.fail(call, u32::MAX, SHORT[0]);
        let text = refused(stream.allocate(12 << 20), Shortage::Addresses);
        assert!(text.contains("bufferDeviceAddress") && text.contains(call), "{text}");
        device.fail(call, 0, SHORT[0]);
    }
    drop((stream.allocate(12 << 20).unwrap(), stream, allocator));
}

/// Returns the text of an out-of-memory error, which says that this is short.
fn refused(result: Result<Buffer<Vulkan>, Error<VulkanError>>, short: Shortage) -> String {
    let error = result.unwrap_err();
    let told = error.out_of_memory().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(told.shortage(), short, "{told}");
    told.to_string()
}

/// A sparse address space is full while there is memory.
#[test]
fn a_full_sparse_space_is_named() {
    let Some(lab) = Lab::open() else { return };
    // As few addresses as lavapipe has.
    let facts = Facts { limits: Some(|limits| limits.sparse_address_space_size = 1 << 31), ..Facts::default() };
    let device = Recorder::with(&lab, Setup { facts, ..Setup::default() }).unwrap();
    let Some(pages) = device.caps().pages else { return skip("sparse", "the device has no sparse binding") };
    let allocator = Allocator::builder((*device).clone()).conf("policy:paged").build().unwrap();
    let stream = allocator.create_stream().unwrap();
    let capacity = device.caps().classes[0].max_segment_bytes.min(pages.address_bytes / 3);
    let mut held = Vec::new();
    let text = loop {
        match stream.allocate_growable(1 << 20, capacity) {
            Ok(buffer) => held.push(buffer),
            error => break refused(error, Shortage::Addresses),
        }
        assert!(held.len() < 64, "there are addresses for 2 GiB");
    };
    assert!(text.contains("sparseAddressSpaceSize"), "{text}");
    held.clear();
    stream.submit().unwrap();
    allocator.empty_cache().unwrap();
    drop(stream.allocate_growable(1 << 20, capacity).unwrap());
}

/// A request for more than the heap has would be invalid.
#[test]
fn no_more_is_asked_for_than_the_heap_has() {
    const HEAP: u64 = 64 << 20;
    let Some(lab) = Lab::open() else { return };
    let facts = Facts { heap_bytes: Some(HEAP), ..Facts::default() };
    let device = Recorder::with(&lab, Setup { facts, ..Setup::default() }).unwrap();
    for (class, facts) in (0..).map(ClassId).zip(&device.caps().classes) {
        assert_eq!((facts.total_bytes, facts.max_segment_bytes), (HEAP, HEAP), "{}", facts.name);
        let too_large = |error| matches!(error, VulkanError::TooLarge { max: HEAP, .. });
        assert!(too_large(device.reserve(class, HEAP + 1).unwrap_err()));
        assert!(too_large(device.allocate_and_free(class, HEAP + 1).unwrap_err()));
        let whole = device.reserve(class, HEAP).unwrap();
        // SAFETY: no work touches the segment.
        unsafe { device.release(whole) };
    }
    if let Some(pages) = device.caps().pages {
        let error = device.create_page(ClassId::DEVICE, HEAP + pages.granularity).unwrap_err();
        assert!(matches!(error, VulkanError::TooLarge { max: HEAP, .. }), "{error}");
    }
    let asked = device.calls().into_iter().filter_map(|call| match call {
        Call::Allocate { bytes, .. } => Some(bytes),
        _ => None,
    });
    assert!(asked.max().unwrap() <= HEAP);
}
