//! Buffers that grow at their place, on the simulated device, which counts its calls and finds misuse.

use millpond::backend::Fault;
use millpond::history::{Action, Recording};
use millpond::typed::TypedBuffer;
use millpond::{Allocator, BlockState, Buffer, Error, ErrorKind, NoRoom, Stream};
use millpond_sim::{CallKind, Calls, Completion, Sim, SimError};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const PAGED: [&str; 2] = ["policy:paged", "policy:paged,growth:tight"];
const WITHOUT: [&str; 3] = ["policy:classic", "policy:classic,expandable_segments:True", "policy:direct"];

fn open(sim: &Sim, conf: &str) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

/// Returns what a buffer must have at an offset.
fn byte_at(offset: u64) -> u8 {
    (offset / 4096 % 251) as u8
}

/// Writes the first byte of each 64 KiB of a part of a buffer.
fn write(stream: &Stream<Sim>, buffer: &Buffer<Sim>, from: u64, to: u64) {
    for at in (from..to).step_by(64 << 10) {
        stream.upload(buffer, at, &[byte_at(at)]).unwrap();
    }
}

fn expect_written(stream: &Stream<Sim>, buffer: &Buffer<Sim>, to: u64) {
    for at in (0..to).step_by(64 << 10) {
        let mut byte = [0];
        stream.download(buffer, at, &mut byte).unwrap();
        assert_eq!(byte[0], byte_at(at), "at {at} of {buffer:?}");
    }
}

/// Each step of 2 MiB makes the two calls for its page, however long the buffer is, and none that moves bytes.
#[test]
fn a_cache_of_a_gibibyte_grows_in_steps_that_cost_the_same() {
    for conf in PAGED {
        let sim = Sim::builder().keep_contents(false).build();
        let (allocator, stream) = open(&sim, conf);
        let mut cache = stream.allocate_growable(2 * MIB, GIB).unwrap();
        let address = cache.address();
        while cache.len() < GIB {
            let (before, calls) = (sim.calls(), allocator.driver_activity());
            cache.grow(2 * MIB).unwrap();
            let made = sim.calls().since(&before);
            assert_eq!(made, Calls { create_page: 1, map: 1, ..Calls::default() }, "{conf}: at {}", cache.len());
            assert_eq!(allocator.driver_activity().since(calls).calls, 2);
            assert_eq!((cache.address(), cache.capacity()), (address, cache.len()));
            assert_eq!(allocator.memory_reserved(), cache.len(), "{conf}");
        }
        allocator.check();
        let full = cache.grow(1).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::NoRoom, "{full}");
        assert!(full.to_string().contains("; reserve 1.01 GiB or more for it at the start, with"), "{full}");
        drop(cache);
        allocator.empty_cache().unwrap();
        assert_eq!((allocator.memory_reserved(), sim.held_bytes()), (0, 0), "{conf}");
        allocator.check();
    }
}

#[test]
fn contents_and_address_stay_while_a_buffer_grows() {
    for conf in PAGED {
        let sim = Sim::new();
        let (allocator, stream) = open(&sim, conf);
        let mut cache = stream.allocate_growable(0, 64 * MIB).unwrap();
        assert_eq!((cache.len(), cache.capacity(), allocator.memory_allocated()), (0, 2 * MIB, 2 * MIB));
        let (address, segment, mut random) = (cache.address(), cache.segment_id(), Random::new(1));
        let mut others = Vec::new();
        while cache.len() < 60 * MIB {
            let (from, by) = (cache.len(), 1 + random.below(3 * MIB));
            cache.grow(by).unwrap();
            assert_eq!((cache.len(), cache.address(), cache.segment_id()), (from + by, address, segment));
            write(&stream, &cache, from.next_multiple_of(64 << 10), cache.len());
            // Other requests come and go, and none is served in its addresses.
            others.push(stream.allocate(1 + random.below(5 * MIB)).unwrap());
            let end = address.unwrap() + 64 * MIB;
            let at = others.last().and_then(Buffer::address).unwrap();
            assert!(!(address.unwrap()..end).contains(&at), "{conf}: {others:?}");
            if random.one_in(2) {
                drop(others.swap_remove(random.index(others.len())));
            }
            allocator.check();
        }
        expect_written(&stream, &cache, cache.len());
        let live: u64 = others.iter().map(Buffer::capacity).sum::<u64>() + cache.capacity();
        assert_eq!(allocator.memory_allocated(), live);
        let asked: u64 = others.iter().map(Buffer::len).sum::<u64>() + cache.len();
        let stats = allocator.stats();
        assert_eq!(stats.requested_bytes.all.current, asked);
        assert_eq!(stats.allocated_bytes.all.current, live);
        drop((cache, others));
        assert_eq!(allocator.memory_allocated(), 0);
        assert_eq!(sim.violations(), []);
        allocator.check();
    }
}

