//! Groups that are paused and resumed: their contents, their addresses, faults at every driver call, and threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millpond::backend::Fault;
use millpond::{Allocator, Buffer, Error, Group, Keep, Stream};
use millpond_conformance::{Trouble, Watched};
use millpond_sim::{Access, CallKind, Completion, Sim};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;

/// A group with a few buffers, whose contents are known, one of them in a window.
struct Scene {
    sim: Sim,
    allocator: Allocator<Sim>,
    group: Group<Sim>,
    stream: Stream<Sim>,
    plain: Stream<Sim>,
    buffers: Vec<(Buffer<Sim>, u8)>,
}

impl Scene {
    fn new() -> Self {
        Self::on(Sim::new())
    }

    fn on(sim: Sim) -> Self {
        let allocator =
            Allocator::builder(sim.clone()).conf("policy:paged,growth:tight").build().expect("an allocator");
        let group = allocator.group("weights").expect("a group");
        let plain = allocator.create_stream().expect("a stream");
        let stream = group.stream(plain.id()).expect("a stream of the group");
        let mut scene = Self { sim, allocator, group, stream, plain, buffers: Vec::new() };
        let parts: Vec<_> = (0..12).map(|_| scene.stream.allocate(2 * MIB).expect("2 MiB")).collect();
        for (at, buffer) in parts.into_iter().enumerate() {
            if at % 2 == 0 {
                scene.keep(buffer);
            }
        }
        let in_window = scene.stream.allocate(11 * MIB).expect("11 MiB in a window");
        scene.keep(in_window);
        for _ in 0..20 {
            let small = scene.stream.allocate(3000).expect("3000 bytes");
            scene.keep(small);
        }
        assert!(scene.allocator.page_stats().shadows > 0, "something is mapped twice");
        scene
    }

    fn keep(&mut self, buffer: Buffer<Sim>) {
        let byte = self.buffers.len() as u8 + 1;
        self.stream.fill(&buffer, 0, buffer.len(), byte).expect("a fill");
        self.buffers.push((buffer, byte));
    }

    fn addresses(&self) -> Vec<Option<u64>> {
        self.buffers.iter().map(|(buffer, _)| buffer.address()).collect()
    }

    fn expect_contents(&self) {
        for (buffer, byte) in &self.buffers {
            for offset in [0, buffer.len() / 2, buffer.len() - 64] {
                let mut bytes = [0; 64];
                self.stream.download(buffer, offset, &mut bytes).expect("a download");
                assert_eq!(bytes, [*byte; 64], "at {offset} of a buffer of {} bytes", buffer.len());
            }
        }
    }

    fn check(&self) {
        self.allocator.check();
        assert_eq!(self.sim.violations(), []);
    }
}

#[test]
fn contents_and_addresses_come_back() {
    let scene = Scene::new();
    let addresses = scene.addresses();
    let before = scene.allocator.memory_reserved();
    for _ in 0..3 {
        scene.group.pause(Keep::Host).expect("a pause");
        scene.check();
        let stats = scene.group.stats();
        assert_eq!((stats.reserved_bytes, stats.is_paused), (0, true), "{stats:?}");
        assert_eq!(stats.paused_bytes, scene.allocator.memory_paused());
        assert_eq!(scene.allocator.memory_reserved(), 0, "all of it was the group's");
        assert!(stats.host_bytes >= stats.allocated_bytes, "{stats:?}");
        scene.group.pause(Keep::Discard).expect("a second pause does nothing");
        scene.group.resume().expect("a resume");
        scene.group.resume().expect("a second resume does nothing");
        scene.check();
        assert_eq!(scene.addresses(), addresses);
        scene.expect_contents();
        assert_eq!(scene.allocator.memory_paused(), 0);
        assert_eq!(scene.group.stats().host_bytes, 0, "host memory is released");
    }
    assert!(scene.allocator.memory_reserved() <= before);
}

