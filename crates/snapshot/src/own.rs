//! Millpond's own snapshots in PyTorch's form.
//!
//! PyTorch's viewer knows no memory that is mapped twice. So memory is shown where it is in use: pages lie at their
//! homes, and a block in a window is a piece of an expandable segment that is mapped when the block is allocated and
//! unmapped when it is free again. While it is there, the same bytes at home are shown as free, so that the viewer's
//! reserved bytes are larger by what is in use in windows. Entries that PyTorch has no word for are left out.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use millpond::history::{Action as Happened, Entry, History};
use millpond::snapshot::{SegmentKind, Snapshot as Own, SnapshotBlock, SnapshotPage, SnapshotSegment};
use millpond::{BlockState, PoolId, SegmentId, Side};
use serde_json::Value;

use crate::model::{Action, Annotation, Block, Frame, Other, Segment, Snapshot, Stack, State, TraceEntry};

/// The bytes between two segments of a device without addresses.
const APART: u64 = 1 << 40;

impl From<&Own> for Snapshot {
    /// Returns the snapshot in PyTorch's form. On a device without addresses each segment gets some of its own. A tag
    /// is the category of an event and the name of its frame, whose file and line are the call site; where there are
    /// tags, the category of an event without one is `unknown`. Notes become annotations.
    fn from(own: &Own) -> Snapshot {
        let windows = windows(own);
        let device = i64::from(own.device);
        let mut segments: Vec<Segment> = Vec::new();
        for stretch in own.segments.iter().filter(|stretch| stretch.kind != SegmentKind::Pages) {
            segments.push(segment(device, stretch));
        }
        for run in home_runs(&own.pages) {
            segments.push(home(device, &run, &own.segments));
        }
        segments.sort_by_key(|segment| segment.address);
        let mut device_traces = vec![Vec::new(); own.device as usize];
        device_traces.push(events(&own.history, &windows));
        Snapshot {
            segments,
            device_traces,
            allocator_settings: settings(own),
            external_annotations: annotations(device, &own.history),
            ..Snapshot::default()
        }
    }
}

/// Returns the ranges that have windows.
fn windows(own: &Own) -> HashSet<SegmentId> {
    let now = own.pages.iter().filter(|page| !page.is_home).map(|page| page.segment);
    let before = own.history.entries.iter().filter(|entry| entry.action == Happened::Gather);
    now.chain(before.filter_map(|entry| entry.segment)).collect()
}

/// Returns the pages at home, those that lie one behind the other together.
fn home_runs(pages: &[SnapshotPage]) -> Vec<Vec<SnapshotPage>> {
    let mut runs: Vec<Vec<SnapshotPage>> = Vec::new();
    for page in pages.iter().filter(|page| page.is_home) {
        match runs.last_mut().and_then(|run| Some((run.last().copied()?, run))) {
            Some((last, run)) if (last.segment, last.offset + last.size) == (page.segment, page.offset) => {
                run.push(*page);
            }
            _ => runs.push(vec![*page]),
        }
    }
    runs
}

fn address(segment: SegmentId, offset: u64, address: Option<u64>) -> u64 {
    address.unwrap_or_else(|| segment.0.saturating_add(1).saturating_mul(APART).saturating_add(offset))
}

fn segment(device: i64, stretch: &SnapshotSegment) -> Segment {
    let blocks = stretch.blocks.iter().map(|each| block(stretch.segment, each)).collect();
    let at = address(stretch.segment, stretch.offset, stretch.address);
    Segment {
        segment_type: Some(kind(stretch.side)),
        segment_pool_id: Some(pool(stretch.pool)),
        is_expandable: Some(stretch.kind != SegmentKind::Plain),
        ..Segment::new(device, at, u64::from(stretch.stream.0), blocks)
    }
}

/// Returns a run of pages as a segment. Memory that is in use at other addresses is a free block here.
fn home(device: i64, run: &[SnapshotPage], stretches: &[SnapshotSegment]) -> Segment {
    let (first, last) = (run[0], run[run.len() - 1]);
    let (mut at, end) = (first.offset, last.offset + last.size);
    let mut blocks = Vec::new();
    let free = |from: u64, to: u64| Block {
        address: address(first.segment, from, first.address.map(|address| address + (from - first.offset))),
        size: to - from,
        requested_size: 0,
        state: State::Inactive,
        frames: Stack::default(),
        other: Other::new(),
    };
    let own = stretches.iter().filter(|stretch| stretch.segment == first.segment);
    let own = own.filter(|stretch| first.offset <= stretch.offset && stretch.offset < end);
    let mut about = None;
    for stretch in own {
        about.get_or_insert(stretch);
        if at < stretch.offset {
            blocks.push(free(at, stretch.offset));
        }
        blocks.extend(stretch.blocks.iter().map(|each| block(stretch.segment, each)));
        at = stretch.offset + stretch.total_size;
    }
    if at < end {
        blocks.push(free(at, end));
    }
    Segment {
        segment_type: Some(kind(about.map_or(Side::Large, |stretch| stretch.side))),
        segment_pool_id: Some(pool(about.map_or_else(PoolId::default, |stretch| stretch.pool))),
        is_expandable: Some(true),
        ..Segment::new(device, address(first.segment, first.offset, first.address), u64::from(first.stream.0), blocks)
    }
}