/// The pages stay at home, and are used through windows and in place. The addresses serve the home again.
#[test]
fn what_a_grown_buffer_leaves_serves_others() {
    for conf in PAGED {
        let sim = Sim::new();
        let (allocator, stream) = open(&sim, conf);
        let mut cache = stream.allocate_growable(2 * MIB, 32 * MIB).unwrap();
        (0..11).for_each(|_| cache.grow(2 * MIB).unwrap());
        let (address, reserved) = (cache.address(), allocator.memory_reserved());
        drop(cache);
        allocator.check();
        let before = allocator.driver_activity();
        let whole = stream.allocate(24 * MIB).unwrap();
        assert_eq!((whole.address(), allocator.memory_reserved()), (address, reserved), "{conf}");
        assert_eq!(allocator.driver_activity().since(before).calls, 0, "{conf}");
        let ranges = |allocator: &Allocator<Sim>| allocator.layout().len();
        drop(whole);
        // Again and again, no addresses are lost.
        let had = ranges(&allocator);
        for _ in 0..20 {
            let mut again = stream.allocate_growable(2 * MIB, 64 * GIB).unwrap();
            again.grow(2 * MIB).unwrap();
            drop(again);
            allocator.check();
        }
        assert!(ranges(&allocator) <= had + 1, "{conf}");
        allocator.empty_cache().unwrap();
        assert_eq!((allocator.memory_reserved(), ranges(&allocator)), (0, 0), "{conf}");
    }
}

#[test]
fn a_buffer_that_never_grew_gives_its_addresses_back() {
    let (allocator, stream) = open(&Sim::new(), PAGED[0]);
    drop(stream.allocate_growable(0, GIB).unwrap());
    let view = allocator.layout();
    assert!(view.iter().flat_map(|view| &view.blocks).all(|block| block.state != BlockState::ActiveAllocated));
    allocator.empty_cache().unwrap();
    assert!(allocator.layout().is_empty());
}

/// Under every policy, free memory of the same segment makes a buffer longer without a call.
#[test]
fn an_ordinary_buffer_grows_into_free_memory() {
    for conf in ["policy:classic", "policy:classic,expandable_segments:True", PAGED[0], PAGED[1]] {
        for (size, by) in [(1000, 3000), (600 << 10, 100 << 10), (3 * MIB, 4 * MIB)] {
            let sim = Sim::new();
            let (allocator, stream) = open(&sim, conf);
            let mut buffer = stream.allocate(size).unwrap();
            let next = stream.allocate(2 * by).unwrap();
            let last = stream.allocate(size).unwrap();
            write(&stream, &buffer, 0, size);
            drop(next);
            let (address, before) = (buffer.address(), sim.calls());
            let (stats, mut len) = (allocator.stats(), size);
            for _ in 0..2 {
                buffer.grow(by).unwrap();
                len += by;
                assert_eq!((buffer.len(), buffer.address()), (len, address), "{conf}: {size}");
                allocator.check();
            }
            assert_eq!(sim.calls().since(&before), Calls::default(), "{conf}: {size}");
            let now = allocator.stats();
            assert_eq!(now.allocation.all.current, stats.allocation.all.current);
            assert_eq!(now.requested_bytes.all.current, stats.requested_bytes.all.current + 2 * by);
            expect_written(&stream, &buffer, size);
            let error = buffer.grow(2 * size).unwrap_err();
            let Error::NoRoom { len, bytes, why } = &error else { panic!("{conf}: {error}") };
            assert_eq!((*len, *bytes), (size + 2 * by, 2 * size));
            assert!(matches!(why, NoRoom::Taken { .. } | NoRoom::TooLittle { .. }), "{conf}: {why}");
            assert!(error.to_string().contains("allocate_growable"), "{error}");
            assert_eq!((buffer.len(), buffer.address()), (size + 2 * by, address));
            drop((buffer, last));
            allocator.check();
            assert_eq!((allocator.memory_allocated(), sim.violations()), (0, vec![]), "{conf}");
        }
    }
}

