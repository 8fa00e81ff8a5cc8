//! Snapshots: where every byte is at one moment, with what is known of the blocks, as PyTorch's
//! `torch.cuda.memory._snapshot()` has it.
//!
//! All streams stand still for as long as it takes to copy what there is, and names and order are found afterwards.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use millpond_backend::{Backend, ClassId, StreamId};
use millpond_core::settings::{Options, Settings};
use millpond_core::{BlockState, BlockView, PoolId, SegmentId, SegmentView, Shards, Side};

use crate::allocator::Allocator;
use crate::conf;
use crate::notes::note::{Note, NoteState};
use crate::notes::ring::Mark;
use crate::observe::history::History;
use crate::observe::history::rings::Rings;
use crate::state::{HeldShards, State};
use crate::tag::Names;

/// What kind of memory a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SegmentKind {
    /// One allocation of the driver.
    Plain,
    /// Pages at their homes, one behind the other: PyTorch's `is_expandable`.
    Pages,
    /// A window: pages that have their homes elsewhere, in use at these addresses.
    Window,
}

/// Memory without a gap: a plain segment, or pages that are mapped one after the other. The sum of all of them, and of
/// the spare pages, is what is reserved: memory that is in use through a window is counted there, and not at its home.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotSegment {
    /// The segment or the range that it is in. A range may have several stretches.
    pub segment: SegmentId,
    /// The offset in that segment at which it starts, in bytes.
    pub offset: u64,
    /// The device address; `None` on devices without addresses.
    pub address: Option<u64>,
    /// The bytes of all blocks.
    pub total_size: u64,
    /// The bytes of blocks that are handed out.
    pub allocated_size: u64,
    /// The bytes of blocks that are handed out or wait for points.
    pub active_size: u64,
    /// The bytes that were asked for, of the blocks that are active.
    pub requested_size: u64,
    /// The stream.
    pub stream: StreamId,
    /// The pool.
    pub pool: PoolId,
    /// The side of the pool: PyTorch's `segment_type`.
    pub side: Side,
    /// What kind of memory it is.
    pub kind: SegmentKind,
    /// The blocks that tile it, in order of their offsets.
    pub blocks: Vec<SnapshotBlock>,
}

/// A block of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotBlock {
    /// The offset in the segment or the range, in bytes.
    pub offset: u64,
    /// The device address; `None` on devices without addresses.
    pub address: Option<u64>,
    /// Its length in bytes.
    pub size: u64,
    /// The bytes that were asked for; 0 for a free block.
    pub requested_size: u64,
    /// Its state. [`BlockState::name`] is PyTorch's word for it.
    pub state: BlockState,
    /// The stream that it was allocated on, where it is active and buffers are noted.
    pub stream: Option<StreamId>,
    /// Its label or tag, where buffers are noted.
    pub tag: Option<Arc<str>>,
    /// The place at which it was allocated, where places are noted.
    pub site: Option<&'static Location<'static>>,
}

/// A page that is mapped in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotPage {
    /// The range.
    pub segment: SegmentId,
    /// The offset in the range, in bytes.
    pub offset: u64,
    /// The device address; `None` on devices without addresses.
    pub address: Option<u64>,
    /// Its length in bytes.
    pub size: u64,
    /// The stream that the range belongs to.
    pub stream: StreamId,
    /// Whether it is mapped at its home here. Otherwise this is a window, and the page is counted at its home.
    pub is_home: bool,
}

/// A snapshot, from [`Allocator::snapshot`].
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let stream = allocator.create_stream()?;
/// let buffer = stream.allocate(1000)?;
///
/// let snapshot = allocator.snapshot();
/// assert_eq!((snapshot.allocated_bytes(), snapshot.reserved_bytes), (1024, 2 << 20));
/// for block in snapshot.segments.iter().flat_map(|segment| &segment.blocks) {
///     println!("{} bytes, {}", block.size, block.state.name());
/// }
/// # drop(buffer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of the device: [`Builder::device`](crate::Builder::device).
    pub device: u32,
    /// The name of the device.
    pub device_name: String,
    /// The class of memory.
    pub class: ClassId,
    /// All bytes of the class.
    pub total_bytes: u64,
    /// The limit on reserved bytes, if there is one.
    pub limit_bytes: Option<u64>,
    /// The bytes that are reserved.
    pub reserved_bytes: u64,
    /// The memory, in order of the segments' birth and of offsets.
    pub segments: Vec<SnapshotSegment>,
    /// The pages of all ranges, also those whose memory is in use at other addresses, in order of the segments' birth
    /// and of offsets.
    pub pages: Vec<SnapshotPage>,
    /// The newest entries of the history; none unless it is recorded.
    pub history: History,
    /// The settings.
    pub settings: Settings,
    /// The settings as a configuration text, which holds what differs from the defaults.
    pub conf: String,
    /// The keys of the configuration that have no effect: [`Allocator::ignored_settings`].
    pub ignored: Vec<&'static str>,
}

impl Snapshot {
    /// Returns the bytes of blocks that are handed out.
    pub fn allocated_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.allocated_size).sum()
    }

    /// Returns the bytes of blocks that are handed out or wait for points.
    pub fn active_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.active_size).sum()
    }
}

/// What is copied while all streams stand still.
struct Copied {
    layout: Vec<SegmentView>,
    notes: Vec<Note>,
    rings: Option<Rings>,
    reserved_bytes: u64,
    limit_bytes: Option<u64>,
    settings: Settings,
}

