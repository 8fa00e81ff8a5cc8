//! A test of how the rooms work together that needs to see inside of them.

use millpond_backend::{Backend, ClassId, VirtualMemory};

use super::Vulkan;
use crate::error::VulkanError;
use crate::memory::reclaiming;

/// Returns what `reclaiming` returns for a request that is refused once, and how often the request was made.
fn refused_once(device: &Vulkan) -> (Result<(), VulkanError>, u32) {
    let asked = std::cell::Cell::new(0);
    let answer = reclaiming(
        || device.device.pages.reclaim(),
        || {
            asked.set(asked.get() + 1);
            if asked.get() > 1 { Ok(()) } else { Err(VulkanError::OutOfMemory { asked: 1, class: ClassId::DEVICE }) }
        },
    );
    (answer, asked.get())
}

#[test]
fn a_refused_request_is_made_again_if_anything_was_freed() {
    let required = |power: &str| std::env::var("MILLPOND_REQUIRE").is_ok_and(|list| list.contains(power));
    let device = match Vulkan::open(0) {
        Ok(device) if device.caps().pages.is_some() => device,
        other => {
            assert!(!required("sparse"), "MILLPOND_REQUIRE names sparse: {other:?}");
            return eprintln!("SKIPPED (sparse): {other:?} has no virtual memory");
        }
    };
    let stream = device.create_stream().unwrap();
    let bytes = device.caps().pages.map_or(0, |pages| pages.granularity);
    assert!(matches!(refused_once(&device), (Err(VulkanError::OutOfMemory { .. }), 1)));
    let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
    let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
    // SAFETY: nothing is mapped there, and no work touches it before it is unmapped and given back.
    unsafe {
        device.map(&range, 0, &page, stream).unwrap();
        device.unmap(&range, 0, &page, stream);
        device.release_page(page);
    }
    assert_eq!(device.device.memory.allocations.count.own(), 1, "the bind is not made yet");
    assert!(matches!(refused_once(&device), (Ok(()), 2)));
    assert_eq!(device.device.memory.allocations.count.own(), 0);
    // SAFETY: nothing is mapped there.
    unsafe { device.release_range(range) };
}
