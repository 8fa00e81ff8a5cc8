//! Page-locked host memory: when it is granted again, and what is refused.

use std::thread;

use millpond::backend::{ClassId, Closing, Fault, Reuse};
use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond::{Allocator, Error, Pinned, Stream};
use millpond_sim::{CallKind, Completion, Sim, SimBuilder};

const MIB: u64 = 1 << 20;
const PINNED: ClassId = ClassId(1);

struct Scene {
    sim: Sim,
    allocator: Allocator<Sim>,
    pinned: Pinned<Sim>,
    streams: [Stream<Sim>; 2],
}

fn scene_of(builder: SimBuilder) -> Scene {
    let sim = builder.completion(Completion::Manual).build();
    let allocator = Allocator::new(sim.clone());
    let streams = [allocator.create_stream().unwrap(), allocator.create_stream().unwrap()];
    let pinned = allocator.pinned().unwrap();
    Scene { sim, allocator, pinned, streams }
}

fn scene() -> Scene {
    scene_of(Sim::builder())
}

/// Checks at the end of each test that the allocators' invariants hold, and that nothing was touched too early.
impl Drop for Scene {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.pinned.cache().check();
            self.allocator.check();
            assert_eq!(self.sim.violations(), []);
        }
    }
}

#[test]
fn a_host_class_is_reused_only_when_the_device_is_done_with_it() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    for policy in ["policy:auto", "policy:classic"] {
        let allocator = Allocator::builder(sim.clone()).class(PINNED).conf(policy).build().unwrap();
        assert_eq!(allocator.settings().policy, Policy::Classic(Segments::Plain), "host memory has no pages");
        let stream = allocator.create_stream().unwrap();
        let first = stream.allocate(4096).unwrap();
        let place = first.address();
        sim.busy(stream.id());
        drop(first);
        let second = stream.allocate(4096).unwrap();
        assert_ne!(second.address(), place, "{policy:?}: the kernel still runs, and the host may write");
        sim.complete(stream.id());
        assert_eq!(stream.allocate(4096).unwrap().address(), place, "{policy:?}");
    }
    assert_eq!(sim_reuse(&sim), Reuse::InOrder, "on the device's own memory nothing has changed");
}

fn sim_reuse(sim: &Sim) -> Reuse {
    millpond::backend::Backend::caps(sim).reuse_of(ClassId::DEVICE)
}

#[test]
fn a_buffer_that_is_dropped_goes_to_others_only_after_its_copies() {
    let scene = scene();
    let [first, second] = &scene.streams;
    let targets = [first.allocate(4096).unwrap(), second.allocate(4096).unwrap()];
    let mut batch = scene.pinned.allocate(4096).unwrap();
    let place = batch.address();
    batch.bytes_mut().unwrap().fill(1);
    first.upload_pinned((&batch, 0), (&targets[0], 0), 4096).unwrap();
    second.upload_pinned((&batch, 0), (&targets[1], 0), 4096).unwrap();
    drop(batch);
    assert_eq!(scene.pinned.cache().ledger().waiting_bytes, 4096);
    for (stream, done) in [(first, false), (second, true)] {
        let mut next = scene.pinned.allocate(4096).unwrap();
        assert_ne!(next.address(), place, "a copy from it is under way");
        next.bytes_mut().unwrap().fill(2);
        drop(next);
        scene.sim.complete(stream.id());
        assert_eq!(scene.pinned.allocate(4096).unwrap().address() == place, done);
    }
    for (stream, target) in scene.streams.iter().zip(&targets) {
        let mut arrived = [0; 4096];
        stream.download(target, 0, &mut arrived).unwrap();
        assert_eq!(arrived, [1; 4096]);
    }
}

