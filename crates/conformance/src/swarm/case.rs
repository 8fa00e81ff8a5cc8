//! A device and a policy on which programs are run, and the search for a shorter program where one fails.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond::settings::Settings;
use millpond_trace::Random;

use super::{Program, Swarm, Tally, mix, run, steps};
use crate::device::DeviceUnderTest;
use crate::language::{Generator, Operation, Shortest, shrink};
use crate::scenario;
use crate::session::{Session, Setup, Stop};
use crate::suite::text_of;
use millpond::settings::Policy;

/// The most programs that are tried to shorten one.
const TRIALS_MAX: u32 = 3000;

/// The device, policy and settings with which programs run.
#[derive(Clone, Debug)]
pub struct Case<'d, D> {
    /// The device.
    pub device: &'d D,
    /// The policy.
    pub policy: Policy,
    /// The settings, which the policy's own configuration overrides.
    pub settings: Settings,
}

/// A failure of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The number of operations that were performed before the failure.
    pub at: usize,
    /// The operation in which it was found; `None` at the end of the program.
    pub operation: Option<Operation>,
    /// A description of the failure.
    pub what: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(operation) => write!(f, "operation {} ({operation:?}): {}", self.at, self.what),
            None => write!(f, "after the last of {} operations: {}", self.at, self.what),
        }
    }
}

impl Failed {
    /// Returns the part of the text that two failures of the same kind share: the text without numbers and without what
    /// stands in braces, up to the first of several entries.
    fn nature(&self) -> String {
        nature(&self.what)
    }
}

fn nature(text: &str) -> String {
    // The text before an objection says where it was raised.
    let text = text.split_once("the oracle objects: ").map_or(text, |(_, objection)| objection);
    let (mut nature, mut depth, mut in_number) = (String::new(), 0_u32, false);
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => break,
            _ if depth > 0 => {}
            _ if letter.is_ascii_digit() || (in_number && letter.is_ascii_alphanumeric()) => in_number = true,
            _ => {
                in_number = false;
                nature.push(letter);
            }
        }
    }
    nature
}

/// The reason why a program has no tally.
pub(super) enum End {
    /// The device cannot serve the policy, with the reason.
    Skipped(String),
    Failed(Failed),
}

impl End {
    fn unless_skipped(result: Result<Tally, End>) -> Result<Option<Tally>, Failed> {
        match result {
            Ok(tally) => Ok(Some(tally)),
            Err(End::Skipped(_)) => Ok(None),
            Err(End::Failed(failed)) => Err(failed),
        }
    }
}

/// A failure, and the shortest program found that leads to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shrunk {
    /// The program.
    pub program: Program,
    /// The failure of this program.
    pub failed: Failed,
    /// The same program as a scenario in the corpus' language, if it can be written there and fails in the same way.
    pub scenario: Option<String>,
    /// The number of programs that were tried.
    pub trials: u32,
}

impl<'d, D: DeviceUnderTest> Case<'d, D> {
    /// Creates a case with default settings, in which programs run on the device under the policy.
    pub fn new(device: &'d D, policy: Policy) -> Self {
        Self { device, policy, settings: Settings::default() }
    }

    /// Runs the program of a seed. Returns the program, as far as it was drawn, and the tally or the failure; `None`
    /// instead of the tally if the device cannot serve the policy. A panic is caught and reported as a failure.
    pub fn record(&self, swarm: &Swarm) -> (Program, Result<Option<Tally>, Failed>) {
        let (program, result) = self.attempt(swarm);
        (program, End::unless_skipped(result))
    }

    /// Works like `run`, and returns the reason if the device cannot serve the policy.
    pub(super) fn attempt(&self, swarm: &Swarm) -> (Program, Result<Tally, End>) {
        let mut random = Random::new(swarm.seed);
        let mix = mix::draw(&mut random, swarm.faults);
        let (streams, limit) = (mix.streams as u32, mix.limit);
        let mut generator = Generator::new(random, mix);
        let check_every = swarm.check_every as usize;
        let mut left = swarm.operations;
        let mut next = |held: &[u32]| {
            left = left.checked_sub(1)?;
            Some(generator.next(held))
        };
        let mut program = Program { streams, limit, check_every, operations: Vec::new() };
        let mut trail = Vec::new();
        let result = self.run(&program, &mut next, &mut trail);
        program.operations = trail;
        (program, result)
    }

    /// Runs a program. Returns `None` if the device cannot serve the policy.
    ///
    /// # Errors
    ///
    /// Returns what went wrong, which includes a panic.
    ///
    /// # Panics
    ///
    /// If the program names streams that it does not have.
    pub fn replay(&self, program: &Program) -> Result<Option<Tally>, Failed> {
        let mut operations = program.operations.iter().copied();
        End::unless_skipped(self.run(program, &mut |_| operations.next(), &mut Vec::new()))
    }

