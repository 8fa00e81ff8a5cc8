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
    assert!(error.driver().is_none());
    let any = AnyError::from(error);
    assert_eq!(any.kind(), ErrorKind::OutOfMemory);
    assert!(any.out_of_memory().is_some() && any.driver().is_none());
}

#[test]
fn a_lost_device_is_told_with_the_drivers_error() {
    let (sim, _, [stream, _]) = two_streams();
    sim.kill();
    let error = stream.allocate(1 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(matches!(error, Error::Driver { lost: true, .. }), "{error:?}");
    let driver = error.driver().expect("the driver's error");
    let DriverError::Sim(of_sim) = driver else { panic!("not of the device: {driver:?}") };
    assert!(matches!(**of_sim, SimError::Lost), "{driver:?}");
    assert_eq!(driver.fault(), Fault::Lost);
    // The text has the driver's, and a chain of errors does not repeat it.
    assert!(error.to_string().contains(&driver.to_string()) && error.source().is_none(), "{error}");
}

#[test]
fn a_failed_call_is_told_with_its_name() {
    let (sim, _, [stream, _]) = two_streams();
    let buffer = stream.allocate(8).unwrap();
    sim.fail(CallKind::Transfer, 1, Fault::Other);
    let error = stream.fill(&buffer, 0, 8, 1).unwrap_err();
    assert!(matches!(error, Error::Driver { call: "fill", lost: false, .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Driver);
    sim.fail(CallKind::Transfer, 1, Fault::OutOfMemory);
    let error = stream.fill(&buffer, 0, 8, 1).unwrap_err();
    assert_eq!((error.kind(), error.out_of_memory().is_none()), (ErrorKind::OutOfMemory, true));
}

#[test]
fn what_is_of_another_allocator_is_refused_with_both_devices() {
    let (_, _, [stream, _]) = two_streams();
    let buffer = stream.allocate(8).unwrap();
    let (_, _, [strange, _]) = two_streams();
    let refused = [
        strange.fill(&buffer, 0, 8, 1),
        strange.upload(&buffer, 0, b"mill"),
        strange.download(&buffer, 0, &mut [0; 4]),
        buffer.record_stream(&strange),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(matches!(error, Error::WrongDevice { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Input);
    }
}

#[test]
fn every_error_of_an_allocator_is_passed_on_with_its_text() {
    let (stream, what) = (StreamId(3), "buffer");
    let (point, reached) = (Point { stream, tick: Tick(2) }, Tick(1));
    let errors = || -> Vec<(Error<DriverError>, ErrorKind)> {
        let (belongs_to, given_to) = ("device 1 (a pond)".into(), "device 2 (a lake)".into());
        vec![
            (Error::TooLarge { requested: 5 }, ErrorKind::Input),
            (Error::WrongDevice { what, belongs_to, given_to }, ErrorKind::Input),
            (Error::UnknownStream { stream }, ErrorKind::Input),
            (Error::NoStreams, ErrorKind::Input),
            (Error::SetAside { stream }, ErrorKind::Input),
            (Error::NotMarked { point, marked: reached }, ErrorKind::Input),
            (Error::Unsupported { what, device: "a pond".into(), advice: "swim" }, ErrorKind::Unsupported),
            (Error::OutOfRange { offset: 1, bytes: 2, len: 3 }, ErrorKind::Input),
            (Error::InUse { point, reached }, ErrorKind::NotReady),
            (Error::NotReached { point, reached }, ErrorKind::NotReady),
            (Error::Driver { call: "fly", lost: true, source: SimError::Lost.into() }, ErrorKind::Lost),
        ]
    };
    for ((error, kind), (same, _)) in errors().into_iter().zip(errors()) {
        assert_eq!(error.kind(), kind, "{same}");
        let any = AnyError::from(error);
        assert_eq!((any.to_string(), any.kind()), (same.to_string(), kind));
        assert_eq!(any.source().is_some(), same.source().is_some(), "{same}");
    }
}

#[test]
fn errors_can_be_sent_and_boxed() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<AnyError>();
    is_error::<DriverError>();
}

/// That is what a `main` prints that returns the error.
#[test]
fn the_debug_form_is_the_text_with_its_causes() {
    let mistake = millpond_any::open("sim", "policy:page").expect_err("a mistake");
    let text = mistake.to_string();
    assert!(text.contains("at byte 7"), "{text}");
    assert_eq!(format!("{mistake:?}"), text);
    let (sim, _, [stream, _]) = two_streams();
    sim.kill();
    let lost = AnyError::from(stream.submit().unwrap_err());
    assert_eq!(format!("{lost:?}"), lost.to_string());
    assert!(lost.to_string().starts_with("the driver failed in `submit`: the device is lost"), "{lost}");
}