#[test]
fn the_host_is_kept_out_while_the_device_is_in_the_way() {
    let scene = scene();
    let [stream, _] = &scene.streams;
    let device = stream.allocate(8).unwrap();
    let mut pinned = scene.pinned.allocate(8).unwrap();
    pinned.bytes_mut().unwrap().copy_from_slice(b"millpond");
    stream.upload_pinned((&pinned, 0), (&device, 0), 8).unwrap();
    assert_eq!(pinned.bytes().unwrap(), b"millpond", "the device reads as well");
    let error = pinned.bytes_mut().unwrap_err();
    assert!(matches!(error, Error::InUse { point, .. } if point.stream == stream.id()), "{error}");
    assert_eq!(error.fault(), Fault::Other);
    assert!(error.to_string().contains("wait"), "{error}");
    pinned.wait().unwrap();
    pinned.bytes_mut().unwrap().fill(b'.');

    stream.download_pinned((&device, 4), (&mut pinned, 0), 4).unwrap();
    assert!(matches!(pinned.bytes(), Err(Error::InUse { .. })), "the device writes");
    scene.sim.complete(stream.id());
    assert_eq!(pinned.bytes().unwrap(), b"pond....");
    pinned.record_use(stream).unwrap();
    assert_eq!(pinned.bytes().unwrap(), b"pond....", "what was queued so far is over already");
    scene.sim.busy(stream.id());
    pinned.record_use(stream).unwrap();
    assert!(matches!(pinned.bytes(), Err(Error::InUse { .. })), "nobody knows what that kernel does");
    scene.sim.complete(stream.id());
}

/// Two copies of one kind are under way on a stream: the host is kept out until the later one is over.
#[test]
fn the_later_of_two_uses_counts() {
    let scene = scene();
    let [stream, _] = &scene.streams;
    let device = stream.allocate(8).unwrap();
    let mut pinned = scene.pinned.allocate(8).unwrap();
    for writes in [true, false] {
        for _ in 0..2 {
            match writes {
                true => stream.download_pinned((&device, 0), (&mut pinned, 0), 8).unwrap(),
                false => stream.upload_pinned((&pinned, 0), (&device, 0), 8).unwrap(),
            }
        }
        for left in [2, 1] {
            assert!(matches!(pinned.bytes_mut(), Err(Error::InUse { .. })), "{left} copies are under way");
            assert_eq!(pinned.bytes().is_err(), writes, "{left} copies are under way");
            assert!(scene.sim.complete_one(stream.id()));
        }
        assert!(pinned.bytes_mut().is_ok() && pinned.bytes().is_ok());
    }
}

/// Copies of two kinds, or on two streams, are noted apart: one that is over says nothing of another.
#[test]
fn uses_of_each_kind_and_each_stream_count() {
    let scene = scene();
    let [first, second] = &scene.streams;
    let devices = [first, second].map(|stream| stream.allocate(8).unwrap());
    let mut pinned = scene.pinned.allocate(8).unwrap();
    first.upload_pinned((&pinned, 0), (&devices[0], 0), 8).unwrap();
    first.download_pinned((&devices[0], 0), (&mut pinned, 0), 8).unwrap();
    assert!(matches!(pinned.bytes(), Err(Error::InUse { .. })), "behind a copy from it there is one to it");
    scene.sim.complete(first.id());
    assert!(pinned.bytes_mut().is_ok());
    for (done, left) in [(first, second), (second, first)] {
        let mut pinned = scene.pinned.allocate(8).unwrap();
        for (stream, device) in [first, second].into_iter().zip(&devices) {
            stream.upload_pinned((&pinned, 0), (device, 0), 8).unwrap();
        }
        scene.sim.complete(done.id());
        let refused = pinned.bytes_mut().unwrap_err();
        assert!(matches!(refused, Error::InUse { point, .. } if point.stream == left.id()), "{refused}");
        pinned.wait().unwrap();
        assert!(pinned.bytes_mut().is_ok(), "it was waited for");
    }
    let mut pinned = scene.pinned.allocate(8).unwrap();
    for (stream, device) in [first, second].into_iter().zip(&devices) {
        stream.upload_pinned((&pinned, 0), (device, 0), 8).unwrap();
    }
    pinned.wait().unwrap();
    assert!(pinned.bytes_mut().is_ok(), "a wait is for all of them");
}