impl<B: Backend> Allocator<B> {
    /// Returns where every byte is at one moment: no stream allocates or frees while it is copied. Tags and places are
    /// known for recorded buffers ([`record_history`](Self::record_history), [`track_live`](Self::track_live)).
    ///
    /// It does not poll the device and makes no driver call. A freed block counts as waiting until the allocator has
    /// seen that its points are reached, so call [`poll`](Self::poll) first.
    ///
    /// ```
    /// use millpond::history::Recording;
    /// use millpond::{Allocator, with_tag};
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// allocator.record_history(Recording::all(1000));
    /// let stream = allocator.create_stream()?;
    /// let buffer = with_tag("layer3", || stream.allocate(1000))?;
    ///
    /// let snapshot = allocator.snapshot();
    /// let block = &snapshot.segments[0].blocks[0];
    /// assert_eq!((block.state.name(), block.size, block.requested_size), ("active_allocated", 1024, 1000));
    /// assert_eq!(block.tag.as_deref(), Some("layer3"));
    /// # drop(buffer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let Copied { layout, notes, rings, reserved_bytes, limit_bytes, settings } = state.copy();
        let names = Names::now();
        let notes: HashMap<_, _> = notes.iter().map(|note| ((note.segment, note.offset), note)).collect();
        let known = |view: &SegmentView, block: &BlockView| known(view, block, &notes, &names);
        let caps = self.backend().caps();
        Snapshot {
            device: state.device,
            device_name: caps.name.clone(),
            class: state.class,
            total_bytes: caps.class(state.class).total_bytes,
            limit_bytes,
            reserved_bytes,
            segments: layout.iter().flat_map(|view| stretches(view, &known)).collect(),
            pages: layout.iter().flat_map(pages).collect(),
            history: rings.map_or_else(History::default, Rings::into_history),
            conf: conf::write(&Options::from(settings.clone())),
            settings,
            ignored: self.ignored_settings().to_vec(),
        }
    }
}

impl<B: Backend> State<B> {
    fn copy(&self) -> Copied {
        self.mark_event(|| Mark::Snapshot);
        let coordinator = self.coordinator.lock();
        let mut shards = HeldShards::new(self);
        shards.hold();
        let layout = coordinator.layout(&mut shards);
        let lanes = shards.lanes();
        let notes = lanes.iter().filter_map(|lane| lane.notes.as_ref()).flat_map(|notes| notes.all().copied());
        Copied {
            layout,
            notes: notes.collect(),
            rings: self.copy_rings_of(lanes),
            reserved_bytes: coordinator.reserved_bytes(),
            limit_bytes: coordinator.limit(),
            settings: coordinator.settings().clone(),
        }
    }
}

/// Returns a block of a layout with what is noted of it.
fn known(
    view: &SegmentView,
    block: &BlockView,
    notes: &HashMap<(SegmentId, u64), &Note>,
    names: &Names,
) -> SnapshotBlock {
    let state = match block.state {
        BlockState::ActiveAllocated => NoteState::Live,
        BlockState::ActivePendingFree => NoteState::Waiting,
        BlockState::Inactive | BlockState::Unmapped => NoteState::Vacant,
    };
    let note = notes.get(&(view.id, block.offset)).filter(|note| note.state == state);
    SnapshotBlock {
        offset: block.offset,
        address: (view.address != 0).then(|| view.address + block.offset),
        size: block.size,
        requested_size: block.requested,
        state: block.state,
        stream: note.map(|note| note.stream),
        tag: note.and_then(|note| names.of(note.label)),
        site: note.and_then(|note| note.site),
    }
}

/// Returns the pages that are mapped in a segment.
fn pages(view: &SegmentView) -> impl Iterator<Item = SnapshotPage> {
    view.pages.iter().map(|page| SnapshotPage {
        segment: view.id,
        offset: page.offset,
        address: (view.address != 0).then(|| view.address + page.offset),
        size: page.bytes,
        stream: view.stream,
        is_home: page.is_home,
    })
}

/// Returns the stretches of a segment that have memory.
fn stretches(view: &SegmentView, known: &impl Fn(&SegmentView, &BlockView) -> SnapshotBlock) -> Vec<SnapshotSegment> {
    let mapped = view.blocks.split(|block| block.state == BlockState::Unmapped).filter(|blocks| !blocks.is_empty());
    let stretch = |blocks: &[BlockView]| {
        let sum = |counts: fn(&BlockView) -> bool, of: fn(&BlockView) -> u64| {
            blocks.iter().filter(|&block| counts(block)).map(of).sum::<u64>()
        };
        let is_active = |b: &BlockView| matches!(b.state, BlockState::ActiveAllocated | BlockState::ActivePendingFree);
        let offset = blocks[0].offset;
        SnapshotSegment {
            segment: view.id,
            offset,
            address: (view.address != 0).then(|| view.address + offset),
            total_size: sum(|_| true, |block| block.size),
            allocated_size: sum(|block| block.state == BlockState::ActiveAllocated, |block| block.size),
            active_size: sum(is_active, |block| block.size),
            requested_size: sum(is_active, |block| block.requested),
            stream: view.stream,
            pool: view.pool,
            side: if view.page_bytes > 0 { blocks[0].side } else { view.side },
            kind: kind_of(view, offset),
            blocks: blocks.iter().map(|block| known(view, block)).collect(),
        }
    };
    mapped.map(stretch).collect()
}

/// Returns what kind of memory is at an offset of a segment.
fn kind_of(view: &SegmentView, offset: u64) -> SegmentKind {
    if view.page_bytes == 0 {
        return SegmentKind::Plain;
    }
    let behind = view.pages.partition_point(|page| page.offset <= offset);
    match behind.checked_sub(1).map(|at| view.pages[at].is_home) {
        Some(false) => SegmentKind::Window,
        _ => SegmentKind::Pages,
    }
}
