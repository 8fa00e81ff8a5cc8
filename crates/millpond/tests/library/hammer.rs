//! Threads do everything at once. Once all of it is freed and the cache emptied, nothing is reserved.

use std::sync::Mutex;
use std::thread;

use millpond::{Allocator, Buffer, Error, Pool, Stream};
use millpond_sim::{Access, Completion, Sim};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
const CONFS: [&str; 5] = [
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:direct",
];

/// What the threads have in common: an allocator, a stream, a pool, and buffers that any of them may free.
struct Common {
    allocator: Allocator<Sim>,
    stream: Stream<Sim>,
    shared: Pool<Sim>,
    handed: Mutex<Vec<Buffer<Sim>>>,
}

/// What a thread has of its own. The last of its streams may be one that all threads use.
struct Own<'a> {
    common: &'a Common,
    streams: [Stream<Sim>; 2],
    pool: Pool<Sim>,
    random: Random,
    kept: Vec<Buffer<Sim>>,
}

impl<'a> Own<'a> {
    fn new(common: &'a Common, seed: u64) -> Self {
        let (allocator, pool) = (&common.allocator, common.allocator.create_pool().unwrap());
        let last = if seed.is_multiple_of(3) { Ok(common.stream.clone()) } else { allocator.create_stream() };
        let streams = [allocator.create_stream().unwrap(), last.unwrap()];
        Self { common, streams, pool, random: Random::new(seed), kept: Vec::new() }
    }

    /// Returns a stream, which may be one of the thread's own pool or of the shared one.
    fn stream(&mut self) -> Stream<Sim> {
        let stream = &self.streams[self.random.index(2)];
        match self.random.below(4) {
            0 => self.pool.stream(stream.id()).unwrap(),
            1 => self.common.shared.stream(stream.id()).unwrap(),
            _ => stream.clone(),
        }
    }

    /// Allocates, and has the device write there.
    fn allocate(&mut self, stream: &Stream<Sim>, most: u64) -> Option<Buffer<Sim>> {
        let buffer = match stream.allocate(self.random.between(1, most)) {
            Ok(buffer) => buffer,
            Err(Error::OutOfMemory(_)) => return None,
            Err(error) => panic!("{error}"),
        };
        let sim = self.common.allocator.backend();
        sim.use_range(stream.id(), buffer.segment()?, buffer.offset(), buffer.len(), Access::Write);
        Some(buffer)
    }

    /// Frees a buffer, which another stream may use, and which another thread may free.
    fn free(&mut self, buffer: Buffer<Sim>) {
        if self.random.one_in(2) {
            buffer.record_stream(&self.streams[self.random.index(2)]).unwrap();
        }
        if self.random.one_in(4) {
            self.common.handed.lock().unwrap().push(buffer);
        }
    }

    /// Has the own pool go back to a checkpoint of a few blocks, where other blocks have been meanwhile.
    fn go_back(&mut self) {
        let stream = self.pool.stream(self.streams[self.random.index(2)].id()).unwrap();
        let mut held: Vec<_> = (0..4).filter_map(|_| self.allocate(&stream, 3 * MIB / 2)).collect();
        while held.len() > 1 && self.random.one_in(2) {
            drop(held.swap_remove(self.random.index(held.len())));
        }
        let checkpoint = self.pool.checkpoint();
        held.into_iter().for_each(|buffer| self.free(buffer));
        let other = self.allocate(&stream, 4 * MIB);
        let mut buffers = Vec::new();
        match self.pool.restore(&checkpoint, &mut buffers) {
            Ok(()) | Err(Error::NotRestorable { .. }) => self.kept.extend(buffers),
            Err(error) => panic!("{error}"),
        }
        self.kept.extend(other);
    }

    /// Allocates where a block lay that was just freed.
    fn come_again(&mut self) {
        let stream = self.stream();
        let Some(buffer) = self.allocate(&stream, 12 * MIB) else { return };
        let (address, bytes) = (buffer.address().unwrap(), buffer.len());
        drop(buffer);
        self.kept.extend(stream.allocate_at(self.random.between(1, bytes), address).unwrap());
    }

    /// Captures work of a stream in the own pool, unless another thread is capturing it.
    fn capture(&mut self) {
        let stream = self.pool.stream(self.streams[self.random.index(2)].id()).unwrap();
        if let Ok(capture) = stream.begin_capture() {
            let held: Vec<_> = (0..3).filter_map(|_| stream.allocate(self.random.between(1, 4 * MIB)).ok()).collect();
            held.into_iter().for_each(|buffer| self.free(buffer));
            capture.end();
        }
    }

    fn step(&mut self) {
        let allocator = &self.common.allocator;
        match self.random.below(40) {
            0..16 => {
                let most = self.random.pick(&[2000, 700_000, 3 * MIB, 12 * MIB, 40 * MIB]);
                let stream = self.stream();
                match self.allocate(&stream, most) {
                    Some(buffer) => self.kept.push(buffer),
                    None => self.kept.truncate(2),
                }
            }
            16..30 if !self.kept.is_empty() => {
                let at = self.random.index(self.kept.len());
                let buffer = self.kept.swap_remove(at);
                self.free(buffer);
            }
            30 => drop(self.common.handed.lock().unwrap().pop()),
            31 => allocator.empty_cache().unwrap(),
            32 => _ = allocator.trim(self.random.below(64 * MIB)).unwrap(),
            33 => self.pool = allocator.create_pool().unwrap(),
            34 => self.go_back(),
            35 => self.come_again(),
            36 => self.capture(),
            37..=38 => _ = allocator.poll().unwrap(),
            39 => allocator.set_limit(self.random.one_in(2).then_some(256 * MIB)),
            _ => {}
        }
    }
}

#[test]
fn nothing_is_reserved_after_threads_have_done_everything() {
    for (seed, conf) in (0..4).flat_map(|seed| CONFS.map(|conf| (seed, conf))) {
        let sim = Sim::builder().total_bytes(1 << 30).completion(Completion::Seeded(seed)).build();
        let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
        let (stream, shared) = (allocator.create_stream().unwrap(), allocator.create_pool().unwrap());
        let common = Common { allocator, stream, shared, handed: Mutex::default() };
        thread::scope(|scope| {
            for thread in 0..6 {
                let common = &common;
                scope.spawn(move || {
                    let mut own = Own::new(common, seed * 6 + thread);
                    (0..300).for_each(|_| own.step());
                });
            }
        });
        let Common { allocator, shared, handed, .. } = common;
        drop((shared, handed));
        allocator.check();
        assert_eq!((sim.violations().len(), allocator.memory_allocated()), (0, 0), "{conf}, seed {seed}");
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}, seed {seed}: {:?}", allocator.ledger());
        allocator.check();
    }
}
