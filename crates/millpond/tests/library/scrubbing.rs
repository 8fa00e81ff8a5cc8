//! Overwriting what former owners left. It is read back on the simulated device, whose memory holds foreign bytes when
//! it comes from the driver.

use millpond::backend::{Backend, ClassId, Fault};
use millpond::{Allocator, Buffer, BuildError, Error, Readiness, Stream};
use millpond_sim::{CallKind, Completion, Overwriting, Sim};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
/// The byte that fills memory that comes from the driver.
const FRESH: u8 = 0x5F;
const POLICIES: [&str; 5] = [
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:direct",
];

fn sim(completion: Completion) -> Sim {
    Sim::builder().fresh(FRESH).completion(completion).build()
}

fn allocator<B: Backend>(backend: B, conf: &str) -> Allocator<B> {
    Allocator::builder(backend).conf(conf).build().unwrap()
}

/// Returns the byte that a stream leaves in its blocks.
fn own(stream: usize) -> u8 {
    0xA0 + stream as u8
}

/// Returns all bytes of the buffer's block, read on its stream without the checks of `Stream`.
fn all_of<B: Backend>(allocator: &Allocator<B>, buffer: &Buffer<B>) -> Vec<u8> {
    let mut bytes = vec![0xEE; buffer.capacity() as usize];
    let (segment, mover) = (buffer.segment().unwrap(), allocator.backend().transfer().unwrap());
    mover.download(buffer.stream(), segment, buffer.offset(), &mut bytes).unwrap();
    bytes
}

fn occupy<B: Backend>(allocator: &Allocator<B>, buffer: &Buffer<B>, value: u8) {
    let mover = allocator.backend().transfer().unwrap();
    mover.fill(buffer.stream(), buffer.segment().unwrap(), buffer.offset(), buffer.capacity(), value).unwrap();
}

/// Returns a size, mostly small enough that pages are shared.
fn size(random: &mut Random) -> u64 {
    match random.below(8) {
        0 | 1 => 1 + random.below(4000),
        2 | 3 => 1 + random.below(1 << 20),
        4 => 1 + random.below(9 << 20),
        _ => 1 + random.below(3 << 20),
    }
}

/// Allocates, frees, uses on other streams, empties the cache and runs out of memory at random. Returns the first byte
/// that a new owner found and should not have found.
fn first_leak(sim: &Sim, conf: &str, streams: usize, seed: u64) -> Option<String> {
    let may_see_own = conf.contains("other_streams");
    let allocator = Allocator::builder(sim.clone()).conf(conf).limit(24 * MIB).build().unwrap();
    let streams: Vec<_> = (0..streams).map(|_| allocator.create_stream().unwrap()).collect();
    let (mut random, mut live) = (Random::new(seed), Vec::new());
    for operation in 0..100 {
        match random.below(8) {
            0..=3 => {
                let home = random.index(streams.len());
                let bytes = size(&mut random);
                let Ok(buffer) = streams[home].allocate(bytes) else {
                    live.clear();
                    continue;
                };
                let seen = all_of(&allocator, &buffer);
                let is_well = |byte: u8| byte == 0 || may_see_own && byte == own(home);
                if let Some(at) = seen.iter().position(|&byte| !is_well(byte)) {
                    return Some(format!(
                        "{conf}, seed {seed}, operation {operation}: {:#04x} at {at} of {buffer:?}",
                        seen[at]
                    ));
                }
                occupy(&allocator, &buffer, own(home));
                live.push(buffer);
            }
            4 | 5 if !live.is_empty() => {
                drop(live.swap_remove(random.index(live.len())));
            }
            6 if !live.is_empty() => {
                let other = &streams[random.index(streams.len())];
                live[0].record_stream(other).unwrap();
                sim.step();
            }
            7 if random.below(12) == 0 => allocator.empty_cache().unwrap(),
            _ => sim.step(),
        }
    }
    allocator.check();
    None
}

#[test]
fn no_owner_finds_what_another_left_in_random_programs() {
    for policy in POLICIES {
        for mode in ["other_streams", "always"] {
            for streams in [1, 2, 4] {
                for seed in 0..2 {
                    let sim = sim(Completion::Seeded(seed));
                    let conf = format!("{policy},scrub:{mode}");
                    let leak = first_leak(&sim, &conf, streams, seed);
                    assert_eq!(leak, None);
                    assert_eq!(sim.violations(), [], "{conf}, {streams} streams, seed {seed}");
                }
            }
        }
    }
}

