//! The data model: what PyTorch's `torch.cuda.memory._snapshot()` returns.

use std::sync::Arc;

use serde_json::{Map, Value};

/// Fields that this crate does not know, by name. They are kept: what was read is written again, in the order of the
/// names. Lists and tuples are both lists in them; a fraction that is not finite is `null`, as JSON has none.
pub type Other = Map<String, Value>;

/// A snapshot of an allocator: what it holds, and what it did last.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// The segments of all devices.
    pub segments: Vec<Segment>,
    /// The last events of each device, oldest first. Empty where no history was recorded.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings, by PyTorch's names; `PYTORCH_CUDA_ALLOC_CONF` is the text they were made from.
    pub allocator_settings: Other,
    /// The beginnings and ends of annotated parts of the program.
    pub external_annotations: Vec<Annotation>,
    /// Segments of page-locked memory of the host.
    pub host_segments: Vec<Segment>,
    /// Everything else.
    pub other: Other,
}

/// Memory that the allocator got from the driver in one piece, or an expandable one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Segment {
    /// The number of the device. Segments of the host have -1.
    pub device: i64,
    /// The first address.
    pub address: u64,
    /// Its bytes.
    pub total_size: u64,
    /// The bytes of blocks that the program holds.
    pub allocated_size: u64,
    /// The same, and the bytes of blocks that were freed and are still in use by the device.
    pub active_size: u64,
    /// The bytes that the program asked for, of blocks that are active.
    pub requested_size: u64,
    /// The stream that it serves, as the driver's handle; 0 is the default stream.
    pub stream: u64,
    /// `small` or `large`.
    pub segment_type: Option<Arc<str>>,
    /// The pool that it belongs to; the default pool is (0, 0).
    pub segment_pool_id: Option<(u64, u64)>,
    /// Whether it can grow.
    pub is_expandable: Option<bool>,
    /// Where it was allocated.
    pub frames: Option<Stack>,
    /// Its blocks, in the order of their addresses, without gaps.
    pub blocks: Vec<Block>,
    /// Everything else.
    pub other: Other,
}

/// A part of a segment.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// The first address.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// The bytes that the program asked for; 0 for a free block.
    pub requested_size: u64,
    /// What it is used for.
    pub state: State,
    /// Where it was allocated. Empty where no history was recorded.
    pub frames: Stack,
    /// Everything else.
    pub other: Other,
}

/// What a block is used for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum State {
    /// The program holds it: `active_allocated`.
    Allocated,
    /// The program freed it, and the device may still use it: `active_pending_free`. Read also as
    /// `active_awaiting_free`, as PyTorch's documentation has it.
    PendingFree,
    /// Free: `inactive`.
    Inactive,
    /// A state that this crate does not know.
    Other(Arc<str>),
}

impl State {
    /// Returns its name in snapshots.
    pub fn name(&self) -> &str {
        match self {
            State::Allocated => "active_allocated",
            State::PendingFree => "active_pending_free",
            State::Inactive => "inactive",
            State::Other(name) => name,
        }
    }

    /// Returns the state of a name.
    pub fn of(name: &Arc<str>) -> State {
        match &**name {
            "active_allocated" => State::Allocated,
            "active_pending_free" | "active_awaiting_free" => State::PendingFree,
            "inactive" => State::Inactive,
            _ => State::Other(Arc::clone(name)),
        }
    }

    /// Returns whether the program or the device uses the block.
    pub fn is_active(&self) -> bool {
        matches!(self, State::Allocated | State::PendingFree)
    }
}

/// A place in a program: a function, its file and a line.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// The function.
    pub name: Arc<str>,
    /// The file; `??` for C++ functions without one.
    pub filename: Arc<str>,
    /// The line; 0 where it is not known.
    pub line: i64,
    /// Everything else, such as `fx_node_name`.
    pub other: Other,
}

/// A call stack, innermost frame first. Clones share the frames. Of a file that was read, equal stacks are one, and
/// equal frames are one in all stacks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stack(Arc<[Arc<Frame>]>);

impl Stack {
    /// Creates a stack.
    pub fn new(frames: Vec<Frame>) -> Self {
        frames.into_iter().map(Arc::new).collect()
    }

    /// Returns the frames, innermost first.
    pub fn frames(&self) -> &[Arc<Frame>] {
        &self.0
    }

