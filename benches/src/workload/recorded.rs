//! Recorded programs as operations, for subjects that have no replay of their own.

use std::path::PathBuf;

use millpond_trace::{Event, Trace, TraceError};

use super::{Op, Workload};

/// Returns the path of a trace in the corpus.
pub fn trace_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/corpus/traces/{name}.trace.gz"))
}

/// Reads a trace of the corpus.
///
/// # Errors
///
/// Returns the errors of [`Trace::read`].
pub fn read_trace(name: &str) -> Result<Trace, TraceError> {
    Trace::read(trace_path(name))
}

/// Returns the operations of a trace. A block is freed when the device is done with it, as in a replay. What is alive
/// at the end is freed without being timed.
///
/// # Panics
///
/// If the trace has events that only this allocator can serve: uses on further streams, points, trims.
pub fn recorded(trace: &Trace) -> Workload {
    let blocks = trace.allocations();
    let mut completes = vec![false; blocks];
    for event in &trace.events {
        if let Event::Complete { id } = event {
            completes[*id as usize] = true;
        }
    }
    let mut alive = vec![false; blocks];
    let mut timed = Vec::with_capacity(trace.events.len());
    for event in &trace.events {
        match *event {
            Event::Allocate { id, bytes, stream } => {
                let stream = u16::try_from(stream).expect("streams of a valid trace are below 65536");
                alive[id as usize] = true;
                timed.push(Op::Allocate { stream, slot: id, bytes });
            }
            Event::Free { id } if completes[id as usize] => {}
            Event::Free { id } | Event::Complete { id } => {
                alive[id as usize] = false;
                timed.push(Op::Free { slot: id });
            }
            other => panic!("{other:?} has no counterpart in the other allocators: replay such a trace alone"),
        }
    }
    let left = (0_u32..).zip(&alive).filter(|(_, alive)| **alive);
    let finish = left.map(|(slot, _)| Op::Free { slot }).collect();
    let streams = u16::try_from(trace.streams).expect("no trace of the corpus has 65536 streams");
    Workload { prepare: Vec::new(), timed, finish, slots: blocks, streams }
}