/// The programs above detect an overwriting that is left out, is on another stream, or ends too early: for example
/// after the bytes that were requested.
#[test]
fn a_device_that_overwrites_badly_is_noticed() {
    for policy in POLICIES {
        for mode in ["other_streams", "always"] {
            for case in 0..3 {
                let conf = format!("{policy},scrub:{mode}");
                let noticed = (0..6).any(|seed| {
                    let sim = sim(Completion::Manual);
                    let nobodys = sim.create_stream().unwrap();
                    let how = [Overwriting::LeftOut, Overwriting::OnStream(nobodys), Overwriting::AllBut(256)];
                    sim.set_overwriting(how[case]);
                    first_leak(&sim, &conf, 2, seed).is_some()
                });
                assert!(noticed, "case {case} under {conf}");
            }
        }
    }
}

#[test]
fn a_stream_gets_its_own_memory_back_without_a_fill() {
    let sim = sim(Completion::Immediate);
    let allocator = allocator(sim.clone(), "policy:paged,scrub:other_streams");
    let stream = allocator.create_stream().unwrap();
    let fills = || sim.calls().transfer;
    drop(stream.allocate(MIB).unwrap());
    assert_eq!(fills(), 1, "what came from the driver");
    for _ in 0..100 {
        drop(stream.allocate(MIB).unwrap());
    }
    assert_eq!(fills(), 1);
    let always = Allocator::builder(sim.clone()).conf("scrub:always").build().unwrap();
    let stream = always.create_stream().unwrap();
    drop(stream.allocate(MIB).unwrap());
    drop(stream.allocate(MIB).unwrap());
    assert_eq!(fills(), 3);
}

#[test]
fn nothing_is_overwritten_unless_asked() {
    let sim = sim(Completion::Immediate);
    let allocator = allocator(sim.clone(), "policy:paged");
    let stream = allocator.create_stream().unwrap();
    drop(stream.allocate(MIB).unwrap());
    drop(stream.allocate(8 * MIB).unwrap());
    assert_eq!(sim.calls().transfer, 0);
}

#[test]
fn a_block_that_goes_from_stream_to_stream_is_overwritten_each_time() {
    let sim = sim(Completion::Immediate);
    let allocator = allocator(sim.clone(), "policy:paged,scrub:other_streams");
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    let mut places = Vec::new();
    for at in [0, 1, 0, 1] {
        let block = streams[at].allocate(32 * MIB).unwrap();
        assert!(all_of(&allocator, &block).iter().all(|&byte| byte == 0));
        occupy(&allocator, &block, own(at));
        places.push(block.address());
        drop(block);
        let again = streams[at].allocate(32 * MIB).unwrap();
        assert!(all_of(&allocator, &again).iter().all(|&byte| byte == own(at)), "it is its own");
    }
    places.dedup();
    assert_eq!(places.len(), 1, "it is one block");
}

/// Free blocks of several streams are joined: of a part of them the next owner gets its own as it was, and no more.
#[test]
fn of_joined_blocks_a_stream_sees_its_own_part_alone() {
    for completion in [Completion::Immediate, Completion::Manual] {
        let sim = sim(completion);
        let allocator = allocator(sim.clone(), "policy:paged,scrub:other_streams");
        let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
        let blocks = [0, 1, 0, 1, 0].map(|at| (at, streams[at].allocate(6 * MIB).unwrap()));
        let first = blocks[0].1.address();
        blocks.iter().for_each(|(at, block)| occupy(&allocator, block, own(*at)));
        drop(blocks);
        sim.complete_all();
        allocator.poll().unwrap();
        for (at, bytes) in [(0, 18 * MIB), (1, 12 * MIB), (0, 30 * MIB)] {
            let block = streams[at].allocate(bytes).unwrap();
            assert_eq!(block.address(), first, "all are one block");
            sim.complete_all();
            let seen = all_of(&allocator, &block);
            let parts: Vec<_> =
                seen.chunks(6 << 20).map(|part| (part[0], part.iter().all(|byte| *byte == part[0]))).collect();
            let expected: &[u8] = match bytes / MIB {
                18 => &[own(0), 0, own(0)],
                12 => &[0, 0],
                _ => &[0, 0, own(0), 0, own(0)],
            };
            assert_eq!(parts, expected.iter().map(|&byte| (byte, true)).collect::<Vec<_>>(), "{completion:?}, {at}");
            occupy(&allocator, &block, own(at));
            sim.complete_all();
        }
    }
}