#[test]
fn host_memory_is_kept_if_asked_for() {
    let scene = Scene::new();
    scene.group.keep_host_memory(true);
    scene.group.pause(Keep::Host).expect("a pause");
    let held = scene.group.stats().host_bytes;
    scene.group.resume().expect("a resume");
    assert_eq!(scene.group.stats().host_bytes, held);
    scene.group.pause(Keep::Host).expect("a pause");
    assert_eq!(scene.group.stats().host_bytes, held);
    scene.group.resume().expect("a resume");
    scene.expect_contents();
    scene.group.keep_host_memory(false);
    assert_eq!(scene.group.stats().host_bytes, 0);
}

#[test]
fn discarded_contents_are_not_copied() {
    let scene = Scene::new();
    let before = scene.sim.calls();
    scene.group.pause(Keep::Discard).expect("a pause");
    scene.group.resume().expect("a resume");
    let after = scene.sim.calls();
    assert_eq!(after.of(CallKind::Transfer), before.of(CallKind::Transfer), "no copies");
    scene.check();
}

#[test]
fn what_is_freed_while_paused_calls_no_driver_and_is_free_afterwards() {
    let mut scene = Scene::new();
    let other = scene.allocator.create_stream().expect("a stream");
    scene.group.pause(Keep::Host).expect("a pause");
    let calls = scene.sim.calls();
    let kept = scene.buffers.split_off(2);
    for (at, (buffer, _)) in scene.buffers.drain(..).chain(kept.into_iter().take(3)).enumerate() {
        if at % 2 == 0 {
            buffer.record_stream(&other).expect("a use");
        }
        drop(buffer);
    }
    assert_eq!(scene.sim.calls(), calls, "frees call no driver");
    for bytes in [3000, 2 * MIB, 11 * MIB] {
        let error = scene.stream.allocate(bytes).expect_err("what was freed has no memory");
        assert!(matches!(error, Error::Paused { .. }), "{error}");
    }
    scene.check();
    scene.group.resume().expect("a resume");
    scene.check();
    assert_eq!(scene.allocator.memory_allocated(), 0);
    drop(scene.stream.allocate(8 * MIB).expect("memory of the group"));
    scene.allocator.empty_cache().expect("nothing holds it");
    assert_eq!(scene.allocator.memory_reserved(), 0);
    scene.check();
}

#[test]
fn nothing_is_granted_or_captured_in_a_paused_group() {
    let scene = Scene::new();
    scene.group.pause(Keep::Discard).expect("a pause");
    for bytes in [100, 4 * MIB, 300 * MIB] {
        let error = scene.stream.allocate(bytes).expect_err("it is paused");
        assert!(matches!(error, Error::Paused { .. }), "{error}");
        assert!(error.to_string().contains("\"weights\" is paused: resume it"), "{error}");
    }
    assert!(matches!(scene.stream.begin_capture(), Err(Error::Paused { .. })));
    let checkpoint = scene.group.pool().checkpoint();
    assert!(matches!(scene.group.pool().restore(&checkpoint, &mut Vec::new()), Err(Error::Paused { .. })));
    let other = scene.allocator.create_pool().expect("a pool");
    assert!(matches!(scene.group.add(&other), Err(Error::Paused { .. })));
    drop(scene.plain.allocate(4 * MIB).expect("the rest goes on"));
    scene.group.resume().expect("a resume");
    drop(scene.stream.allocate(4 * MIB).expect("the group goes on"));
    scene.check();
}

#[test]
fn a_pool_belongs_to_one_group() {
    let scene = Scene::new();
    let pool = scene.allocator.create_pool().expect("a pool");
    scene.group.add(&pool).expect("it joins");
    scene.group.add(&pool).expect("it is there already");
    let other = scene.allocator.group("kv").expect("a group");
    let error = other.add(&pool).expect_err("it belongs to another group");
    assert!(error.to_string().contains("it belongs to another group"), "{error}");
    assert_eq!(scene.allocator.group_names(), ["kv".into(), "weights".into()]);
    let elsewhere = Allocator::new(Sim::new());
    assert!(scene.group.add(&elsewhere.create_pool().expect("a pool")).is_err());
}

