//! Private pools: what they keep, what they give back and when, and that no memory of one serves another.

use std::collections::BTreeMap;
use std::thread;

use millpond::backend::{PageCaps, StreamId};
use millpond::{Allocator, BlockState, Buffer, Error, Pool, PoolId, Stream};
use millpond_sim::{Access, Completion, Sim};
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

fn allocator(sim: &Sim, conf: &str) -> Allocator<Sim> {
    Allocator::builder(sim.clone()).conf(conf).build().unwrap_or_else(|error| panic!("{conf}: {error}"))
}

/// A pool and a stream in it.
fn pool_on(allocator: &Allocator<Sim>, stream: &Stream<Sim>) -> (Pool<Sim>, Stream<Sim>) {
    let pool = allocator.create_pool().unwrap();
    let inside = pool.stream(stream.id()).unwrap();
    assert_eq!((inside.id(), inside.pool()), (stream.id(), pool.id()));
    (pool, inside)
}

/// Returns by page, or by segment where there are none, the pools that it is part of.
fn owners(allocator: &Allocator<Sim>) -> BTreeMap<(bool, u64), Vec<PoolId>> {
    let mut owners: BTreeMap<_, Vec<PoolId>> = BTreeMap::new();
    for view in allocator.layout() {
        let memory = match view.page_bytes {
            0 => vec![(false, view.id.0)],
            _ => view.pages.iter().map(|page| (true, page.birth)).collect(),
        };
        for key in memory {
            let pools = owners.entry(key).or_default();
            if !pools.contains(&view.pool) {
                pools.push(view.pool);
            }
        }
    }
    owners
}

#[test]
fn what_a_held_pool_has_stays_reserved() {
    for conf in CONFS {
        let allocator = allocator(&Sim::new(), conf);
        let stream = allocator.create_stream().unwrap();
        let (pool, inside) = pool_on(&allocator, &stream);
        for bytes in [1000, 30 * MIB] {
            drop((stream.allocate(bytes).unwrap(), inside.allocate(bytes).unwrap()));
        }
        let had = allocator.pool_stats(pool.id()).unwrap();
        assert_eq!((had.uses, had.allocated_bytes), (1, 0), "{conf}");
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), had.reserved_bytes.all.current, "{conf}");
        assert_eq!(allocator.trim(0).unwrap(), had.reserved_bytes.all.current, "{conf}");
        allocator.empty_cache_of(pool.id()).unwrap();
        allocator.poll().unwrap();
        assert_eq!(allocator.pool_stats(pool.id()), Some(had), "{conf}");
        assert_eq!(allocator.ledger().held_bytes, had.reserved_bytes.all.current, "{conf}");
        allocator.check();
        let (id, other) = (pool.id(), pool.clone());
        drop(pool);
        allocator.empty_cache_of(id).unwrap();
        assert_eq!((other.use_count(), allocator.memory_reserved()), (1, had.reserved_bytes.all.current), "{conf}");
        drop(other);
        // Buffers outlive the references. What is beside them stays with them.
        let live = inside.allocate(30 * MIB).unwrap();
        allocator.empty_cache_of(id).unwrap();
        assert!(allocator.memory_reserved() >= 30 * MIB, "{conf}");
        drop(live);
        allocator.empty_cache_of(PoolId(77)).unwrap();
        allocator.empty_cache_of(id).unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}");
        assert_eq!(allocator.ledger().total(), 0, "{conf}");
        allocator.check();
    }
}