#[test]
fn a_wait_submits_where_the_application_does() {
    let scene = scene_of(Sim::builder().closing(Closing::Submit));
    let [stream, other] = &scene.streams;
    let device = stream.allocate(8).unwrap();
    let mut pinned = scene.pinned.allocate(8).unwrap();
    let place = pinned.address();
    stream.fill(&device, 0, 8, 7).unwrap();
    stream.download_pinned((&device, 0), (&mut pinned, 0), 8).unwrap();
    assert!(pinned.bytes().is_err());
    pinned.wait().unwrap();
    assert_eq!(pinned.bytes().unwrap(), [7; 8]);
    stream.upload_pinned((&pinned, 0), (&device, 0), 8).unwrap();
    stream.submit().unwrap();
    let open = stream.point();
    pinned.wait().unwrap();
    assert_eq!(stream.point(), open, "what is submitted is not submitted again");
    drop(pinned);
    let again = scene.pinned.allocate(8).unwrap();
    assert_eq!(again.address(), place, "the pool's own stream is never submitted, and never waited for");
    // This work waits for work that is not submitted.
    stream.wait_for(other.point()).unwrap();
    stream.upload_pinned((&again, 0), (&device, 0), 8).unwrap();
    assert!(matches!(again.wait(), Err(Error::NotReached { .. })));
    other.synchronize().unwrap();
    again.wait().unwrap();
    drop(again);
    scene.pinned.cache().empty_cache().unwrap();
    assert_eq!(scene.pinned.cache().memory_reserved(), 0, "nor does its memory wait for that stream");
}

#[test]
fn one_pool_serves_every_stream_and_thread() {
    let sim = Sim::builder().completion(Completion::Seeded(7)).build();
    let allocator = Allocator::new(sim.clone());
    let pinned = allocator.pinned().unwrap();
    thread::scope(|scope| {
        for number in 0..2_u8 {
            let (pinned, stream) = (pinned.clone(), allocator.create_stream().unwrap());
            scope.spawn(move || {
                let targets: Vec<_> = (0..8).map(|_| stream.allocate(4096).unwrap()).collect();
                for round in 0..40_u8 {
                    for (at, target) in targets.iter().enumerate() {
                        let mut batch = pinned.allocate(4096).unwrap();
                        batch.bytes_mut().unwrap().fill(number ^ round ^ (at as u8) << 2);
                        stream.upload_pinned((&batch, 0), (target, 0), 4096).unwrap();
                    }
                    for (at, target) in targets.iter().enumerate() {
                        let mut arrived = [0; 4096];
                        stream.download(target, 0, &mut arrived).unwrap();
                        assert_eq!(arrived, [number ^ round ^ (at as u8) << 2; 4096], "round {round}, target {at}");
                    }
                }
            });
        }
    });
    sim.synchronize();
    let cache = pinned.cache();
    cache.poll().unwrap();
    assert_eq!((cache.memory_allocated(), cache.ledger().waiting_bytes), (0, 0));
    assert!(cache.max_memory_reserved() <= 40 * 4096, "{} for 16 buffers at a time", cache.max_memory_reserved());
    cache.check();
    assert_eq!(sim.violations(), []);
}

