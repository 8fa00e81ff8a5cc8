//! The table of backends, and the device of one of them that a command runs on.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use millpond::settings::Policy;
use millpond_any::AnyDevice;
use millpond_conformance::sameness::{Program, Trail};
use millpond_conformance::{Outcome, Tested};

use super::certify::{Certify, Tell, Wanted};
use super::{Choice, Found, Opened, Peer, Recorded, Typed};
use crate::failure::Failure;
use crate::names::suggestion;
use crate::output::tell;

/// A backend that can be chosen by name.
pub(crate) struct Entry {
    /// The name of the backend in `--device`.
    pub(crate) name: &'static str,
    /// Looks for the devices of the backend on this machine.
    pub(crate) find: fn() -> Found,
    /// The section about the backend on the page that `--help` prints.
    help: &'static str,
    /// Parses the options of `NAME` or `NAME:OPTIONS` and returns the device that they name.
    target: fn(options: &str) -> Result<Target, Failure>,
    /// Returns the device for a command that names none, if the backend has one that is not in software.
    preferred: fn() -> Option<Target>,
}

/// The name of the simulated device, which is always there: the last of all.
pub(crate) const SIMULATED: &str = BACKENDS[BACKENDS.len() - 1].name;

/// A device that was chosen, with its options as they were given.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Target {
    chosen: Chosen,
    options: String,
}

/// Makes [`BACKENDS`] and [`Chosen`] from the table of backends. Of each the table has the feature that it is built
/// with, its name, its variant of [`Chosen`] and its options, for which there is a
/// [`Choice`].
macro_rules! backends {
    ($($(#[cfg($feature:meta)])? $name:literal: $variant:ident($choice:ty),)*) => {
        /// All backends, the preferred ones first.
        pub(crate) const BACKENDS: &[Entry] = &[$(
            $(#[cfg($feature)])?
            Entry {
                name: $name,
                find: <$choice>::find,
                help: <$choice>::HELP,
                target: |options| match <$choice>::parse(options) {
                    Ok(choice) => Ok(Target { chosen: Chosen::$variant(Box::new(choice)), options: options.into() }),
                    Err(what) => Err(Failure::Input(format!("--device {}: {what}", $name))),
                },
                preferred: || {
                    let chosen = Chosen::$variant(Box::new(<$choice>::preferred().ok()?));
                    Some(Target { chosen, options: String::new() })
                },
            },
            $(
                #[cfg(not($feature))]
                Entry {
                    name: $name,
                    find: || not_built_in($name),
                    help: "",
                    target: |_| Err(absent($name)),
                    preferred: || None,
                },
            )?
        )*];

        /// Does the work on the typed device that was chosen.
        ///
        /// # Errors
        ///
        /// Returns the error of the work.
        pub(crate) fn typed<T: Typed>(device: AnyDevice, work: T) -> Result<T::Output, Failure> {
            match device {
                $(
                    $(#[cfg($feature)])?
                    AnyDevice::$variant(device) => work.on(device),
                )*
                // A backend that is missing from the table is measured through `millpond-any`.
                device => work.on(device),
            }
        }

        /// A device that was chosen, by its backend.
        #[derive(Clone, PartialEq, Debug)]
        enum Chosen {
            $(
                $(#[cfg($feature)])?
                $variant(Box<$choice>),
            )*
        }

        impl Target {
            /// Returns the name of its backend.
            pub(crate) fn name(&self) -> &'static str {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(_) => $name,)*
                }
            }

            /// Returns the number of the device among those of its backend, where they have numbers.
            pub(crate) fn index(&self) -> Option<usize> {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(choice) => Choice::index(&**choice),)*
                }
            }

            /// Returns the version of the device's driver, where it says so.
            pub(crate) fn driver(&self) -> Option<String> {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(choice) => Choice::driver(&**choice),)*
                }
            }

            fn opened(&self, recorded: &Recorded<'_>) -> Result<Opened, Failure> {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(choice) => choice.opened(recorded),)*
                }
            }

            /// Returns the peers that the backend offers, each on a device opened for it.
            ///
            /// # Errors
            ///
            /// Returns [`Failure::Device`] if the device does not open.
            pub(crate) fn peers(&self) -> Result<Vec<Peer>, Failure> {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(choice) => choice.peers(),)*
                }
            }

            fn tested(&self) -> Result<Tested, Failure> {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(choice) => choice.tested(),)*
                }
            }

            fn held(&self) -> Result<Option<AnyDevice>, Failure> {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(choice) => choice.held(),)*
                }
            }

            fn each_kind(&self) -> Result<Vec<Tested>, Failure> {
                match &self.chosen {
                    $($(#[cfg($feature)])? Chosen::$variant(choice) => choice.each_kind(),)*
                }
            }
        }
    };
}

