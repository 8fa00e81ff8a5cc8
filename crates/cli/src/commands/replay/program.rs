//! What is replayed in one row: a trace, or several traces as one program.

use millpond_trace::Trace;

use super::ReplayArgs;
use super::input::{Refused, Source};
use super::life::Together;
use crate::failure::Failure;

/// A program that is replayed.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) trace: Trace,
    /// For each block, whether it is kept to the end of the life; empty where none is.
    pub(super) kept: Vec<bool>,
}

/// Returns the sources of each program, in order: all of them where they are replayed together.
pub(super) fn programs<'a>(args: &ReplayArgs, sources: &'a [Source]) -> Vec<&'a [Source]> {
    if args.life.together.is_some() { vec![sources] } else { sources.chunks(1).collect() }
}

/// Returns the name of a program in results.
pub(super) fn name(sources: &[Source]) -> String {
    sources.iter().map(Source::name).collect::<Vec<_>>().join("+")
}

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] that names the file and the line.
    pub(super) fn read(args: &ReplayArgs, sources: &[Source]) -> Result<Self, Failure> {
        // What PyTorch refused it has not reserved.
        let refused = if args.as_recorded { Refused::LeftOut } else { Refused::Kept };
        let read = |source: &Source| Ok(source.read(&args.trace_limits, refused)?.scaled_down(args.scale));
        let mut traces = sources.iter().map(read).collect::<Result<Vec<Trace>, Failure>>()?;
        let mut kept: Vec<bool> = Vec::new();
        let trace = match args.life.together {
            Some(Together::Alternate) => {
                // A block lives long in its own part of the pass.
                kept = traces.iter().flat_map(Trace::long_lived).collect();
                Trace::in_turn(&traces)
            }
            Some(Together::Beside) => Trace::beside(&traces),
            None => traces.swap_remove(0),
        };
        if kept.is_empty() {
            kept = trace.long_lived();
        }
        Ok(Self { name: name(sources), trace, kept: if args.life.keep { kept } else { Vec::new() } })
    }
}