#[test]
fn groups_need_pages() {
    let allocator = Allocator::builder(Sim::new()).conf("policy:classic").build().expect("an allocator");
    let error = allocator.group("kv").expect_err("no pages");
    assert!(error.to_string().contains("policy:paged"), "{error}");
}

/// A graph uses memory of its pool that no buffer has: that stays where it is, with its bytes.
#[test]
fn the_pool_of_a_graph_keeps_all_of_its_memory() {
    let scene = Scene::new();
    let pool = scene.allocator.create_pool().expect("a pool");
    scene.group.add(&pool).expect("it joins");
    let graph = pool.stream(scene.plain.id()).expect("a stream of the pool");
    let capture = graph.begin_capture().expect("a capture");
    let error = scene.group.pause(Keep::Host).expect_err("it is being captured");
    assert!(error.to_string().contains("end the capture first"), "{error}");
    let inside = graph.allocate(6 * MIB).expect("memory of the graph");
    let address = inside.address();
    drop(inside);
    capture.end();
    let inside = graph.allocate(6 * MIB).expect("the same memory");
    assert_eq!(inside.address(), address);
    graph.fill(&inside, 0, 6 * MIB, 42).expect("a fill");
    drop(inside);
    scene.group.pause(Keep::Host).expect("a pause");
    assert_eq!(scene.allocator.memory_reserved(), 0);
    scene.group.resume().expect("a resume");
    let inside = graph.allocate(6 * MIB).expect("the same memory");
    assert_eq!(inside.address(), address);
    let mut bytes = vec![0; 6 << 20];
    graph.download(&inside, 0, &mut bytes).expect("a download");
    assert!(bytes.iter().all(|&byte| byte == 42));
    scene.check();
}

/// A resume that finds no room takes it from the cache, or leaves the group paused with its contents.
#[test]
fn a_resume_without_room_leaves_the_group_paused() {
    let scene = Scene::new();
    scene.group.pause(Keep::Host).expect("a pause");
    let needed = scene.allocator.memory_paused();
    scene.allocator.set_limit(Some(needed + 8 * MIB));
    let taken = scene.plain.allocate(10 * MIB).expect("memory in the meantime");
    let error = scene.group.resume().expect_err("there is no room");
    assert_eq!(error.fault(), Fault::OutOfMemory);
    let text = error.to_string();
    assert!(
        text.contains("\"weights\" stays paused") && text.contains("free 2.00 MiB, or pause another group"),
        "{text}"
    );
    assert!(scene.group.is_paused());
    scene.check();
    drop(taken);
    scene.group.resume().expect("what is cached makes room");
    scene.check();
    scene.expect_contents();
}

/// What a resume asked the driver for in vain does not count against the limit.
#[test]
fn a_failed_resume_leaves_the_limit_as_it_was() {
    let scene = Scene::new();
    scene.group.pause(Keep::Host).expect("a pause");
    scene.sim.fail(CallKind::CreatePage, 3, Fault::Other);
    let error = scene.group.resume().expect_err("a page fails");
    assert!(error.to_string().contains("create_page"), "{error}");
    scene.allocator.set_limit(Some(scene.allocator.memory_paused()));
    scene.group.resume().expect("there is just as much room as it needs");
    scene.check();
    scene.expect_contents();
}

#[test]
fn an_allocator_can_end_while_a_group_is_paused() {
    let Scene { sim, allocator, group, stream, plain, buffers } = Scene::new();
    group.pause(Keep::Host).expect("a pause");
    drop((group, stream, plain, allocator));
    drop(buffers);
    assert_eq!((sim.live(), sim.violations()), ((0, 0, 0), vec![]));
}