#[test]
fn an_ordinary_buffer_grows_into_new_pages_of_its_home() {
    for conf in PAGED {
        let sim = Sim::new();
        let (allocator, stream) = open(&sim, conf);
        let mut buffer = stream.allocate(3 * MIB).unwrap();
        write(&stream, &buffer, 0, 3 * MIB);
        let address = buffer.address();
        buffer.grow(10 * MIB).unwrap();
        assert_eq!((buffer.address(), buffer.capacity(), allocator.memory_reserved()), (address, 13 * MIB, 14 * MIB));
        allocator.check();
        expect_written(&stream, &buffer, 3 * MIB);
        let rest = stream.allocate(MIB + 512).unwrap_or_else(|error| panic!("{error}"));
        allocator.check();
        drop((buffer, rest));
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0);
    }
}

#[test]
fn what_cannot_grow_says_why() {
    for conf in WITHOUT {
        let (_, stream) = open(&Sim::new(), conf);
        let refused = stream.allocate_growable(MIB, GIB).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{conf}: {refused}");
        let mut whole = stream.allocate(20 * MIB).unwrap();
        let error = whole.grow(MIB).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoRoom, "{conf}: {error}");
    }
    let (allocator, stream) = open(&Sim::builder().pages(None).build(), "");
    assert_eq!(stream.allocate_growable(1, 2).unwrap_err().kind(), ErrorKind::Unsupported);
    let mut empty = stream.allocate(0).unwrap();
    assert!(matches!(empty.grow(1), Err(Error::NoRoom { why: NoRoom::Empty, .. })));
    let mut whole = stream.allocate(20 * MIB).unwrap();
    assert!(matches!(whole.grow(1), Err(Error::NoRoom { why: NoRoom::Ends, .. })));
    assert!(matches!(whole.grow(u64::MAX), Err(Error::TooLarge { .. })));
    allocator.check();
    let (allocator, stream) = open(&Sim::new(), PAGED[0]);
    assert!(matches!(stream.allocate_growable(1, 1 << 60), Err(Error::TooLarge { .. })));
    let larger_than_the_device = stream.allocate_growable(2 * MIB, 1 << 40).unwrap();
    let mut cache = stream.allocate_growable(2 * MIB, 8 * MIB).unwrap();
    drop(larger_than_the_device);
    let why = cache.grow(8 * MIB).map_err(|error| error.to_string()).unwrap_err();
    assert!(why.contains(&format!("{} bytes of its capacity are left", 6 * MIB)), "{why}");
    cache.grow(6 * MIB).unwrap();
    allocator.check();
}