#[test]
fn memory_of_released_pools_goes_before_a_request_is_refused() {
    for conf in CONFS {
        let allocator = allocator(&Sim::builder().total_bytes(100 * MIB).build(), conf);
        let stream = allocator.create_stream().unwrap();
        let (pool, inside) = pool_on(&allocator, &stream);
        drop(inside.allocate(60 * MIB).unwrap());
        let Err(Error::OutOfMemory(refused)) = stream.allocate(60 * MIB) else { panic!("{conf}: nothing is left") };
        assert_eq!(refused.report().pool, PoolId::DEFAULT, "{conf}");
        let text = refused.to_string();
        assert!(
            text.contains("60.00 MiB free, of which 60.00 MiB stay there, as the pools are held"),
            "{conf}: {text}"
        );
        assert!(text.contains("What to do: drop the references to private pools"), "{conf}: {text}");
        drop(pool);
        let served = stream.allocate(60 * MIB).unwrap_or_else(|error| panic!("{conf}: {error}"));
        allocator.check();
        let Err(Error::OutOfMemory(_)) = inside.allocate(60 * MIB) else { panic!("{conf}: nothing is left") };
        drop(served);
        assert!(inside.allocate(60 * MIB).is_ok(), "{conf}: the default pool gives its memory up");
    }
}

#[test]
fn a_pool_is_found_by_its_number_while_there_is_something_of_it() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    let (pool, inside) = pool_on(&allocator, &stream);
    let id = pool.id();
    assert_eq!(allocator.pools(), [id]);
    let again = allocator.pool(id).unwrap();
    assert_eq!((again.id(), again.use_count()), (id, 2));
    drop((pool, again));
    assert_eq!(allocator.pool(id).unwrap().use_count(), 1, "a stream of it is left");
    drop(inside);
    for unknown in [PoolId::DEFAULT, PoolId(99)] {
        let error = allocator.pool(unknown).unwrap_err();
        assert!(matches!(error, Error::UnknownPool { pool } if pool == unknown), "{error}");
    }
    let unused = allocator.create_pool().unwrap();
    let unused_id = unused.id();
    drop(unused);
    assert!(matches!(allocator.pool(unused_id), Err(Error::UnknownPool { .. })), "nothing is left of it");
    assert!(matches!(allocator.create_pool().unwrap().stream(StreamId(40)), Err(Error::UnknownStream { .. })));
}

/// A program makes a pool for each graph. What an old one had serves the next.
#[test]
fn pools_that_are_over_leave_nothing_behind() {
    for conf in CONFS {
        let sim = Sim::new();
        let allocator = allocator(&sim, conf);
        let stream = allocator.create_stream().unwrap();
        let mut last = PoolId::DEFAULT;
        for round in 0..50 {
            let (pool, inside) = pool_on(&allocator, &stream);
            assert!(pool.id() > last, "{conf}: a number is given out twice");
            last = pool.id();
            drop([700, 3 * MIB, 40 * MIB].map(|bytes| inside.allocate(bytes).unwrap()));
            // A handle that is left keeps its stream in its own pool.
            let left = (round % 10 == 0).then(|| inside.clone());
            drop((pool, inside));
            allocator.empty_cache_of(last).unwrap();
            assert_eq!(allocator.memory_reserved(), 0, "{conf}");
            if let Some(left) = left {
                let (other, beside) = pool_on(&allocator, &stream);
                let buffers = (left.allocate(MIB).unwrap(), beside.allocate(MIB).unwrap());
                assert!(owners(&allocator).values().all(|pools| pools.len() == 1), "{conf}");
                assert_eq!(allocator.pool_stats(other.id()).unwrap().allocated_bytes, MIB, "{conf}");
                assert_eq!(allocator.pool_stats(last).unwrap().allocated_bytes, MIB, "{conf}");
                drop((buffers, other));
                allocator.empty_cache().unwrap();
            }
        }
        assert!(allocator.pools().len() <= 2, "{conf}: {:?}", allocator.pools());
        allocator.check();
        assert_eq!(allocator.stats().allocation.all.current, 0);
        drop((stream, allocator));
        assert_eq!(sim.live(), (0, 0, 0), "{conf}");
    }
}