/// Whichever driver call fails, the group is running or paused afterwards, with its contents.
#[test]
fn every_driver_call_may_fail() {
    for fault in [Fault::OutOfMemory, Fault::Other] {
        let mut failures = 0;
        for nth in 1.. {
            let scene = Scene::new();
            let addresses = scene.addresses();
            let calls = scene.sim.calls();
            scene.sim.fail_any(nth, fault);
            let paused = scene.group.pause(Keep::Host);
            assert_eq!(scene.group.is_paused(), paused.is_ok(), "call {nth}: {paused:?}");
            scene.check();
            if paused.is_err() {
                scene.expect_contents();
                scene.group.pause(Keep::Host).unwrap_or_else(|error| panic!("after call {nth}: {error}"));
            }
            let resumed = scene.group.resume();
            assert_eq!(scene.group.is_paused(), resumed.is_err(), "call {nth}: {resumed:?}");
            scene.check();
            if resumed.is_err() {
                scene.group.resume().unwrap_or_else(|error| panic!("after call {nth}: {error}"));
            }
            assert_eq!(scene.addresses(), addresses);
            failures += u32::from(paused.is_err() || resumed.is_err());
            let made = scene.sim.calls().since(&calls);
            let fallible = CallKind::ALL.iter().filter(|kind| kind.fallible()).map(|&kind| made.of(kind));
            if fallible.sum::<u64>() < nth {
                break;
            }
            scene.expect_contents();
            scene.check();
        }
        println!("{fault:?}: {failures}");
        assert!(failures > 10, "{fault:?}: {failures} calls failed");
    }
}

#[test]
fn every_driver_call_may_panic() {
    let kinds = CallKind::ALL.iter().copied();
    for kind in kinds {
        for nth in 1..4 {
            let scene = Scene::new();
            scene.sim.panic_in(kind, nth);
            let turn = |group: &Group<Sim>| {
                let _ = group.pause(Keep::Host);
                let _ = group.resume();
            };
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| turn(&scene.group)));
            scene.sim.forget_panics();
            scene.group.resume().unwrap_or_else(|error| panic!("after a panic in {kind}: {error}"));
            assert!(!scene.group.is_paused());
            scene.allocator.check();
        }
    }
}

#[test]
fn a_lost_device_is_reported() {
    let scene = Scene::new();
    scene.sim.kill();
    let error = scene.group.pause(Keep::Host).expect_err("the device is lost");
    assert_eq!(error.fault(), Fault::Lost);
    assert!(!scene.group.is_paused());
    scene.allocator.check();
}

#[test]
fn a_pause_waits_for_the_streams_that_use_the_group_and_no_others() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let allocator = Allocator::builder(sim.clone()).conf("policy:paged").build().expect("an allocator");
    let group = allocator.group("kv").expect("a group");
    let [own, used, other] = [(); 3].map(|()| allocator.create_stream().expect("a stream"));
    let buffer = group.stream(own.id()).expect("a stream of the group").allocate(4 * MIB).expect("4 MiB");
    buffer.record_stream(&used).expect("a use");
    let elsewhere = other.allocate(MIB).expect("1 MiB");
    for stream in [&own, &used, &other] {
        sim.busy(stream.id());
    }
    group.pause(Keep::Discard).expect("a pause");
    let left = [&own, &used, &other].map(|stream| sim.complete(stream.id()));
    assert!(left[..2] == [0, 0] && left[2] > 0, "what was left to do: {left:?}");
    group.resume().expect("a resume");
    drop((buffer, elsewhere));
    allocator.check();
    assert_eq!(sim.violations(), []);
}

