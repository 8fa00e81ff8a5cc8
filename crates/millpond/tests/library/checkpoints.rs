//! Checkpoints of private pools: what was live then is live again at the same addresses, under every policy, and
//! whatever stands in the way is told before anything changes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::backend::{Backend, PageCaps};
use millpond::{Allocator, BlockState, Buffer, Checkpoint, Error, Obstacle, Pool, Stream};
use millpond_sim::{Completion, Sim};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
const CONFS: [&str; 6] = [
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:classic,slack:0.125",
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:direct",
];

struct Scene {
    sim: Sim,
    allocator: Allocator<Sim>,
    pool: Pool<Sim>,
    /// Two streams in the pool.
    inside: [Stream<Sim>; 2],
}

fn scene_on(sim: Sim, conf: &str) -> Scene {
    let allocator =
        Allocator::builder(sim.clone()).conf(conf).build().unwrap_or_else(|error| panic!("{conf}: {error}"));
    let pool = allocator.create_pool().unwrap();
    let inside = [(); 2].map(|()| pool.stream(allocator.create_stream().unwrap().id()).unwrap());
    Scene { sim, allocator, pool, inside }
}

fn scene(conf: &str) -> Scene {
    scene_on(Sim::new(), conf)
}

impl Scene {
    /// Returns the address, the length and the request of each live block of the pool, in order.
    fn live(&self) -> Vec<(u64, u64, u64)> {
        let views = self.allocator.layout().into_iter().filter(|view| view.pool == self.pool.id());
        let mut live: Vec<_> = views
            .flat_map(|view| {
                let of = |block: &millpond::BlockView| (view.address + block.offset, block.size, block.requested);
                let is_live = |block: &&millpond::BlockView| block.state == BlockState::ActiveAllocated;
                view.blocks.iter().filter(is_live).map(of).collect::<Vec<_>>()
            })
            .collect();
        live.sort_unstable();
        live
    }

    /// Returns the number of live blocks of the pool in windows.
    fn live_in_windows(&self) -> usize {
        let is_live = |block: &&millpond::BlockView| block.state == BlockState::ActiveAllocated;
        let views = self.allocator.layout().into_iter().filter(|view| view.pages.iter().any(|page| !page.is_home));
        views.map(|view| view.blocks.iter().filter(is_live).count()).sum()
    }

    /// Restores a checkpoint, and expects these live blocks then.
    fn restore(&self, to: &Checkpoint, buffers: &mut Vec<Buffer<Sim>>, live: &[(u64, u64, u64)], what: &str) {
        self.pool.restore(to, buffers).unwrap_or_else(|error| panic!("{what}: {error}"));
        self.allocator.check();
        assert_eq!(self.live(), live, "{what}");
        let mut places: Vec<_> =
            buffers.iter().map(|buffer| (buffer.address().unwrap(), buffer.capacity(), buffer.len())).collect();
        places.sort_unstable();
        assert_eq!(places, live, "{what}: the buffers are those of the checkpoint");
    }

    /// Allocates and frees at random. Requests are of all sizes, and some buffers are used on the other stream.
    fn go_on(&self, random: &mut Random, held: &mut Vec<Buffer<Sim>>, operations: u64) {
        for _ in 0..operations {
            if random.below(5) < 2 && !held.is_empty() {
                drop(held.swap_remove(random.below(held.len() as u64) as usize));
                continue;
            }
            let bytes = match random.below(3) {
                0 => 1 + random.below(200_000),
                1 => 1 + random.below(4 * MIB),
                _ => 1 + random.below(30 * MIB),
            };
            let on = random.below(2) as usize;
            let buffer = self.inside[on].allocate(bytes).unwrap();
            if random.below(4) == 0 {
                buffer.record_stream(&self.inside[1 - on]).unwrap();
            }
            held.push(buffer);
        }
    }
}

/// Returns the address and the stream of each buffer, in order.
fn streams_of(buffers: &[Buffer<Sim>]) -> Vec<(u64, u32)> {
    let mut all: Vec<_> = buffers.iter().map(|buffer| (buffer.address().unwrap(), buffer.stream().0)).collect();
    all.sort_unstable();
    all
}

