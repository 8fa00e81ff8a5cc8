//! A device that is chosen at run time does what its typed form does.

use millpond_any::millpond::backend::{Backend, Closing};
use millpond_any::millpond::{Allocator, Buffer, Stream};
use millpond_any::millpond_sim::{Completion, Sim, SimBuilder};
use millpond_any::{AnyAllocator, AnyDevice};

use crate::{on, two_streams};

const MIB: u64 = 1 << 20;

/// Numbers from 0 to 2^31 - 1, always the same ones.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Runs a program of four streams that share and free each other's buffers, and returns what it left: statistics,
/// blocks and driver calls.
fn run<B: Backend>(sim: &Sim, backend: B, conf: &str) -> String {
    let allocator = Allocator::builder(backend).conf(conf).build().unwrap();
    let streams: Vec<Stream<B>> = (0..4).map(|_| allocator.create_stream().unwrap()).collect();
    let mut numbers = Numbers(7);
    let mut held: Vec<Buffer<B>> = Vec::new();
    for _ in 0..3000 {
        let stream = &streams[numbers.next() as usize % streams.len()];
        if held.len() > 40 || (numbers.next().is_multiple_of(3) && !held.is_empty()) {
            let buffer = held.swap_remove(numbers.next() as usize % held.len());
            // What is on its home stream so far has waited for the memory's last users.
            let home = streams.iter().find(|home| home.id() == buffer.stream()).unwrap();
            stream.wait_for(home.submit().unwrap()).unwrap();
            buffer.record_stream(stream).unwrap();
            stream.fill(&buffer, 0, 1, 1).unwrap();
        } else {
            held.push(stream.allocate(1 + numbers.next() % (6 * MIB)).unwrap());
        }
        if numbers.next().is_multiple_of(16) {
            stream.submit().unwrap();
        }
    }
    allocator.check();
    held.truncate(5);
    let activity = allocator.driver_activity();
    let left = format!(
        "{:?}\n{:?}\n{:?}\n{:?} {}",
        allocator.stats(),
        allocator.page_stats(),
        allocator.layout(),
        activity,
        sim.held_bytes()
    );
    drop((held, streams, allocator));
    sim.complete_all();
    assert_eq!(sim.violations(), []);
    left
}

#[test]
fn a_program_ends_as_it_does_on_the_typed_device() {
    let devices: [fn() -> SimBuilder; 3] = [
        Sim::builder,
        || Sim::builder().completion(Completion::Seeded(3)),
        || Sim::builder().closing(Closing::Submit).completion(Completion::Seeded(5)),
    ];
    for (at, device) in devices.into_iter().enumerate() {
        for conf in ["policy:paged", "policy:classic", "expandable_segments:True", "policy:direct"] {
            let (typed, chosen) = (device().build(), device().build());
            let expected = run(&typed, typed.clone(), conf);
            assert_eq!(run(&chosen, AnyDevice::from(chosen.clone()), conf), expected, "device {at}, {conf}");
            assert!(chosen.held_bytes() == typed.held_bytes(), "device {at}, {conf}");
        }
    }
}

#[test]
fn a_device_announces_what_its_typed_form_announces() {
    let devices = [Sim::new(), Sim::builder().pages(None).transfer(false).stream_wait(false).budget(false).build()];
    for sim in devices {
        let any = AnyDevice::from(sim.clone());
        assert_eq!(any.caps(), sim.caps());
        assert_eq!(any.virtual_memory().is_some(), sim.virtual_memory().is_some());
        assert_eq!(any.stream_wait().is_some(), sim.stream_wait().is_some());
        assert_eq!(any.host_memory().is_some(), sim.host_memory().is_some());
        assert_eq!(any.transfer().is_some(), sim.transfer().is_some());
        assert_eq!(Backend::budget(&any).is_some(), Backend::budget(&sim).is_some());
        let stream = any.create_stream().unwrap();
        assert!(any.has_stream(stream) && any.takes_work(stream) && sim.has_stream(stream));
        sim.busy(stream);
        assert_eq!(any.open_tick(stream), sim.open_tick(stream));
        assert_eq!((any.driver_clock(), any.work_clock()), (sim.driver_clock(), sim.work_clock()));
        assert_eq!(format!("{any:?}"), format!("AnyDevice(sim: {})", sim.caps().name));
    }
}

#[test]
fn the_typed_segment_comes_back() {
    let (sim, allocator, [stream, _]) = two_streams();
    let buffer = stream.allocate(100).unwrap();
    let segment = buffer.segment().unwrap();
    assert_eq!((allocator.backend().backend_name(), segment.backend_name()), ("sim", "sim"));
    let typed = segment.as_sim().expect("it is on the simulated device");
    assert_eq!(sim.address(typed).map(|start| start + buffer.offset()), buffer.address());
    assert!(matches!(AnyDevice::from(Sim::new()), AnyDevice::Sim(_)));
    #[cfg(feature = "cuda")]
    assert!(segment.as_cuda().is_none() && allocator.backend().as_cuda().is_none());
}

#[test]
fn allocators_share_their_device() {
    let (sim, allocator, [stream, _]) = two_streams();
    let second = AnyAllocator::new(allocator.backend().clone());
    let _kept = second.stream(stream.id()).unwrap().allocate(MIB).unwrap();
    assert_eq!((allocator.memory_reserved(), second.memory_reserved()), (0, sim.held_bytes()));
}

#[test]
fn what_an_allocator_leaves_goes_back_once_its_work_is_done() {
    let sim = Sim::builder().closing(Closing::Submit).build();
    let allocator = on(&sim);
    let stream = allocator.create_stream().unwrap();
    let (id, buffer) = (stream.id(), stream.allocate(MIB).unwrap());
    stream.fill(&buffer, 0, MIB, 1).unwrap();
    drop((buffer, stream, allocator));
    assert!(sim.held_bytes() > 0, "the fill was not submitted");
    AnyDevice::from(sim.clone()).submit(id).unwrap();
    assert_eq!(sim.held_bytes(), 0);
}

#[test]
fn page_locked_memory_and_futures_work_on_it() {
    let (_, allocator, [stream, _]) = two_streams();
    let pinned = allocator.pinned().unwrap();
    let (on_device, mut host) = (stream.allocate(8).unwrap(), pinned.allocate(8).unwrap());
    host.bytes_mut().unwrap().copy_from_slice(b"millpond");
    stream.upload_pinned((&host, 0), (&on_device, 0), 8).unwrap();
    let elements: millpond_any::AnyDownload<u8> = stream.download_async(&on_device).unwrap();
    let reached: millpond_any::AnyReached = stream.when_done().unwrap();
    assert_eq!(pollster::block_on(elements).unwrap(), b"millpond");
    pollster::block_on(reached).unwrap();
}