    /// Returns a number that clones of this stack have in common, and no other stack with frames that is alive.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

/// Creates a stack of frames that others may share.
impl FromIterator<Arc<Frame>> for Stack {
    fn from_iter<I: IntoIterator<Item = Arc<Frame>>>(frames: I) -> Self {
        Self(frames.into_iter().collect())
    }
}

/// An event of an allocator's history.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// The address of the block or of the segment; not of `oom`.
    pub addr: Option<u64>,
    /// The bytes that the program asked for, or those of the segment.
    pub size: u64,
    /// The stream, as the driver's handle.
    pub stream: u64,
    /// When, in microseconds since 1970.
    pub time_us: Option<i64>,
    /// The bytes that the driver had left, of `oom`.
    pub device_free: Option<u64>,
    /// The pool of the block or segment.
    pub pool_id: Option<(u64, u64)>,
    /// The compiled graph that the program was in.
    pub compile_context: Option<Arc<str>>,
    /// What the program told about itself with `_set_memory_metadata`.
    pub user_metadata: Option<Arc<str>>,
    /// What the block was for, such as `parameter` or `gradient`. The profiler's snapshots have it, and the viewer
    /// colours by it.
    pub category: Option<Arc<str>>,
    /// Where it happened.
    pub frames: Option<Stack>,
    /// Everything else.
    pub other: Other,
}

impl TraceEntry {
    /// Creates an event with an action, an address, a number of bytes and a stream, and nothing else.
    pub fn new(action: Action, addr: u64, size: u64, stream: u64) -> Self {
        Self {
            action,
            addr: Some(addr),
            size,
            stream,
            time_us: None,
            device_free: None,
            pool_id: None,
            compile_context: None,
            user_metadata: None,
            category: None,
            frames: None,
            other: Other::new(),
        }
    }
}

/// What happened to a block, a segment or the allocator.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Action {
    /// A block was allocated.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// The device was done with a freed block.
    FreeCompleted,
    /// A segment was allocated.
    SegmentAlloc,
    /// A segment was released.
    SegmentFree,
    /// Memory was mapped into an expandable segment.
    SegmentMap,
    /// Memory was unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// An allocation was refused.
    Oom,
    /// A block was annotated.
    Annotate,
    /// Something that this crate does not know.
    Other(Arc<str>),
}

impl Action {
    /// The actions with a name that this crate knows.
    const NAMES: [(&str, Action); 10] = [
        ("alloc", Action::Alloc),
        ("free_requested", Action::FreeRequested),
        ("free_completed", Action::FreeCompleted),
        ("segment_alloc", Action::SegmentAlloc),
        ("segment_free", Action::SegmentFree),
        ("segment_map", Action::SegmentMap),
        ("segment_unmap", Action::SegmentUnmap),
        ("snapshot", Action::Snapshot),
        ("oom", Action::Oom),
        ("annotate", Action::Annotate),
    ];

    /// Returns its name in snapshots.
    pub fn name(&self) -> &str {
        if let Action::Other(name) = self {
            return name;
        }
        Self::NAMES.iter().find(|(_, action)| action == self).map_or("", |(name, _)| name)
    }

    /// Returns the action of a name.
    pub fn of(name: &Arc<str>) -> Action {
        let known = Self::NAMES.iter().find(|(known, _)| **known == **name);
        known.map_or_else(|| Action::Other(Arc::clone(name)), |(_, action)| action.clone())
    }
}

/// The beginning or the end of an annotated part of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Annotation {
    /// The name of the part.
    pub name: Arc<str>,
    /// `START` or `END`.
    pub stage: Arc<str>,
    /// The device.
    pub device: i64,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// Everything else.
    pub other: Other,
}

impl Segment {
    /// Creates a segment of these blocks: its sizes are their sums.
    pub fn new(device: i64, address: u64, stream: u64, blocks: Vec<Block>) -> Self {
        let mut segment = Self { device, address, stream, blocks, ..Self::default() };
        segment.total_size = segment.sum(|_| true, |block| block.size);
        segment.allocated_size = segment.sum(|block| block.state == State::Allocated, |block| block.size);
        segment.active_size = segment.sum(|block| block.state.is_active(), |block| block.size);
        segment.requested_size = segment.sum(|block| block.state.is_active(), |block| block.requested_size);
        segment
    }

    /// Returns the sum of the sizes of some of its blocks, at most `u64::MAX`.
    pub(crate) fn sum(&self, of: impl Fn(&Block) -> bool, bytes: impl Fn(&Block) -> u64) -> u64 {
        self.blocks.iter().filter(|block| of(block)).fold(0, |sum, block| sum.saturating_add(bytes(block)))
    }
}
