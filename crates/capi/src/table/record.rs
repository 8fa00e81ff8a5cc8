//! Recordings of what programs ask of a device's allocator, as traces.

use std::ffi::c_char;
use std::path::Path;

use millpond_replay::Recorder;
use millpond_trace::{Header, Trace};
use serde_json::{Map, Value};

use super::opened;
use super::pond::on;
use super::ponds;
use crate::boundary::{self, Out};
use crate::code::Failure;

/// `millpond_core_recording` of the header: what a program asked for, from its start to its end.
pub struct Recording {
    trace: Trace,
}

impl Recording {
    fn write(&mut self, path: &Path, header: Header) -> Result<(), Failure> {
        self.trace.header = header;
        self.trace.write(path).map_err(|error| Failure::bad_argument(format!("{}: {error}", path.display())))
    }
}

pub(super) extern "C" fn record_start(device: i32) -> i32 {
    boundary::status(|| {
        on!(ponds::get(device)?, of => Recorder::start(&of.served.allocator));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn record_stop(device: i32, path: *const c_char, header: *const c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid.
        let (path, header) = unsafe { (path_of(path)?, header_of(header)?) };
        let mut recording = take(device)?;
        path.map_or(Ok(()), |path| recording.write(path, header))
    })
}

pub(super) unsafe extern "C" fn record_take(device: i32, out: *mut *mut Recording) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(Box::into_raw(Box::new(take(device)?)));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn recording_write(
    recording: *mut Recording,
    path: *const c_char,
    header: *const c_char,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid, and that no other call uses the recording.
        let (recording, path, header) = unsafe { (recording.as_mut(), path_of(path)?, header_of(header)?) };
        let recording = recording.ok_or_else(|| Failure::null("recording"))?;
        recording.write(path.ok_or_else(|| Failure::null("path"))?, header)
    })
}

pub(super) unsafe extern "C" fn recording_drop(recording: *mut Recording) {
    if !recording.is_null() {
        // SAFETY: the caller promises that `record_take` made it, and that it was not dropped before.
        drop(unsafe { Box::from_raw(recording) });
    }
}

pub(super) unsafe extern "C" fn header_check(header: *const c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        unsafe { header_of(header) }.map(drop)
    })
}

/// Ends the recording of a device.
fn take(device: i32) -> Result<Recording, Failure> {
    let trace = match opened::of_device(device)? {
        Some(pond) => on!(pond, of => Recorder::finish(&of.served.allocator)),
        None => None,
    };
    let trace = trace.ok_or_else(|| Failure::bad_argument(format!("device {device} is not being recorded")))?;
    Ok(Recording { trace })
}

/// Reads a path that may be left out.
///
/// # Safety
///
/// As for [`boundary::path`].
unsafe fn path_of<'a>(path: *const c_char) -> Result<Option<&'a Path>, Failure> {
    // SAFETY: as the caller promises.
    if path.is_null() { Ok(None) } else { unsafe { boundary::path("path", path) }.map(Some) }
}

/// Reads a header that may be left out.
///
/// # Safety
///
/// As for [`boundary::text`].
unsafe fn header_of(header: *const c_char) -> Result<Header, Failure> {
    // SAFETY: as the caller promises.
    parse(if header.is_null() { "{}" } else { unsafe { boundary::text("header", header) }? })
}

/// Parses the header of a trace.
fn parse(text: &str) -> Result<Header, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::bad_argument(format!("the header of the trace: {error}"));
    let values: Map<String, Value> = serde_json::from_str(text).map_err(|error| fault(&error))?;
    Header::new(values).map_err(|error| fault(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_an_object_with_values_of_the_right_kinds() {
        assert_eq!(parse(r#"{"workload": "one", "seconds": 2.5}"#).unwrap().workload(), Some("one"));
        for (wrong, part) in [("", "the header"), ("[]", "the header"), (r#"{"gpu": 3}"#, "gpu")] {
            assert!(parse(wrong).unwrap_err().text.contains(part), "{wrong}");
        }
    }
}
