//! Giving pages and ranges back while the device has yet to make binds, and not giving them back at all.

use millpond_backend::{Backend, ClassId, Point, VirtualMemory};
use millpond_vulkan::VulkanError;

use crate::lab::{Lab, error};

#[test]
fn what_is_given_back_goes_once_its_binds_are_made() {
    let Some(lab) = Lab::open() else { return };
    let (busy, idle, mut pages) = (lab.range(1), lab.range(2), lab.pages(3));
    lab.map(&busy, 0, &pages[0]);
    lab.map(&idle, 0, &pages[1]);
    lab.finish();
    lab.device.hold(lab.stream).unwrap();
    lab.fill(&busy, 0, 1);
    lab.device.submit(lab.stream).unwrap();
    lab.unmap(&idle, 0, &pages[1]);
    lab.map(&idle, 1, &pages[2]);
    lab.unmap(&idle, 1, &pages[2]);
    for page in pages.drain(1..) {
        // SAFETY: it is unmapped, and no work touched it.
        unsafe { lab.device.release_page(page) };
    }
    // SAFETY: nothing is mapped there any more.
    unsafe { lab.device.release_range(idle) };
    assert_eq!(lab.device.page_bytes(), lab.page, "handed back is handed back");
    assert_eq!(lab.device.held_bytes(), lab.page);
    assert_eq!(lab.device.range_bytes(), 3 * lab.page, "the binds are not even queued");
    lab.device.flush_binds().unwrap();
    let behind = lab.device.submit(lab.stream).unwrap();
    lab.device.unhold(lab.stream);
    assert_eq!(lab.device.wait(Point { stream: lab.stream, tick: behind }).unwrap(), behind);
    lab.device.flush_binds().unwrap();
    assert_eq!(lab.device.range_bytes(), lab.page, "the stream has waited for the binds");
    lab.close(vec![busy], pages);
}

#[test]
fn addresses_that_wait_for_binds_are_had_by_who_needs_them() {
    let Some(lab) = Lab::open() else { return };
    let mut ranges = Vec::new();
    let most = 1 << 30;
    let (asked, free) = loop {
        match lab.device.reserve_range(ClassId::DEVICE, most) {
            Ok(range) => ranges.push(range),
            Err(VulkanError::AddressSpace { asked, free, .. }) => break (asked, free),
            Err(error) => panic!("{error}"),
        }
        if ranges.len() > 8 {
            // Addresses are plentiful here.
            return lab.close(ranges, Vec::new());
        }
    };
    assert!(asked == most && free < most);
    let (last, pages) = (ranges.pop().expect("there is one"), lab.pages(1));
    lab.map(&last, 0, &pages[0]);
    lab.unmap(&last, 0, &pages[0]);
    // SAFETY: nothing is mapped there.
    unsafe { lab.device.release_range(last) };
    ranges.push(lab.device.reserve_range(ClassId::DEVICE, most).unwrap());
    lab.close(ranges, pages);
}

#[test]
fn what_is_leaked_goes_with_the_device() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(3), lab.pages(3));
    lab.map(&range, 0, &pages[0]);
    lab.map(&range, 1, &pages[1]);
    lab.fill(&range, 0, 1);
    lab.finish();
    lab.unmap(&range, 0, &pages[0]);
    lab.map(&range, 2, &pages[2]);
    let released = lab.pages(1);
    for page in released {
        // SAFETY: it was never mapped.
        unsafe { lab.device.release_page(page) };
    }
    lab.end();
}

#[test]
fn a_page_goes_at_once_where_no_bind_is_noted() {
    let Some(lab) = Lab::open() else { return };
    let pages = lab.pages(2);
    assert_eq!(lab.device.page_bytes(), 2 * lab.page);
    lab.close(Vec::new(), pages);
}

#[test]
fn no_more_memory_is_had_than_a_page_may_have() {
    let Some(lab) = Lab::open() else { return };
    let failed = error(lab.device.create_page(ClassId::DEVICE, 1 << 62));
    assert!(matches!(failed, VulkanError::TooLarge { asked: 0x4000_0000_0000_0000, .. }), "{failed}");
    lab.close(Vec::new(), Vec::new());
}
