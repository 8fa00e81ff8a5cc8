//! Memory that was released can be taken again. This is shown by the author's counts where the device has any, and
//! otherwise by taking nearly all memory again and again.

use millpond_backend::{Backend, ClassId};

use super::bench::{Bench, told};
use super::{advised, breach};
use crate::device::{DeviceUnderTest, Live};
use crate::session::Stop;

const BYTES: u64 = 1 << 20;
const COUNT: u64 = 3;
/// The smallest request with which memory is exhausted, in bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// The most rounds of taking and releasing when memory is exhausted.
const ROUNDS_MAX: u64 = 64;
/// The most bytes of addresses that are exhausted, where a device has more.
const ADDRESSES: u64 = 1 << 47;

/// The author's counts before, while [`COUNT`] objects of one kind are held, and after.
struct Told {
    before: (Option<Live>, Option<u64>),
    during: (Option<Live>, Option<u64>),
    after: (Option<Live>, Option<u64>),
}

impl Told {
    /// Returns whether there were counts that a release changes.
    fn judge(&self, verb: &str, count: fn(&Live) -> u64, bytes: u64) -> Result<bool, Stop> {
        let Told { before, during, after } = self;
        let mut judged = false;
        if let (Some(before), Some(during)) = (before.0, during.0) {
            judged = true;
            if count(&during) != count(&before) + COUNT {
                let found = format!("{COUNT} were taken, and of {before:?} became {during:?}");
                return Err(breach("DeviceUnderTest::live", found, "counts what is in others' hands"));
            }
        }
        if let (Some(before), Some(during)) = (before.1, during.1)
            && bytes > 0
        {
            judged = true;
            if during < before + bytes {
                let found = format!("{bytes} bytes were taken, and {before} bytes held became {during}");
                return Err(breach(
                    "DeviceUnderTest::held_bytes",
                    found,
                    "bytes of the device's own memory in others' hands",
                ));
            }
        }
        if after != before {
            let (before, after) = (told(*before), told(*after));
            let found = format!("{COUNT} were taken and given back; what is held was {before} before and is {after}");
            let advice = "free what it gives back, and subtract it where held_bytes and live count";
            return Err(advised(breach(verb, found, "gives it back"), advice));
        }
        Ok(judged)
    }
}

/// Takes most of the memory and releases it, more often than would fit without the releases. `take_and_give` returns
/// false where the device refuses.
fn exhaust(
    verb: &str,
    total: u64,
    step: u64,
    take_and_give: &mut dyn FnMut(u64) -> Result<bool, Stop>,
) -> Result<(), Stop> {
    let mut bytes = total / 2 / step * step;
    while bytes >= LEAST_BYTES.max(step) {
        if take_and_give(bytes)? {
            for round in 1..=(total / bytes + 1).min(ROUNDS_MAX) {
                if !take_and_give(bytes)? {
                    let found = format!("{bytes} bytes were had and given back {round} times, and then refused");
                    return Err(breach(verb, found, "gives it back"));
                }
            }
            return Ok(());
        }
        bytes = bytes / 2 / step * step;
    }
    Err(Stop::Skip("the device has too little left to exhaust it".to_owned()))
}

/// Checks that memory can be exhausted, which requires a device that refuses what it does not have.
fn exhaustible<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    if bench.caps().oversubscribes {
        let why = "nothing says what is released on a device that grants more than it has: write DeviceUnderTest::live";
        return Err(Stop::Fail(why.to_owned()));
    }
    Ok(())
}

pub(super) fn segments<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const VERB: &str = "Backend::release";
    for class in bench.classes() {
        let before = bench.told();
        let taken: Result<Vec<_>, Stop> = (0..COUNT).map(|_| bench.reserve(class, BYTES)).collect();
        let (taken, during) = (taken?, bench.told());
        taken.into_iter().try_for_each(|segment| bench.release(segment))?;
        let told = Told { before, during, after: bench.told() };
        let bytes = if class == ClassId::DEVICE { COUNT * BYTES } else { 0 };
        if told.judge(VERB, |live| live.segments, bytes)? || class != ClassId::DEVICE {
            continue;
        }
        exhaustible(bench)?;
        let facts = bench.caps().class(class);
        exhaust(VERB, facts.total_bytes.min(facts.max_segment_bytes), 512, &mut |bytes| {
            let Ok(segment) = bench.backend().reserve(class, bytes) else { return Ok(false) };
            bench.release(segment).map(|()| true)
        })?;
    }
    Ok(())
}

pub(super) fn pages<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const VERB: &str = "VirtualMemory::release_page";
    let (before, size) = (bench.told(), bench.granularity());
    let taken: Result<Vec<_>, Stop> = (0..COUNT).map(|_| bench.page(size)).collect();
    let (taken, during) = (taken?, bench.told());
    taken.into_iter().try_for_each(|page| bench.release_page(page))?;
    let told = Told { before, during, after: bench.told() };
    if told.judge(VERB, |live| live.pages, COUNT * size)? {
        return Ok(());
    }
    exhaustible(bench)?;
    exhaust(VERB, bench.caps().classes[0].total_bytes, size, &mut |bytes| match bench.try_page(bytes)? {
        Ok(page) => bench.release_page(page).map(|()| true),
        Err(_) => Ok(false),
    })
}

pub(super) fn ranges<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const VERB: &str = "VirtualMemory::release_range";
    let (before, size) = (bench.told(), bench.granularity());
    let taken: Result<Vec<_>, Stop> = (0..COUNT).map(|_| bench.range(4 * size)).collect();
    let (taken, during) = (taken?, bench.told());
    taken.into_iter().try_for_each(|range| bench.release_range(range))?;
    let told = Told { before, during, after: bench.told() };
    if told.judge(VERB, |live| live.ranges, 0)? && before.0.is_some() {
        return Ok(());
    }
    let addresses = bench.caps().pages.map_or(ADDRESSES, |pages| pages.address_bytes.min(ADDRESSES));
    exhaust(VERB, addresses, size, &mut |bytes| {
        let Some(range) = bench.try_range(bytes)? else { return Ok(false) };
        bench.release_range(range).map(|()| true)
    })
}
