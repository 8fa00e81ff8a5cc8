//! Many moves in random order, compared with a table of the expected contents.

use millpond_backend::{Backend, ClassId, Point, Transfer, VirtualMemory};
use millpond_trace::Random;

use super::lab::Lab;

const PLACES: u64 = 24;
const PAGES: usize = 16;

#[test]
fn every_page_keeps_its_value_through_any_moves() {
    let Some(lab) = Lab::open() else { return };
    let streams = [lab.stream, lab.device.create_stream().unwrap()];
    let ranges = [lab.range(PLACES), lab.range(PLACES)];
    let mut pages = lab.pages(PAGES);
    let mut random = Random::new(20);
    let mut places: Vec<Option<(usize, u64)>> = vec![None; PAGES];
    let mut values: Vec<Option<u8>> = vec![None; PAGES];
    for turn in 0..60 {
        for _ in 0..=random.below(12) {
            let page = random.index(PAGES);
            if let Some((range, at)) = places[page].take() {
                lab.unmap(&ranges[range], at, &pages[page]);
            }
            if random.one_in(8) {
                let new = lab.device.create_page(ClassId::DEVICE, lab.page).unwrap();
                // SAFETY: the page was just unmapped, and its work is done.
                unsafe { lab.device.release_page(std::mem::replace(&mut pages[page], new)) };
                values[page] = None;
            }
            let wish = (random.index(2), random.below(PLACES));
            if !places.contains(&Some(wish)) {
                lab.map(&ranges[wish.0], wish.1, &pages[page]);
                places[page] = Some(wish);
            }
        }
        let stream = streams[random.index(2)];
        let mut seen: Vec<(usize, [u8; 8])> = Vec::new();
        for page in 0..PAGES {
            let Some((range, at)) = places[page] else { continue };
            if values[page].is_some() {
                let mut bytes = [0; 8];
                lab.device.download(stream, &ranges[range], (at + 1) * lab.page - 8, &mut bytes).unwrap();
                seen.push((page, bytes));
            }
            if values[page].is_none() || random.one_in(4) {
                let value = (turn * PAGES + page) as u8;
                lab.device.fill(stream, &ranges[range], at * lab.page, lab.page, value).unwrap();
                values[page] = Some(value);
                seen.retain(|(other, _)| *other != page);
            }
        }
        for (page, bytes) in seen {
            assert_eq!(Some(bytes), values[page].map(|value| [value; 8]), "page {page} in turn {turn}");
        }
        let tick = lab.device.submit(stream).unwrap();
        assert_eq!(lab.device.wait(Point { stream, tick }).unwrap(), tick);
    }
    lab.close(ranges.into(), pages);
}
