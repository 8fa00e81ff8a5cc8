//! Forecasts of requests: what they say is what happens.

use millpond::backend::{Closing, Reuse};
use millpond::{Allocator, Bound, Buffer, Pool, ServedBy, Stream};
use millpond_sim::{Access, Completion, Sim, SimBuilder};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
const CONFS: [&str; 9] = [
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:classic,slack:0.1",
    "policy:classic,max_split_size_mb:24,garbage_collection_threshold:0.6",
    "policy:paged,throw_on_cudamalloc_oom:True",
    "policy:classic,throw_on_cudamalloc_oom:True",
    "policy:direct",
];

/// A program whose every request is told before it is made.
struct Program {
    sim: Sim,
    allocator: Allocator<Sim>,
    streams: Vec<Stream<Sim>>,
    pool: Pool<Sim>,
    held: Vec<Buffer<Sim>>,
    random: Random,
    /// The number of requests that were served by each kind, with those that were refused last.
    served: [u32; 4],
    /// The number of requests of the cache alone that it did not serve, and that it served.
    cached: [u32; 2],
    case: String,
}

impl Program {
    fn new(sim: SimBuilder, conf: &str, seed: u64) -> Self {
        let sim = sim.total_bytes(256 * MIB).completion(Completion::Manual).build();
        let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
        let mut streams: Vec<_> = (0..3).map(|_| allocator.create_stream().unwrap()).collect();
        let pool = allocator.create_pool().unwrap();
        streams.push(pool.stream(streams[0].id()).unwrap());
        let random = Random::new(seed);
        let case = format!("{conf}, seed {seed}");
        Self { sim, allocator, streams, pool, held: Vec::new(), random, served: [0; 4], cached: [0; 2], case }
    }

    fn request(&mut self) {
        let stream = &self.streams[self.random.index(4)];
        let most = self.random.pick(&[2000, 700_000, 3 * MIB, 12 * MIB, 40 * MIB, 120 * MIB]);
        let bytes = self.random.between(1, most);
        let before = self.allocator.stats();
        let fit = stream.would_fit(bytes).unwrap();
        let case = || format!("{}: {bytes} bytes on {stream:?}: {fit:?}", self.case);
        let after = self.allocator.stats();
        assert_eq!(before, after, "nothing changes: {}", case());
        let reserved = self.allocator.memory_reserved();
        let calls = self.sim.calls();
        let buffer = stream.allocate(bytes);
        self.served[fit.served_by as usize] += 1;
        assert_eq!(fit.fits(), buffer.is_ok(), "{}", case());
        let Ok(buffer) = buffer else {
            assert!(fit.bound.is_some() && fit.reserves_bytes == 0, "{}", case());
            return self.held.truncate(self.held.len() / 2);
        };
        let expected = reserved + fit.reserves_bytes - fit.releases_bytes;
        assert_eq!(self.allocator.memory_reserved(), expected, "{}", case());
        let now = self.sim.calls();
        // The driver may be asked in vain before memory serves that has to be waited for.
        let asked = now.create_page + now.reserve > calls.create_page + calls.reserve;
        assert!(asked || fit.reserves_bytes == 0, "{}", case());
        // Of a wait that is over already nothing is seen.
        assert!(fit.waits || now.wait == calls.wait, "{}", case());
        if fit.served_by == ServedBy::Cached {
            assert_eq!(now.map, calls.map, "{}", case());
        }
        self.sim.use_range(stream.id(), buffer.segment().unwrap(), buffer.offset(), buffer.len(), Access::Write);
        self.held.push(buffer);
    }