backends! {
    #[cfg(feature = "cuda")] "cuda": Cuda(millpond_any::options::CudaOptions),
    #[cfg(feature = "vulkan")] "vulkan": Vulkan(millpond_any::options::VulkanOptions),
    #[cfg(feature = "wgpu")] "wgpu": Wgpu(millpond_any::options::WgpuOptions),
    "sim": Sim(millpond_any::options::SimOptions),
}

/// Returns the page on devices that the `--help` of several commands prints: the device that is always there first.
pub(crate) fn device_help() -> String {
    let sections = BACKENDS.iter().rev().take(1).chain(&BACKENDS[..BACKENDS.len() - 1]);
    let sections: String =
        sections.filter(|entry| !entry.help.is_empty()).map(|entry| format!("\n{}\n", entry.help)).collect();
    let names: Vec<_> = BACKENDS.iter().map(|entry| entry.name).collect();
    let preferred = match names.as_slice() {
        [first @ .., last, always] => format!("{} or {last}, or else {always}", first.join(", ")),
        few => few.join(""),
    };
    format!(
        "The device: NAME or NAME:KEY=VALUE,... as `millpond devices` lists them. Without it, the first GPU, by \
         {preferred}; software devices are used only if named\n{sections}"
    )
}

/// Reads the value of `--device` as it is. A shell completes the names of the backends, without numbers
/// and options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// Of one device.
    One,
    /// Of several devices with commas between them, or [`ALL`].
    List,
}

impl DeviceName {
    fn all(self) -> Option<&'static str> {
        (self == Self::List).then_some(ALL)
    }
}

/// What stands for every device that there is.
const ALL: &str = "all";

impl TypedValueParser for DeviceName {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(BACKENDS.iter().map(|entry| entry.name).chain(self.all()).map(PossibleValue::new)))
    }
}

/// Returns the page on devices of a command that takes several.
pub(crate) fn devices_help() -> String {
    format!("{}\n\nSeparate several with commas; `{ALL}` is every device", device_help())
}

impl Target {
    /// Returns what follows the name in `--device`, if anything does.
    pub(crate) fn options(&self) -> Option<&str> {
        Some(self.options.as_str()).filter(|options| !options.is_empty())
    }

    /// Opens the device and calls `job` with it.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Device`] if the device does not open, [`Failure::Check`] if it objects to what the job did,
    /// and else the error of the job.
    pub(crate) fn run<T>(&self, job: impl FnOnce(Opened) -> Result<T, Failure>) -> Result<T, Failure> {
        self.run_as_recorded(&Recorded::default(), job)
    }

    /// Opens the device for the replay of a recorded program and calls `job` with it. A device that can is like the
    /// program's.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`run`](Self::run).
    pub(crate) fn run_as_recorded<T>(
        &self,
        recorded: &Recorded<'_>,
        job: impl FnOnce(Opened) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut opened = self.opened(recorded)?;
        let objection = std::mem::replace(&mut opened.objection, Box::new(|| None));
        let done = job(opened);
        objection().map_or(done, |objection| Err(Failure::Check(objection)))
    }

    /// Runs what is wanted of the conformance suite on the device, or on every wanted kind of it, and passes each
    /// result to `tell` with the name of the kind.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] for options that the suite does not use, or if no kind has such a name, and
    /// [`Failure::Device`] for a device that is missing.
    pub(crate) fn certify(&self, wanted: Wanted<'_>, tell: Tell<'_>) -> Result<(), Failure> {
        let mut suite = Certify::new(wanted, tell);
        let _held = self.held()?;
        self.each_kind()?.iter().for_each(|device| suite.run(device));
        suite.finish()
    }

    /// Opens the device anew and runs a program on it under a policy.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Device`] for a device that is missing.
    pub(crate) fn trail(&self, policy: Policy, program: &Program<'_>) -> Result<Result<Trail, Outcome>, Failure> {
        let _held = self.held()?;
        Ok(self.tested()?.trail(policy, program))
    }

    /// Returns the device that a text names, or the best one there is if the command names none.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] for an unknown name or option, and [`Failure::Device`] for a device that is missing.
    pub(crate) fn choose(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else { return Self::best() };
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        match BACKENDS.iter().find(|entry| entry.name == name) {
            Some(entry) => (entry.target)(options),
            None => {
                let names = BACKENDS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
                let meant = suggestion(name, BACKENDS.iter().map(|entry| entry.name));
                Err(Failure::Input(format!(
                    "no backend is called `{name}`; there are {names}, and `millpond devices` says which have \
                     devices{meant}"
                )))
            }
        }
    }

