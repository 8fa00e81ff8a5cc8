//! The conformance suite on a device that was chosen.

use std::num::NonZeroUsize;

use millpond_conformance::{ScenarioResult, Tested, suite};

use crate::failure::Failure;

/// A callback that receives each result, with the name of the kind of device.
pub(super) type Tell<'a> = &'a mut dyn FnMut(&str, &ScenarioResult);

/// What to run of the suite.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// What the name of a device must contain for the suite to run on it.
    pub(crate) only: Option<&'a str>,
    /// The groups of scenarios; all of them if there are none.
    pub(crate) groups: &'a [String],
    /// How many scenarios of a group run side by side.
    pub(crate) jobs: NonZeroUsize,
}

/// The suite on one kind of device after the other.
pub(super) struct Certify<'a> {
    wanted: Wanted<'a>,
    /// The names of all devices that were offered.
    names: Vec<String>,
    tell: Tell<'a>,
}

impl<'a> Certify<'a> {
    pub(super) fn new(wanted: Wanted<'a>, tell: Tell<'a>) -> Self {
        Self { wanted, names: Vec::new(), tell }
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.only.is_none_or(|only| name.contains(only))
    }

    /// Runs the suite on a device if its name is wanted.
    pub(super) fn run(&mut self, device: &Tested) {
        let name = device.name();
        if self.is_wanted(&name) {
            let wanted = self.wanted.groups;
            let is_wanted = |group: &&str| wanted.is_empty() || wanted.iter().any(|name| name == group);
            let groups: Vec<_> = suite::groups().into_iter().filter(is_wanted).collect();
            device.run_groups(&groups, self.wanted.jobs, &mut |result| (self.tell)(&name, result));
        }
        self.names.push(name);
    }

    /// Ends the run.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] if no device had a wanted name.
    pub(super) fn finish(self) -> Result<(), Failure> {
        if self.names.iter().any(|name| self.is_wanted(name)) {
            return Ok(());
        }
        let (only, names) = (self.wanted.only.unwrap_or_default(), self.names.join("\n  "));
        Err(Failure::Input(format!("no device has `{only}` in its name; the names are\n  {names}")))
    }
}