    /// Makes a request of the cache alone. It is served where any request would be without more than that.
    fn request_cached(&mut self) {
        let stream = &self.streams[self.random.index(4)];
        let most = self.random.pick(&[2000, 700_000, 3 * MIB, 12 * MIB, 40 * MIB]);
        let bytes = self.random.between(1, most);
        let fit = stream.would_fit(bytes).unwrap();
        let case = || format!("{}: {bytes} bytes on {stream:?}: {fit:?}", self.case);
        let (before, reserved) = (self.allocator.stats(), self.allocator.memory_reserved());
        let calls = self.sim.calls();
        let buffer = stream.allocate_cached(bytes).unwrap();
        let made = self.sim.calls().since(&calls);
        let forbidden = [made.create_page, made.reserve, made.release_page, made.release, made.wait];
        assert_eq!((forbidden, self.allocator.memory_reserved()), ([0; 5], reserved), "{}", case());
        let after = self.allocator.stats();
        let counts = |stats: &millpond::MemoryStats| {
            [stats.num_ooms, stats.num_alloc_retries, stats.num_sync_all_streams, stats.num_oom_rejections]
        };
        assert_eq!(counts(&after), counts(&before), "{}", case());
        let is_at_hand = matches!(fit.served_by, ServedBy::Cached | ServedBy::Gathered) && !fit.waits;
        assert!(buffer.is_some() || !is_at_hand || fit.releases_bytes > 0, "{}", case());
        self.cached[usize::from(buffer.is_some())] += 1;
        if let Some(buffer) = buffer {
            self.sim.use_range(stream.id(), buffer.segment().unwrap(), buffer.offset(), buffer.len(), Access::Write);
            self.held.push(buffer);
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..8 => self.request(),
            8..10 => self.request_cached(),
            10..16 if !self.held.is_empty() => {
                let buffer = self.held.swap_remove(self.random.index(self.held.len()));
                if self.random.one_in(3) {
                    buffer.record_stream(&self.streams[self.random.index(3)]).unwrap();
                }
            }
            16 => self.streams[..3].iter().for_each(|stream| _ = stream.submit().unwrap()),
            17 => self.sim.complete_all(),
            18 => _ = self.sim.complete(self.streams[self.random.index(3)].id()),
            19 => self.allocator.set_limit(self.random.one_in(3).then(|| self.random.between(60, 200) * MIB)),
            _ => {}
        }
    }

    fn run(mut self) -> ([u32; 4], [u32; 2]) {
        (0..400).for_each(|_| self.step());
        self.allocator.check();
        assert_eq!(self.sim.violations().len(), 0, "{}", self.case);
        drop(self.pool);
        (self.served, self.cached)
    }
}

/// Under all policies, with limits and without, with memory of several streams that is still in use.
#[test]
fn what_is_told_is_what_happens() {
    for conf in CONFS {
        let (mut served, mut cached) = ([0; 4], [0; 2]);
        for seed in 0..8 {
            let (of_all, of_cached) = Program::new(Sim::builder(), conf, seed).run();
            served.iter_mut().zip(of_all).for_each(|(sum, more)| *sum += more);
            cached.iter_mut().zip(of_cached).for_each(|(sum, more)| *sum += more);
        }
        let gathers = conf.starts_with("policy:paged");
        let caches = conf != "policy:direct";
        assert!(served[2] > 20 && served[3] > 20 && (served[0] > 20 || !caches), "{conf}: {served:?}");
        assert!(cached[0] > 10 && (cached[1] > 10 || !caches), "{conf}: {cached:?}");
        assert_eq!(served[1] > 0, gathers, "{conf}: {served:?}");
    }
}

/// The same where the application submits, and where memory is not reused in order.
#[test]
fn also_where_work_has_to_be_submitted() {
    for conf in ["policy:paged", "policy:classic"] {
        for seed in 0..8 {
            Program::new(Sim::builder().closing(Closing::Submit), conf, seed).run();
            let sim = Sim::builder().closing(Closing::Submit).reuse(Reuse::AfterSubmit);
            Program::new(sim, conf, seed).run();
        }
    }
}

fn opened(conf: &str) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::builder(Sim::builder().total_bytes(256 * MIB).build()).conf(conf).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

#[test]
fn it_says_what_stands_in_the_way() {
    for conf in ["policy:paged", "policy:classic"] {
        let (allocator, stream) = opened(conf);
        let _live = stream.allocate(100 * MIB).unwrap();
        let full = stream.would_fit(200 * MIB).unwrap();
        assert_eq!((full.bound, full.short_bytes), (Some(Bound::Device(156 * MIB)), 44 * MIB), "{conf}");
        allocator.set_limit(Some(128 * MIB));
        let limited = stream.would_fit(60 * MIB).unwrap();
        assert_eq!((limited.bound, limited.short_bytes), (Some(Bound::Limit(128 * MIB)), 32 * MIB), "{conf}");
        assert!(!limited.fits() && limited.served_by == ServedBy::Nothing, "{conf}");
        assert!(stream.would_fit(0).unwrap().fits(), "{conf}");
        assert!(stream.would_fit(1 << 60).is_err(), "{conf}");
    }
}

/// What other streams have cached goes back for a request that fits by that alone.
#[test]
fn it_says_what_would_be_released() {
    let (allocator, stream) = opened("policy:classic");
    let other = allocator.create_stream().unwrap();
    drop(other.allocate(200 * MIB).unwrap());
    let fit = stream.would_fit(100 * MIB).unwrap();
    assert_eq!((fit.served_by, fit.reserves_bytes, fit.releases_bytes), (ServedBy::New, 100 * MIB, 200 * MIB));
    assert_eq!(allocator.memory_reserved(), 200 * MIB, "it is there still");
    assert!(stream.allocate(100 * MIB).is_ok());
    assert_eq!(allocator.memory_reserved(), 100 * MIB);
}
