//! Pages change their addresses and keep their bytes.

use millpond_backend::{Backend, ClassId, Fault, Point, Transfer, VirtualMemory};
use millpond_vulkan::{Planned, VulkanError};

use super::lab::Lab;
use crate::lab::{error, skip};

#[test]
fn a_page_keeps_its_bytes_at_another_address() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(4), lab.pages(1));
    let pattern: Vec<u8> = (0..lab.page).map(|at| (at % 251) as u8).collect();
    lab.map(&range, 0, &pages[0]);
    lab.device.upload(lab.stream, &pattern, &range, 0).unwrap();
    lab.finish();
    lab.unmap(&range, 0, &pages[0]);
    lab.map(&range, 3, &pages[0]);
    let mut bytes = vec![0; pattern.len()];
    lab.device.download(lab.stream, &range, 3 * lab.page, &mut bytes).unwrap();
    assert!(bytes == pattern, "the page's bytes changed on the way");
    lab.unmap(&range, 3, &pages[0]);
    lab.close(vec![range], pages);
}

#[test]
fn one_page_at_two_addresses_shows_the_same_bytes() {
    let Some(lab) = Lab::open() else { return };
    if !lab.device.caps().pages.is_some_and(|pages| pages.aliasing) {
        return skip("sparse", "the device has no sparseResidencyAliased");
    }
    let (first, second, pages) = (lab.range(2), lab.range(2), lab.pages(1));
    lab.map(&first, 1, &pages[0]);
    lab.map(&second, 0, &pages[0]);
    lab.fill(&first, 1, 7);
    assert_eq!(lab.value(&second, 0), 7);
    lab.fill(&second, 0, 8);
    assert_eq!(lab.value(&first, 1), 8);
    lab.unmap(&first, 1, &pages[0]);
    assert_eq!(lab.value(&second, 0), 8, "one mapping outlives the other");
    lab.unmap(&second, 0, &pages[0]);
    lab.close(vec![first, second], pages);
}

#[test]
fn pages_move_while_the_stream_is_held() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(8), lab.pages(2));
    lab.map(&range, 0, &pages[0]);
    lab.map(&range, 1, &pages[1]);
    lab.fill(&range, 1, 11);
    lab.finish();
    lab.device.hold(lab.stream).unwrap();
    lab.fill(&range, 0, 10);
    let held = lab.device.submit(lab.stream).unwrap();
    // Page 1 is idle and moves; page 0 is in use and stays. No call here waits for the device.
    lab.unmap(&range, 1, &pages[1]);
    lab.map(&range, 5, &pages[1]);
    lab.device.copy(lab.stream, (&range, 5 * lab.page), (&range, 0), 4).unwrap();
    let behind = lab.device.submit(lab.stream).unwrap();
    assert!(lab.device.reached(lab.stream).unwrap() < held, "the gate is closed");
    lab.device.unhold(lab.stream);
    let point = Point { stream: lab.stream, tick: behind };
    assert_eq!(lab.device.wait(point).unwrap(), behind);
    assert_eq!(lab.value(&range, 5), 11);
    let mut head = [0; 8];
    lab.device.download(lab.stream, &range, 0, &mut head).unwrap();
    assert_eq!(head, [11, 11, 11, 11, 10, 10, 10, 10]);
    lab.close(vec![range], pages);
}

#[test]
fn many_binds_cost_one_call() {
    const COUNT: usize = 200;
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(COUNT as u64), lab.pages(COUNT));
    let place = |turn: u64, at: usize| (at as u64 * 71 + turn * 13) % COUNT as u64;
    for turn in 0..3 {
        let before = lab.device.fallible_calls();
        for (at, page) in pages.iter().enumerate() {
            if turn > 0 {
                lab.unmap(&range, place(turn - 1, at), page);
            }
        }
        for (at, page) in pages.iter().enumerate() {
            lab.map(&range, place(turn, at), page);
        }
        lab.device.submit(lab.stream).unwrap();
        assert_eq!(lab.device.fallible_calls() - before, 2, "one bind and one submit");
        if turn == 0 {
            (0..COUNT).for_each(|at| lab.fill(&range, place(0, at), at as u8));
        }
        lab.finish();
    }
    let mut bytes = vec![0; (COUNT as u64 * lab.page) as usize];
    lab.device.download(lab.stream, &range, 0, &mut bytes).unwrap();
    for at in 0..COUNT {
        let start = (place(2, at) * lab.page) as usize;
        let page = &bytes[start..start + lab.page as usize];
        assert!(page.iter().all(|byte| *byte == at as u8), "page {at} lost its bytes");
    }
    lab.close(vec![range], pages);
}

