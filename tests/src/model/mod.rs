//! The naive model: PyTorch's native allocator as plain lists that are walked from end to end.
//!
//! It shares no code with the core and has none of its structures: no index, no shard, no plan. A search sorts all free
//! blocks; a block is found by looking at every block. What it says after an operation is what the allocator must say.

mod arena;
mod count;
mod device;
mod grow;
mod release;
mod rules;
mod search;

use std::collections::BTreeMap;

use millpond::stats::MemoryStats;

pub use arena::{Arena, Block, State};
pub use rules::Rules;

use device::Device;

/// Why an allocation was refused, with the amounts that the message names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The segment that could not be had, in bytes.
    pub tried: u64,
    /// The limit in bytes, if there is one.
    pub limit: Option<u64>,
    /// Bytes in the program's hands.
    pub allocated: u64,
    /// Bytes got from the driver.
    pub reserved: u64,
}

/// Where a block was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The arena, by birth.
    pub birth: u64,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
}

/// A moment of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    /// The device's number for it, an input: events of a stream are over in this order.
    pub tick: u64,
    /// How many of the stream's long kernels must be over.
    need: u64,
}

/// A block that waits for a moment.
struct Waiting {
    until: Moment,
    block: u64,
}

/// The model. Streams are numbered from 0; blocks have numbers of their own, which [`Model::allocate`] hands out.
pub struct Model {
    rules: Rules,
    device: Device,
    arenas: Vec<Arena>,
    /// Events of freed blocks by stream, oldest first.
    queues: BTreeMap<usize, Vec<Waiting>>,
    /// Searches of the small and of the large pool, by which free blocks age.
    searches: [u64; 2],
    births: u64,
    blocks: u64,
    stats: MemoryStats,
    collected: u64,
    oversize_released: u64,
}

impl Model {
    /// An allocator that has served nothing, on a device with so many streams.
    pub fn new(rules: Rules, streams: usize) -> Model {
        let stats = MemoryStats { max_split_size: rules.max_split, ..MemoryStats::default() };
        Model {
            rules,
            device: Device::new(streams),
            arenas: Vec::new(),
            queues: BTreeMap::new(),
            searches: [0; 2],
            births: 0,
            blocks: 0,
            stats,
            collected: 0,
            oversize_released: 0,
        }
    }

    /// The statistics.
    pub fn stats(&self) -> &MemoryStats {
        &self.stats
    }

    /// The arenas with their blocks, in order of birth.
    pub fn arenas(&self) -> &[Arena] {
        &self.arenas
    }

    /// Allocates `bytes` (not 0) on a stream: the block's number and place.
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
                    tried: self.rules.segment(size),
                    limit: self.rules.limit,
                    allocated: self.stats.allocated_bytes.all.current,
                    reserved: self.reserved(),
                })
            }
        }
    }

    /// The ladder after a search that found nothing.
    fn miss(&mut self, stream: usize, small: bool, size: u64) -> Option<u64> {
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

    /// The program frees a block. `tick` is the device's number for now, asked of the streams that used the block.
    pub fn free(&mut self, number: u64, tick: impl Fn(usize) -> u64) {
        let (arena, at) = self.find(number);
        let block = &self.arenas[arena].blocks[at];
        let (size, uses, until) = (block.size, block.uses.clone(), block.until.clone());
        let small = self.arenas[arena].small;
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
        let block = &mut self.arenas[arena].blocks[at];
        block.state = State::Waiting { events: points.len() };
        for (stream, until) in points {
            let queue = self.queues.entry(stream).or_default();
            let later = queue.iter().position(|other| other.until.tick > until.tick);
            queue.insert(later.unwrap_or(queue.len()), Waiting { until, block: number });
        }
    }

    /// The block is used on a stream until it is freed.
    pub fn record_stream(&mut self, number: u64, stream: usize) {
        let (arena, at) = self.find(number);
        if self.arenas[arena].stream != stream {
            let uses = &mut self.arenas[arena].blocks[at].uses;
            if !uses.contains(&stream) {
                uses.push(stream);
            }
        }
    }

    /// Nothing runs on the block's home stream.
    pub fn is_home_idle(&self, number: u64) -> bool {
        let home = self.arenas[self.find(number).0].stream;
        self.device.is_done(home, self.device.launched(home))
    }

    /// Segments collected as garbage so far.
    pub fn collected(&self) -> u64 {
        self.collected
    }

    /// Segments released so far because they were oversize.
    pub fn oversize_released(&self) -> u64 {
        self.oversize_released
    }

    /// Segments are expandable.
    pub fn expands(&self) -> bool {
        self.rules.expandable
    }

    /// Everything queued on a stream so far, under the device's number for it.
    pub fn moment(&self, stream: usize, tick: u64) -> Moment {
        Moment { tick, need: self.device.launched(stream) }
    }

    /// The block is used until a moment of a stream.
    pub fn used_until(&mut self, number: u64, stream: usize, moment: Moment) {
        let (arena, at) = self.find(number);
        if self.arenas[arena].stream != stream {
            let until = self.arenas[arena].blocks[at].until.entry(stream).or_default();
            *until = moment.max(*until);
        }
    }

    /// A long kernel is put on a stream.
    pub fn busy(&mut self, stream: usize) {
        self.device.launch(stream);
    }

    /// The work of one stream ends.
    pub fn complete(&mut self, stream: usize) {
        self.device.complete(stream);
    }

    /// The program waits for the device.
    pub fn synchronize(&mut self) {
        self.device.synchronize();
    }

    /// Freed blocks whose events are over are retired.
    pub fn poll(&mut self) {
        self.process_events();
    }

    /// The program empties the cache.
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
        let (arena, at) = self.find(number);
        let State::Waiting { events } = &mut self.arenas[arena].blocks[at].state else {
            panic!("block {number} has an event and waits for none");
        };
        *events -= 1;
        if *events == 0 {
            self.retire(number);
        }
    }

    /// Where a block is: its arena and its place in it.
    fn find(&self, number: u64) -> (usize, usize) {
        let places = self.arenas.iter().enumerate();
        let mut places = places.flat_map(|(arena, a)| a.blocks.iter().enumerate().map(move |(at, b)| (arena, at, b)));
        match places.find(|(.., block)| block.number == number) {
            Some((arena, at, _)) => (arena, at),
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

    /// What the driver still has.
    fn driver_free(&self) -> u64 {
        self.rules.total - self.reserved()
    }
}