/// Memory that is free at home goes back before new pages exceed the slack, and where the limit has no room for both.
#[test]
fn free_memory_goes_back_before_new_pages_exceed_slack_and_limit() {
    for conf in PAGED {
        let sim = Sim::builder().keep_contents(false).build();
        let (allocator, stream) = open(&sim, conf);
        let mut cache = stream.allocate_growable(2 * MIB, GIB).unwrap();
        let block = stream.allocate(256 * MIB).unwrap();
        drop(block);
        while cache.len() < 200 * MIB {
            cache.grow(2 * MIB).unwrap();
            let reserved = allocator.memory_reserved();
            assert!(reserved <= 258 * MIB * 21 / 20, "{conf}: {reserved} for {}", cache.len());
        }
        allocator.check();
        allocator.set_limit(Some(280 * MIB));
        let least = allocator.memory_reserved() - 4 * MIB;
        while cache.len() < 276 * MIB {
            cache.grow(4 * MIB).unwrap();
            // No more goes back than it takes, in pages of up to 4 MiB.
            assert!((least..=280 * MIB).contains(&allocator.memory_reserved()), "{conf}: at {}", cache.len());
        }
        let refused = cache.grow(8 * MIB).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory, "{conf}: {refused}");
        allocator.check();
        cache.grow(2 * MIB).unwrap();
        allocator.set_limit(None);
        cache.grow(8 * MIB).unwrap();
        drop(cache);
        allocator.check();
    }
}

/// A limit within the slack is kept to by giving back what a step needs, and no more.
#[test]
fn no_more_goes_back_at_a_limit_than_a_step_needs() {
    for conf in PAGED {
        let sim = Sim::builder().keep_contents(false).build();
        let (allocator, stream) = open(&sim, conf);
        let mut cache = stream.allocate_growable(2 * MIB, GIB).unwrap();
        drop(stream.allocate(256 * MIB).unwrap());
        allocator.set_limit(Some(260 * MIB));
        while cache.len() < 250 * MIB {
            cache.grow(4 * MIB).unwrap();
            let reserved = allocator.memory_reserved();
            assert!((256 * MIB..=260 * MIB).contains(&reserved), "{conf}: {reserved} at {}", cache.len());
        }
        allocator.check();
    }
}

/// The free of a grown buffer waits for other streams like any other.
#[test]
fn a_grown_buffer_that_another_stream_uses_comes_back_after_it() {
    for conf in PAGED {
        let sim = Sim::builder().completion(Completion::Manual).build();
        let (allocator, stream) = open(&sim, conf);
        let other = allocator.create_stream().unwrap();
        let mut cache = stream.allocate_growable(2 * MIB, 16 * MIB).unwrap();
        cache.grow(2 * MIB).unwrap();
        cache.record_stream(&other).unwrap();
        sim.busy(other.id());
        cache.grow(4 * MIB).unwrap();
        drop(cache);
        allocator.check();
        let next = stream.allocate(8 * MIB).unwrap();
        allocator.check();
        sim.complete_all();
        drop(next);
        allocator.empty_cache().unwrap();
        assert_eq!((allocator.memory_reserved(), sim.violations()), (0, vec![]), "{conf}");
    }
}

/// Under `paged` a buffer grows into what another stream has freed and still uses, after a wait on the device.
#[test]
fn growth_comes_after_other_streams() {
    for conf in PAGED {
        let sim = Sim::builder().completion(Completion::Manual).build();
        let (allocator, stream) = open(&sim, conf);
        let other = allocator.create_stream().unwrap();
        let mut buffer = stream.allocate(3 * MIB).unwrap();
        let next = other.allocate(4 * MIB).unwrap();
        let last = stream.allocate(3 * MIB).unwrap();
        assert_eq!(next.offset(), buffer.offset() + 3 * MIB);
        other.fill(&next, 0, next.len(), 7).unwrap();
        drop(next);
        let before = allocator.driver_activity();
        buffer.grow(2 * MIB).unwrap();
        stream.fill(&buffer, 0, buffer.len(), 9).unwrap();
        let made = allocator.driver_activity().since(before);
        assert_eq!((made.stream_waits, made.calls), (1, 1), "{conf}");
        allocator.check();
        sim.complete_all();
        let mut byte = [0];
        stream.download(&buffer, 4 * MIB, &mut byte).unwrap();
        assert_eq!(byte, [9]);
        drop((buffer, last));
        assert_eq!(sim.violations(), [], "{conf}");
        allocator.check();
    }
}

