//! The log of RMM's `logging_resource_adaptor`: a table with a line for each allocation and each free, in the order in
//! which they were made.
//!
//! The actions are `allocate`, `free` (`deallocate` in its documentation) and `allocate failure`. Addresses and streams
//! are handles in hexadecimal, with `0x` or without it. A free on another stream than the block's says that this
//! stream used it. Logs of several processes may follow each other in a file, each with its head. The log of a process
//! that was killed ends inside a line.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_trace::{BYTES_MAX, Event};

use crate::clock::Clock;
use crate::error::ImportError;
use crate::lines::{Columns, Field, Lines};
use crate::places::Spot;
use crate::program::{Live, Program, Recorded};
use crate::{Options, part};

const HEAD: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Returns whether a line is the head of such a log.
pub(crate) fn is_head(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line).to_ascii_lowercase();
    ["action", "pointer"].iter().all(|name| line.split(',').any(|field| field.trim() == *name))
}

/// Adds what a log has to a program.
///
/// # Errors
///
/// Returns the first line and column that do not follow the format, or exceed a limit.
pub(crate) fn record(content: &[u8], options: &Options, program: &mut Program) -> Result<Recorded, ImportError> {
    let mut lines = Lines::new(content);
    let (columns, head) = Columns::read(&mut lines, HEAD)?;
    let find = |column: &'static str, name: &str| {
        let problem = crate::TextProblem::NoColumn { column, expected: HEAD };
        columns.find(&[name]).ok_or_else(|| head.wrong(problem))
    };
    let places =
        [find("Action", "action")?, find("Pointer", "pointer")?, find("Size", "size")?, find("Stream", "stream")?];
    let time = columns.find(&["time"]);
    let since = |since| time.and_then(|time| since_time(Lines::new(content), &columns, time, since));
    program.select(part(options, since)?);
    let mut threads = Threads::new(Lines::new(content), &columns, program.has_places());
    let mut clock = Clock::default();
    let (mut fields, mut rows) = (Vec::new(), 0);
    program.leave_cut_off(lines.is_cut_off);
    let mut logs = 1;
    while let Some(line) = lines.next() {
        let line = line?;
        let is_cut_before_head = columns.end(line);
        if is_cut_before_head {
            program.cut_off(&format!("line {} breaks off where another log follows", line.line));
        } else if let Err(error) = columns.fields(line, &mut fields) {
            if rows == 0 || fields.len() > columns.count() || !lines.are_over() {
                return Err(error);
            }
            program.cut_off(&format!("the last line, line {}, breaks off", line.line));
            break;
        }
        if is_cut_before_head || columns.are_head(&fields) {
            // The addresses of another process are other memory.
            program.live.clear();
            program.leave("heads of further logs, whose blocks come behind those of the first");
            logs += 1;
            clock.restart();
            continue;
        }
        let micros = time.and_then(|time| clock.micros(fields[time].text));
        program.at(rows, Spot { stack: None, label: threads.label(&fields), micros });
        if time.is_some() && (!program.has_places() || micros.is_none()) {
            program.leave("times");
        }
        row(program, options.refused, places.map(|place| fields[place]))?;
        rows += 1;
    }
    if logs > 1 {
        program.note(format!("the file has {logs} logs, one after the other; what one has not freed stays allocated"));
    }
    program.leave_many("threads beside the first one: the trace is one sequence", threads.others());
    Ok(Recorded { events: rows, ..Recorded::default() })
}

/// The threads of a log.
struct Threads {
    column: Option<usize>,
    /// The labels of the threads, where the trace has them.
    labels: HashMap<String, Arc<str>>,
    is_labelled: bool,
}

impl Threads {
    /// Looks for a second thread, without which there are no labels.
    fn new(lines: Lines<'_>, columns: &Columns, has_places: bool) -> Self {
        let column = columns.find(&["thread"]);
        let is_labelled = has_places
            && column.is_some_and(|column| {
                let mut first: Option<String> = None;
                let mut fields = Vec::new();
                lines.skip(1).map_while(Result::ok).any(|line| {
                    let is_row = columns.fields(line, &mut fields).is_ok() && !columns.are_head(&fields);
                    is_row && *first.get_or_insert_with(|| fields[column].text.to_owned()) != *fields[column].text
                })
            });
        Self { column, labels: HashMap::new(), is_labelled }
    }

