//! The allocator and the naive model side by side.

mod setup;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use millpond::backend::{Backend, Point};
use millpond::settings::Settings;
use millpond::stats::MemoryStats;
use millpond::{Allocator, BlockState, Buffer, Error, SegmentId, SegmentView, Side, Stream};
use millpond_conformance::language::{Noted, Operation};
use millpond_sim::{Access, Sim};

pub use setup::Setup;

use crate::model::{Extent, Model, Moment, Place, Refusal, State};
use crate::program::leaked;

/// Both sides, and the objects that the program holds.
pub struct Pair {
    sim: Sim,
    allocator: Allocator<Sim>,
    model: Model,
    streams: Vec<Stream<Sim>>,
    live: Vec<Live>,
    /// The points by number, each with its stream and the model's view of it.
    points: BTreeMap<u32, (usize, Point, Moment)>,
    /// The allocator's id of each of the model's extents, as seen in grants.
    segments: BTreeMap<u64, SegmentId>,
    checks: Checks,
}

/// A block that the program holds.
struct Live {
    block: u32,
    /// The number of the model's block.
    number: u64,
    buffer: Buffer<Sim>,
}

/// The intervals of the costly comparisons, in operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks {
    /// The interval of the comparison of the whole layout. Statistics and places are compared after every operation.
    pub layout_every: usize,
    /// The interval of the check of the allocator's own invariants.
    pub invariants_every: usize,
}

impl Checks {
    /// All comparisons after every operation.
    pub const ALL: Checks = Checks { layout_every: 1, invariants_every: 1 };
}

/// The number of times that the rarer rules were applied, so that a test can show that it reaches them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    /// Allocations that were refused.
    pub ooms: u64,
    /// Retries, before which everything cached was released.
    pub retries: u64,
    /// Segments collected as garbage.
    pub collected: u64,
    /// Oversize blocks granted.
    pub oversize: u64,
    /// Segments released as oversize.
    pub oversize_released: u64,
    /// Ranges of pages unmapped.
    pub unmapped: u64,
    /// Split blocks that were taken or joined.
    pub split: u64,
}

impl Reached {
    /// Returns the numbers with their names.
    pub fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("out of memory", self.ooms),
            ("retries", self.retries),
            ("garbage", self.collected),
            ("oversize blocks", self.oversize),
            ("oversize segments released", self.oversize_released),
            ("unmapped ranges", self.unmapped),
            ("split blocks", self.split),
        ]
    }

    /// Adds the numbers of another run.
    pub fn add(&mut self, other: &Reached) {
        self.ooms += other.ooms;
        self.retries += other.retries;
        self.collected += other.collected;
        self.oversize += other.oversize;
        self.oversize_released += other.oversize_released;
        self.unmapped += other.unmapped;
        self.split += other.split;
    }
}

impl Pair {
    /// Creates both sides of a configuration, with nothing done yet.
    pub fn new(setup: &Setup, checks: Checks) -> Pair {
        Pair::with(setup, setup.settings(), checks)
    }

    /// Creates the model of a configuration beside an allocator with settings of its own.
    pub fn with(setup: &Setup, settings: Settings, checks: Checks) -> Pair {
        let (sim, allocator) = setup.build(settings);
        let open = |id| allocator.stream(id).unwrap_or_else(|error| panic!("{error}"));
        let streams = sim.open_streams(setup.streams).into_iter().map(open).collect();
        Pair {
            model: Model::new(setup.rules.clone(), setup.streams),
            sim,
            allocator,
            streams,
            live: Vec::new(),
            points: BTreeMap::new(),
            segments: BTreeMap::new(),
            checks,
        }
    }

    /// Does the operations that `next` returns on both sides, until it returns `None`, then frees everything and
    /// empties the cache. `next` is given the numbers of the blocks that exist. Each operation is added to `trail`
    /// before it is done.
    ///
    /// # Errors
    ///
    /// Returns what differs first. A panic of the allocator is passed on.
    pub fn run(
        setup: &Setup,
        checks: Checks,
        next: &mut dyn FnMut(&[u32]) -> Option<Operation>,
        trail: &mut Vec<Operation>,
    ) -> Result<Reached, String> {
        let mut pair = Pair::new(setup, checks);
        while let Some(operation) = next(&pair.held()) {
            trail.push(operation);
            pair.step(trail.len() - 1, operation)?;
        }
        let reached = pair.reached();
        pair.finish().map(|()| reached)
    }

    /// Returns the numbers of the blocks that exist.
    pub fn held(&self) -> Vec<u32> {
        self.live.iter().map(|live| live.block).collect()
    }