/// A kernel that uses memory of a paused group uses addresses without memory.
#[test]
fn the_device_reports_a_use_of_paused_memory() {
    let scene = Scene::new();
    scene.group.pause(Keep::Host).expect("a pause");
    let (buffer, _) = &scene.buffers[0];
    let segment = buffer.segment().expect("it has bytes");
    scene.sim.use_range(scene.stream.id(), segment, buffer.offset(), 16, Access::Read);
    scene.sim.synchronize();
    assert!(!scene.sim.violations().is_empty(), "a use of memory that is not there");
}

/// How a thread of the test below ended.
#[derive(Default)]
struct Worked {
    granted: u64,
    denied: u64,
}

/// Allocates, uses and frees at random in a group and elsewhere, and frees all in the end.
fn churn(watched: &Watched<Sim>, own: [&Stream<Sim>; 2], other: &Stream<Sim>, seed: u64) -> Worked {
    let (mut random, mut held, mut worked) = (Random::new(seed), Vec::new(), Worked::default());
    for _ in 0..300_000 {
        match watched.allocate(own[usize::from(!random.one_in(3))], random.between(1, 2 * MIB)) {
            Ok(tenancy) => {
                worked.granted += 1;
                if random.one_in(5) {
                    watched.record_stream(&tenancy, other).expect("a use");
                }
                held.push(tenancy);
            }
            Err(Trouble::Refused(Error::Paused { .. })) => worked.denied += 1,
            Err(error) => panic!("{error}"),
        }
        let most = random.between(0, 24) as usize;
        while held.len() > most {
            watched.free(held.swap_remove(random.index(held.len())));
        }
    }
    held.into_iter().for_each(|tenancy| watched.free(tenancy));
    worked
}

/// Two threads make a million allocations, uses and frees under the oracle, while a third pauses and resumes.
#[test]
fn threads_go_on_while_a_group_is_paused_and_resumed() {
    let sim = Sim::new();
    let watched = Watched::new(Allocator::builder(sim.clone()).conf("policy:paged").build().expect("an allocator"));
    let allocator = watched.allocator().clone();
    let group = allocator.group("kv").expect("a group");
    let plain = [0, 1].map(|_| allocator.create_stream().expect("a stream"));
    let inside = [0, 1].map(|at: usize| group.stream(plain[at].id()).expect("a stream of the group"));
    let over = AtomicBool::new(false);
    let turn = || {
        let mut turns = 0;
        while !over.load(Ordering::Relaxed) {
            group.pause(if turns % 2 == 0 { Keep::Host } else { Keep::Discard }).expect("a pause");
            assert_eq!(group.stats().reserved_bytes, 0);
            group.resume().expect("a resume");
            std::thread::sleep(Duration::from_millis(10));
            turns += 1;
        }
        turns
    };
    let worked = std::thread::scope(|scope| {
        let workers = [0, 1].map(|at: usize| {
            let (watched, plain, inside) = (&watched, &plain, &inside);
            scope.spawn(move || churn(watched, [&plain[at], &inside[at]], &plain[1 - at], at as u64))
        });
        let turns = scope.spawn(turn);
        let worked = workers.map(|worker| worker.join().expect("a worker"));
        over.store(true, Ordering::Relaxed);
        let turns = turns.join().expect("the third thread");
        assert!(turns > 5, "{turns} pauses");
        worked
    });
    let (granted, denied) = worked.iter().fold((0, 0), |sum, at| (sum.0 + at.granted, sum.1 + at.denied));
    assert!(denied > 0 && granted > 200_000, "{granted} granted, {denied} met a paused group");
    watched.check(false).expect("the oracle agrees");
    assert_eq!((sim.violations(), allocator.memory_allocated()), (vec![], 0));
    drop((plain, inside, group, allocator, watched));
    assert_eq!(sim.live(), (0, 0, 0));
}

