//! Facts and powers: `Caps`, and the methods that return the powers that it announces.

use millpond_backend::{Backend, Caps, ClassId, ClassKind, Reuse};

use super::bench::Bench;
use super::breach;
use crate::device::DeviceUnderTest;
use crate::session::Stop;

/// Checks that the facts are possible for a device and do not change.
pub(super) fn make_sense<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let (caps, clock) = (bench.caps().clone(), bench.backend().driver_clock());
    possible(&caps)?;
    let segment = bench.reserve(ClassId::DEVICE, 4096)?;
    bench.release(segment)?;
    if *bench.caps() != caps {
        let found = format!("they were {caps:?} and are {:?}", bench.caps());
        return Err(breach("Backend::caps", found, "constant"));
    }
    let later = bench.backend().driver_clock();
    if later.is_some() != clock.is_some() || later < clock {
        let found = format!("{later:?} ns after {clock:?} ns");
        return Err(breach(
            "Backend::driver_clock",
            found,
            "nanoseconds on the device's own clock, which does not go back",
        ));
    }
    Ok(())
}

fn possible(caps: &Caps) -> Result<(), Stop> {
    let first = caps.classes.first().map(|class| class.kind);
    if first != Some(ClassKind::Device) {
        return Err(breach("Caps::classes", format!("entry 0 is {first:?}"), "entry 0 is the device's own memory"));
    }
    for class in &caps.classes {
        if !class.alignment.is_power_of_two() {
            let found = format!("{} of the class {:?}", class.alignment, class.name);
            return Err(breach("Class::alignment", found, "a power of two"));
        }
        if class.total_bytes == 0 || class.max_segment_bytes == 0 {
            let found = format!("{class:?} can have no segment");
            return Err(breach("Class::total_bytes", found, "all bytes that the device has in this class"));
        }
    }
    if let Some(pages) = caps.pages.filter(|pages| !pages.granularity.is_power_of_two()) {
        return Err(breach("PageCaps::granularity", pages.granularity, "a power of two"));
    }
    if let Some(pages) = caps.pages.filter(|pages| pages.address_bytes < pages.granularity) {
        let found = format!("{} for pages of {}", pages.address_bytes, pages.granularity);
        return Err(breach("PageCaps::address_bytes", found, "bytes of addresses that all ranges together can have"));
    }
    if caps.needs_barrier && caps.reuse == Reuse::AfterDone {
        let found = format!("announced with Reuse::{:?}", caps.reuse);
        return Err(breach(
            "Caps::needs_barrier",
            found,
            "goes with Reuse::InOrder and Reuse::AfterSubmit: what is done needs no barrier",
        ));
    }
    Ok(())
}

/// Checks that every power that is announced exists, and that every power that exists is announced.
pub(super) fn powers_answer<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let (caps, backend) = (bench.caps(), bench.backend());
    let powers = [
        ("Backend::virtual_memory", "Caps::pages", caps.pages.is_some(), backend.virtual_memory().is_some()),
        ("Backend::stream_wait", "Caps::stream_wait", caps.stream_wait, backend.stream_wait().is_some()),
        ("Backend::host_memory", "Caps::host_memory", caps.host_memory, backend.host_memory().is_some()),
        ("Backend::transfer", "Caps::transfer", caps.transfer, backend.transfer().is_some()),
        ("Backend::budget", "Caps::budget", caps.budget, backend.budget().is_some()),
    ];
    for (verb, fact, announced, there) in powers {
        if announced != there {
            let found = format!("answers {}, and {fact} says {announced}", if there { "some" } else { "none" });
            return Err(breach(verb, found, "a power that a backend has is announced, and one announced is there"));
        }
    }
    Ok(())
}