    /// Returns how often the rarer rules were applied so far.
    pub fn reached(&self) -> Reached {
        let stats = self.model.stats();
        Reached {
            ooms: stats.num_ooms,
            retries: stats.num_alloc_retries,
            collected: self.model.collected(),
            oversize: stats.oversize_allocations.allocated,
            oversize_released: self.model.oversize_released(),
            unmapped: if self.model.expands() { stats.num_device_free } else { 0 },
            split: stats.inactive_split.all.freed,
        }
    }

    /// Does one operation on both sides and compares.
    ///
    /// # Errors
    ///
    /// Returns what differs.
    pub fn step(&mut self, at: usize, operation: Operation) -> Result<(), String> {
        self.apply(operation)?;
        compare_stats(self.model.stats(), &self.allocator.stats())?;
        if at.is_multiple_of(self.checks.layout_every) {
            self.compare_layout()?;
        }
        if at.is_multiple_of(self.checks.invariants_every) {
            self.allocator.check();
        }
        Ok(())
    }

    /// Frees everything, empties the cache, and compares for the last time. The device must then have all its memory
    /// back.
    ///
    /// # Errors
    ///
    /// Returns what differs, what is left, or the violations that the device has detected.
    pub fn finish(mut self) -> Result<(), String> {
        while !self.live.is_empty() {
            self.free(0);
        }
        self.apply(Operation::EmptyCache)?;
        compare_stats(self.model.stats(), &self.allocator.stats())?;
        self.compare_layout()?;
        self.allocator.check();
        if self.allocator.memory_reserved() > 0 {
            return Err(format!("left after everything was freed and released: {:?}", self.allocator.layout()));
        }
        drop((self.streams, self.allocator));
        let bytes = leaked(&self.sim);
        if bytes > 0 {
            return Err(format!("{bytes} bytes of the device leaked"));
        }
        let violations = self.sim.violations();
        if violations.is_empty() { Ok(()) } else { Err(format!("the device saw {violations:?}")) }
    }

    fn apply(&mut self, operation: Operation) -> Result<(), String> {
        match operation {
            Operation::Allocate { block, bytes, stream } => return self.allocate(block, bytes, stream),
            Operation::Free { block } => self.at(block).map_or((), |at| self.free(at)),
            Operation::Use { block, stream, noted, keep } => {
                if let Some(at) = self.at(block) {
                    self.use_elsewhere(at, stream, noted)?;
                    if !keep {
                        self.free(at);
                    }
                }
            }
            Operation::Point { point, stream } => _ = self.points.insert(point, self.point(stream)),
            Operation::Until { block, point } => {
                if let (Some(at), Some(&known)) = (self.at(block), self.points.get(&point)) {
                    self.until(at, known)?;
                }
            }
            Operation::Hold { stream } => {
                self.model.busy(stream);
                self.sim.busy(self.streams[stream].id());
            }
            Operation::Unhold { stream } => {
                self.model.complete(stream);
                self.sim.complete(self.streams[stream].id());
            }
            Operation::Sync => {
                self.model.synchronize();
                self.sim.synchronize();
            }
            Operation::Poll => {
                self.model.poll();
                self.allocator.poll().map_err(|error| error.to_string())?;
            }
            Operation::EmptyCache => {
                self.model.empty_cache();
                self.allocator.empty_cache().map_err(|error| error.to_string())?;
            }
            Operation::ResetPeaks => {
                self.model.reset_peak();
                self.allocator.reset_peak_stats();
            }
            Operation::ResetTotals => {
                self.model.reset_accumulated();
                self.allocator.reset_accumulated_stats();
            }
            other => return Err(format!("the model does not know {other:?}")),
        }
        Ok(())
    }

    fn at(&self, block: u32) -> Option<usize> {
        self.live.iter().position(|live| live.block == block)
    }

    fn free(&mut self, at: usize) {
        let Live { number, buffer, .. } = self.live.swap_remove(at);
        let tick = |stream: usize| self.sim.mark(self.streams[stream].id()).0;
        self.model.free(number, tick);
        drop(buffer);
    }

    fn point(&self, stream: usize) -> (usize, Point, Moment) {
        let point = self.streams[stream].point();
        (stream, point, self.model.moment(stream, point.tick.0))
    }

    fn until(&mut self, at: usize, (stream, point, moment): (usize, Point, Moment)) -> Result<(), String> {
        let Live { number, buffer, .. } = &self.live[at];
        self.model.used_until(*number, stream, moment);
        buffer.used_until(point).map_err(|error| error.to_string())
    }