/// A program of three streams in three pools, one of which is released and held again. No page and no segment is ever
/// in two pools, a block goes back to its own, and what is held never shrinks.
#[test]
fn no_memory_is_in_two_pools() {
    for (at, conf) in CONFS.into_iter().enumerate() {
        for aliasing in [true, false] {
            let pages = PageCaps::new(2 * MIB).with_aliasing(aliasing);
            let sim =
                Sim::builder().total_bytes(700 * MIB).pages(Some(pages)).completion(Completion::Seeded(5)).build();
            let allocator = allocator(&sim, conf);
            let streams = [(); 3].map(|()| allocator.create_stream().unwrap());
            let mut pools = [(); 2].map(|()| Some(allocator.create_pool().unwrap()));
            let ids = [PoolId::DEFAULT, pools[0].as_ref().unwrap().id(), pools[1].as_ref().unwrap().id()];
            let lanes: Vec<Vec<Stream<Sim>>> = ids
                .into_iter()
                .map(|id| match allocator.pool(id) {
                    Ok(pool) => streams.iter().map(|stream| pool.stream(stream.id()).unwrap()).collect(),
                    Err(_) => streams.to_vec(),
                })
                .collect();
            let mut random = Random::new(at as u64);
            let mut live: Vec<(PoolId, Buffer<Sim>)> = Vec::new();
            let mut held = [0; 2];
            for operation in 0..400 {
                let what = format!("{conf}, aliasing {aliasing}, operation {operation}");
                match random.below(20) {
                    0 => allocator.empty_cache().unwrap(),
                    1 => _ = allocator.trim(random.between(0, 300 * MIB)).unwrap(),
                    2 => pools[1] = pools[1].is_none().then(|| allocator.pool(ids[2]).unwrap()),
                    3..8 if !live.is_empty() => {
                        let (_, buffer) = &live[random.index(live.len())];
                        let other = &streams[random.index(3)];
                        let home = streams.iter().find(|stream| stream.id() == buffer.stream()).unwrap();
                        other.wait_for(home.point()).unwrap();
                        buffer.record_stream(other).unwrap();
                        let (id, segment) = (other.id(), buffer.segment().unwrap());
                        sim.use_range(id, segment, buffer.offset(), buffer.len(), Access::Read);
                    }
                    8..13 if !live.is_empty() => drop(live.swap_remove(random.index(live.len()))),
                    _ => {
                        let (pool, stream) = (random.index(3), random.index(3));
                        let most = random.pick(&[2000, MIB, 8 * MIB, 40 * MIB]);
                        match lanes[pool][stream].allocate(random.between(1, most)) {
                            Ok(buffer) => {
                                let segment = buffer.segment().unwrap();
                                let id = streams[stream].id();
                                sim.use_range(id, segment, buffer.offset(), buffer.len(), Access::Write);
                                live.push((ids[pool], buffer));
                            }
                            Err(Error::OutOfMemory(_)) => {}
                            Err(error) => panic!("{what}: {error}"),
                        }
                    }
                }
                allocator.check();
                assert!(owners(&allocator).values().all(|pools| pools.len() == 1), "{what}");
                let mut sums = BTreeMap::new();
                live.iter().for_each(|(pool, buffer)| *sums.entry(*pool).or_default() += buffer.capacity());
                for (number, id) in ids.into_iter().enumerate() {
                    let stats = allocator.pool_stats(id).unwrap();
                    assert_eq!(stats.allocated_bytes, sums.get(&id).copied().unwrap_or(0), "{what}: {id}");
                    if let Some(had) = number.checked_sub(1) {
                        let reserved = stats.reserved_bytes.all.current;
                        assert!(reserved >= held[had] || pools[had].is_none(), "{what}: {id} has lost memory");
                        held[had] = reserved;
                    }
                }
                assert_eq!(sim.violations(), [], "{what}");
            }
            live.clear();
            pools.iter_mut().for_each(|pool| *pool = None);
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
            allocator.empty_cache().unwrap();
            assert_eq!(allocator.memory_reserved(), 0, "{conf}");
        }
    }
}