    /// Returns the label of a row.
    fn label(&mut self, fields: &[Field<'_>]) -> Option<Arc<str>> {
        let thread = fields[self.column?].text;
        if !self.labels.contains_key(thread) {
            self.labels.insert(thread.to_owned(), format!("thread {thread}").into());
        }
        self.labels.get(thread).filter(|_| self.is_labelled).cloned()
    }

    /// Returns how many threads the trace does not have.
    fn others(&self) -> u64 {
        if self.is_labelled { 0 } else { self.labels.len().saturating_sub(1) as u64 }
    }
}

/// Returns the number of the first row that is at most so long before the last one.
fn since_time(lines: Lines<'_>, columns: &Columns, time: usize, since: Duration) -> Option<u64> {
    let last = times(lines.clone(), columns, time).filter_map(|(_, micros)| micros).last()?;
    let first = last.saturating_sub(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
    times(lines, columns, time).find(|(_, micros)| micros.is_some_and(|micros| micros >= first)).map(|(row, _)| row)
}

/// Returns the rows by their numbers, with their times in microseconds, as far as the log follows its format.
fn times<'a>(
    lines: Lines<'a>,
    columns: &'a Columns,
    time: usize,
) -> impl Iterator<Item = (u64, Option<u64>)> + use<'a> {
    let (mut clock, mut fields, mut rows) = (Clock::default(), Vec::new(), 0);
    lines.skip(1).map_while(Result::ok).filter_map(move |line| {
        if columns.end(line) {
            clock.restart();
            return None;
        }
        columns.fields(line, &mut fields).ok()?;
        if columns.are_head(&fields) {
            clock.restart();
            return None;
        }
        rows += 1;
        Some((rows - 1, clock.micros(fields[time].text)))
    })
}

fn row(program: &mut Program, refused: bool, fields: [Field<'_>; 4]) -> Result<(), ImportError> {
    let [action, pointer, size, stream] = fields;
    let (address, handle) = (pointer.handle()?, stream.handle()?);
    if action.text == "allocate failure" {
        let bytes = size.any_size()?;
        if refused && (1..=BYTES_MAX).contains(&bytes) {
            let stream = program.stream(handle).map_err(|problem| stream.wrong(problem))?;
            return program.refuse(bytes, stream).map_err(|problem| action.wrong(problem));
        }
        program.leave("allocations that were refused");
        return Ok(());
    }
    let bytes = size.size()?;
    match action.text {
        "allocate" if bytes == 0 => program.leave("allocations of 0 bytes"),
        "allocate" => {
            if let Some(Live { id, .. }) = program.live.remove(&address) {
                program.leave("frees that the log lacks, found as the address is allocated again");
                program.push(Event::Free { id }).map_err(|problem| action.wrong(problem))?;
            }
            let stream = program.stream(handle).map_err(|problem| stream.wrong(problem))?;
            let live = program.allocate(bytes, stream).map_err(|problem| action.wrong(problem))?;
            program.live.insert(address, live);
        }
        "free" | "deallocate" if bytes == 0 => program.leave("frees of 0 bytes"),
        "free" | "deallocate" => {
            let Some(Live { id, bytes: allocated, stream: home }) = program.live.remove(&address) else {
                program.leave("frees of blocks that were allocated before the log began");
                return Ok(());
            };
            if allocated != bytes {
                return Err(size.wrong(crate::TextProblem::OtherSize { address, freed: bytes, allocated }));
            }
            let stream = program.stream(handle).map_err(|problem| stream.wrong(problem))?;
            if stream != home {
                program.push(Event::Use { id, stream }).map_err(|problem| action.wrong(problem))?;
            }
            program.push(Event::Free { id }).map_err(|problem| action.wrong(problem))?;
        }
        _ => return Err(action.no("action: expected allocate, free or allocate failure")),
    }
    Ok(())
}
