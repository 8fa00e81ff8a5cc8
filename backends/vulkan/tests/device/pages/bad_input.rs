//! Requests that are refused, and devices without the capability.

use millpond_backend::{Backend, BackendError, ClassId, Fault, VirtualMemory};
use millpond_vulkan::{Misuse, Named, Vulkan, VulkanError};

use super::lab::{Lab, open};
use crate::lab::{error, skip};

#[test]
fn sizes_and_classes_are_checked() {
    let Some(lab) = Lab::open() else { return };
    let (device, page) = (&lab.device, lab.page);
    let host = ClassId(1);
    let none = error(device.reserve_range(host, page));
    assert!(matches!(none, VulkanError::Misuse(Misuse::NoPages { class }) if class == host));
    assert!(matches!(error(device.create_page(host, page)), VulkanError::Misuse(Misuse::NoPages { .. })));
    assert!(matches!(error(device.reserve_range(ClassId::DEVICE, 0)), VulkanError::Misuse(Misuse::Empty { .. })));
    assert!(matches!(error(device.create_page(ClassId::DEVICE, 0)), VulkanError::Misuse(Misuse::Empty { .. })));
    let odd = error(device.create_page(ClassId::DEVICE, page + 1));
    assert!(matches!(odd, VulkanError::Misuse(Misuse::Misaligned { value, multiple, .. })
            if (value, multiple) == (page + 1, page)));
    assert!(matches!(
        error(device.reserve_range(ClassId::DEVICE, page / 2)),
        VulkanError::Misuse(Misuse::Misaligned { .. })
    ));
    let large = error(device.reserve_range(ClassId::DEVICE, 1 << 62));
    assert!(matches!(large, VulkanError::TooLarge { .. } | VulkanError::AddressSpace { .. }));
    assert_eq!(large.fault(), Fault::OutOfMemory);
    lab.close(Vec::new(), Vec::new());
}

#[test]
fn places_are_checked() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages, page) = (lab.range(2), lab.pages(1), lab.page);
    // SAFETY: each of these calls is refused.
    let map = |offset| error(unsafe { lab.device.map(&range, offset, &pages[0], lab.stream) });
    assert!(matches!(map(page / 2), VulkanError::Misuse(Misuse::Misaligned { value, .. }) if value == page / 2));
    assert!(matches!(map(2 * page), VulkanError::Misuse(Misuse::OutOfRange { offset, .. }) if offset == 2 * page));
    assert!(matches!(map(u64::MAX / page * page), VulkanError::Misuse(Misuse::OutOfRange { .. })));
    let segment = lab.device.reserve(ClassId::DEVICE, 2 * page).unwrap();
    // SAFETY: the call is refused.
    let failed = error(unsafe { lab.device.map(&segment, 0, &pages[0], lab.stream) });
    assert!(
        matches!(failed, VulkanError::Misuse(Misuse::NotARange { segment: Named::Bytes(bytes) }) if bytes == 2 * page)
    );
    // SAFETY: no work touches it.
    unsafe { lab.device.release(segment) };
    lab.close(vec![range], pages);
}

#[test]
fn planned_faults_come_where_planned() {
    let Some(lab) = Lab::open() else { return };
    lab.device.fail_nth(1, Fault::OutOfMemory);
    assert_eq!(error(lab.device.create_page(ClassId::DEVICE, lab.page)).fault(), Fault::OutOfMemory);
    lab.device.fail_nth(1, Fault::Other);
    assert_eq!(error(lab.device.reserve_range(ClassId::DEVICE, lab.page)).fault(), Fault::Other);
    assert_eq!((lab.device.page_bytes(), lab.device.range_bytes()), (0, 0));
    lab.close(Vec::new(), Vec::new());
}

#[test]
fn a_device_opened_without_says_so() {
    let Some(device) = crate::lab::Lab::build(Vulkan::builder().sparse(false).budget(false)) else { return };
    lacks_both(&device);
}

#[test]
fn a_device_without_says_so() {
    let Some(device) = open() else { return };
    let info = Vulkan::devices().unwrap().remove(0);
    assert_eq!(device.caps().pages.is_some(), info.sparse);
    assert_eq!(device.caps().budget, info.budget);
    if info.sparse || info.budget {
        return skip("neither", "the device has sparse binding or a budget");
    }
    lacks_both(&device);
}

fn lacks_both(device: &Vulkan) {
    assert_eq!(device.caps().pages, None);
    assert!(device.virtual_memory().is_none());
    assert!(!device.caps().budget && !device.caps().oversubscribes);
    assert!(Backend::budget(device).is_none());
    let failed = error(device.reserve_range(ClassId::DEVICE, 2 << 20));
    assert!(matches!(failed, VulkanError::Misuse(Misuse::Unsupported { call: "reserve_range", .. })), "{failed}");
    let failed = error(device.create_page(ClassId::DEVICE, 2 << 20));
    assert!(matches!(failed, VulkanError::Misuse(Misuse::Unsupported { call: "create_page", .. })), "{failed}");
    let failed = error(device.heap_budget(ClassId::DEVICE));
    assert!(matches!(failed, VulkanError::Misuse(Misuse::Unsupported { .. })), "{failed}");
    assert_eq!((device.page_bytes(), device.range_bytes()), (0, 0));
    device.flush_binds().unwrap();
}