#[test]
fn what_was_live_is_live_again_at_its_addresses() {
    for conf in CONFS {
        let mut in_windows = 0;
        for seed in 0..30 {
            let what = format!("{conf}, seed {seed}");
            let (scene, mut random) = (scene(conf), Random::new(seed));
            let mut held = Vec::new();
            scene.go_on(&mut random, &mut held, 40);
            let (checkpoint, live) = (scene.pool.checkpoint(), scene.live());
            let streams = streams_of(&held);
            assert_eq!((checkpoint.len(), checkpoint.live_bytes()), (live.len(), live.iter().map(|b| b.1).sum()));
            for round in 0..3 {
                scene.go_on(&mut random, &mut held, 30);
                if round == 1 {
                    held.clear();
                }
                scene.restore(&checkpoint, &mut held, &live, &what);
                assert_eq!(streams_of(&held), streams, "{what}: each is of its stream");
            }
            in_windows += scene.live_in_windows();
            let reserved = scene.allocator.memory_reserved();
            held.clear();
            scene.allocator.check();
            assert_eq!((scene.live(), scene.allocator.memory_allocated()), (Vec::new(), 0), "{what}");
            scene.allocator.empty_cache().unwrap();
            assert_eq!(scene.allocator.memory_reserved(), reserved, "{what}: the pool keeps its memory");
        }
        let is_paged = conf.contains("paged");
        assert!((in_windows > 0) == is_paged, "{conf}: {in_windows} in windows");
    }
}

/// Requests after a restored checkpoint never get memory of its blocks.
#[test]
fn what_is_restored_is_in_nobody_elses_way() {
    for conf in CONFS {
        for seed in 100..110 {
            let (scene, mut random) = (scene(conf), Random::new(seed));
            let mut held = Vec::new();
            scene.go_on(&mut random, &mut held, 30);
            let checkpoint = scene.pool.checkpoint();
            let live = scene.live();
            held.clear();
            scene.restore(&checkpoint, &mut held, &live, conf);
            let mut more = Vec::new();
            scene.go_on(&mut random, &mut more, 60);
            let mut all = scene.live();
            assert!(live.iter().all(|block| all.contains(block)), "{conf}, seed {seed}");
            all.windows(2).for_each(|pair| assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{conf}: {pair:?}"));
            all.retain(|block| !live.contains(block));
            assert_eq!(all.len(), more.len());
            scene.allocator.check();
        }
    }
}

/// Several checkpoints of one pool, as the paths of a tree of graphs have them.
#[test]
fn a_pool_goes_from_one_checkpoint_to_another() {
    for conf in CONFS {
        let (scene, mut random) = (scene(conf), Random::new(7));
        let (mut held, mut points) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            scene.go_on(&mut random, &mut held, 15);
            points.push((scene.pool.checkpoint(), scene.live()));
        }
        for _ in 0..20 {
            let (checkpoint, live) = &points[random.below(5) as usize];
            scene.restore(checkpoint, &mut held, live, conf);
        }
    }
}

/// A free block is as small as a slab or a page of a device makes it: the sides of homes change meanwhile.
#[test]
fn sides_of_a_home_that_have_changed_change_back() {
    for granularity in [64 << 10, 2 * MIB] {
        for conf in ["policy:paged", "policy:paged,growth:tight"] {
            let scene = scene_on(Sim::builder().pages(Some(PageCaps::new(granularity))).build(), conf);
            let stream = &scene.inside[0];
            let mut held: Vec<_> = (0..20).map(|at| stream.allocate(100_000 + at * 1000).unwrap()).collect();
            held.extend((0..4).map(|_| stream.allocate(3 * MIB).unwrap()));
            drop(held.swap_remove(4));
            let (checkpoint, live) = (scene.pool.checkpoint(), scene.live());
            held.clear();
            let mut large: Vec<_> = (0..3).map(|_| stream.allocate(5 * MIB).unwrap()).collect();
            scene.restore(&checkpoint, &mut large, &live, conf);
            large.clear();
            let mut small: Vec<_> = (0..120).map(|_| stream.allocate(90_000).unwrap()).collect();
            scene.restore(&checkpoint, &mut small, &live, conf);
        }
    }
}

