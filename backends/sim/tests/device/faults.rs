//! Planned failures of each kind of call, the lost device, and the counters.

use millpond_backend::{Backend, BackendError, Budget, ClassId, Fault, Point, StreamWait, Transfer, VirtualMemory};
use millpond_sim::{CallKind, Calls, Planned, Sim, SimError, Work};

const MIB: u64 = 1 << 20;

/// Makes one driver call of the kind on a device that has at least two streams.
fn call(sim: &Sim, kind: CallKind) -> Result<(), SimError> {
    let streams = sim.open_streams(2);
    call_on(sim, kind, streams[0], streams[1])
}

fn call_on(
    sim: &Sim,
    kind: CallKind,
    stream: millpond_backend::StreamId,
    other: millpond_backend::StreamId,
) -> Result<(), SimError> {
    let point = |stream| Point { stream, tick: sim.mark(stream) };
    match kind {
        CallKind::Reserve => sim.reserve(ClassId::DEVICE, MIB).map(drop),
        CallKind::ReserveRange => sim.reserve_range(ClassId::DEVICE, 2 * MIB).map(drop),
        CallKind::CreatePage => sim.create_page(ClassId::DEVICE, 2 * MIB).map(drop),
        CallKind::Map => {
            let range = sim.reserve_range(ClassId::DEVICE, 2 * MIB).unwrap();
            let page = sim.create_page(ClassId::DEVICE, 2 * MIB).unwrap();
            // SAFETY: the range is new, so nothing is mapped there.
            unsafe { sim.map(&range, 0, &page, stream) }
        }
        CallKind::Reached => {
            sim.mark(stream);
            sim.reached(stream).map(drop)
        }
        CallKind::Wait => {
            sim.busy(stream);
            sim.wait(point(stream)).map(drop)
        }
        CallKind::StreamWait => StreamWait::wait_for(sim, other, point(stream)),
        CallKind::Transfer => {
            let segment = sim.reserve(ClassId::DEVICE, MIB).unwrap();
            sim.fill(stream, &segment, 0, 1, 0)
        }
        CallKind::Budget => Budget::budget(sim, ClassId::DEVICE).map(drop),
        CallKind::CreateStream => sim.create_stream().map(drop),
        infallible => panic!("{infallible} cannot fail"),
    }
}

#[test]
fn every_fallible_call_can_be_made_to_fail_once() {
    for kind in CallKind::ALL.iter().copied().filter(|kind| kind.fallible()) {
        let sim = Sim::new();
        let streams = sim.open_streams(2);
        for fault in [Fault::OutOfMemory, Fault::Other] {
            sim.fail(kind, 2, fault);
            assert_eq!(call_on(&sim, kind, streams[0], streams[1]), Ok(()), "{kind}: the first goes through");
            let error = call_on(&sim, kind, streams[0], streams[1]).unwrap_err();
            assert_eq!(error, SimError::Planned(Planned { call: kind.name(), fault }));
            assert_eq!(error.fault(), fault);
            assert_eq!(call_on(&sim, kind, streams[0], streams[1]), Ok(()), "{kind}: the third goes through");
        }
        assert!(sim.calls().of(kind) >= 6, "{kind} was counted {} times", sim.calls().of(kind));
    }
}

#[test]
fn a_failed_call_changes_nothing() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    sim.fail(CallKind::Reserve, 1, Fault::OutOfMemory);
    assert!(sim.reserve(ClassId::DEVICE, MIB).is_err());
    let info = Budget::budget(&sim, ClassId::DEVICE).unwrap();
    assert_eq!(info.free_bytes, info.total_bytes);
    sim.fail(CallKind::Reached, 1, Fault::Other);
    let tick = sim.mark(stream);
    assert!(sim.reached(stream).is_err());
    assert_eq!(sim.mark(stream), tick, "the failed query closed nothing");
    assert_eq!(sim.reached(stream).unwrap(), tick);
    sim.fail(CallKind::CreateStream, 1, Fault::Other);
    assert!(sim.create_stream().is_err());
    assert_eq!(sim.create_stream().unwrap().0, 1, "ids stay dense");
}

#[test]
fn fail_any_counts_calls_of_all_kinds() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    sim.fail_any(3, Fault::Other);
    let segment = sim.reserve(ClassId::DEVICE, MIB).unwrap();
    sim.fill(stream, &segment, 0, 1, 0).unwrap();
    // SAFETY: the fill completed at once and nothing else touches the segment.
    unsafe { sim.release(segment) };
    sim.launch(stream, Work::Kernel);
    let error = sim.create_page(ClassId::DEVICE, 2 * MIB).map(drop).unwrap_err();
    assert_eq!(error, SimError::Planned(Planned { call: CallKind::CreatePage.name(), fault: Fault::Other }));
}

#[test]
fn a_lost_device_refuses_every_fallible_call() {
    for kind in CallKind::ALL.iter().copied().filter(|kind| kind.fallible() && *kind != CallKind::Map) {
        let sim = Sim::new();
        let streams = sim.open_streams(2);
        let segment = sim.reserve(ClassId::DEVICE, MIB).unwrap();
        sim.kill();
        let answer = match kind {
            CallKind::Transfer => sim.fill(streams[0], &segment, 0, 1, 0),
            _ => call_on(&sim, kind, streams[0], streams[1]),
        };
        assert_eq!(answer, Err(SimError::Lost), "{kind}");
        assert_eq!(answer.unwrap_err().fault(), Fault::Lost);
        // SAFETY: no work touches the segment.
        unsafe { sim.release(segment) };
    }
}

#[test]
fn a_planned_loss_kills_the_device() {
    let sim = Sim::new();
    sim.open_streams(2);
    sim.fail(CallKind::Budget, 1, Fault::Lost);
    let error = call(&sim, CallKind::Budget).unwrap_err();
    assert_eq!(error.fault(), Fault::Lost);
    assert_eq!(sim.create_stream(), Err(SimError::Lost));
}

#[test]
#[should_panic(expected = "unmap cannot fail")]
fn a_fault_for_an_infallible_call_is_refused() {
    Sim::new().fail(CallKind::Unmap, 1, Fault::Other);
}

#[test]
fn calls_are_counted_by_kind_and_in_total() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    let before = sim.calls();
    assert_eq!(before, Calls { create_stream: 1, ..Calls::default() });
    let range = sim.reserve_range(ClassId::DEVICE, 2 * MIB).unwrap();
    let page = sim.create_page(ClassId::DEVICE, 2 * MIB).unwrap();
    // SAFETY: the range is new, no work touches it, and it is empty again before its release.
    unsafe {
        sim.map(&range, 0, &page, stream).unwrap();
        sim.unmap(&range, 0, &page, stream);
        sim.release_page(page);
        sim.release_range(range);
    }
    let expected = Calls {
        reserve_range: 1,
        create_page: 1,
        map: 1,
        unmap: 1,
        release_page: 1,
        release_range: 1,
        ..Calls::default()
    };
    let more = sim.calls().since(&before);
    assert_eq!(more, expected);
    assert_eq!((more.total(), more.of(CallKind::Map)), (6, 1));
}