/// A buffer of a paused group that becomes longer within its block is freed once the group is resumed.
#[test]
fn what_grows_while_paused_is_not_granted_before_the_resume() {
    let scene = Scene::new();
    let mut buffer = scene.stream.allocate(3000).expect("3000 bytes");
    scene.group.pause(Keep::Host).expect("a pause");
    let _ = buffer.grow(10);
    drop(buffer);
    scene.check();
    let error = scene.stream.allocate(3000).expect_err("it is paused");
    assert!(matches!(error, Error::Paused { .. }), "{error}");
    scene.group.resume().expect("a resume");
    scene.check();
    scene.expect_contents();
}

/// A group that was paused without memory, and that nothing referred to, has its pool again.
#[test]
fn a_paused_group_without_memory_is_found_again() {
    let allocator = Allocator::builder(Sim::new()).conf("policy:paged").build().expect("an allocator");
    let plain = allocator.create_stream().expect("a stream");
    let group = allocator.group("weights").expect("a group");
    group.pause(Keep::Discard).expect("a pause");
    drop(group);
    let group = allocator.group("weights").expect("a group");
    assert!(group.is_paused());
    let stream = group.stream(plain.id()).expect("a stream of the group");
    let error = stream.allocate(4 * MIB).expect_err("it is paused");
    assert!(matches!(error, Error::Paused { .. }), "{error}");
    group.resume().expect("a resume");
    let _buffer = stream.allocate(4 * MIB).expect("memory");
    group.pause(Keep::Discard).expect("a pause");
    assert_eq!(allocator.memory_reserved(), 0);
}

/// Work on what was freed goes on, on streams that no buffer of the group is used on any more.
#[test]
fn a_pause_waits_for_work_on_what_was_freed() {
    let sim = Sim::builder().completion(Completion::Seeded(1)).build();
    let allocator = Allocator::builder(sim.clone()).conf("policy:paged").build().expect("an allocator");
    let group = allocator.group("weights").expect("a group");
    let [first, second] = [0, 1].map(|_| group.stream(allocator.create_stream().expect("a stream").id()).expect("it"));
    let kept = first.allocate(3000).expect("3000 bytes");
    let freed = second.allocate(3000).expect("3000 bytes");
    second.fill(&freed, 0, 3000, 1).expect("a fill");
    drop(freed);
    group.pause(Keep::Discard).expect("a pause");
    assert_eq!(sim.violations(), []);
    drop(kept);
}

/// Statistics tell the sides apart while small pages of a group are with the driver.
#[test]
fn statistics_by_side_are_there_while_a_group_is_paused() {
    let scene = Scene::new();
    scene.group.pause(Keep::Discard).expect("a pause");
    let stats = scene.allocator.stats().reserved_bytes;
    assert_eq!((stats.small_pool.current, stats.large_pool.current), (0, 0));
    let of_pool = scene.allocator.pool_stats(scene.group.pool().id()).expect("a pool").reserved_bytes;
    assert_eq!((of_pool.small_pool.current, of_pool.large_pool.current), (0, 0));
    let _memory = scene.allocator.memory_summary(false);
    scene.check();
}

/// Work of a captured stream that began before the capture cannot be waited for, so the group stays as it is.
#[test]
fn what_a_captured_stream_still_uses_is_not_paused() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let allocator = Allocator::builder(sim.clone()).conf("policy:paged").build().expect("an allocator");
    let group = allocator.group("weights").expect("a group");
    let plain = [0, 1].map(|_| allocator.create_stream().expect("a stream"));
    let [first, second] = [0, 1].map(|at: usize| group.stream(plain[at].id()).expect("a stream of the group"));
    let _kept = first.allocate(3000).expect("3000 bytes");
    let freed = second.allocate(3000).expect("3000 bytes");
    second.fill(&freed, 0, 3000, 1).expect("a fill");
    drop(freed);
    let capture = plain[1].begin_capture().expect("a capture");
    let error = group.pause(Keep::Discard).expect_err("its work goes on");
    assert!(error.to_string().contains("end the capture first"), "{error}");
    capture.end();
    group.pause(Keep::Discard).expect("a pause");
    assert_eq!(sim.violations(), []);
}
