//! The allocators by device, made at the first use of each, and what applies to those that are made later.

use millpond::ENVIRONMENT;
use millpond::conf;
use millpond::settings::Options;
use parking_lot::{Mutex, MutexGuard};

use super::opened;
use super::pond::{Pond, on};
use crate::code::Failure;
use crate::devices::{DEVICES, is_simulated, place};
use crate::fork;
use crate::watch;

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
    match opened::of_device(device)? {
        Some(pond) => Ok(pond),
        None => make(place(device)?),
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
    watch::begin_devices()?;
    let plan = PLAN.lock();
    if let Some(pond) = opened::of_device(place as i32)? {
        return Ok(pond);
    }
    let pond = Pond::open(place as u32, plan.conf.as_deref(), is_simulated()?)?;
    if let Some(fraction) = plan.fractions[place] {
        on!(&pond, of => of.allocator.set_memory_fraction(fraction));
    }
    Ok(opened::keep(place, pond))
}

/// Sets the configuration of allocators that are made later.
pub(super) fn configure(conf: Option<&str>) -> Result<(), Failure> {
    options(conf)?;
    let mut plan = plan()?;
    if opened::any() {
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
    if let Some(pond) = opened::of_device(device)? {
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
        None => Ok(options(plan.conf.as_deref())?.rest.memory_fraction),
    }
}
