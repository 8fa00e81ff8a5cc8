//! The backends of this binary: their names, the devices that they find, and how a command runs on one of them.
//!
//! A backend is a file of this folder with a [`Choice`] for its options, which `millpond-any` reads, and its line in
//! the table of `table.rs`. Commands get an [`Opened`] device and need not know its backend.

mod certify;
#[cfg(feature = "cuda")]
mod cuda;
mod sim;
mod table;
mod usage;
#[cfg(feature = "vulkan")]
mod vulkan;
#[cfg(feature = "wgpu")]
mod wgpu;

use std::time::Duration;

use millpond_any::AnyDevice;
use millpond_backend::{Backend, BudgetInfo, Caps, ClassId};
use millpond_conformance::Tested;
use millpond_replay::tune::Trial;
use millpond_replay::{Flight, Hold, Replay};

use crate::failure::Failure;

pub(crate) use certify::Wanted;
pub(crate) use table::{BACKENDS, DeviceName, SIMULATED, Target, device_help, devices_help, typed};
pub(crate) use usage::UsageRow;

/// All that the command does with a device of a backend. It is for the backend's options, which choose the device.
trait Choice: Sized {
    /// The section about the backend on the page that `--help` prints. It does not end in a line break.
    const HELP: &'static str;

    /// Looks for the devices of the backend on this machine.
    fn find() -> Found;

    /// Returns the number of the device among those of its backend, where they have numbers.
    fn index(&self) -> Option<usize>;

    /// Returns the version of the device's driver, where it says so.
    fn driver(&self) -> Option<String>;

    /// Opens the device. A device that can is like the one of a recorded program.
    fn opened(&self, recorded: &Recorded<'_>) -> Result<Opened, Failure>;

    /// Returns other allocators of the device, each on a device opened for it.
    fn peers(&self) -> Result<Vec<Peer>, Failure>;

    /// Returns the device as the conformance suite opens it.
    fn tested(&self) -> Result<Tested, Failure>;

    /// Opens the device for as long as the suite is at work, where it pays to hold it open: the suite opens it for each
    /// scenario.
    fn held(&self) -> Result<Option<AnyDevice>, Failure> {
        Ok(None)
    }

    /// Returns each kind of the device that the whole suite runs on: the device itself, unless a backend makes devices
    /// of several kinds.
    fn each_kind(&self) -> Result<Vec<Tested>, Failure> {
        Ok(vec![self.tested()?])
    }
}

/// What is known of the device of a recorded program.
#[derive(Clone, Copy, Default)]
pub(crate) struct Recorded<'a> {
    /// The bytes and the address of each of its segments, in order.
    segments: &'a [(u64, u64)],
    /// Whether the program submits its work itself.
    has_submits: bool,
    /// The bytes of addresses for its ranges, if they are limited.
    address_bytes: Option<u64>,
}

impl<'a> Recorded<'a> {
    /// Returns what a replay knows.
    pub(crate) fn of(replay: &'a Replay) -> Self {
        let (has_submits, address_bytes) = (replay.has_submits(), replay.address_bytes());
        Self { segments: replay.segment_addresses(), has_submits, address_bytes }
    }

    /// Returns what a trial knows.
    pub(crate) fn of_trial(trial: &Trial) -> Self {
        Self { segments: &[], has_submits: trial.has_submits(), address_bytes: trial.address_bytes() }
    }
}

/// A device that was opened for a command.
pub(crate) struct Opened {
    /// The device.
    pub(crate) device: AnyDevice,
    /// Work that the device has besides fills.
    pub(crate) work: Option<Work>,
    /// Returns what the device objects to once the command is done with it, if anything.
    objection: Box<dyn FnOnce() -> Option<String>>,
}

impl Opened {
    fn new(device: impl Into<AnyDevice>) -> Self {
        Self { device: device.into(), work: None, objection: Box::new(|| None) }
    }
}

/// Work that a device has besides fills.
pub(crate) enum Work {
    /// Work that is complete when it is told to be.
    Held(Box<dyn Hold>),
    /// Pieces of work that leave most of the device to other work.
    #[allow(dead_code, reason = "a build may have no backend with such work")]
    Small(MakeSmall),
}

/// Makes work whose pieces take the given time.
pub(crate) type MakeSmall = Box<dyn FnOnce(Duration) -> Result<Box<dyn Flight<AnyDevice>>, Failure>>;

/// Work on a typed device, for measurements of speed.
pub(crate) trait Typed {
    /// The result.
    type Output;

    /// Does the work on the device.
    fn on<B: Backend + Clone>(self, device: B) -> Result<Self::Output, Failure>;
}

/// Another allocator, which is measured beside Millpond.
pub(crate) struct Peer {
    /// The name of the allocator, for readers.
    pub(crate) name: &'static str,
    /// The most pairs in a round: a lower number where each pair calls the driver.
    pub(crate) max_per_round: u64,
    /// Allocates the given number of bytes and frees them.
    pub(crate) pair: Box<dyn FnMut(u64) -> Result<(), Failure>>,
}

/// The result of looking for the devices of a backend.
pub(crate) enum Found {
    /// The devices, at least one, including those that do not open.
    Devices(Vec<Result<Device, Broken>>),
    /// No device, and the reason.
    Nothing {
        /// What is missing.
        why: String,
        /// What to do about it.
        remedy: String,
    },
}

/// A fact about a device that the backend contract does not cover: its name and its value.
pub(crate) type Fact = (&'static str, String);

/// One device, as it is listed.
pub(crate) struct Device {
    /// The value of `--device` that chooses it.
    pub(crate) target: String,
    /// Its capabilities.
    pub(crate) caps: Caps,
    /// The budget of each class, where the device reports it.
    pub(crate) budgets: Vec<Option<BudgetInfo>>,
    /// Further facts about it.
    pub(crate) facts: Vec<Fact>,
    /// What the device lacks, each with its consequence and its remedy.
    pub(crate) missing: Vec<String>,
}

/// A device that is present but does not open.
pub(crate) struct Broken {
    /// The value of `--device` that would choose it if it opened.
    pub(crate) target: String,
    /// The name that the driver gives it.
    pub(crate) name: String,
    /// Facts about it.
    pub(crate) facts: Vec<Fact>,
    /// What is missing.
    pub(crate) why: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Device {
    /// Describes a device by what its backend reports.
    fn of<B: Backend>(target: &str, backend: &B) -> Self {
        let caps = backend.caps().clone();
        let budget = |class| backend.budget()?.budget(ClassId(class)).ok();
        let budgets = (0..caps.classes.len() as u16).map(budget).collect();
        Self { target: target.into(), caps, budgets, facts: Vec::new(), missing: Vec::new() }
    }
}