#[test]
fn the_last_of_overlapping_notes_counts() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(4), lab.pages(3));
    let large = lab.device.create_page(ClassId::DEVICE, 4 * lab.page).unwrap();
    lab.map(&range, 0, &large);
    (0..4).for_each(|at| lab.fill(&range, at, 40 + at as u8));
    lab.finish();
    // The driver receives none of these binds before the last of them is noted.
    lab.unmap(&range, 0, &large);
    lab.map(&range, 1, &pages[0]);
    lab.map(&range, 3, &pages[1]);
    lab.unmap(&range, 1, &pages[0]);
    lab.map(&range, 1, &pages[2]);
    lab.map(&range, 0, &pages[0]);
    for (at, value) in [(0, 1), (1, 2), (3, 3)] {
        lab.fill(&range, at, value);
    }
    assert_eq!([0, 1, 3].map(|at| lab.value(&range, at)), [1, 2, 3]);
    for (at, page) in [(0, 0), (1, 2), (3, 1)] {
        lab.unmap(&range, at, &pages[page]);
    }
    lab.map(&range, 0, &large);
    assert_eq!([0, 1, 2, 3].map(|at| lab.value(&range, at)), [40, 41, 42, 43], "nothing else was written");
    let all = pages.into_iter().chain([large]).collect();
    lab.close(vec![range], all);
}

#[test]
fn what_one_stream_maps_another_may_use_first() {
    let Some(lab) = Lab::open() else { return };
    let other = lab.device.create_stream().unwrap();
    let (range, pages) = (lab.range(2), lab.pages(2));
    for turn in 0..20 {
        lab.map(&range, turn % 2, &pages[0]);
        lab.map(&range, (turn + 1) % 2, &pages[1]);
        let offset = turn % 2 * lab.page;
        if turn > 0 {
            let mut bytes = [0; 4];
            lab.device.download(other, &range, offset, &mut bytes).unwrap();
            assert_eq!(bytes, [turn as u8; 4]);
        }
        lab.device.fill(other, &range, offset, lab.page, turn as u8 + 1).unwrap();
        let tick = lab.device.submit(other).unwrap();
        assert_eq!(lab.device.wait(Point { stream: other, tick }).unwrap(), tick);
        lab.unmap(&range, turn % 2, &pages[0]);
        lab.unmap(&range, (turn + 1) % 2, &pages[1]);
    }
    lab.close(vec![range], pages);
}

#[test]
fn engines_are_told_which_bind_to_wait_for_until_they_have() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(1), lab.pages(1));
    lab.map(&range, 0, &pages[0]);
    let pending = lab.device.begin_submit(lab.stream).unwrap();
    assert_eq!(pending.waits().len(), 1);
    pending.abandon();
    let pending = lab.device.begin_submit(lab.stream).unwrap();
    assert_eq!(pending.waits().len(), 1, "the first one was not submitted");
    let (waits, signals) = (pending.waits().to_vec(), [pending.signal()]);
    let info =
        millpond_vulkan::ash::vk::SubmitInfo2::default().wait_semaphore_infos(&waits).signal_semaphore_infos(&signals);
    let (_, queue) = lab.device.queue_of(lab.stream);
    // SAFETY: no other code uses the queue in this test.
    unsafe { lab.device.raw_device().queue_submit2(queue, &[info], millpond_vulkan::ash::vk::Fence::null()) }.unwrap();
    let tick = pending.finish();
    let pending = lab.device.begin_submit(lab.stream).unwrap();
    assert_eq!(pending.waits().len(), 0);
    pending.abandon();
    assert_eq!(lab.device.wait(Point { stream: lab.stream, tick }).unwrap(), tick);
    lab.close(vec![range], pages);
}

#[test]
fn binds_that_fail_go_with_the_next_submit() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(2), lab.pages(1));
    lab.map(&range, 0, &pages[0]);
    lab.fill(&range, 0, 5);
    // The submit is the first driver call, its bind the second.
    lab.device.fail_nth(2, Fault::OutOfMemory);
    let failed = error(lab.device.submit(lab.stream));
    assert!(matches!(failed, VulkanError::Planned(Planned { call: "vkQueueBindSparse", .. })), "{failed}");
    assert_eq!(lab.value(&range, 0), 5);
    lab.unmap(&range, 0, &pages[0]);
    lab.map(&range, 1, &pages[0]);
    assert_eq!(lab.value(&range, 1), 5, "it was the page that was written");
    lab.close(vec![range], pages);
}

#[test]
fn bytes_are_copied_within_a_page() {
    let Some(lab) = Lab::open() else { return };
    let (range, pages) = (lab.range(2), lab.pages(1));
    lab.map(&range, 1, &pages[0]);
    lab.fill(&range, 1, 3);
    lab.device.fill(lab.stream, &range, lab.page, 16, 9).unwrap();
    lab.device.copy(lab.stream, (&range, lab.page), (&range, lab.page + 64), 16).unwrap();
    let mut bytes = [0; 96];
    lab.device.download(lab.stream, &range, lab.page, &mut bytes).unwrap();
    let expected: Vec<u8> = [[9; 16], [3; 16], [3; 16], [3; 16], [9; 16], [3; 16]].concat();
    assert_eq!(bytes[..], expected[..]);
    lab.close(vec![range], pages);
}