    /// Returns the devices that a text names with commas between them, every device for `all`, or the best one there is
    /// if the command names none. Devices that are listed but do not open are left out of `all`, with a note.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`choose`](Self::choose).
    pub(crate) fn list(text: Option<&str>) -> Result<Vec<Self>, Failure> {
        let Some(text) = text else { return Ok(vec![Self::best()?]) };
        let mut targets = Vec::new();
        for name in names(text) {
            if name != ALL {
                targets.push(Self::choose(Some(&name))?);
                continue;
            }
            for entry in BACKENDS {
                let Found::Devices(devices) = (entry.find)() else { continue };
                for listed in devices {
                    match listed {
                        Ok(device) => targets.push(Self::choose(Some(&device.target))?),
                        Err(broken) => tell(&format!("note: {} is left out: {}", broken.target, broken.why)),
                    }
                }
            }
        }
        Ok(targets)
    }

    /// Returns the device that a text names, or the one that is always there and whose clock is its own.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`choose`](Self::choose).
    pub(crate) fn choose_or_simulated(text: Option<&str>) -> Result<Self, Failure> {
        let always = || BACKENDS.last().and_then(|entry| (entry.preferred)());
        match text.is_none().then(always).flatten() {
            Some(target) => Ok(target),
            None => Self::choose(text),
        }
    }

    /// Returns the first device that is not in software, or else the simulated device.
    fn best() -> Result<Self, Failure> {
        match BACKENDS.iter().find_map(|entry| (entry.preferred)()) {
            Some(target) => Ok(target),
            None => Err(Failure::Device("no backend has a device; `millpond devices` says why".into())),
        }
    }
}

/// Returns the names in a list of devices. What follows a comma is an option of the device before it, if that has a
/// colon, unless it begins with the name of a backend.
fn names(text: &str) -> Vec<String> {
    let is_device = |piece: &str| {
        let name = piece.split(':').next().unwrap_or(piece);
        piece == ALL || BACKENDS.iter().any(|entry| entry.name == name)
    };
    let mut names: Vec<String> = Vec::new();
    for piece in text.split(',') {
        match names.last_mut() {
            Some(last) if last.contains(':') && !is_device(piece) => {
                last.push(',');
                last.push_str(piece);
            }
            _ => names.push(piece.to_owned()),
        }
    }
    names
}

#[allow(dead_code, reason = "a binary may be built with every backend")]
fn not_built_in(name: &str) -> Found {
    Found::Nothing {
        why: format!("this binary was built without the {name} backend"),
        remedy: "use another device, or a binary that has it".into(),
    }
}

#[allow(dead_code, reason = "a binary may be built with every backend")]
fn absent(name: &str) -> Failure {
    Failure::Device(format!(
        "this binary was built without the {name} backend; `millpond devices` lists what there is, as `--device sim`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_chosen_by_name() {
        let sim = Target { chosen: Chosen::Sim(Box::default()), options: String::new() };
        assert_eq!(Target::choose(Some("sim")), Ok(sim));
        assert!(matches!(Target::choose(Some("simulated")), Err(Failure::Input(_))));
        for entry in BACKENDS {
            match Target::choose(Some(entry.name)) {
                Ok(target) => assert_eq!(target.name(), entry.name),
                Err(error) => assert!(error.to_string().contains("built without"), "{error}"),
            }
        }
    }

    #[test]
    fn devices_are_listed_with_commas_as_their_options_are() {
        for (text, expected) in [
            ("sim", &["sim"][..]),
            ("sim,cuda:0", &["sim", "cuda:0"]),
            (
                "sim:bytes=1GiB,cost=free,vulkan:0,validation,sim",
                &["sim:bytes=1GiB,cost=free", "vulkan:0,validation", "sim"],
            ),
            ("all", &["all"]),
            ("sim,abacus", &["sim", "abacus"]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
        let two = Target::list(Some("sim,sim:bytes=1GiB")).expect("two devices");
        assert_eq!((two[0].options(), two[1].options()), (None, Some("bytes=1GiB")));
        assert!(Target::list(Some("all")).is_ok_and(|all| all.contains(&two[0])));
    }

    #[test]
    fn what_is_listed_can_be_chosen() {
        for entry in BACKENDS {
            if let Found::Devices(devices) = (entry.find)() {
                for listed in devices {
                    let target = listed.map_or_else(|broken| broken.target, |device| device.target);
                    assert!(Target::choose(Some(&target)).is_ok(), "{target}");
                }
            }
        }
    }

    #[test]
    fn the_simulated_device_is_always_there() {
        assert!(Target::choose(None).is_ok());
        assert_eq!((BACKENDS[BACKENDS.len() - 1].preferred)(), Target::choose(Some("sim")).ok());
    }
}