/// Grows buffers in every way. After each error everything must be as before, and the second try must succeed. Returns
/// the errors.
fn script(allocator: &Allocator<Sim>, stream: &Stream<Sim>) -> Vec<Error<SimError>> {
    let mut errors = Vec::new();
    let mut get = |capacity: Option<u64>| loop {
        let got = match capacity {
            Some(capacity) => stream.allocate_growable(4 * MIB, capacity),
            None => stream.allocate(4 * MIB),
        };
        allocator.check();
        match got {
            Ok(buffer) => {
                write(stream, &buffer, 0, 4 * MIB);
                break buffer;
            }
            Err(error) => errors.push(error),
        }
    };
    let (mut first, mut second, free) = (get(Some(64 * MIB)), get(None), get(None));
    let mut grow = |buffer: &mut Buffer<Sim>, by: u64| {
        let seen = |buffer: &Buffer<Sim>| {
            let stats = allocator.stats();
            let counted = (stats.allocated_bytes.all.current, stats.requested_bytes.all.current);
            (buffer.len(), buffer.capacity(), buffer.address(), counted)
        };
        let before = seen(buffer);
        while let Err(error) = buffer.grow(by) {
            assert_eq!(seen(buffer), before, "after {error}");
            allocator.check();
            errors.push(error);
        }
        allocator.check();
        expect_written(stream, buffer, 4 * MIB);
    };
    grow(&mut first, 7 * MIB);
    drop(free);
    grow(&mut second, 2 * MIB);
    allocator.set_limit(Some(44 * MIB));
    grow(&mut second, 14 * MIB);
    grow(&mut first, 9 * MIB);
    drop((first, second));
    errors
}

/// Whichever call fails, the buffer is as it was, the error has its type, and nothing leaks.
#[test]
fn after_any_failed_call_a_buffer_is_as_before() {
    let kinds = [CallKind::ReserveRange, CallKind::CreatePage, CallKind::Map, CallKind::Reached];
    for (conf, kind) in PAGED.into_iter().flat_map(|conf| kinds.map(|kind| (conf, kind))) {
        let run = |failing: Option<(u64, Fault)>| {
            let sim = Sim::new();
            let (allocator, stream) = open(&sim, conf);
            if let Some((nth, fault)) = failing {
                sim.fail(kind, nth, fault);
            }
            let errors = script(&allocator, &stream);
            assert!(errors.len() <= 1, "one fault leads to one error: {errors:?}");
            for error in &errors {
                let is_typed = matches!(error, Error::OutOfMemory(_) | Error::Driver { lost: false, .. });
                assert!(is_typed, "{conf}: {kind} fails as {failing:?}: {error}");
            }
            assert_eq!(sim.violations(), [], "{conf}: {kind} fails as {failing:?}");
            let made = sim.calls().of(kind);
            allocator.empty_cache().unwrap();
            allocator.check();
            let left = (allocator.memory_reserved(), sim.held_bytes(), sim.live());
            assert_eq!(left, (0, 0, (0, 0, 0)), "{conf}: {kind} fails as {failing:?}");
            (made, errors.len())
        };
        let (made, errors) = run(None);
        assert_eq!(errors, 0);
        let met: usize =
            (1..=made).map(|nth| run(Some((nth, Fault::Other))).1 + run(Some((nth, Fault::OutOfMemory))).1).sum();
        let pages = matches!(kind, CallKind::CreatePage | CallKind::Map);
        assert!(!pages || met as u64 >= made && made > 10, "{conf}: {made} calls of {kind}, {met} errors");
    }
}

