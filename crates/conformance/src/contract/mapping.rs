//! Virtual memory: what is mapped where after maps and unmaps, shown by bytes where the device has transfers.

use millpond_backend::{Backend, BackendError as _, ClassId, Fault};

use super::bench::{Bench, Page, Range, UNMAP_RULE, told};
use super::{advised, breach, wrong_byte};
use crate::device::DeviceUnderTest;
use crate::session::Stop;

const MAP: &str = "VirtualMemory::map";
const MAP_RULE: &str = "maps the whole page at the offset of the range";
/// The number of bytes read in one place.
const LOOK: usize = 64;

/// Fills one granule of a range, where the device has transfers.
fn fill<D: DeviceUnderTest>(bench: &Bench<'_, D>, range: &Range<D>, at: u64, value: u8) -> Result<(), Stop> {
    let size = bench.granularity();
    let Some(mover) = bench.backend().transfer() else { return Ok(()) };
    mover.fill(bench.streams[0], &range.segment, at * size, size, value).map_err(|error| {
        breach(MAP, format!("a page was mapped at offset {}, and a fill there fails: {error}", at * size), MAP_RULE)
    })
}

/// Checks that the granule holds the value at both ends and in its middle.
fn expect<D: DeviceUnderTest>(bench: &Bench<'_, D>, range: &Range<D>, at: u64, value: u8) -> Result<(), Stop> {
    let size = bench.granularity();
    let Some(mover) = bench.backend().transfer() else { return Ok(()) };
    for offset in [at * size, at * size + size / 2, (at + 1) * size - LOOK as u64] {
        let mut seen = [0; LOOK];
        let read = mover.download(bench.streams[0], &range.segment, offset, &mut seen);
        read.map_err(|error| {
            breach(MAP, format!("a download at offset {offset} of a mapped page fails: {error}"), MAP_RULE)
        })?;
        if let Some(wrong) = wrong_byte(&seen, &[value; LOOK]) {
            let found = format!("the page at {} was filled with {value}; read from {offset} on, {wrong}", at * size);
            let advice = "if a check of the groups time or transfers fails too, mend that first";
            if range.was_unmapped(at * size) {
                let found = format!("{found}; another page was unmapped there before");
                return Err(advised(breach("VirtualMemory::unmap", found, UNMAP_RULE), advice));
            }
            return Err(advised(breach(MAP, found, MAP_RULE), advice));
        }
    }
    Ok(())
}

/// Checks that pages side by side, one of which has two granules, keep their bytes.
pub(super) fn where_mapped<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let size = bench.granularity();
    let mut range = bench.range(4 * size)?;
    let mut pages: Vec<Page<D>> = vec![bench.page(size)?, bench.page(2 * size)?, bench.page(size)?];
    for (offset, page) in [0, size, 3 * size].into_iter().zip(&mut pages) {
        bench.map(&mut range, offset, page)?;
    }
    (0..4).try_for_each(|at| fill(bench, &range, at, at as u8 + 1))?;
    (0..4).try_for_each(|at| expect(bench, &range, at, at as u8 + 1))?;
    if let Some(mover) = bench.backend().transfer() {
        // This fill crosses the border of two pages.
        let filled = mover.fill(bench.streams[0], &range.segment, size - 64, 128, 9);
        filled.map_err(|error| {
            breach("Transfer::fill", format!("across two pages: {error}"), "sets bytes to the value")
        })?;
        let mut seen = [0; 256];
        let read = mover.download(bench.streams[0], &range.segment, size - 128, &mut seen);
        read.map_err(|error| {
            breach("Transfer::download", format!("across two pages: {error}"), "copies device bytes")
        })?;
        let expected = [[1; 64], [9; 64], [9; 64], [2; 64]].concat();
        if let Some(wrong) = wrong_byte(&seen, &expected) {
            let found =
                format!("128 bytes across two pages were filled with 9; read from 64 bytes before them on, {wrong}");
            return Err(breach("Transfer::fill", found, "sets bytes to the value"));
        }
    }
    for (offset, page) in [0, size, 3 * size].into_iter().zip(&mut pages) {
        bench.unmap(&mut range, offset, page)?;
    }
    pages.into_iter().try_for_each(|page| bench.release_page(page))?;
    bench.release_range(range)
}

