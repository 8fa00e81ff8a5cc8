//! Memory that nothing has needed for a while goes back to the driver, and other memory does not.

use std::thread;
use std::time::{Duration, Instant};

use millpond::{Allocator, Builder, Stream};
use millpond_sim::{Completion, Sim};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const AFTER: Duration = Duration::from_secs(60);
const CONFS: [&str; 4] =
    ["policy:paged", "policy:paged,growth:tight", "policy:classic", "policy:classic,expandable_segments:True"];

fn builder(conf: &str) -> Builder<Sim> {
    let sim = Sim::builder().total_bytes(64 * GIB).build();
    Allocator::builder(sim).conf(conf).release_idle_after(AFTER)
}

/// An allocator with a stream, and the time as it sees it.
struct Program {
    allocator: Allocator<Sim>,
    stream: Stream<Sim>,
    now: Duration,
}

impl Program {
    fn new(builder: Builder<Sim>) -> Self {
        let allocator = builder.build().unwrap();
        let stream = allocator.create_stream().unwrap();
        let program = Self { allocator, stream, now: Duration::ZERO };
        program.poll();
        program
    }

    fn poll(&self) -> u64 {
        self.allocator.release_idle_at(self.now).unwrap()
    }

    fn pass(&mut self, seconds: u64) -> u64 {
        self.now += Duration::from_secs(seconds);
        self.poll()
    }

    /// Has many blocks at one time.
    fn peak(&self, count: usize, bytes: u64) {
        drop((0..count).map(|_| self.stream.allocate(bytes).unwrap()).collect::<Vec<_>>());
    }
}

#[test]
fn after_a_peak_a_program_keeps_what_it_uses() {
    for conf in CONFS {
        let mut program = Program::new(builder(conf));
        program.peak(320, 64 * MIB);
        assert!(program.allocator.memory_reserved() >= 20 * GIB, "{conf}");
        let mut released = 0;
        for request in 0..200_000 {
            drop(program.stream.allocate(8 * MIB).unwrap());
            if request % 100 == 0 {
                released += program.pass(1);
            }
        }
        let (reserved, stats) = (program.allocator.memory_reserved(), program.allocator.idle_stats());
        assert!((8 * MIB..=31 * MIB).contains(&reserved), "{conf}: {reserved} bytes are reserved");
        assert!(released >= 20 * GIB - 31 * MIB && released == stats.released_bytes, "{conf}: {stats:?}");
        assert_eq!((stats.releases, stats.since_last.is_some()), (1, true), "{conf}");
        let most = program.allocator.slack_stats().most_live_bytes;
        assert_eq!(most, 8 * MIB, "{conf}: the old peak does not count");
        assert_eq!(program.allocator.max_memory_allocated(), 20 * GIB, "{conf}: for statistics it does");
        program.allocator.check();
    }
}

#[test]
fn what_is_used_again_in_time_stays() {
    for conf in CONFS {
        let mut program = Program::new(builder(conf));
        for _ in 0..40 {
            program.peak(10, 64 * MIB);
            drop(program.stream.allocate(MIB).unwrap());
            let calls = program.allocator.driver_activity().calls;
            for _ in 0..5 {
                drop(program.stream.allocate(MIB).unwrap());
                assert_eq!(program.pass(10), 0, "{conf}");
            }
            assert_eq!(program.allocator.driver_activity().calls, calls, "{conf}");
        }
        assert!(program.allocator.memory_reserved() >= 640 * MIB, "{conf}");
        assert_eq!(program.allocator.idle_stats(), Default::default(), "{conf}");
    }
}

/// A program whose peaks are further apart than a watch is long learns that once, and then keeps its memory.
#[test]
fn memory_is_not_taken_again_all_the_time() {
    for conf in CONFS {
        let mut program = Program::new(builder(conf));
        for _ in 0..100 {
            program.peak(10, 64 * MIB);
            (0..30).for_each(|_| _ = program.pass(10));
        }
        let stats = program.allocator.idle_stats();
        assert!((1..=4).contains(&stats.releases), "{conf}: {stats:?}");
        // It ends, so all of it goes back in the end.
        (0..200).for_each(|_| _ = program.pass(10));
        assert!(program.allocator.memory_reserved() <= 22 * MIB, "{conf}");
    }
}

/// Under classic free memory in pieces makes more segments necessary than is ever live.
#[test]
fn fragmentation_takes_memory_again_rarely() {
    let mut program = Program::new(builder("policy:classic"));
    for round in 0..160_u64 {
        // What is free between the small blocks serves no large one.
        let kept: Vec<_> =
            (0..64).map(|_| [9 * MIB, 2 * MIB].map(|bytes| program.stream.allocate(bytes).unwrap())).collect();
        let kept: Vec<_> = kept.into_iter().map(|[large, small]| (drop(large), small).1).collect();
        drop((0..20).map(|_| program.stream.allocate(30 * MIB + round % 2 * MIB).unwrap()).collect::<Vec<_>>());
        drop(kept);
        program.pass(60);
    }
    let stats = program.allocator.idle_stats();
    assert!(stats.releases <= 4 + 160 / 16, "{stats:?}");
}

#[test]
fn nothing_goes_back_during_a_capture() {
    for conf in CONFS {
        let mut program = Program::new(builder(conf));
        program.peak(10, 64 * MIB);
        let reserved = program.allocator.memory_reserved();
        let other = program.allocator.create_stream().unwrap();
        let pool = program.allocator.create_pool().unwrap();
        let capture = pool.stream(other.id()).unwrap().begin_capture().unwrap();
        assert_eq!([0; 20].map(|_| program.pass(60)), [0; 20], "{conf}");
        assert_eq!(program.allocator.memory_reserved(), reserved, "{conf}");
        let most = program.allocator.slack_stats_as_seen().most_live_bytes;
        assert_eq!(most, 640 * MIB, "{conf}: nor is the peak forgotten");
        capture.end();
        assert_eq!(program.pass(0), 0, "{conf}: the peak is in the watch that the capture has lengthened");
        assert!(program.pass(60) > 600 * MIB, "{conf}");
    }
}