    /// Notes that a stream uses a block. The stream reads the block before, if the home stream has finished writing it.
    fn use_elsewhere(&mut self, at: usize, stream: usize, noted: Noted) -> Result<(), String> {
        let Live { number, buffer, .. } = &self.live[at];
        if self.model.is_home_idle(*number) {
            let segment = buffer.segment().ok_or("the buffer has no segment")?;
            self.sim.use_range(self.streams[stream].id(), segment, buffer.offset(), buffer.len(), Access::Read);
        }
        if noted == Noted::Until {
            return self.until(at, self.point(stream));
        }
        self.model.record_stream(*number, stream);
        buffer.record_stream(&self.streams[stream]).map_err(|error| error.to_string())
    }

    fn allocate(&mut self, block: u32, bytes: u64, stream: usize) -> Result<(), String> {
        match (self.model.allocate(bytes, stream), self.streams[stream].allocate(bytes)) {
            (Ok((number, place)), Ok(buffer)) => {
                self.compare_place(place, &buffer)?;
                // A kernel on the home stream writes it, so that the device detects work that still uses the memory.
                let segment = buffer.segment().ok_or("the buffer has no segment")?;
                let id = self.streams[stream].id();
                self.sim.use_range(id, segment, buffer.offset(), buffer.len(), Access::Write);
                self.live.push(Live { block, number, buffer });
                Ok(())
            }
            (Err(refusal), Err(Error::OutOfMemory(error))) => {
                let report = error.report();
                let ours = Refusal {
                    tried: report.tried_bytes,
                    limit: report.limit_bytes,
                    allocated: report.allocated_bytes,
                    reserved: report.reserved_bytes,
                };
                if ours == refusal { Ok(()) } else { Err(format!("refused: model {refusal:?}, ours {ours:?}")) }
            }
            (Ok((_, place)), Err(error)) => Err(format!("model granted {place:?}, ours failed: {error}")),
            (Err(refusal), Ok(buffer)) => Err(format!("model refused {refusal:?}, ours granted {buffer:?}")),
            (Err(refusal), Err(error)) => Err(format!("model refused {refusal:?}, ours failed otherwise: {error}")),
        }
    }

    fn compare_place(&mut self, place: Place, buffer: &Buffer<Sim>) -> Result<(), String> {
        let segment = buffer.segment_id().ok_or("the buffer has no segment")?;
        let known = *self.segments.entry(place.birth).or_insert(segment);
        if (known, place.offset, place.size) == (segment, buffer.offset(), buffer.capacity()) {
            return Ok(());
        }
        Err(format!("place: model {place:?} in {known:?}, ours {buffer:?}"))
    }

    fn compare_layout(&self) -> Result<(), String> {
        let ours = self.allocator.layout();
        let model = self.model.extents();
        let same =
            ours.len() == model.len() && ours.iter().zip(model).all(|(view, extent)| self.same_arena(view, extent));
        if same { Ok(()) } else { Err(format!("layout\n  model {model:?}\n  ours  {ours:?}")) }
    }

    fn same_arena(&self, view: &SegmentView, extent: &Extent) -> bool {
        let head = (view.stream, view.side == Side::Small, view.bytes, view.page_bytes > 0);
        let blocks = view.blocks.iter().zip(&extent.blocks);
        self.segments.get(&extent.birth).is_none_or(|id| *id == view.id)
            && head == (self.streams[extent.stream].id(), extent.small, extent.bytes, extent.expandable)
            && view.blocks.len() == extent.blocks.len()
            && blocks.clone().all(|(ours, model)| (ours.offset, ours.size) == (model.offset, model.size))
            && blocks.clone().all(|(ours, model)| match (ours.state, model.state) {
                (BlockState::ActiveAllocated, State::Live) => ours.requested == model.requested,
                (BlockState::ActivePendingFree, State::Waiting { .. }) => ours.requested == model.requested,
                (BlockState::Inactive, State::Free) | (BlockState::Unmapped, State::Unmapped) => true,
                _ => false,
            })
    }
}

/// Compares all statistics, and names those that differ.
fn compare_stats(model: &MemoryStats, ours: &MemoryStats) -> Result<(), String> {
    if model == ours {
        return Ok(());
    }
    let mut differences = String::from("statistics");
    for ((key, model), (_, ours)) in model.flat().into_iter().zip(ours.flat()).filter(|(a, b)| a != b) {
        let _ = write!(differences, "\n  {key}: model {model}, ours {ours}");
    }
    Err(differences)
}