/// PyTorch's counters count private pools with the rest, and the layout says which segment is whose.
#[test]
fn statistics_have_all_pools() {
    for conf in CONFS {
        let allocator = allocator(&Sim::new(), conf);
        let stream = allocator.create_stream().unwrap();
        let (pool, inside) = pool_on(&allocator, &stream);
        let held =
            (stream.allocate(3 * MIB).unwrap(), inside.allocate(5 * MIB).unwrap(), inside.allocate(100).unwrap());
        let stats = allocator.stats();
        assert_eq!(stats.allocated_bytes.all.current, 8 * MIB + 512, "{conf}");
        let has_small = !conf.contains("slack");
        assert_eq!(stats.allocation.small_pool.current, u64::from(has_small), "{conf}");
        let of = |id| allocator.pool_stats(id).unwrap();
        let (own, private) = (of(PoolId::DEFAULT).reserved_bytes, of(pool.id()).reserved_bytes);
        assert_eq!(own.all.current + private.all.current, stats.reserved_bytes.all.current, "{conf}");
        assert_eq!(own.small_pool.current + private.small_pool.current, stats.reserved_bytes.small_pool.current);
        assert_eq!((private.small_pool.current > 0, own.small_pool.current), (has_small, 0), "{conf}: {private:?}");
        assert_eq!(allocator.ledger().total(), allocator.memory_reserved(), "{conf}");
        let layout = allocator.layout();
        for (id, expected) in [(PoolId::DEFAULT, 3 * MIB), (pool.id(), 5 * MIB + 512)] {
            let blocks = layout.iter().filter(|view| view.pool == id).flat_map(|view| &view.blocks);
            let live = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
            assert_eq!(live.map(|block| block.size).sum::<u64>(), expected, "{conf}: {id}");
        }
        drop(held);
        allocator.reset_peak_stats();
        allocator.reset_accumulated_stats();
        assert_eq!(of(pool.id()).reserved_bytes.all.allocated, 0);
        allocator.check();
    }
}

/// Threads work in pools of their own and in one that they share, and some make pools over and over, while others empty
/// caches.
#[test]
fn threads_share_pools() {
    for conf in CONFS {
        let sim = Sim::builder().total_bytes(2 << 30).completion(Completion::Seeded(9)).build();
        let allocator = allocator(&sim, conf);
        let shared = allocator.create_pool().unwrap();
        thread::scope(|scope| {
            for seed in 0..4 {
                let (allocator, shared, sim) = (&allocator, &shared, &sim);
                scope.spawn(move || {
                    let stream = allocator.create_stream().unwrap();
                    let mut random = Random::new(seed);
                    for _ in 0..25 {
                        let (own, inside) = pool_on(allocator, &stream);
                        let lanes = [stream.clone(), inside, shared.stream(stream.id()).unwrap()];
                        let mut kept = Vec::new();
                        for _ in 0..20 {
                            let most = random.pick(&[2000, MIB, 8 * MIB]);
                            let buffer = lanes[random.index(3)].allocate(random.between(1, most)).unwrap();
                            let segment = buffer.segment().unwrap();
                            sim.use_range(stream.id(), segment, buffer.offset(), buffer.len(), Access::Write);
                            kept.push(buffer);
                            if random.one_in(2) {
                                drop(kept.swap_remove(random.index(kept.len())));
                            }
                        }
                        let id = own.id();
                        drop((own, kept));
                        match random.below(3) {
                            0 => allocator.empty_cache().unwrap(),
                            1 => allocator.empty_cache_of(id).unwrap(),
                            _ => _ = allocator.stats(),
                        }
                    }
                });
            }
        });
        allocator.check();
        assert_eq!((sim.violations().len(), allocator.memory_allocated()), (0, 0), "{conf}");
        let held = allocator.pool_stats(shared.id()).unwrap().reserved_bytes.all.current;
        sim.synchronize();
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), held, "{conf}");
    }
}
