//! Traces of histories: what an allocator remembers of a program, to be replayed under other policies.

use std::collections::HashMap;
use std::panic::Location;
use std::time::Duration;

use millpond::BlockState;
use millpond::history::{Action, Entry, History};
use millpond::snapshot::Snapshot;
use millpond_backend::{Point, StreamId};
use millpond_trace::Trace;

use crate::building::{Building, Place};

/// Returns a trace of the requests in a history. Replayed under several policies, with the limit of the allocator, it
/// shows which of them would have served a request that was refused: such a request is in the trace as an allocation
/// that is freed at once. The trace has the time of each entry, the tag, and the place in the program if the history
/// has it.
///
/// Where older entries are lost, blocks that are freed in the history and not allocated there are allocated at the
/// beginning. Those that outlive it are not known; [`trace_of_snapshot`] knows them.
///
/// ```
/// use millpond::Allocator;
/// use millpond::history::Recording;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// allocator.record_history(Recording::all(1000));
/// drop(allocator.create_stream()?.allocate(1000)?);
/// let trace = millpond_replay::trace_of(&allocator.history());
/// assert_eq!((trace.allocations(), trace.live_peak()), (1, 1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn trace_of(history: &History) -> Trace {
    build(history, Vec::new())
}

/// Works like [`trace_of`] for the history of a snapshot. Blocks that are alive in the snapshot, and not
/// allocated in its history, are allocated at the beginning.
pub fn trace_of_snapshot(snapshot: &Snapshot) -> Trace {
    let mut open: HashMap<Place, u64> = HashMap::new();
    for entry in &snapshot.history.entries {
        match (&entry.action, place_of(entry)) {
            (Action::Alloc, Some(place)) => *open.entry(place).or_default() += 1,
            (Action::FreeRequested, Some(place)) => drop(open.remove(&place)),
            _ => {}
        }
    }
    let mut before = Vec::new();
    for segment in &snapshot.segments {
        for block in segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated) {
            let place = (segment.segment, block.offset);
            if !open.contains_key(&place) {
                before.push(Older {
                    place,
                    bytes: block.requested_size,
                    stream: block.stream.unwrap_or(segment.stream),
                    tag: block.tag.as_deref(),
                    site: block.site,
                });
            }
        }
    }
    build(&snapshot.history, before)
}

/// A block that is older than the first entry of a history.
struct Older<'a> {
    place: Place,
    bytes: u64,
    stream: StreamId,
    tag: Option<&'a str>,
    site: Option<&'static Location<'static>>,
}

fn place_of(entry: &Entry) -> Option<Place> {
    Some((entry.segment?, entry.offset))
}

/// Builds the trace of a history, with blocks that are older than it.
fn build(history: &History, before: Vec<Older<'_>>) -> Trace {
    let mut building = Building::default();
    // Those that outlive the history come first: they are the oldest ones.
    for Older { place, bytes, stream, tag, site } in before.into_iter().chain(freed_only(history)) {
        building.at(site.map(ToString::to_string).as_deref(), tag, Duration::ZERO);
        building.allocate(place, bytes, stream);
    }
    history.entries.iter().for_each(|entry| add(&mut building, entry));
    building.into_trace()
}

fn add(building: &mut Building, entry: &Entry) {
    let site = entry.site.map(ToString::to_string);
    building.at(site.as_deref(), entry.tag.as_deref(), Duration::from_nanos(entry.time_ns));
    match (&entry.action, place_of(entry)) {
        (Action::Alloc, Some(place)) => building.allocate(place, entry.requested, entry.stream),
        (Action::FreeRequested, Some(place)) => building.free(place),
        (Action::Use, Some(place)) => building.used_on(place, entry.stream),
        (&Action::Until(tick), Some(place)) => building.used_until(place, Point { stream: entry.stream, tick }),
        (Action::OutOfMemory { .. }, _) => building.refused(entry.requested, entry.stream),
        (&Action::Point(tick), _) => building.open(Point { stream: entry.stream, tick }),
        (&Action::Submit(tick), _) => building.submitted(Point { stream: entry.stream, tick }),
        (&Action::StreamWait(point), _) => building.stream_waits(entry.stream, point),
        (&Action::HostWait(tick), _) => building.host_waits(Point { stream: entry.stream, tick }),
        (&Action::Reached(tick), _) => building.reached(Point { stream: entry.stream, tick }),
        (&Action::Look(nanos), _) => building.look(nanos),
        (Action::EmptyCache, _) => building.empty_cache(),
        (Action::Trim, _) => building.trim(entry.size),
        _ => {}
    }
}

/// Returns the blocks that are freed in a history and not allocated there before: they are older than its first entry.
fn freed_only(history: &History) -> Vec<Older<'_>> {
    let mut allocated = std::collections::HashSet::new();
    let mut older = Vec::new();
    for entry in &history.entries {
        let Some(place) = place_of(entry) else { continue };
        match entry.action {
            Action::Alloc => drop(allocated.insert(place)),
            Action::FreeRequested if !allocated.remove(&place) => {
                let bytes = if entry.requested > 0 { entry.requested } else { entry.size };
                older.push(Older { place, bytes, stream: entry.stream, tag: entry.tag.as_deref(), site: entry.site });
            }
            _ => {}
        }
    }
    older
}
