//! A snapshot of the allocator behind a replay, for PyTorch's viewers.

use std::io::BufWriter;
use std::path::Path;

use millpond::history::Recording;
use millpond_any::AnyAllocator;
use millpond_snapshot::{Snapshot, SnapshotError, VmaDevice};

use super::ReplayArgs;
use crate::failure::Failure;
use crate::files::{self, Sink, Standard, shown};

/// The number of events that a snapshot has at most.
const ENTRIES: usize = 1_000_000;

pub(super) const HELP: &str = "\
Write a snapshot of the allocator after the last pass, with its last million events, for PyTorch's viewers: a \
pickle, or JSON where the name ends in .json. A name that ends in .vma.json gives a dump for the viewer of the \
Vulkan Memory Allocator. It takes one trace and one policy";

/// Checks that there is one replay, if it is to be kept.
///
/// # Errors
///
/// Returns [`Failure::Input`] if there are several, of which the last would replace the others.
pub(super) fn expect_one(args: &ReplayArgs, replays: usize) -> Result<(), Failure> {
    if args.snapshot.is_some() && replays != 1 {
        let text = format!("--snapshot takes one trace and one policy, and these are {replays} replays");
        return Err(Failure::Input(text));
    }
    Ok(())
}

/// Has the allocator record, if its snapshot is asked for.
pub(super) fn begin(args: &ReplayArgs, allocator: &AnyAllocator) {
    if args.snapshot.is_some() {
        allocator.record_history(Recording::all(ENTRIES));
    }
}

/// Writes the snapshot, if it is asked for.
///
/// # Errors
///
/// Returns [`Failure::Input`] if the file cannot be written.
pub(super) fn end(args: &ReplayArgs, allocator: &AnyAllocator) -> Result<(), Failure> {
    let Some(file) = &args.snapshot else { return Ok(()) };
    let own = allocator.snapshot();
    let snapshot = Snapshot::from(&own);
    let written = if file.to_string_lossy().ends_with(".vma.json") {
        let device = VmaDevice { name: own.device_name.clone(), heap_bytes: Some(own.total_bytes) };
        write_dump(file, &snapshot, &device)
    } else if files::is_output(file) {
        snapshot.write_pickle(BufWriter::new(Standard::new())).map(drop)
    } else {
        snapshot.write(file)
    };
    written.map_err(|error| Failure::Input(format!("{}: {error}; give another path", shown(file))))
}

fn write_dump(path: &Path, snapshot: &Snapshot, device: &VmaDevice) -> Result<(), SnapshotError> {
    let sink = BufWriter::new(Sink::create(path).map_err(SnapshotError::Write)?);
    let sink = snapshot.write_vma(device, sink)?.into_inner();
    sink.map_err(|error| error.into_error()).and_then(Sink::finish).map_err(SnapshotError::Write)
}
