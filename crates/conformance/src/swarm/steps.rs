//! Writes a program as a scenario in the corpus' language, where that is possible.

use std::fmt::Write as _;

use super::Program;
use millpond::settings::Policy;

use crate::evidence::BYTES as EVIDENCE_BYTES;
use crate::language::{Noted, Operation};

/// The steps so far, and the state that is needed to write further ones.
#[derive(Default)]
struct Steps {
    text: String,
    /// The blocks that exist, each with its home stream, in the order of the run's own list.
    blocks: Vec<(u32, usize)>,
    points: u32,
}

/// Returns the scenario's text. `evidence` adds the buffers that a run keeps on every stream for its evidence, because
/// they take room. Returns `None` where the language has no step for an operation: those with which a test controls
/// when work completes, or which driver call fails. Where a run reads a block, the scenario writes to it, because a
/// read in a scenario would make the host wait.
pub(super) fn scenario(program: &Program, policy: Policy, device: String, evidence: bool) -> Option<String> {
    let mut steps = Steps::default();
    if evidence {
        for stream in 0..program.streams {
            steps.say(format_args!("alloc evidence{stream} {EVIDENCE_BYTES} on s{stream}"));
        }
    }
    for &operation in &program.operations {
        steps.add(operation)?;
    }
    let mut text = format!("# On a device that is {device}.\nscenario shrunk\nunder {}\n", policy.variant_name());
    let _ = writeln!(text, "limited {}", program.limit);
    Some(text + &steps.text)
}

impl Steps {
    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{line}");
    }

    fn add(&mut self, operation: Operation) -> Option<()> {
        match operation {
            Operation::Allocate { block, bytes, stream } => {
                self.say(format_args!("alloc b{block} {bytes} on s{stream}"));
                self.blocks.push((block, stream));
                self.write(block);
            }
            Operation::Free { block } => {
                self.write(block);
                self.free(block);
            }
            Operation::Write { block } => self.write(block),
            Operation::Use { block, stream, noted, keep } => self.use_elsewhere(block, stream, noted, keep),
            Operation::Order { later, earlier } => self.order(later, earlier),
            Operation::Submit { stream } => self.say(format_args!("submit s{stream}")),
            Operation::HostWait { stream } => {
                let point = self.point(stream);
                self.say(format_args!("wait p{point}"));
            }
            Operation::Poll => self.say(format_args!("poll")),
            Operation::Trim { bytes } => self.say(format_args!("trim {bytes}")),
            Operation::EmptyCache => self.say(format_args!("empty-cache")),
            Operation::Limit { bytes } => self.say(format_args!("limit {bytes}")),
            Operation::Retreat { stream } => {
                let own: Vec<u32> =
                    self.blocks.iter().filter(|(_, home)| *home == stream).map(|(block, _)| *block).collect();
                self.blocks.retain(|(_, home)| *home != stream);
                for block in own.into_iter().rev() {
                    self.say(format_args!("write b{block} on s{stream}"));
                    self.say(format_args!("free b{block}"));
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn home(&self, block: u32) -> Option<usize> {
        self.blocks.iter().find(|(known, _)| *known == block).map(|(_, home)| *home)
    }

    fn write(&mut self, block: u32) {
        if let Some(home) = self.home(block) {
            self.say(format_args!("write b{block} on s{home}"));
        }
    }

    fn free(&mut self, block: u32) {
        if let Some(at) = self.blocks.iter().position(|(known, _)| *known == block) {
            self.blocks.swap_remove(at);
            self.say(format_args!("free b{block}"));
        }
    }

    fn use_elsewhere(&mut self, block: u32, stream: usize, noted: Noted, keep: bool) {
        let Some(home) = self.home(block) else { return };
        self.order(stream, home);
        self.say(format_args!("write b{block} on s{stream}"));
        if noted == Noted::Until {
            let point = self.point(stream);
            self.say(format_args!("until b{block} p{point}"));
        } else {
            self.say(format_args!("record b{block} on s{stream}"));
        }
        if keep {
            self.order(home, stream);
        } else {
            self.free(block);
        }
    }

    fn order(&mut self, later: usize, earlier: usize) {
        let point = self.point(earlier);
        self.say(format_args!("after s{later} p{point}"));
    }

    /// Takes a point and returns its number.
    fn point(&mut self, stream: usize) -> u32 {
        let number = self.points;
        self.points += 1;
        self.say(format_args!("point p{number} on s{stream}"));
        number
    }
}
