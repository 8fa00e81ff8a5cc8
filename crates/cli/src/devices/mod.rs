//! The backends of this binary: what they are called, what they find, and how a command runs on one of them.
//!
//! A backend is one entry of [`BACKENDS`] and one variant of [`Target`]. Commands are generic over the backend; they
//! come here as a [`Job`] and are told which one it is.

mod sim;

use millpond_backend::{Backend, BudgetInfo, Caps, ClassId};
use millpond_conformance::{DeviceUnderTest as _, ScenarioResult, suite};

use crate::failure::Failure;

pub(crate) use sim::SimOptions;

/// One backend that people may ask for.
pub(crate) struct Entry {
    /// What people call it.
    pub(crate) name: &'static str,
    /// What it finds on this machine.
    pub(crate) find: fn() -> Found,
    /// The device that `NAME` or `NAME:OPTIONS` names, from its options.
    target: fn(options: &str) -> Result<Target, Failure>,
}

/// Every backend, the most wanted first: a replay that names no device takes the first that has one.
pub(crate) const BACKENDS: [Entry; 4] = [
    Entry { name: "cuda", find: || not_built_in("cuda"), target: |_| Err(absent("cuda")) },
    Entry { name: "vulkan", find: || not_built_in("vulkan"), target: |_| Err(absent("vulkan")) },
    Entry { name: "wgpu", find: || not_built_in("wgpu"), target: |_| Err(absent("wgpu")) },
    sim::ENTRY,
];

/// What a backend has to offer here.
pub(crate) enum Found {
    /// Its devices, at least one.
    Devices(Vec<Device>),
    /// Nothing, and why.
    Nothing {
        /// What is missing.
        why: String,
        /// What to do about it.
        remedy: String,
    },
}

/// One device, as it is listed.
pub(crate) struct Device {
    /// What to give to `--device`.
    pub(crate) target: String,
    /// Its facts.
    pub(crate) caps: Caps,
    /// What is left of each class, where the device tells.
    pub(crate) budgets: Vec<Option<BudgetInfo>>,
}

impl Device {
    /// Asks a backend.
    fn of<B: Backend>(target: &str, backend: &B) -> Self {
        let caps = backend.caps().clone();
        let budget = |class| backend.budget()?.budget(ClassId(class)).ok();
        let budgets = (0..caps.classes.len() as u16).map(budget).collect();
        Self { target: target.into(), caps, budgets }
    }
}

/// A device that was chosen.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Target {
    /// A simulated one.
    Sim(SimOptions),
}

/// Something to do on a device, whichever backend it has.
pub(crate) trait Job {
    /// What comes of it.
    type Output;

    /// Does it on a device that has served nobody yet.
    fn run<B: Backend>(self, backend: B) -> Result<Self::Output, Failure>;
}

impl Target {
    /// The device that a text names, or the best one there is.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a name or an option that nobody knows; [`Failure::Device`] for a device that is missing.
    pub(crate) fn choose(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else { return Self::best() };
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        match BACKENDS.iter().find(|entry| entry.name == name) {
            Some(entry) => (entry.target)(options),
            None => {
                let names = BACKENDS.map(|entry| entry.name).join(", ");
                Err(Failure::Input(format!(
                    "no backend is called `{name}`; there are {names}, and `millpond devices` says which have devices"
                )))
            }
        }
    }

    fn best() -> Result<Self, Failure> {
        let entry = BACKENDS.iter().find(|entry| matches!((entry.find)(), Found::Devices(_)));
        match entry {
            Some(entry) => (entry.target)(""),
            None => Err(Failure::Device("no backend has a device; `millpond devices` says why".into())),
        }
    }

    /// The same device, keeping the bytes that are written to it. Real devices do so anyhow.
    pub(crate) fn with_bytes(self) -> Self {
        match self {
            Self::Sim(options) => Self::Sim(options.with_bytes()),
        }
    }

    /// What people call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sim(_) => "sim",
        }
    }

    /// Opens the device and does a job on it.
    ///
    /// # Errors
    ///
    /// The job's, and [`Failure::Device`] if the device does not open.
    pub(crate) fn run<J: Job>(&self, job: J) -> Result<J::Output, Failure> {
        match self {
            Self::Sim(options) => job.run(options.open()),
        }
    }

    /// Runs the conformance suite on the device, or on every kind of it whose name contains `only`, and tells each
    /// result with the name of the kind.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for options that the suite does not heed, and where no kind has such a name.
    pub(crate) fn certify(
        &self,
        only: Option<&str>,
        tell: &mut dyn FnMut(&str, &ScenarioResult),
    ) -> Result<(), Failure> {
        let is_wanted = |name: &str| only.is_none_or(|only| name.contains(only));
        let mut names = Vec::new();
        match self {
            Self::Sim(options) if *options == SimOptions::default() => {
                for device in suite::sim_devices() {
                    names.push(device.name());
                    if is_wanted(&device.name()) {
                        suite::run(&device, &[], &mut |result| tell(&device.name(), result));
                    }
                }
            }
            Self::Sim(_) => {
                return Err(Failure::Input(
                    "the suite makes simulated devices of every kind itself; give `--device sim` without options"
                        .into(),
                ));
            }
        }
        if names.iter().any(|name| is_wanted(name)) {
            return Ok(());
        }
        let only = only.unwrap_or_default();
        Err(Failure::Input(format!("no device has `{only}` in its name; the names are\n  {}", names.join("\n  "))))
    }
}

fn not_built_in(name: &str) -> Found {
    Found::Nothing {
        why: format!("this binary was built without the {name} backend"),
        remedy: "use another device, or a binary that has it".into(),
    }
}

fn absent(name: &str) -> Failure {
    Failure::Device(format!(
        "this binary was built without the {name} backend; `millpond devices` lists what there is, as `--device sim`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_device_is_the_first_that_is_there() {
        assert_eq!(Target::choose(None), Ok(Target::Sim(SimOptions::default())));
        assert_eq!(Target::choose(Some("sim")), Target::choose(None));
    }

    #[test]
    fn what_is_listed_as_missing_cannot_be_chosen() {
        for entry in &BACKENDS {
            let chosen = Target::choose(Some(entry.name));
            match (entry.find)() {
                Found::Devices(devices) => {
                    assert!(chosen.is_ok(), "{}", entry.name);
                    for device in devices {
                        assert!(Target::choose(Some(&device.target)).is_ok(), "{}", device.target);
                    }
                }
                Found::Nothing { .. } => assert!(matches!(chosen, Err(Failure::Device(_))), "{}", entry.name),
            }
        }
    }
}
