//! Recordings of what programs ask of a device's allocator, as traces.

use std::ffi::c_char;

use millpond_replay::Recorder;
use millpond_trace::Header;
use serde_json::{Map, Value};

use super::pond::on;
use super::ponds;
use crate::boundary;
use crate::code::Failure;

pub(super) extern "C" fn record_start(device: i32) -> i32 {
    boundary::status(|| {
        on!(ponds::get(device)?, of => Recorder::start(&of.allocator));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn record_stop(device: i32, path: *const c_char, header: *const c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid.
        let path = if path.is_null() { None } else { Some(unsafe { boundary::text("path", path) }?) };
        // SAFETY: as above.
        let header = if header.is_null() { "{}" } else { unsafe { boundary::text("header", header) }? };
        let header = parse(header)?;
        let trace = match ponds::opened(device)? {
            Some(pond) => on!(pond, of => Recorder::finish(&of.allocator)),
            None => None,
        };
        let mut trace = trace.ok_or_else(|| Failure::bad_argument(format!("device {device} is not being recorded")))?;
        let Some(path) = path else { return Ok(()) };
        trace.header = header;
        trace.write(path).map_err(|error| Failure::bad_argument(format!("{path}: {error}")))
    })
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
