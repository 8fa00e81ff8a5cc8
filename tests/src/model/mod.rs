//! The naive model: PyTorch's native allocator as plain lists that are walked from end to end.
//!
//! It shares no code with the core and has none of its structures: no index, no shard, no plan. A search sorts all free
//! blocks; a block is found by looking at every block. The allocator has to agree with it after every operation.

mod count;
mod device;
mod extent;
mod grow;
mod release;
mod rules;
mod search;

use std::collections::BTreeMap;

use millpond::stats::MemoryStats;

pub use extent::{Block, Extent, State};
pub use rules::Rules;

use device::Device;

/// The refusal of an allocation, with the amounts that the message names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The size of the segment that could not be allocated, in bytes.
    pub tried: u64,
    /// The limit in bytes, if there is one.
    pub limit: Option<u64>,
    /// The bytes in use by the program.
    pub allocated: u64,
    /// The bytes reserved from the driver.
    pub reserved: u64,
}

/// The place of a granted block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The extent, by birth.
    pub birth: u64,
    /// The offset in the extent, in bytes.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
}

/// A moment of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    /// The device's number for it, an input: events of a stream are over in this order.
    pub tick: u64,
    /// The number of the stream's long kernels that must be over.
    need: u64,
}

/// A block that waits for a moment.
struct Waiting {
    until: Moment,
    block: u64,
}

/// The model. Streams are numbered from 0; blocks have numbers of their own, which [`Model::allocate`] returns.
pub struct Model {
    rules: Rules,
    device: Device,
    extents: Vec<Extent>,
    /// Events of freed blocks by stream, oldest first.
    queues: BTreeMap<usize, Vec<Waiting>>,
    /// Searches of the small and of the large pool, by which free blocks age.
    searches: [u64; 2],
    births: u64,
    /// Whether the driver has refused whole pages to the request.
    is_short: bool,
    blocks: u64,
    stats: MemoryStats,
    collected: u64,
    oversize_released: u64,
}

impl Model {
    /// Creates an allocator that has served nothing, on a device with this number of streams.
    pub fn new(rules: Rules, streams: usize) -> Model {
        let stats = MemoryStats { max_split_size: rules.max_split, ..MemoryStats::default() };
        Model {
            rules,
            device: Device::new(streams),
            extents: Vec::new(),
            queues: BTreeMap::new(),
            searches: [0; 2],
            births: 0,
            is_short: false,
            blocks: 0,
            stats,
            collected: 0,
            oversize_released: 0,
        }
    }

    /// Returns the statistics.
    pub fn stats(&self) -> &MemoryStats {
        &self.stats
    }

    /// Returns the extents with their blocks, in order of birth.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Allocates `bytes` (not 0) on a stream. Returns the block's number and place.
    pub fn allocate(&mut self, bytes: u64, stream: usize) -> Result<(u64, Place), Refusal> {
        self.process_events();
        let size = self.rules.round(bytes);
        let small = self.rules.is_small(size);
        let found = self.search(stream, small, size).or_else(|| self.miss(stream, small, size));
        match found {
            Some(block) => Ok(self.take(block, size, bytes)),
            None => {
                self.stats.num_ooms += 1;
                Err(Refusal {
                    tried: self.needed(stream, small, size),
                    limit: self.rules.limit,
                    allocated: self.stats.allocated_bytes.all.current,
                    reserved: self.reserved(),
                })
            }
        }
    }

    /// Tries the steps that follow a search without a result, one after the other.
    fn miss(&mut self, stream: usize, small: bool, size: u64) -> Option<u64> {
        self.is_short = false;
        self.collect_garbage();
        if let Some(block) = self.grow(stream, small, size) {
            return Some(block);
        }
        if self.release_oversize(stream, small, size)
            && let Some(block) = self.grow(stream, small, size)
        {
            return Some(block);
        }
        self.wait_for_everything();
        if self.rules.search_after_wait
            && let Some(block) = self.search(stream, small, size)
        {
            return Some(block);
        }
        self.release_cached();
        self.stats.num_alloc_retries += 1;
        self.grow(stream, small, size)
    }