    fn run(
        &self,
        program: &Program,
        next: &mut dyn FnMut(&[u32]) -> Option<Operation>,
        trail: &mut Vec<Operation>,
    ) -> Result<Tally, End> {
        let mut over = false;
        let mut next = |held: &[u32]| {
            let operation = next(held);
            over = operation.is_none();
            operation
        };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let session = self.open(program)?;
            run::run(session, program.check_every, &mut next, trail)
        }));
        let what = match ran.unwrap_or_else(|panic| Err(Stop::Fail(text_of(panic)))) {
            Ok(tally) => return Ok(tally),
            Err(Stop::Skip(reason)) => return Err(End::Skipped(reason)),
            Err(Stop::Fail(what)) => what,
        };
        let operation = if over { None } else { trail.last().copied() };
        let at = if operation.is_some() { trail.len() - 1 } else { trail.len() };
        Err(End::Failed(Failed { at, operation, what }))
    }

    fn open(&self, program: &Program) -> Result<Session<'d, D>, Stop> {
        let setup =
            Setup { policy: self.policy, conf: "", limit: Some(program.limit), streams: program.streams, bytes: true };
        Session::open_with(self.device, &setup, self.settings.clone())
    }

    /// Shortens a failing program by delta debugging: leaves operations out and simplifies the remaining ones, as long
    /// as it fails in the same way. Runs some hundreds of programs.
    ///
    /// Returns `None` if the program does not fail when it is run again.
    pub fn shrink(&self, program: &Program) -> Option<Shrunk> {
        let nature = self.replay(program).err()?.nature();
        let fails = |candidate: &Program| matches!(self.replay(candidate), Err(failed) if failed.nature() == nature);
        // If every operation is followed by a check, the failure is found at once and needs no operation after its
        // cause.
        let strict = Program { check_every: 1, ..program.clone() };
        let first = if fails(&strict) { strict } else { program.clone() };
        let of = |streams: usize, operations: Vec<Operation>| Program { streams: streams as u32, operations, ..first };
        let mut still = |streams: usize, operations: &[Operation]| fails(&of(streams, operations.to_vec()));
        let Shortest { streams, operations, trials } =
            shrink(first.streams as usize, first.operations.clone(), TRIALS_MAX, &mut still);
        let program = of(streams, operations);
        let failed = self.replay(&program).err()?;
        let scenario = self.scenario(&program, &failed);
        Some(Shrunk { program, failed, scenario, trials })
    }

    /// Returns the program as a scenario, if the scenario fails in the same way.
    fn scenario(&self, program: &Program, failed: &Failed) -> Option<String> {
        let nature = failed.nature();
        [false, true].into_iter().find_map(|evidence| {
            let text = steps::scenario(program, self.policy, self.device.name(), evidence)?;
            let scenario = scenario::load(&text).ok()?.pop()?;
            let played = catch_unwind(AssertUnwindSafe(|| {
                scenario::play_with(self.device, &scenario, self.policy, self.settings.clone())
            }));
            let said = match played.unwrap_or_else(|panic| Err(Stop::Fail(text_of(panic)))) {
                Err(Stop::Fail(said)) => said,
                _ => return None,
            };
            // The message of a scenario's failure begins with the place where it was found.
            self::nature(&said).contains(nature.trim_start()).then_some(text)
        })
    }
}

/// Prints what is needed to reproduce the failure: the scenario, or the program as code.
impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations = self.program.operations.len();
        writeln!(f, "{operations} operations lead to it (of {} programs tried): {}", self.trials, self.failed)?;
        match &self.scenario {
            Some(scenario) => f.write_str(scenario),
            None => writeln!(f, "{}", self.program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::nature;

    #[test]
    fn failures_differ_by_words_and_not_by_numbers() {
        let one = "4096 bytes at offset 512 of segment 3 were granted on stream 1 and are in use until stream 2 tick 9";
        let two = "512 bytes at offset 0 of segment 0 were granted on stream 0 and are in use until stream 1 tick 1";
        assert_eq!(nature(one), nature(two));
        let [damage, other] =
            ["0xdb", "0x07"].map(|byte| format!("found {byte} at byte 0 of Buffer {{ len: {byte} }}"));
        assert_eq!(nature(&damage), nature(&other));
        assert_ne!(nature(one), nature(&damage));
        assert_eq!(nature("2 breaches: one; two"), nature("1 breaches: one"));
    }
}
