//! What a bind costs. Run by hand: `cargo test --release --test pages -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use millpond_backend::{Backend, ClassId, Point, VirtualMemory};
use millpond_vulkan::{Page, Segment, Vulkan};

use crate::lab::skip;

#[test]
#[ignore = "a measurement, not a test"]
fn what_binds_cost() {
    let device = Vulkan::open(0).unwrap();
    let Some(caps) = device.caps().pages else { return skip("sparse", "no sparse binding") };
    let (page, stream) = (caps.granularity, device.create_stream().unwrap());
    for count in [1usize, 10, 100, 1000] {
        let range = device.reserve_range(ClassId::DEVICE, count as u64 * page).unwrap();
        let begin = Instant::now();
        let pages: Vec<Page> = (0..count).map(|_| device.create_page(ClassId::DEVICE, page).unwrap()).collect();
        let create = begin.elapsed() / count as u32;
        let mut rounds: Vec<[Duration; 6]> = (0..11).map(|_| round(&device, &range, &pages, stream)).collect();
        let mut median = |column: usize| {
            rounds.sort_by_key(|round| round[column]);
            rounds[rounds.len() / 2][column].as_secs_f64() * 1e6
        };
        let [map, submit, done, unmap, unsubmit, undone] = std::array::from_fn(&mut median);
        eprintln!(
            "{count:5} pages of {page}: create {create:?} each; map {map:.2} us, submit {submit:.2} us, done after \
             {done:.2} us; unmap {unmap:.2} us, submit {unsubmit:.2} us, done after {undone:.2} us"
        );
        for page in pages {
            // SAFETY: it is unmapped, and no work touched it.
            unsafe { device.release_page(page) };
        }
        // SAFETY: nothing is mapped there.
        unsafe { device.release_range(range) };
        device.flush_binds().unwrap();
    }
}

/// Maps and unmaps everything once: noting, submitting and waiting, for each.
fn round(device: &Vulkan, range: &Segment, pages: &[Page], stream: millpond_backend::StreamId) -> [Duration; 6] {
    let mut times = [Duration::ZERO; 6];
    for (half, map) in [(0, true), (3, false)] {
        let begin = Instant::now();
        for (at, page) in pages.iter().enumerate() {
            let offset = at as u64 * page.bytes();
            // SAFETY: nothing is mapped there; no work touches the range.
            unsafe {
                if map {
                    device.map(range, offset, page, stream).unwrap();
                } else {
                    device.unmap(range, offset, page, stream);
                }
            }
        }
        times[half] = begin.elapsed();
        let tick = device.submit(stream).unwrap();
        times[half + 1] = begin.elapsed() - times[half];
        assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
        times[half + 2] = begin.elapsed();
    }
    times
}