    /// Frees a block. `tick` returns the device's current number for a stream that used the block.
    pub fn free(&mut self, number: u64, tick: impl Fn(usize) -> u64) {
        let (extent, at) = self.find(number);
        let block = &self.extents[extent].blocks[at];
        let (size, uses, until) = (block.size, block.uses.clone(), block.until.clone());
        let small = self.extents[extent].small;
        count::down(&mut self.stats.allocation, small, 1);
        count::down(&mut self.stats.allocated_bytes, small, size);
        if self.rules.is_oversize(size) {
            count::fall(&mut self.stats.oversize_allocations, 1);
        }
        let mut points = until;
        for stream in uses {
            // Everything queued there by now; that includes every point taken before.
            points.insert(stream, self.moment(stream, tick(stream)));
        }
        if points.is_empty() {
            return self.retire(number);
        }
        let block = &mut self.extents[extent].blocks[at];
        block.state = State::Waiting { events: points.len() };
        for (stream, until) in points {
            let queue = self.queues.entry(stream).or_default();
            let later = queue.iter().position(|other| other.until.tick > until.tick);
            queue.insert(later.unwrap_or(queue.len()), Waiting { until, block: number });
        }
    }

    /// Marks a block as used on a stream until it is freed.
    pub fn record_stream(&mut self, number: u64, stream: usize) {
        let (extent, at) = self.find(number);
        if self.extents[extent].stream != stream {
            let uses = &mut self.extents[extent].blocks[at].uses;
            if !uses.contains(&stream) {
                uses.push(stream);
            }
        }
    }

    /// Returns whether nothing runs on the block's home stream.
    pub fn is_home_idle(&self, number: u64) -> bool {
        let home = self.extents[self.find(number).0].stream;
        self.device.is_done(home, self.device.launched(home))
    }

    /// Returns the number of segments collected as garbage so far.
    pub fn collected(&self) -> u64 {
        self.collected
    }

    /// Returns the number of segments released so far because they were oversize.
    pub fn oversize_released(&self) -> u64 {
        self.oversize_released
    }

    /// Returns whether segments are expandable.
    pub fn expands(&self) -> bool {
        self.rules.expandable
    }

    /// Returns the moment of everything queued on a stream so far, under the device's number for it.
    pub fn moment(&self, stream: usize, tick: u64) -> Moment {
        Moment { tick, need: self.device.launched(stream) }
    }

    /// Marks a block as used until a moment of a stream.
    pub fn used_until(&mut self, number: u64, stream: usize, moment: Moment) {
        let (extent, at) = self.find(number);
        if self.extents[extent].stream != stream {
            let until = self.extents[extent].blocks[at].until.entry(stream).or_default();
            *until = moment.max(*until);
        }
    }

    /// Puts a long kernel on a stream.
    pub fn busy(&mut self, stream: usize) {
        self.device.launch(stream);
    }

    /// Ends the work of one stream.
    pub fn complete(&mut self, stream: usize) {
        self.device.complete(stream);
    }

    /// Waits for the device.
    pub fn synchronize(&mut self) {
        self.device.synchronize();
    }

    /// Retires freed blocks whose events are over.
    pub fn poll(&mut self) {
        self.process_events();
    }

    /// Empties the cache.
    pub fn empty_cache(&mut self) {
        self.wait_for_everything();
        self.release_cached();
    }

    fn process_events(&mut self) {
        for stream in 0..self.device.streams() {
            while let Some(block) = self.next_done(stream) {
                self.event_is_over(block);
            }
        }
    }

    /// Takes the oldest event of a stream off its queue if it is over.
    fn next_done(&mut self, stream: usize) -> Option<u64> {
        let queue = self.queues.get_mut(&stream)?;
        let first = queue.first()?;
        self.device.is_done(stream, first.until.need).then(|| queue.remove(0).block)
    }

    fn event_is_over(&mut self, number: u64) {
        let (extent, at) = self.find(number);
        let State::Waiting { events } = &mut self.extents[extent].blocks[at].state else {
            panic!("block {number} has an event and waits for none");
        };
        *events -= 1;
        if *events == 0 {
            self.retire(number);
        }
    }

    /// Returns the extent of a block, and its place in the extent.
    fn find(&self, number: u64) -> (usize, usize) {
        let places = self.extents.iter().enumerate();
        let mut places = places.flat_map(|(extent, a)| a.blocks.iter().enumerate().map(move |(at, b)| (extent, at, b)));
        match places.find(|(.., block)| block.number == number) {
            Some((extent, at, _)) => (extent, at),
            None => panic!("there is no block {number}"),
        }
    }

    fn next_number(&mut self) -> u64 {
        self.blocks += 1;
        self.blocks
    }

    fn reserved(&self) -> u64 {
        self.stats.reserved_bytes.all.current
    }

    /// Returns the number of bytes that the driver still has.
    fn driver_free(&self) -> u64 {
        self.rules.total - self.reserved()
    }
}
