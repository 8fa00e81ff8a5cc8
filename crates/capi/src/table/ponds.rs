//! The allocators by device, made at the first use of each, and what applies to those that are made later.

use millpond::ENVIRONMENT;
use millpond::conf::{self, ConfError, Parsed};
use millpond::settings::Options;
use parking_lot::{Mutex, MutexGuard};

use super::opened;
use super::pond::{Pond, on};
use crate::code::Failure;
use crate::devices::{DEVICES, is_simulated, place};
use crate::fork;
use crate::watch;

/// What allocators are made with. Held by a thread that makes one. Once there is one, only some settings change.
static PLAN: Mutex<Plan> = Mutex::new(Plan { conf: None, first: None, fractions: [None; DEVICES] });

struct Plan {
    /// The configuration; `None` for that of the environment.
    conf: Option<String>,
    /// That of the first device, as it began.
    first: Option<String>,
    /// The shares of memory that were set.
    fractions: [Option<f64>; DEVICES],
}

/// Returns the number of a device.
pub(super) fn number(device: i32) -> Result<u32, Failure> {
    Ok(place(device)? as u32)
}

/// Returns the allocator of a device, which is made at its first use.
#[inline]
pub(crate) fn get(device: i32) -> Result<&'static Pond, Failure> {
    match opened::of_device(device)? {
        Some(pond) => Ok(pond),
        None => make(place(device)?, None),
    }
}

/// Returns the allocator of a device, which is made at its first use, and has this configuration. Without one it has
/// that which the others have.
pub(crate) fn get_with(device: i32, conf: Option<&str>) -> Result<&'static Pond, Failure> {
    match (opened::of_device(device)?, conf) {
        (Some(pond), None) => Ok(pond),
        _ => make(place(device)?, conf),
    }
}

/// Returns what allocators are made with. In a child of a process that has made some, a thread of the parent may hold
/// the lock for ever.
fn plan() -> Result<MutexGuard<'static, Plan>, Failure> {
    fork::DEVICES.check()?;
    Ok(PLAN.lock())
}

#[cold]
fn make(place: usize, conf: Option<&str>) -> Result<&'static Pond, Failure> {
    watch::begin_devices()?;
    let mut plan = PLAN.lock();
    if conf.is_some() {
        plan.configure(conf)?;
    }
    if let Some(pond) = opened::of_device(place as i32)? {
        return Ok(pond);
    }
    let conf = plan.text()?;
    let pond = Pond::open(place as u32, &conf, is_simulated()?)?;
    plan.first.get_or_insert_with(|| conf.clone());
    plan.conf = Some(conf);
    if let Some(fraction) = plan.fractions[place] {
        on!(&pond, of => of.served.allocator.set_memory_fraction(fraction));
    }
    Ok(opened::keep(place, pond))
}

impl Plan {
    /// Returns the configuration as a text: that of the environment, unless one was set.
    fn text(&self) -> Result<String, Failure> {
        options(self.conf.as_deref())?;
        Ok(self.conf.clone().or_else(|| Some(environment()?.1)).unwrap_or_default())
    }

    /// Sets the configuration. Once a device is in use, it must be that which the device has, or began with.
    fn configure(&mut self, conf: Option<&str>) -> Result<(), Failure> {
        let asked = options(conf)?;
        if !opened::any() {
            self.conf = conf.map(str::to_owned);
            return Ok(());
        }
        let first = self.first.as_deref().unwrap_or_default();
        if asked != options(self.conf.as_deref())? && asked != options(Some(first))? {
            return Err(Failure::bad_argument(format!(
                "a device is in use already, with the configuration that it began with: `{first}`"
            )));
        }
        Ok(())
    }
}

/// Sets the configuration of all allocators.
pub(super) fn configure(conf: Option<&str>) -> Result<(), Failure> {
    options(conf)?;
    plan()?.configure(conf)
}

/// Returns the configuration in its canonical form.
pub(super) fn configuration() -> Result<String, Failure> {
    Ok(conf::write(&options(plan()?.conf.as_deref())?))
}

/// Returns the keys of the configuration that ask for what Millpond does not do.
pub(super) fn unserved() -> Result<Vec<&'static str>, Failure> {
    Ok(parsed(plan()?.conf.as_deref())?.unserved)
}

/// What keys had no effect, by the reason.
#[derive(Default)]
pub(super) struct Reconfigured {
    pub(super) kept: Vec<&'static str>,
    pub(super) unserved: Vec<&'static str>,
}

/// Changes settings of the allocators that there are, and of those that are made later. While there are none, every key
/// has its effect.
pub(super) fn reconfigure(text: &str) -> Result<Reconfigured, Failure> {
    let mut plan = plan()?;
    let base = options(plan.conf.as_deref())?;
    let Parsed { options: wished, keys, unserved, .. } =
        conf::parse_over(base.clone(), text).map_err(|error| fault("", &error))?;
    let mut done = Reconfigured { kept: Vec::new(), unserved };
    for pond in opened::all() {
        // The allocators agree in what they take over, so that none refuses what the others have taken.
        let of_pond = on!(pond, of => of.served.allocator.configure(text)).map_err(|error| fault("", &error))?;
        done.kept.extend(of_pond.kept.into_iter().filter(|key| !done.kept.contains(key)).collect::<Vec<_>>());
    }
    let is_used = opened::any();
    let options = if is_used { Options { rest: base.rest.changed_to(&wished.rest), ..base } } else { wished };
    plan.conf = Some(conf::write(&options));
    if keys.contains(&"per_process_memory_fraction") {
        plan.fractions = [None; DEVICES];
    }
    Ok(done)
}

fn fault(place: &str, error: &ConfError) -> Failure {
    Failure::bad_argument(format!("{place}{error}"))
}

/// Parses a configuration, or that of the environment.
fn parsed(conf: Option<&str>) -> Result<Parsed, Failure> {
    let parse = |text: &str| conf::parse_over(Options::default(), text);
    if let Some(text) = conf {
        return parse(text).map_err(|error| fault("", &error));
    }
    let (name, text) = environment().unwrap_or_default();
    parse(&text).map_err(|error| fault(&format!("in the environment variable {name}: "), &error))
}

fn options(conf: Option<&str>) -> Result<Options, Failure> {
    Ok(parsed(conf)?.options)
}

/// Returns the environment variable that configures, and its text.
fn environment() -> Option<(&'static str, String)> {
    ENVIRONMENT.into_iter().find_map(|name| Some((name, std::env::var(name).ok()?)))
}

/// Limits the reserved bytes of a device to a share of its memory, now or once it is used.
pub(crate) fn set_fraction(device: i32, fraction: f64) -> Result<(), Failure> {
    let place = place(device)?;
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Failure::bad_argument(format!("the share {fraction} is not from 0 to 1")));
    }
    let mut plan = plan()?;
    plan.fractions[place] = Some(fraction);
    if let Some(pond) = opened::of_device(device)? {
        on!(pond, of => of.served.allocator.set_memory_fraction(fraction));
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
