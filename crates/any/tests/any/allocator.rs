//! The methods of the allocator: what each changes, and that it tells what the typed form tells.

use millpond_any::millpond::events::{Event, Sink};
use millpond_any::millpond::settings::Policy;
use millpond_any::millpond_sim::Sim;
use millpond_any::{AnyAllocator, AnyDevice, ClassId, StreamId};

use crate::{on, two_streams};

const MIB: u64 = 1 << 20;

#[test]
fn statistics_are_those_of_the_typed_form() {
    let (sim, allocator, [one, two]) = two_streams();
    let typed = allocator.as_sim().expect("it is on the simulated device");
    let kept = one.allocate(5 * MIB).unwrap();
    drop(two.allocate(40 * MIB).unwrap());
    kept.record_stream(&two).unwrap();
    sim.busy(two.id());
    drop(one.allocate(1000).unwrap());

    assert_eq!(allocator.stats(), typed.stats());
    assert_eq!(allocator.page_stats(), typed.page_stats());
    assert_eq!(allocator.slack_stats(), typed.slack_stats());
    assert_eq!(allocator.ledger(), typed.ledger());
    assert_eq!(allocator.layout(), typed.layout());
    assert_eq!(allocator.memory_usage().unwrap(), typed.memory_usage().unwrap());
    assert_eq!(allocator.beyond_device(), typed.beyond_device());
    assert_eq!(allocator.driver_activity(), typed.driver_activity());
    assert_eq!(allocator.settings(), typed.settings());
    assert_eq!(allocator.class(), ClassId::DEVICE);
    assert_eq!(allocator.caps(), sim.caps_of());
    for abbreviated in [true, false] {
        assert_eq!(allocator.memory_summary(abbreviated), typed.memory_summary(abbreviated));
    }
    assert_ne!(allocator.memory_summary(true), allocator.memory_summary(false));

    let (live, reserved) = (allocator.memory_allocated(), allocator.memory_reserved());
    assert_eq!(live, 5 * MIB);
    assert_eq!(allocator.max_memory_allocated(), 45 * MIB);
    assert!(reserved > live && allocator.max_memory_reserved() >= reserved, "{reserved}");
    allocator.reset_peak_stats();
    assert_eq!(allocator.max_memory_allocated(), live);
    assert_eq!(allocator.max_memory_reserved(), reserved);
    assert!(allocator.stats().allocated_bytes.all.freed > 0);
    allocator.reset_accumulated_stats();
    assert_eq!(allocator.stats().allocated_bytes.all.freed, 0);
    allocator.check();
}

#[test]
fn memory_goes_back_to_the_driver() {
    let (_, allocator, [stream, _]) = two_streams();
    drop((stream.allocate(64 * MIB).unwrap(), stream.allocate(8 * MIB).unwrap()));
    let reserved = allocator.memory_reserved();
    let trimmed = allocator.trim(reserved / 2).unwrap();
    assert!(trimmed <= reserved / 2 && trimmed == allocator.memory_reserved(), "{trimmed} of {reserved}");
    drop(stream.allocate(64 * MIB).unwrap());
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_reserved(), 0);
}

#[test]
fn what_is_idle_is_released_under_direct() {
    let sim = Sim::builder().closing(millpond_any::millpond::backend::Closing::Submit).build();
    let allocator = AnyAllocator::builder(sim.clone().into()).conf("policy:direct").build().unwrap();
    let stream = allocator.create_stream().unwrap();
    for _ in 0..2 {
        let buffer = stream.allocate(MIB).unwrap();
        stream.fill(&buffer, 0, MIB, 1).unwrap();
        drop(buffer);
        assert!(allocator.memory_reserved() > 0, "the fill was not submitted");
        stream.synchronize().unwrap();
        allocator.poll().unwrap();
        assert_eq!(allocator.memory_reserved(), 0);
    }
}

