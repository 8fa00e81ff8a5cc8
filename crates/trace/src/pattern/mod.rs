//! Patterns: generated programs that are hard on an allocator, each a trace drawn from a seed.
//!
//! Recorded programs show what is common; patterns show what is hard: memory that is free and in the wrong place, of
//! the wrong size or on the wrong stream. Equal seeds give equal traces on every machine, because only integers are
//! drawn.
//!
//! `shapes` holds the programs, and `script` the tools with which they are written.

mod script;
mod shapes;

#[cfg(test)]
mod tests;

use std::fmt;

use super::Trace;
use script::Script;

/// A generated program. The peak of live memory is from 1 to 4 GiB in each, whatever the seed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Pattern {
    /// Buffers that grow a little each round, the new one allocated before the old one is freed.
    Growing,
    /// Phases that fill memory with blocks of one size, free all, and go on with another size or on another stream.
    Phases,
    /// Live memory of random sizes that rises to a peak, falls to a tenth, and rises again.
    Sawtooth,
    /// One small block of every 2 MiB or 20 MiB stays when the rest is freed, and large blocks are asked for then.
    Survivors,
    /// One stream after the other allocates 2 GiB and frees it.
    Streams,
    /// Random sizes and frees on 32 streams at once; some blocks are used on a second stream.
    ManyStreams,
    /// Random frees of sizes from 512 B to 256 MiB.
    Random,
    /// Hundreds of thousands of small blocks, then nearly all of them freed, then large ones.
    SmallPhase,
}

impl Pattern {
    /// Every pattern, in the order in which they are listed.
    pub const ALL: [Pattern; 8] = [
        Pattern::Growing,
        Pattern::Phases,
        Pattern::Sawtooth,
        Pattern::Survivors,
        Pattern::Streams,
        Pattern::ManyStreams,
        Pattern::Random,
        Pattern::SmallPhase,
    ];

    /// Returns its name for people: the variant's name in lower case, with words joined by `_`.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Growing => "growing",
            Pattern::Phases => "phases",
            Pattern::Sawtooth => "sawtooth",
            Pattern::Survivors => "survivors",
            Pattern::Streams => "streams",
            Pattern::ManyStreams => "many_streams",
            Pattern::Random => "random",
            Pattern::SmallPhase => "small_phase",
        }
    }

    /// Returns a description in one line.
    pub fn about(self) -> &'static str {
        match self {
            Pattern::Growing => "32 buffers that grow a little each round, the new one before the old one goes",
            Pattern::Phases => "memory full of one size, all freed, then of another size or on another stream",
            Pattern::Sawtooth => "random sizes that rise to a peak, fall to a tenth, and rise again",
            Pattern::Survivors => "one small block in every 2 MiB or 20 MiB stays, then large requests",
            Pattern::Streams => "2 GiB allocated and freed on each of 32 streams, one after the other",
            Pattern::ManyStreams => "random sizes and frees on 32 streams; some blocks are used on a second stream",
            Pattern::Random => "random frees of sizes from 512 B to 256 MiB",
            Pattern::SmallPhase => "200,000 small blocks, nearly all of them freed, then large ones",
        }
    }

    /// Returns the pattern of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Pattern> {
        Pattern::ALL.into_iter().find(|pattern| pattern.name() == name)
    }

    /// Returns the program as a trace: from ten thousand to half a million events, with every block freed at the end.
    /// The header names the pattern and the seed.
    ///
    /// Costs tens of nanoseconds and 24 bytes for each event.
    pub fn trace(self, seed: u64) -> Trace {
        let mut script = Script::new(seed);
        match self {
            Pattern::Growing => shapes::growing(&mut script),
            Pattern::Phases => shapes::phases(&mut script),
            Pattern::Sawtooth => shapes::sawtooth(&mut script),
            Pattern::Survivors => shapes::survivors(&mut script),
            Pattern::Streams => shapes::streams(&mut script),
            Pattern::ManyStreams => shapes::many_streams(&mut script),
            Pattern::Random => shapes::random(&mut script),
            Pattern::SmallPhase => shapes::small_phase(&mut script),
        }
        script.finish(&format!("pattern {self}, seed {seed}"))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
