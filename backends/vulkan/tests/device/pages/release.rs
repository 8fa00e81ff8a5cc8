//! Pages and ranges that are given back before the device has made their binds, and those that are never given back.

use millpond_backend::{Backend, ClassId, Point, VirtualMemory};
use millpond_vulkan::VulkanError;

use super::lab::Lab;
use crate::lab::error;
use crate::recorder::{Facts, Recorder, Setup};

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
        // SAFETY: the page is unmapped, and no work touched it.
        unsafe { lab.device.release_page(page) };
    }
    // SAFETY: nothing is mapped there.
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
fn much_that_is_given_back_waits_for_no_submit() {
    let Some(lab) = Lab::open() else { return };
    let count = (64 << 20) / lab.page;
    let (range, pages) = (lab.range(2 * count), lab.pages(2 * count as usize));
    for (at, page) in (0..).zip(&pages) {
        lab.map(&range, at, page);
    }
    lab.finish();
    for (at, page) in (0..).zip(&pages) {
        lab.unmap(&range, at, page);
    }
    for page in pages {
        // SAFETY: the page is unmapped, and all work is done.
        unsafe { lab.device.release_page(page) };
    }
    // The binds take some time; nothing is submitted while they are made.
    let begin = std::time::Instant::now();
    while lab.device.leaving_bytes() >= 64 << 20 {
        assert!(begin.elapsed().as_secs() < 20, "{} bytes stay with the driver", lab.device.leaving_bytes());
        std::thread::yield_now();
        // Each release destroys what has become free.
        let page = lab.pages(1).pop().expect("one page");
        // SAFETY: the page was never mapped.
        unsafe { lab.device.release_page(page) };
    }
    lab.close(vec![range], Vec::new());
}

#[test]
fn addresses_that_wait_for_binds_are_had_by_who_needs_them() {
    const MOST: u64 = 1 << 30;
    let Some(lab) = Lab::open() else { return };
    let facts = Facts { limits: Some(|limits| limits.sparse_address_space_size = 2 * MOST), ..Facts::default() };
    let device = Recorder::with(&lab.device, Setup { facts, ..Setup::default() }).unwrap();
    let (stream, bytes) = (device.create_stream().unwrap(), device.caps().pages.unwrap().granularity);
    let first = device.reserve_range(ClassId::DEVICE, MOST).unwrap();
    let last = device.reserve_range(ClassId::DEVICE, MOST).unwrap();
    let full = error(device.reserve_range(ClassId::DEVICE, MOST));
    assert!(matches!(full, VulkanError::AddressSpace { asked: MOST, free: 0, .. }), "{full}");
    let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
    // SAFETY: nothing is mapped there, and no work touches any of it.
    let again = unsafe {
        device.map(&last, 0, &page, stream).unwrap();
        device.unmap(&last, 0, &page, stream);
        device.release_range(last);
        device.reserve_range(ClassId::DEVICE, MOST).unwrap()
    };
    // SAFETY: as above.
    unsafe {
        device.release_page(page);
        [first, again].into_iter().for_each(|range| device.release_range(range));
    }
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
        // SAFETY: the page was never mapped.
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