/// What a captured graph uses stays, however long it is not run, and others give back what they do not need.
#[test]
fn held_pools_keep_their_memory_and_no_one_elses() {
    for conf in CONFS {
        let mut program = Program::new(builder(conf));
        let pool = program.allocator.create_pool().unwrap();
        let inside = pool.stream(program.stream.id()).unwrap();
        let weights = inside.allocate(GIB).unwrap();
        drop(inside.allocate(GIB / 2).unwrap());
        for _ in 0..10 {
            program.peak(10, 64 * MIB);
            assert_eq!(program.pass(30), 0, "{conf}: it is used, and what is idle in the pool stays");
        }
        program.pass(60);
        program.pass(60);
        let reserved = program.allocator.memory_reserved();
        assert!((GIB + GIB / 2..GIB + GIB / 2 + 100 * MIB).contains(&reserved), "{conf}: {reserved} are reserved");
        drop((weights, inside, pool));
        program.pass(60);
        program.pass(60);
        assert!(program.allocator.memory_reserved() <= 22 * MIB, "{conf}");
    }
}

#[test]
fn nothing_waits_for_work_in_flight() {
    for conf in CONFS {
        let sim = Sim::builder().total_bytes(8 * GIB).completion(Completion::Manual).build();
        let mut program = Program::new(Allocator::builder(sim.clone()).conf(conf).release_idle_after(AFTER));
        let used: Vec<_> = (0..10).map(|_| program.stream.allocate(64 * MIB).unwrap()).collect();
        used.iter().for_each(|used| program.stream.fill(used, 0, 64 * MIB, 1).unwrap());
        drop(used);
        let before = program.allocator.driver_activity();
        assert_eq!([60; 3].map(|seconds| program.pass(seconds)), [0; 3], "{conf}: the device may use it");
        sim.complete_all();
        assert!(program.pass(60) > 600 * MIB, "{conf}");
        let after = program.allocator.driver_activity();
        assert_eq!(after.stalls, before.stalls, "{conf}: the host has waited");
    }
}

#[test]
fn what_is_to_be_kept_stays() {
    for conf in CONFS {
        let mut program = Program::new(builder(conf).keep_idle(256 * MIB));
        program.peak(10, 64 * MIB);
        program.pass(60);
        program.pass(60);
        let reserved = program.allocator.memory_reserved() / MIB;
        assert!((256 - 64..=256 + 22).contains(&reserved), "{conf}: {reserved} MiB are reserved");
        program.allocator.check();
    }
}

#[test]
fn without_a_time_and_without_a_cache_nothing_is_measured() {
    for allocator in [
        Allocator::builder(Sim::new()).keep_idle(5).release_idle_in_background().build().unwrap(),
        Allocator::builder(Sim::new()).conf("policy:direct,release_idle_after:1ms").build().unwrap(),
    ] {
        drop(allocator.create_stream().unwrap().allocate(GIB).unwrap());
        for seconds in 0..10 {
            assert_eq!(allocator.release_idle_at(Duration::from_secs(seconds)).unwrap(), 0);
        }
        assert_eq!((allocator.poll().unwrap(), allocator.idle_stats()), (0, Default::default()));
    }
}

/// Waits until something holds.
fn soon(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_gives_memory_back_and_ends_with_the_allocator() {
    let conf = "release_idle_after:5ms,release_idle_in_background:True";
    let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    let kept = stream.allocate(MIB).unwrap();
    drop(stream.allocate(GIB).unwrap());
    soon(|| allocator.memory_reserved() < 32 * MIB);
    assert!(allocator.idle_stats().releases >= 1);
    let other = allocator.clone();
    drop((allocator, stream));
    other.check();
    drop(other);
    drop(kept);
    // An allocator does not wait until its thread would look next.
    let begun = Instant::now();
    let slow =
        Allocator::builder(Sim::new()).release_idle_after(Duration::from_secs(1000)).release_idle_in_background();
    drop(slow.build().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(100));
}

/// Threads allocate, and capture, while others poll and the allocator's own thread releases.
#[test]
fn threads_that_release_and_threads_that_allocate_do_not_disturb_each_other() {
    for conf in CONFS {
        let builder = Allocator::builder(Sim::new()).conf(conf).release_idle_after(Duration::from_micros(50));
        let allocator = builder.release_idle_in_background().build().unwrap();
        thread::scope(|scope| {
            for at in 0..3_u64 {
                let (allocator, stream) = (&allocator, allocator.create_stream().unwrap());
                scope.spawn(move || {
                    for round in 0..400 {
                        let held: Vec<_> =
                            (0..8).map(|n| stream.allocate((1 + (n * round + at) % 9) * MIB).unwrap()).collect();
                        if round % 50 == at {
                            let pool = allocator.create_pool().unwrap();
                            drop(pool.stream(stream.id()).unwrap().begin_capture().unwrap());
                        }
                        drop(held);
                        allocator.poll().unwrap();
                    }
                });
            }
        });
        soon(|| allocator.poll().unwrap() > 0 || allocator.idle_stats().releases > 0);
        // The thread in the background may be about to release some of it.
        soon(|| {
            allocator.empty_cache().unwrap();
            allocator.memory_reserved() == 0
        });
    }
}