#[test]
fn what_stands_in_the_way_is_told_and_nothing_changes() {
    for conf in CONFS {
        let scene = scene(conf);
        let first = scene.inside[0].allocate(3 * MIB).unwrap();
        let checkpoint = scene.pool.checkpoint();
        drop(first);
        let other = scene.inside[0].allocate(3 * MIB).unwrap();
        let before = scene.live();
        let mut none = Vec::new();
        let error = scene.pool.restore(&checkpoint, &mut none).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(&error, Error::NotRestorable { why, .. } if matches!(**why, Obstacle::Taken { .. })),
            "{text}"
        );
        assert!(text.contains("free that block first"), "{text}");
        assert_eq!(scene.live(), before, "{conf}");
        // A buffer that is passed is freed.
        none.push(other);
        scene.restore(&checkpoint, &mut none, &before, conf);

        let elsewhere = scene.allocator.create_pool().unwrap();
        let error = elsewhere.restore(&checkpoint, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("it is one of private pool 1"), "{error}");

        let capture = scene.inside[1].begin_capture().unwrap();
        let error = scene.pool.restore(&checkpoint, &mut none).unwrap_err();
        assert!(error.to_string().contains("being captured"), "{error}");
        assert_eq!(none.len(), 1, "{conf}: what was passed is there still");
        capture.end();
        scene.restore(&checkpoint, &mut none, &before, conf);
    }
}

/// The memory of a checkpoint goes back once its pool has no reference. Other memory may come to its addresses.
#[test]
fn memory_that_went_back_is_told_from_what_was_there() {
    for conf in CONFS {
        let scene = scene(conf);
        let sizes = [1000, 3 * MIB, 30 * MIB];
        let held: Vec<_> = sizes.iter().map(|&bytes| scene.inside[0].allocate(bytes).unwrap()).collect();
        let checkpoint = scene.pool.checkpoint();
        let (id, inside) = (scene.pool.id(), scene.inside[0].clone());
        drop(held);
        let allocator = scene.allocator.clone();
        drop(scene);
        allocator.empty_cache_of(id).unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}");
        let pool = allocator.pool(id).unwrap();
        for come_again in [false, true] {
            let again: Vec<_> =
                sizes.iter().filter(|_| come_again).map(|&bytes| inside.allocate(bytes).unwrap()).collect();
            drop(again);
            let error = pool.restore(&checkpoint, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("went back to the driver"), "{conf}: {error}");
            assert_eq!(allocator.memory_allocated(), 0);
            allocator.check();
        }
    }
}

/// What another stream still uses is waited for.
#[test]
fn memory_in_use_on_other_streams_is_waited_for() {
    for conf in CONFS {
        let scene = scene_on(Sim::builder().completion(Completion::Manual).build(), conf);
        let mut held: Vec<_> =
            [600_000, 3 * MIB, 40 * MIB].iter().map(|&bytes| scene.inside[0].allocate(bytes).unwrap()).collect();
        let (checkpoint, live) = (scene.pool.checkpoint(), scene.live());
        for buffer in &held {
            buffer.record_stream(&scene.inside[1]).unwrap();
        }
        let busy = scene.sim.busy(scene.inside[1].id());
        held.truncate(2);
        assert_eq!(scene.sim.queued(), 1, "{conf}");
        scene.restore(&checkpoint, &mut held, &live, conf);
        let reached = scene.sim.reached(scene.inside[1].id()).unwrap();
        assert!(reached >= busy, "{conf}: {reached:?} of {busy:?}");
        drop(held);
        scene.allocator.check();
    }
}

/// Another thread frees in the pool, and the coordinator learns of each free only after the shard: a checkpoint is what
/// was live at one moment, and to go back to one succeeds or says that the pool is in use.
#[test]
fn threads_free_while_a_pool_goes_back_to_a_checkpoint() {
    for conf in CONFS {
        let scene = scene(conf);
        let first = scene.inside[0].allocate(3 * MIB).unwrap();
        let checkpoint = scene.pool.checkpoint();
        drop(first);
        let stop = AtomicBool::new(false);
        let mut fine = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let [graph, other] = &scene.inside;
                while !stop.load(Ordering::Relaxed) {
                    let plain = graph.allocate(3 * MIB).unwrap();
                    drop(plain);
                    let used = graph.allocate(3 * MIB).unwrap();
                    used.record_stream(other).unwrap();
                    drop(used);
                }
            });
            let tries = catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..3000 {
                    let bytes = scene.pool.checkpoint().live_bytes();
                    assert!(bytes == 0 || bytes == 3 * MIB, "{conf}: {bytes} bytes were never live at one moment");
                    match scene.pool.restore(&checkpoint, &mut Vec::new()) {
                        Ok(()) => fine += 1,
                        Err(Error::NotRestorable { why, .. }) => {
                            assert!(matches!(*why, Obstacle::Taken { .. } | Obstacle::Busy), "{conf}: {why}");
                            // The other thread goes on, where it was interrupted with a block in its hands.
                            std::thread::yield_now();
                        }
                        Err(error) => panic!("{conf}: {error}"),
                    }
                }
            }));
            stop.store(true, Ordering::Relaxed);
            tries.unwrap_or_else(|panic| resume_unwind(panic));
        });
        assert!(fine > 0, "{conf}: none was restored");
        scene.allocator.check();
        let mut buffers = Vec::new();
        scene.pool.restore(&checkpoint, &mut buffers).unwrap();
        let Scene { allocator, pool, inside, .. } = scene;
        drop((buffers, inside, pool));
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}");
    }
}