/// Checks that pages keep their bytes when they are mapped at other places.
pub(super) fn moves<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let size = bench.granularity();
    let (mut range, mut other) = (bench.range(2 * size)?, bench.range(2 * size)?);
    let [mut one, mut two] = [bench.page(size)?, bench.page(size)?];
    bench.map(&mut range, 0, &mut one)?;
    bench.map(&mut range, size, &mut two)?;
    fill(bench, &range, 0, 1)?;
    fill(bench, &range, 1, 2)?;
    bench.unmap(&mut range, 0, &mut one)?;
    bench.unmap(&mut range, size, &mut two)?;
    bench.map(&mut range, 0, &mut two)?;
    bench.map(&mut other, size, &mut one)?;
    expect(bench, &range, 0, 2)?;
    expect(bench, &other, 1, 1)?;
    bench.unmap(&mut range, 0, &mut two)?;
    bench.unmap(&mut other, size, &mut one)?;
    for page in [one, two] {
        bench.release_page(page)?;
    }
    bench.release_range(range)?;
    bench.release_range(other)
}

/// Checks that a page mapped in two places shows the same bytes in both, where the device allows that.
pub(super) fn two_places<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    if !bench.caps().pages.is_some_and(|pages| pages.aliasing) {
        return Err(Stop::Skip("the device maps a page at one address at a time".to_owned()));
    }
    let size = bench.granularity();
    let (mut range, mut other) = (bench.range(2 * size)?, bench.range(size)?);
    let mut page = bench.page(size)?;
    bench.map(&mut range, size, &mut page)?;
    bench.map(&mut other, 0, &mut page)?;
    fill(bench, &range, 1, 5)?;
    bench.finish()?;
    expect(bench, &other, 0, 5)?;
    fill(bench, &other, 0, 6)?;
    bench.finish()?;
    expect(bench, &range, 1, 6)?;
    bench.unmap(&mut range, size, &mut page)?;
    expect(bench, &other, 0, 6)?;
    bench.unmap(&mut other, 0, &mut page)?;
    bench.release_page(page)?;
    bench.release_range(range)?;
    bench.release_range(other)
}

/// Checks that a page larger than the device's memory is refused with an out-of-memory fault.
pub(super) fn too_much<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const VERB: &str = "VirtualMemory::create_page";
    const RULE: &str = "Fault::OutOfMemory when the device has none left";
    let (size, total) = (bench.granularity(), bench.caps().class(ClassId::DEVICE).total_bytes);
    // It is not known which size is refused by a device that grants more than it has. No device has addresses for this
    // one.
    let bytes = if bench.caps().oversubscribes { (1 << 62) / size * size } else { (total / size + 1) * size };
    let before = bench.told();
    match bench.try_page(bytes)? {
        Err(error) if error.fault() == Fault::OutOfMemory => {}
        Err(error) => {
            let found = format!("{bytes} bytes of {total} are refused as {:?}: {error}", error.fault());
            let advice = "return Fault::OutOfMemory from BackendError::fault for this error";
            return Err(advised(breach(VERB, found, RULE), advice));
        }
        Ok(page) => {
            bench.release_page(page)?;
            return Err(breach(VERB, format!("{bytes} bytes of {total} are granted"), RULE));
        }
    }
    if bench.told() != before {
        let (before, after) = (told(before), told(bench.told()));
        let found = format!("{bytes} bytes are refused, and what is held was {before} and is {after}");
        return Err(breach(VERB, found, "what is refused takes nothing"));
    }
    let page = bench.page(size)?;
    bench.release_page(page)
}