#[test]
fn polling_retires_what_another_stream_is_done_with() {
    let sim = Sim::builder().stream_wait(false).build();
    let allocator = AnyAllocator::builder(sim.clone().into()).conf("policy:classic").build().unwrap();
    let (home, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let buffer = home.allocate(MIB).unwrap();
    sim.busy(other.id());
    buffer.record_stream(&other).unwrap();
    drop(buffer);
    let pending = || allocator.stats().active_bytes.all.current;
    allocator.poll().unwrap();
    assert_eq!(pending(), MIB);
    sim.complete_all();
    allocator.poll().unwrap();
    assert_eq!(pending(), 0);
}

#[test]
fn limits_hold_and_are_lifted() {
    let (_, allocator, [stream, _]) = two_streams();
    assert_eq!(allocator.limit(), None);
    allocator.set_limit(Some(32 * MIB));
    assert_eq!(allocator.limit(), Some(32 * MIB));
    assert!(stream.allocate(64 * MIB).unwrap_err().out_of_memory().is_some());
    allocator.set_limit(None);
    drop(stream.allocate(64 * MIB).unwrap());
    allocator.set_memory_fraction(0.5);
    assert_eq!(allocator.limit(), allocator.as_sim().unwrap().limit());
    assert!(allocator.limit().is_some());
    allocator.set_memory_fraction(1.0);
    assert_eq!(allocator.limit(), None);
}

#[test]
fn streams_are_found_by_number_and_buffers_are_freed_by_their_own() {
    let sim = Sim::new();
    let opened = sim.open_streams(1)[0];
    let (allocator, other) = (on(&sim), on(&Sim::new()));
    let stream = allocator.stream(opened).unwrap();
    assert_eq!(stream.id(), opened);
    assert!(allocator.stream(StreamId(7)).is_err());

    let buffer = allocator.allocate(3000, &stream).unwrap();
    assert_eq!(buffer.len(), 3000);
    let strange = other.create_stream().unwrap();
    assert!(allocator.allocate(1, &strange).is_err());
    let (error, buffer) = other.free(buffer).unwrap_err();
    assert!(error.to_string().contains("give it to the allocator"), "{error}");
    allocator.free(buffer).unwrap();
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn allocators_share_their_device() {
    let (sim, allocator, [stream, _]) = two_streams();
    let second = AnyAllocator::new(allocator.device());
    let _kept = second.stream(stream.id()).unwrap().allocate(MIB).unwrap();
    assert_eq!((allocator.memory_reserved(), second.memory_reserved()), (0, sim.held_bytes()));
    assert_eq!(allocator.device().caps().name, sim.caps_of().name);
    assert_eq!(format!("{:?}", allocator.device()), format!("AnyDevice(sim: {})", sim.caps_of().name));
}

#[test]
fn the_typed_form_comes_back_and_goes_in() {
    let (_, allocator, [stream, _]) = two_streams();
    let buffer = stream.allocate(100).unwrap();
    let names = [allocator.backend_name(), stream.backend_name(), buffer.backend_name()];
    assert_eq!(names, ["sim"; 3]);
    // A buffer of the typed form, from the same allocator.
    let typed = stream.as_sim().unwrap().allocate(100).unwrap();
    assert!(typed.segment().is_some() && buffer.as_sim().unwrap().segment().is_some());
    let erased = millpond_any::AnyBuffer::from(typed);
    stream.copy((&buffer, 0), (&erased, 0), 100).unwrap();
    assert_eq!(allocator.memory_allocated(), 1024);
    assert!(matches!(AnyDevice::from(Sim::new()), AnyDevice::Sim(_)));
    #[cfg(feature = "cuda")]
    assert!(allocator.as_cuda().is_none());
}

#[derive(Default)]
struct Grants(u64);

impl Sink for Grants {
    fn event(&mut self, event: &Event) {
        self.0 += u64::from(matches!(event, Event::Grant { .. }));
    }
}

#[test]
fn events_are_told_to_a_sink_until_it_is_taken() {
    let (_, allocator, [stream, _]) = two_streams();
    assert!(allocator.set_sink(Grants::default()).is_none());
    drop(stream.allocate(100).unwrap());
    assert_eq!(allocator.set_sink(Grants::default()).map(|replaced| replaced.0), Some(1));
    assert_eq!(allocator.take_sink::<Grants>().map(|sink| sink.0), Some(0));
    assert!(allocator.take_sink::<Grants>().is_none());
}

#[test]
fn a_new_allocator_has_the_default_settings() {
    let allocator = on(&Sim::new());
    assert!(matches!(allocator.settings().policy, Policy::Paged { .. }));
}

/// The device's facts, without the trait in scope.
trait CapsOf {
    fn caps_of(&self) -> &millpond_any::Caps;
}

impl CapsOf for Sim {
    fn caps_of(&self) -> &millpond_any::Caps {
        millpond_any::millpond::backend::Backend::caps(self)
    }
}