fn block(segment: SegmentId, own: &SnapshotBlock) -> Block {
    let state = match own.state {
        BlockState::ActiveAllocated => State::Allocated,
        BlockState::ActivePendingFree => State::PendingFree,
        BlockState::Inactive | BlockState::Unmapped => State::Inactive,
    };
    Block {
        address: address(segment, own.offset, own.address),
        size: own.size,
        requested_size: own.requested_size,
        state,
        frames: stack(own.tag.as_ref(), own.site).unwrap_or_default(),
        other: Other::new(),
    }
}

fn kind(side: Side) -> Arc<str> {
    match side {
        Side::Small => "small".into(),
        Side::Large => "large".into(),
    }
}

fn pool(pool: PoolId) -> (u64, u64) {
    (0, pool.0)
}

fn stack(tag: Option<&Arc<str>>, site: Option<&'static std::panic::Location<'static>>) -> Option<Stack> {
    let site = site?;
    let name = tag.map_or_else(|| "allocate".into(), Arc::clone);
    let frame = Frame { name, filename: site.file().into(), line: i64::from(site.line()), other: Other::new() };
    Some(Stack::new(vec![frame]))
}

/// Returns what happened, in PyTorch's words. The block of a window comes and goes with a piece of a segment.
fn events(history: &History, windows: &HashSet<SegmentId>) -> Vec<TraceEntry> {
    let began = history.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    // The web viewer colours by category where there are any, and by block elsewhere. It stops at a file that has
    // categories and none of them is `unknown`: entries about no block are, and there is always one, of the snapshot.
    let has_tags = history.entries.iter().any(|entry| is_of_block(entry) && entry.tag.is_some());
    let mut events = Vec::with_capacity(history.entries.len());
    for entry in &history.entries {
        let action = match entry.action {
            Happened::Alloc => Action::Alloc,
            Happened::FreeRequested => Action::FreeRequested,
            Happened::FreeCompleted => Action::FreeCompleted,
            Happened::SegmentAlloc => Action::SegmentAlloc,
            Happened::SegmentFree => Action::SegmentFree,
            Happened::SegmentMap => Action::SegmentMap,
            Happened::SegmentUnmap => Action::SegmentUnmap,
            Happened::OutOfMemory { .. } => Action::Oom,
            Happened::Snapshot => Action::Snapshot,
            _ => continue,
        };
        let event = event(entry, action, began, has_tags);
        let piece = entry.segment.filter(|segment| windows.contains(segment)).map(|_| {
            let (addr, size) = (event.addr.unwrap_or_default(), entry.size);
            TraceEntry { time_us: event.time_us, ..TraceEntry::new(Action::SegmentMap, addr, size, event.stream) }
        });
        match (event.action.clone(), piece) {
            (Action::Alloc, Some(piece)) => events.extend([piece, event]),
            (Action::FreeCompleted, Some(piece)) => {
                events.extend([event, TraceEntry { action: Action::SegmentUnmap, ..piece }]);
            }
            _ => events.push(event),
        }
    }
    events
}

fn is_of_block(entry: &Entry) -> bool {
    matches!(entry.action, Happened::Alloc | Happened::FreeRequested | Happened::FreeCompleted)
}

fn event(entry: &Entry, action: Action, began_us: u128, has_tags: bool) -> TraceEntry {
    let addr = entry.segment.map(|segment| address(segment, entry.offset, entry.address));
    let free = match entry.action {
        Happened::OutOfMemory { free_bytes } => Some(free_bytes),
        _ => None,
    };
    let of_block = is_of_block(entry);
    let category = has_tags.then(|| entry.tag.clone().filter(|_| of_block).unwrap_or_else(|| "unknown".into()));
    let us = began_us.saturating_add(u128::from(entry.time_ns / 1000));
    TraceEntry {
        addr,
        time_us: Some(i64::try_from(us).unwrap_or(i64::MAX)),
        device_free: free,
        pool_id: Some(pool(entry.pool)),
        category,
        frames: Some(stack(entry.tag.as_ref(), entry.site).unwrap_or_default()),
        // As PyTorch's, an event about a block has the bytes that were asked for.
        ..TraceEntry::new(action, 0, if of_block { entry.requested } else { entry.size }, u64::from(entry.stream.0))
    }
}

fn annotations(device: i64, history: &History) -> Vec<Annotation> {
    let began = history.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let noted = history.entries.iter().filter_map(|entry| match &entry.action {
        Happened::Annotate(text) => Some((entry, Arc::clone(text))),
        _ => None,
    });
    let note = |(entry, name): (&Entry, Arc<str>)| Annotation {
        name,
        stage: "START".into(),
        device,
        time_us: i64::try_from(began.saturating_add(u128::from(entry.time_ns / 1000))).unwrap_or(i64::MAX),
        other: Other::new(),
    };
    noted.map(note).collect()
}

fn settings(own: &Own) -> Other {
    let mut settings = Other::new();
    settings.insert("PYTORCH_CUDA_ALLOC_CONF".to_owned(), Value::from(own.conf.clone()));
    settings.insert("millpond_device".to_owned(), Value::from(own.device_name.clone()));
    settings
}
