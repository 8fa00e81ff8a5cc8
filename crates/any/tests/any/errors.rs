//! What errors tell.

use std::error::Error as _;

use millpond_any::millpond::Error;
use millpond_any::millpond::backend::{BackendError, Fault};
use millpond_any::millpond_sim::{CallKind, Sim, SimError};
use millpond_any::{AnyError, DriverError, ErrorKind, Point, StreamId, Tick};

use crate::{on, two_streams};

#[test]
fn out_of_memory_has_its_report() {
    let allocator = on(&Sim::builder().total_bytes(64 << 20).build());
    let stream = allocator.create_stream().unwrap();
    let _kept = stream.allocate(40 << 20).unwrap();
    let error = stream.allocate(30 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let report = error.out_of_memory().expect("the report").report();
    assert_eq!((report.requested_bytes, report.allocated_bytes), (30 << 20, 40 << 20));
    let typed = stream.as_sim().unwrap().allocate(30 << 20).unwrap_err();
    assert_eq!(error.to_string(), typed.to_string());
    assert!(error.driver().is_none());
}

#[test]
fn a_lost_device_is_told_with_the_drivers_error() {
    let (sim, _, [stream, _]) = two_streams();
    sim.kill();
    let error = stream.allocate(1 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(matches!(error, AnyError::Allocator(Error::Driver { lost: true, .. })), "{error:?}");
    let driver = error.driver().expect("the driver's error");
    let DriverError::Sim(of_sim) = driver else { panic!("not of the device: {driver:?}") };
    assert!(matches!(**of_sim, SimError::Lost), "{driver:?}");
    assert_eq!(driver.fault(), Fault::Lost);
    let source = error.source().expect("a source");
    assert_eq!(source.to_string(), driver.to_string());
    assert!(source.downcast_ref::<DriverError>().is_some());
}

#[test]
fn a_failed_call_is_told_with_its_name() {
    let (sim, _, [stream, _]) = two_streams();
    let buffer = stream.allocate(8).unwrap();
    sim.fail(CallKind::Transfer, 1, Fault::Other);
    let error = stream.fill(&buffer, 0, 8, 1).unwrap_err();
    assert!(matches!(error, AnyError::Allocator(Error::Driver { call: "fill", lost: false, .. })), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Driver);
    sim.fail(CallKind::Transfer, 1, Fault::OutOfMemory);
    let error = stream.fill(&buffer, 0, 8, 1).unwrap_err();
    assert_eq!((error.kind(), error.out_of_memory().is_none()), (ErrorKind::OutOfMemory, true));
}

#[test]
fn bad_input_names_its_values() {
    let (_, _, [stream, _]) = two_streams();
    let error = stream.allocate(1 << 60).unwrap_err();
    assert!(matches!(error, AnyError::Allocator(Error::TooLarge { requested }) if requested == 1 << 60), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Input);
    let buffer = stream.allocate(8).unwrap();
    let error = stream.upload(&buffer, 4, b"millpond").unwrap_err();
    assert!(matches!(error, AnyError::Allocator(Error::OutOfRange { offset: 4, bytes: 8, len: 8 })), "{error:?}");
    let (_, _, [strange, _]) = two_streams();
    let refused = [
        strange.fill(&buffer, 0, 8, 1),
        strange.upload(&buffer, 0, b"mill"),
        strange.download(&buffer, 0, &mut [0; 4]),
        buffer.record_stream(&strange),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(matches!(error, AnyError::Allocator(Error::WrongDevice { .. })), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Input);
    }
}

#[test]
fn what_the_device_lacks_is_unsupported() {
    let allocator = on(&Sim::builder().stream_wait(false).transfer(false).build());
    let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let buffer = stream.allocate(8).unwrap();
    let lacking = [stream.wait_for(other.point()), stream.fill(&buffer, 0, 8, 1), stream.synchronize()];
    let kinds = lacking.map(|result| result.map_err(|error| error.kind()));
    assert_eq!(kinds, [Err(ErrorKind::Unsupported), Err(ErrorKind::Unsupported), Ok(())]);
}

#[test]
fn every_typed_error_is_passed_on_with_its_text() {
    let (stream, what) = (StreamId(3), "buffer");
    let (point, reached) = (Point { stream, tick: Tick(2) }, Tick(1));
    let typed = || -> Vec<(Error<SimError>, ErrorKind)> {
        vec![
            (Error::TooLarge { requested: 5 }, ErrorKind::Input),
            (Error::WrongDevice { what, belongs_to: "device 1".into(), given_to: "device 2".into() }, ErrorKind::Input),
            (Error::UnknownStream { stream }, ErrorKind::Input),
            (Error::NoStreams, ErrorKind::Input),
            (Error::SetAside { stream }, ErrorKind::Input),
            (Error::NotMarked { point, marked: reached }, ErrorKind::Input),
            (Error::Unsupported { what, device: "a pond".into(), advice: "swim" }, ErrorKind::Unsupported),
            (Error::OutOfRange { offset: 1, bytes: 2, len: 3 }, ErrorKind::Input),
            (Error::InUse { point, reached }, ErrorKind::NotReady),
            (Error::NotReached { point, reached }, ErrorKind::NotReady),
            (Error::Driver { call: "fly", lost: true, source: SimError::Lost }, ErrorKind::Lost),
        ]
    };
    for ((error, kind), (same, _)) in typed().into_iter().zip(typed()) {
        let erased = AnyError::from(error);
        assert_eq!((erased.to_string(), erased.kind()), (same.to_string(), kind));
        assert_eq!(erased.source().is_some(), same.source().is_some(), "{same}");
    }
}

#[test]
fn errors_can_be_sent_and_boxed() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<AnyError>();
    is_error::<DriverError>();
}
