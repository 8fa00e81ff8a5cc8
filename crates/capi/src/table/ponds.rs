//! The allocators by device, made at the first use of each, and what applies to those that are made later.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use millpond::ENVIRONMENT;
use millpond::conf;
use millpond::settings::Options;
use parking_lot::{Mutex, MutexGuard};

use super::pond::{Pond, on};
use crate::code::Failure;
use crate::fork;
use crate::numbered::{DEVICES, is_simulated, place};

/// The allocator of each device, or null. One that is there stays as long as the process.
static PONDS: [AtomicPtr<Pond>; DEVICES] = [const { AtomicPtr::new(ptr::null_mut()) }; DEVICES];

/// What allocators are made with. Held by a thread that makes one.
static PLAN: Mutex<Plan> = Mutex::new(Plan { conf: None, fractions: [None; DEVICES] });

struct Plan {
    /// The configuration; `None` for that of the environment.
    conf: Option<String>,
    /// The shares of memory that were set.
    fractions: [Option<f64>; DEVICES],
}

/// Returns the number of a device.
pub(super) fn number(device: i32) -> Result<u32, Failure> {
    Ok(place(device)? as u32)
}

/// Returns the allocator of a device, which is made at its first use.
#[inline]
pub(super) fn get(device: i32) -> Result<&'static Pond, Failure> {
    match opened(device)? {
        Some(pond) => Ok(pond),
        None => make(place(device)?),
    }
}

/// Returns the allocator of a device if it was used before.
#[inline]
pub(super) fn opened(device: i32) -> Result<Option<&'static Pond>, Failure> {
    // SAFETY: the pointer is null, or one that `make` leaked.
    match unsafe { PONDS[place(device)?].load(Ordering::Acquire).as_ref() } {
        Some(pond) => Ok(Some(pond)),
        None => fork::DEVICES.check().map(|()| None),
    }
}

/// Returns the allocator of the device whose number a block has; `None` in a child of the process that made the block.
#[inline]
pub(super) fn of_block(device: usize) -> Option<&'static Pond> {
    // SAFETY: as in `opened`.
    match unsafe { PONDS[device].load(Ordering::Acquire).as_ref() } {
        None if !fork::DEVICES.is_inherited() => panic!("a block is of device {device}, which was never used"),
        pond => pond,
    }
}

/// Forgets the allocators of a parent process, in the child of a `fork`.
pub(crate) fn disown() {
    for pond in PONDS.iter().filter(|pond| !pond.load(Ordering::Acquire).is_null()) {
        pond.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Returns what allocators are made with. In a child of a process that has made some, a thread of the parent may hold
/// the lock for ever.
fn plan() -> Result<MutexGuard<'static, Plan>, Failure> {
    fork::DEVICES.check()?;
    Ok(PLAN.lock())
}

#[cold]
fn make(place: usize) -> Result<&'static Pond, Failure> {
    fork::begin_devices()?;
    let plan = PLAN.lock();
    if let Some(pond) = opened(place as i32)? {
        return Ok(pond);
    }
    let pond = Pond::open(place as u32, plan.conf.as_deref(), is_simulated()?)?;
    if let Some(fraction) = plan.fractions[place] {
        on!(&pond, of => of.allocator.set_memory_fraction(fraction));
    }
    let pond: &'static Pond = Box::leak(Box::new(pond));
    PONDS[place].store(ptr::from_ref(pond).cast_mut(), Ordering::Release);
    Ok(pond)
}

/// Sets the configuration of allocators that are made later.
pub(super) fn configure(conf: Option<&str>) -> Result<(), Failure> {
    options(conf)?;
    let mut plan = plan()?;
    if PONDS.iter().any(|pond| !pond.load(Ordering::Acquire).is_null()) {
        return Err(Failure::bad_argument("a device is in use already, with the configuration that it began with"));
    }
    plan.conf = conf.map(str::to_owned);
    Ok(())
}

/// Returns the configuration in its canonical form.
pub(super) fn configuration() -> Result<String, Failure> {
    Ok(conf::write(&options(plan()?.conf.as_deref())?))
}

/// Parses a configuration, or that of the environment.
fn options(conf: Option<&str>) -> Result<Options, Failure> {
    let fault = |name: &str, error| Failure::bad_argument(format!("{name}{error}"));
    if let Some(text) = conf {
        return conf::parse(text).map_err(|error| fault("", error));
    }
    let found = ENVIRONMENT.into_iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
    let Some((name, text)) = found else { return Ok(Options::default()) };
    conf::parse(&text).map_err(|error| fault(&format!("in the environment variable {name}: "), error))
}

/// Limits the reserved bytes of a device to a share of its memory, now or once it is used.
pub(super) fn set_fraction(device: i32, fraction: f64) -> Result<(), Failure> {
    let place = place(device)?;
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Failure::bad_argument(format!("the share {fraction} is not from 0 to 1")));
    }
    let mut plan = plan()?;
    plan.fractions[place] = Some(fraction);
    if let Some(pond) = opened(device)? {
        on!(pond, of => of.allocator.set_memory_fraction(fraction));
    }
    Ok(())
}

/// Returns the share of a device's memory that may be reserved.
pub(super) fn fraction(device: i32) -> Result<f64, Failure> {
    let place = place(device)?;
    let plan = plan()?;
    match plan.fractions[place] {
        Some(fraction) => Ok(fraction),
        None => Ok(options(plan.conf.as_deref())?.memory_fraction),
    }
}