#[test]
fn elements_grow() {
    let (_, stream) = open(&Sim::new(), PAGED[0]);
    let mut numbers: TypedBuffer<f32, _> = stream.allocate_growable_elements(4, 1 << 20).unwrap();
    stream.upload_elements(&numbers, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    numbers.grow(2).unwrap();
    stream.upload_elements(&numbers.slice(4..).unwrap(), &[5.0, 6.0]).unwrap();
    assert_eq!(stream.download_vec(&numbers).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// New bytes are overwritten, and those that the buffer has are not.
#[test]
fn what_is_added_is_scrubbed() {
    for scrub in ["scrub:always", "scrub:other_streams"] {
        for conf in PAGED {
            let sim = Sim::builder().fresh(0x5F).build();
            let (allocator, stream) = open(&sim, &format!("{conf},{scrub}"));
            let mut cache = stream.allocate_growable(2 * MIB, 16 * MIB).unwrap();
            write(&stream, &cache, 0, 2 * MIB);
            cache.grow(3 * MIB).unwrap();
            expect_written(&stream, &cache, 2 * MIB);
            let mut bytes = vec![1; (3 * MIB) as usize];
            stream.download(&cache, 2 * MIB, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0), "{conf}");
            allocator.check();
        }
    }
}

/// What a buffer grows by is in traces and histories as blocks of its own, which are freed with it.
#[test]
fn histories_have_growth_as_allocations() {
    let sim = Sim::builder().keep_contents(false).build();
    let (allocator, stream) = open(&sim, PAGED[0]);
    allocator.record_history(Recording::all(1000));
    let other = allocator.create_stream().unwrap();
    let mut cache = stream.allocate_growable(2 * MIB, 16 * MIB).unwrap();
    cache.grow(MIB).unwrap();
    cache.grow(MIB).unwrap();
    cache.grow(3 * MIB).unwrap();
    cache.record_stream(&other).unwrap();
    let place = (cache.segment_id(), cache.offset());
    drop(cache);
    allocator.poll().unwrap();
    let history = allocator.history();
    let of = |action: Action| {
        let entries = history.entries.iter().filter(|entry| entry.action == action);
        entries.map(|entry| (entry.offset - place.1, entry.size)).collect::<Vec<_>>()
    };
    let parts = vec![(0, 2 * MIB), (2 * MIB, 2 * MIB), (4 * MIB, 4 * MIB)];
    for action in [Action::Alloc, Action::FreeRequested, Action::FreeCompleted, Action::Use] {
        assert_eq!(of(action.clone()), parts, "{action:?}");
    }
    let next = stream.allocate(8 * MIB).unwrap();
    assert_eq!((next.segment_id(), next.offset()), place);
    drop(next);
    assert_eq!(allocator.history().entries.iter().filter(|entry| entry.action == Action::FreeRequested).count(), 4);
}

/// Threads grow buffers next to each other's in one home.
#[test]
fn threads_grow_buffers_in_one_home() {
    for conf in PAGED {
        let sim = Sim::builder().keep_contents(false).build();
        let (allocator, _) = open(&sim, conf);
        allocator.set_limit(Some(256 * MIB));
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (allocator, mut random) = (&allocator, Random::new(seed));
                scope.spawn(move || {
                    let stream = allocator.create_stream().unwrap();
                    let mut held: Vec<Buffer<Sim>> = Vec::new();
                    for _ in 0..400 {
                        let bytes = 1 + random.below(3 * MIB);
                        match random.below(6) {
                            0 => held.extend(stream.allocate_growable(bytes, 8 * bytes)),
                            1 => held.extend(stream.allocate(bytes)),
                            2 if !held.is_empty() => drop(held.swap_remove(random.index(held.len()))),
                            _ => {
                                if let Some(buffer) = held.last_mut() {
                                    let (address, len) = (buffer.address(), buffer.len());
                                    let grown = buffer.grow(bytes).is_ok();
                                    assert_eq!(buffer.len(), if grown { len + bytes } else { len });
                                    assert_eq!(buffer.address(), address);
                                }
                            }
                        }
                    }
                });
            }
        });
        allocator.check();
        assert_eq!((allocator.memory_allocated(), allocator.stats().requested_bytes.all.current), (0, 0), "{conf}");
        allocator.empty_cache().unwrap();
        assert_eq!((sim.held_bytes(), sim.violations()), (0, vec![]), "{conf}");
        allocator.check();
    }
}
