//! The driver's result codes, as numbers.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;

use crate::driver::Driver;

/// What a driver call returned: a `CUresult` as a number, because newer drivers return codes that older headers lack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(
    /// The number.
    pub u32,
);

impl Code {
    /// `CUDA_SUCCESS`.
    pub const SUCCESS: Code = Code(0);
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Code = Code(1);
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: Code = Code(2);
    /// `CUDA_ERROR_NO_DEVICE`.
    pub const NO_DEVICE: Code = Code(100);
    /// `CUDA_ERROR_NOT_READY`: a regular result, not an error.
    pub const NOT_READY: Code = Code(600);
    /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
    pub const PEER_ACCESS_ALREADY_ENABLED: Code = Code(704);
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`: the legacy stream is queried while another stream is being captured.
    pub const STREAM_CAPTURE_IMPLICIT: Code = Code(906);
    /// `CUDA_ERROR_CAPTURED_EVENT`: the event was recorded into a graph and will never be complete.
    pub const CAPTURED_EVENT: Code = Code(907);

    /// The codes after which the context is of no further use, and every call on it returns the same code again:
    /// uncorrectable memory errors, errors of a kernel, a driver that is shutting down.
    const FATAL: &'static [u32] = &[4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 911];

    /// Returns whether the context is lost.
    pub fn is_fatal(self) -> bool {
        Code::FATAL.contains(&self.0)
    }

    /// Returns whether the call is not permitted because a stream is being captured.
    pub fn is_capture(self) -> bool {
        (900..=908).contains(&self.0)
    }

    /// Returns whether this is a result of querying a valid event that was recorded into a capture: one code while the
    /// capture lasts, and another when it is over (seen with the driver for CUDA 13.0).
    pub(crate) fn is_caught(self) -> bool {
        [Code::CAPTURED_EVENT, Code::INVALID_VALUE].contains(&self)
    }
}

/// Looks up the driver's text for a code.
fn text(look_up: unsafe extern "C" fn(u32, *mut *const c_char) -> u32, code: Code) -> Option<&'static str> {
    let mut text: *const c_char = ptr::null();
    // SAFETY: the pointer is to a local pointer, which the driver sets to a constant of its own.
    let found = unsafe { look_up(code.0, &raw mut text) } == 0 && !text.is_null();
    if !found {
        return None;
    }
    // SAFETY: the driver's texts end with a 0 and are constants of a library that is never unloaded.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = Driver::load().ok();
        let name = driver.and_then(|driver| text(driver.cuGetErrorName, *self));
        let meaning = driver.and_then(|driver| text(driver.cuGetErrorString, *self));
        match (name, meaning) {
            (Some(name), Some(meaning)) => write!(f, "{name} ({}, {meaning})", self.0),
            (Some(name), None) => write!(f, "{name} ({})", self.0),
            _ => write!(f, "CUDA error {}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatal_is_what_a_context_does_not_survive() {
        for fatal in [214, 700, 719] {
            assert!(Code(fatal).is_fatal(), "{fatal}");
        }
        for passing in [Code::SUCCESS, Code::OUT_OF_MEMORY, Code::NOT_READY, Code::CAPTURED_EVENT, Code(1), Code(999)] {
            assert!(!passing.is_fatal(), "{passing}");
        }
    }
}
