//! Lifetimes of buffers: a table with a line for each, `id,lower,upper,size`, as MiniMalloc and TelaMalloc use it.
//!
//! A buffer lives from `lower` to just before `upper`. Tables with a column `end` instead of `upper` mean the last
//! moment that belongs to the lifetime, as in MiniMalloc. At one moment, what ends is freed before anything is
//! allocated.

use millpond_trace::Event;

use crate::error::{ImportError, TextProblem};
use crate::lines::{Columns, Field, Lines};
use crate::program::{Program, Recorded};

const HEAD: &str = "id,lower,upper,size";
const LOWER: [&str; 3] = ["lower", "begin", "start"];
const UPPER: [&str; 2] = ["upper", "end"];

/// A beginning or an end of a lifetime. Ends come before beginnings at the same time, and then the order of the lines
/// holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    time: i64,
    is_beginning: bool,
    buffer: usize,
}

/// Returns whether a line is the head of such a table.
pub(crate) fn is_head(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line).to_ascii_lowercase();
    let has = |names: &[&str]| line.split(',').any(|field| names.contains(&field.trim()));
    has(&LOWER) && has(&UPPER) && has(&["size"])
}

/// Adds what a table has to a program.
///
/// # Errors
///
/// Returns the first line and column that do not follow the format, or exceed a limit.
pub(crate) fn record(content: &[u8], program: &mut Program) -> Result<Recorded, ImportError> {
    let mut lines = Lines::new(content);
    let (columns, head) = Columns::read(&mut lines, HEAD)?;
    let find = |column: &'static str, names: &[&str]| {
        let problem = TextProblem::NoColumn { column, expected: HEAD };
        columns.find(names).ok_or_else(|| head.wrong(problem))
    };
    let places = [find("lower", &LOWER)?, find("upper", &UPPER)?, find("size", &["size"])?];
    let is_inclusive = columns.find(&["end"]).is_some();
    let extra: Vec<(usize, &str)> = [
        ("alignment", "alignments"),
        ("gaps", "buffers with gaps in their lifetimes"),
        ("hint", "hints"),
        ("offset", "offsets that a solution gave"),
    ]
    .into_iter()
    .filter_map(|(name, what)| Some((columns.find(&[name])?, what)))
    .collect();
    let (mut moments, mut sizes, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    program.leave_cut_off(lines.is_cut_off);
    for line in lines {
        let line = line?;
        columns.fields(line, &mut fields)?;
        for (place, what) in &extra {
            program.leave_many(what, u64::from(!fields[*place].text.is_empty()));
        }
        let (lower, upper, bytes) = row(places.map(|place| fields[place]), is_inclusive)?;
        if bytes == 0 {
            program.leave("buffers of 0 bytes");
            continue;
        }
        program.expect_room(moments.len() as u64 + 2).map_err(|problem| line.wrong(problem))?;
        if program.is_counting() {
            program.stream(0).map_err(|problem| line.wrong(problem))?;
            program.count(2);
            continue;
        }
        let buffer = sizes.len();
        sizes.push(bytes);
        moments.push(Moment { time: lower, is_beginning: true, buffer });
        moments.push(Moment { time: upper, is_beginning: false, buffer });
    }
    moments.sort_unstable();
    let mut ids = vec![0; sizes.len()];
    for Moment { is_beginning, buffer, .. } in moments {
        let result = if is_beginning {
            program
                .stream(0)
                .and_then(|stream| program.allocate(sizes[buffer], stream))
                .map(|live| ids[buffer] = live.id)
        } else {
            program.push(Event::Free { id: ids[buffer] })
        };
        result.map_err(|problem| head.wrong(problem))?;
    }
    Ok(Recorded::default())
}

/// Reads a line: when the lifetime begins, when it is over, and the bytes.
fn row([lower, upper, size]: [Field<'_>; 3], is_inclusive: bool) -> Result<(i64, i64, u64), ImportError> {
    let (begins, last, bytes) = (lower.time()?, upper.time()?, size.size()?);
    let ends = last.checked_add(i64::from(is_inclusive));
    let ends = ends.ok_or_else(|| upper.no("time: expected a whole number below 2^63 - 1"))?;
    if ends <= begins {
        return Err(upper.wrong(TextProblem::Lifetime { lower: begins, upper: ends }));
    }
    Ok((begins, ends, bytes))
}