#[test]
fn a_buffer_says_that_its_memory_is_being_overwritten() {
    let sim = sim(Completion::Manual);
    let allocator = allocator(sim.clone(), "scrub:always");
    let stream = allocator.create_stream().unwrap();
    let buffer = stream.allocate(MIB).unwrap();
    assert_eq!((buffer.readiness(), sim.queued()), (Readiness::Ordered, 1), "it came from the driver, and is in use");
    sim.complete(stream.id());
    assert_eq!(buffer.readiness(), Readiness::Complete);
}

#[test]
fn where_overwriting_fails_nothing_is_handed_out_and_nothing_is_lost() {
    for policy in POLICIES {
        for mode in ["other_streams", "always"] {
            let sim = sim(Completion::Immediate);
            let allocator = allocator(sim.clone(), &format!("{policy},scrub:{mode}"));
            let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
            for stream in &streams {
                for fault in [Fault::Other, Fault::OutOfMemory] {
                    sim.fail(CallKind::Transfer, 1, fault);
                    let error = stream.allocate(3 * MIB).unwrap_err();
                    assert!(matches!(error, Error::Driver { call: "overwrite", .. }), "{error}");
                    assert_eq!((error.fault(), allocator.memory_allocated()), (fault, 0));
                    allocator.check();
                }
                let buffer = stream.allocate(3 * MIB).unwrap();
                assert!(all_of(&allocator, &buffer).iter().all(|&byte| byte == 0), "{policy} {mode}");
            }
            drop(streams);
            drop(allocator);
            assert_eq!((sim.held_bytes(), sim.violations().len()), (0, 0));
        }
    }
}

#[test]
fn the_host_overwrites_page_locked_memory_for_everybody() {
    for mode in ["other_streams", "always"] {
        let sim = sim(Completion::Manual);
        let conf = format!("scrub:{mode}");
        let device = allocator(sim.clone(), &conf);
        let (stream, pinned) = (device.create_stream().unwrap(), device.pinned().unwrap());
        let target = stream.allocate(512).unwrap();
        let mut secret = pinned.allocate(512).unwrap();
        secret.bytes_mut().unwrap().fill(7);
        stream.upload_pinned((&secret, 0), (&target, 0), 512).unwrap();
        let place = secret.host_address();
        drop(secret);
        let beside = pinned.allocate(512).unwrap();
        assert_ne!(beside.host_address(), place, "a copy is under way");
        stream.synchronize().unwrap();
        assert!(all_of(&device, &target).iter().all(|&byte| byte == 7), "the copy came before");
        let next = pinned.allocate(16).unwrap();
        assert_eq!((next.host_address(), next.capacity()), (place, 512));
        assert_eq!(next.bytes().unwrap(), [0; 16]);
        // The device sees the bytes behind the 16 bytes.
        let host = allocator_of_host(&sim, &conf);
        let home: Stream<Sim> = host.stream(stream.id()).unwrap();
        drop(next);
        let first = home.allocate(100).unwrap();
        occupy(&host, &first, 9);
        home.synchronize().unwrap();
        drop(first);
        let second = home.allocate(16).unwrap();
        assert_eq!(second.capacity(), 512);
        assert!(all_of(&host, &second).iter().all(|&byte| byte == 0));
    }
}

fn allocator_of_host(sim: &Sim, conf: &str) -> Allocator<Sim> {
    Allocator::builder(sim.clone()).class(ClassId(1)).conf(conf).build().unwrap()
}

#[test]
fn a_device_that_cannot_fill_refuses_the_setting() {
    let mute = || Sim::builder().transfer(false).name("mute").build();
    for mode in ["other_streams", "always"] {
        let error = Allocator::builder(mute()).conf(&format!("scrub:{mode}")).build().unwrap_err();
        assert!(matches!(error, BuildError::Unsupported { setting: "scrub", .. }), "{error}");
        assert_eq!(error.to_string(), "scrub needs fills, which mute does not have");
    }
    Allocator::builder(mute()).conf("scrub:off").build().unwrap();
}