#[test]
fn what_belongs_elsewhere_is_refused() {
    let (here, there) = (scene(), scene());
    let (device, foreign) = (here.streams[0].allocate(8).unwrap(), there.streams[0].allocate(8).unwrap());
    let mut pinned = here.pinned.allocate(8).unwrap();
    let wrong = |answer: Result<(), Error<_>>, expected: &str| match answer {
        Err(Error::WrongDevice { what, .. }) => assert_eq!(what, expected),
        other => panic!("{other:?}"),
    };
    wrong(there.streams[0].upload_pinned((&pinned, 0), (&foreign, 0), 8), "stream");
    wrong(here.streams[0].upload_pinned((&pinned, 0), (&foreign, 0), 8), "buffer");
    wrong(there.streams[0].download_pinned((&device, 0), (&mut pinned, 0), 8), "buffer");
    wrong(pinned.record_use(&there.streams[0]), "stream");
    let outside = here.streams[0].upload_pinned((&pinned, 1), (&device, 0), 8);
    assert!(matches!(outside, Err(Error::OutOfRange { offset: 1, bytes: 8, len: 8 })), "{outside:?}");
    assert!(pinned.bytes_mut().is_ok(), "what was refused is not in use");
    let paged = Settings { policy: Policy::paged(Growth::Balanced), ..Settings::default() };
    for (class, settings) in [(ClassId::DEVICE, Settings::for_host()), (PINNED, paged)] {
        let refused = here.allocator.pinned_with(class, settings);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
}

/// A plain buffer would lie in a segment with pinned ones, and any transfer may write to its segment.
#[test]
fn nobody_gets_a_plain_buffer_of_the_cache() {
    let scene = scene();
    let cache = scene.pinned.cache();
    let pinned = scene.pinned.allocate(8).unwrap();
    let home = cache.layout()[0].stream;
    for id in [home, scene.streams[0].id()] {
        assert!(matches!(cache.stream(id), Err(Error::NoStreams)), "{id}");
    }
    let streams = scene.sim.calls().create_stream;
    let error = cache.create_stream().unwrap_err();
    assert!(matches!(error, Error::NoStreams) && error.to_string().contains("Pinned::allocate"), "{error}");
    assert_eq!(scene.sim.calls().create_stream, streams, "none was opened in vain");
    let foreign = cache.allocate(8, &scene.streams[0]).unwrap_err();
    assert!(matches!(foreign, Error::WrongDevice { what: "stream", .. }), "{foreign}");
    let named = scene.allocator.stream(home).unwrap_err();
    assert!(matches!(named, Error::SetAside { stream } if stream == home), "{named}");
    assert_eq!(pinned.len(), 8);
}

#[test]
fn nothing_is_somewhere_too() {
    let scene = scene();
    let mut none = scene.pinned.allocate(0).unwrap();
    assert!(none.is_empty() && none.address().is_none());
    assert!(none.bytes_mut().unwrap().is_empty());
    let device = scene.streams[0].allocate(8).unwrap();
    scene.streams[0].upload_pinned((&none, 0), (&device, 0), 0).unwrap();
    scene.streams[0].download_pinned((&device, 0), (&mut none, 0), 0).unwrap();
    assert_eq!((none.bytes().unwrap().len(), scene.pinned.cache().memory_reserved()), (0, 0));
}

#[test]
fn it_gives_everything_back() {
    let scene = scene();
    let cache = scene.pinned.cache();
    let [stream, _] = &scene.streams;
    let kept = scene.pinned.allocate(3 * MIB).unwrap();
    let used = scene.pinned.allocate(5 * MIB).unwrap();
    scene.sim.busy(stream.id());
    used.record_use(stream).unwrap();
    drop(used);
    assert_eq!(cache.trim(0).unwrap(), 3 * MIB, "a trim waits for what is under way, and leaves what is live");
    drop(kept);
    cache.empty_cache().unwrap();
    assert_eq!(cache.memory_reserved(), 0);
    let used = scene.pinned.allocate(5 * MIB).unwrap();
    scene.sim.busy(stream.id());
    used.record_use(stream).unwrap();
    let calls = scene.sim.calls();
    // The last buffer outlives the cache and the allocator.
    let (allocator, pinned) = (Allocator::new(scene.sim.clone()), scene.allocator.pinned().unwrap());
    let last = pinned.allocate(MIB).unwrap();
    drop((allocator, pinned));
    drop(last);
    drop(used);
    let since = scene.sim.calls().since(&calls);
    assert_eq!((since.reserve, since.release), (1, 1), "the cache that is gone has given its memory back");
}

#[test]
fn the_hosts_want_of_memory_is_told_in_numbers() {
    let scene = scene_of(Sim::builder().pinned_bytes(64 * MIB));
    let cache = scene.pinned.cache();
    let kept = scene.pinned.allocate(40 * MIB).unwrap();
    let Err(Error::OutOfMemory(error)) = scene.pinned.allocate(40 * MIB) else { panic!("there are 64 MiB") };
    assert_eq!((error.report().requested_bytes, error.report().reserved_bytes), (40 * MIB, 40 * MIB));
    assert!(error.to_string().contains("out of memory of the class pinned on device 0"), "{error}");
    drop(kept);
    drop(scene.pinned.allocate(64 * MIB).unwrap());
    // Cached memory serves a request whatever the limit is.
    cache.empty_cache().unwrap();
    cache.set_limit(Some(32 * MIB));
    let Err(Error::OutOfMemory(error)) = scene.pinned.allocate(33 * MIB + 1) else { panic!("there is a limit") };
    assert_eq!(error.report().limit_bytes, Some(32 * MIB));
    drop(scene.pinned.allocate(32 * MIB).unwrap());
    scene.sim.fail(CallKind::Reserve, 1, Fault::Other);
    cache.empty_cache().unwrap();
    assert!(matches!(scene.pinned.allocate(8), Err(Error::Driver { call: "reserve", .. })));
    assert!(cache.memory_summary(false).contains("memory summary"));
}