/// Sizes of both sides of a pool, most of them about those of a slab and of its half.
fn small_or_large(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 1 + random.below(200_000),
        1 | 2 => 500_000 + random.below(800_000),
        _ => 1 + random.below(5 * MIB),
    }
}

/// A slab may be free in part when a block is restored there. Whatever the sides of a home have become by that, its
/// pages go back once nothing is in use.
#[test]
fn memory_of_restored_blocks_goes_back_once_all_is_free() {
    for granularity in [64 << 10, 2 * MIB, 4 * MIB] {
        for (conf, seed) in CONFS.iter().flat_map(|conf| (0..60).map(move |seed| (conf, seed))) {
            let what = format!("{conf}, pages of {granularity}, seed {seed}");
            let sim = Sim::builder().pages(Some(PageCaps::new(granularity))).build();
            let (scene, mut random) = (scene_on(sim, conf), Random::new(seed));
            let (mut held, mut points) = (Vec::new(), Vec::new());
            for _ in 0..4 {
                for _ in 0..12 {
                    if random.one_in(3) && !held.is_empty() {
                        drop(held.swap_remove(random.index(held.len())));
                    }
                    held.push(scene.inside[random.index(2)].allocate(small_or_large(&mut random)).unwrap());
                    scene.allocator.check();
                }
                points.push(scene.pool.checkpoint());
                // Where blocks stay, a restore fails if the checkpoint has others there.
                let mut leaving = held.split_off(if random.one_in(2) { random.index(held.len()) } else { 0 });
                let _ = scene.pool.restore(&points[random.index(points.len())], &mut leaving);
                scene.allocator.check();
                held.append(&mut leaving);
            }
            drop(held);
            let Scene { allocator, pool, inside, .. } = scene;
            drop((pool, inside));
            allocator.check();
            allocator.empty_cache().unwrap();
            allocator.check();
            assert_eq!((allocator.memory_allocated(), allocator.memory_reserved()), (0, 0), "{what}");
        }
    }
}

/// The same where the program names the addresses, in the default pool.
#[test]
fn memory_at_named_addresses_goes_back_once_all_is_free() {
    for (conf, seed) in CONFS.iter().flat_map(|conf| (0..60).map(move |seed| (conf, seed))) {
        let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
        let (stream, mut random) = (allocator.create_stream().unwrap(), Random::new(seed));
        let (mut held, mut granted) = (Vec::new(), 0);
        for _ in 0..60 {
            let bytes = small_or_large(&mut random);
            let buffer = stream.allocate(bytes).unwrap();
            let address = buffer.address().unwrap() / MIB * MIB + random.below(8) * (MIB / 4);
            match random.below(3) {
                0 => held.push(buffer),
                1 => drop(buffer),
                _ => held.truncate(random.index(held.len() + 1)),
            }
            if let Some(buffer) = stream.allocate_at(small_or_large(&mut random), address).unwrap() {
                granted += 1;
                held.push(buffer);
            }
            allocator.check();
        }
        held.clear();
        allocator.check();
        allocator.empty_cache().unwrap();
        let nothing = (allocator.memory_allocated(), allocator.memory_reserved());
        assert_eq!(nothing, (0, 0), "{conf}, seed {seed}: {granted} at their addresses");
        assert!(granted > 0 || conf.contains("direct"), "{conf}, seed {seed}");
    }
}
