//! The log of STAlloc's tracer, `mem_log_devN.txt`: lines of four fields with a space between them, `1` for an
//! allocation or `0` for a free, the address, the bytes and the stream. Between them stand lines on where the training
//! is: `Iteration Index : 3`, `micro-batch : F`, `layers.0.mlp->MoELayer Layer : F-start`.
//!
//! There is no description of the format; this follows the tracer (`Allocator/trace.cpp`) and the reader
//! (`Synthesizer/trace_parser.py`) of <https://github.com/infinigence/STAlloc>.

use millpond_trace::Event;

use crate::error::{ImportError, TextProblem};
use crate::lines::{Field, Lines};
use crate::places::Spot;
use crate::program::{Live, Program, Recorded};
use crate::{Options, part};

const EXPECTED: &str = "1 ADDRESS SIZE STREAM";

/// The parts by which lines on the training are known, and what they are.
const MARKERS: [(&str, &str); 3] = [
    ("Iteration Index", "beginnings of iterations"),
    ("micro-batch", "beginnings of micro-batches"),
    ("Layer", "beginnings and ends of layers"),
];

/// Returns whether a line is of such a log.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.split(' ');
    let is_event = matches!(fields.next(), Some("0" | "1")) && fields.count() == 3;
    is_event || !line.starts_with('#') && MARKERS.iter().any(|(part, _)| line.contains(part) && line.contains(':'))
}

/// Adds what a log has to a program.
///
/// # Errors
///
/// Returns the first line and column that do not follow the format, or exceed a limit.
pub(crate) fn record(content: &[u8], options: &Options, program: &mut Program) -> Result<Recorded, ImportError> {
    let mut lines = Lines::new(content);
    let (mut is_empty, mut rows) = (true, 0);
    program.select(part(options, |_| None)?);
    program.leave_cut_off(lines.is_cut_off);
    for line in lines.by_ref() {
        let line = line?;
        is_empty = false;
        match MARKERS.iter().find(|(part, _)| line.text.contains(part)) {
            Some((_, what)) => program.leave(what),
            None => {
                program.at(rows, Spot::default());
                event(program, line)?;
                rows += 1;
            }
        }
    }
    if is_empty {
        return Err(lines.none(EXPECTED));
    }
    Ok(Recorded { events: rows, ..Recorded::default() })
}

fn event(program: &mut Program, line: Field<'_>) -> Result<(), ImportError> {
    let mut fields = line.split(' ');
    let (Some(status), Some(pointer), Some(size), Some(stream), None) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        let found = line.split(' ').count();
        return Err(line.wrong(TextProblem::Fields { found, expected: 4 }));
    };
    let (address, bytes, handle) = (pointer.address()?, size.size()?, stream.address()?);
    match status.text {
        // The tracer logs what the driver returns for 0 bytes, and what is freed without having been allocated.
        "0" | "1" if address == 0 || bytes == 0 => program.leave("events of 0 bytes or at address 0"),
        "1" => {
            if let Some(Live { id, .. }) = program.live.remove(&address) {
                program.leave("frees that the log lacks, found as the address is allocated again");
                program.push(Event::Free { id }).map_err(|problem| status.wrong(problem))?;
            }
            let stream = program.stream(handle).map_err(|problem| stream.wrong(problem))?;
            let live = program.allocate(bytes, stream).map_err(|problem| status.wrong(problem))?;
            program.live.insert(address, live);
        }
        "0" => match program.live.remove(&address) {
            None => program.leave("frees of blocks that were allocated before the log began"),
            Some(Live { bytes: allocated, .. }) if allocated != bytes => {
                return Err(size.wrong(TextProblem::OtherSize { address, freed: bytes, allocated }));
            }
            Some(Live { id, .. }) => program.push(Event::Free { id }).map_err(|problem| status.wrong(problem))?,
        },
        _ => return Err(status.no("event: expected 1 for an allocation or 0 for a free")),
    }
    Ok(())
}
