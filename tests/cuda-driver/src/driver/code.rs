//! The driver's result codes.

use std::ffi::CStr;

/// A `CUresult` as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) u32);

/// The result of a call, besides what it writes through its pointers.
pub(crate) type Answer = Result<(), Code>;

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        #[allow(dead_code)] // Some are only named: tests plan failures with them.
        impl Code {
            $(pub(crate) const $name: Code = Code($number);)*
        }

        /// Number, name, meaning.
        const CODES: &[(u32, &CStr, &CStr)] = &[
            $(($number, match CStr::from_bytes_with_nul(
                concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!(),
            }, match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => panic!(),
            }),)*
        ];
    };
}

codes! {
    INVALID_VALUE = 1, "an argument is not valid";
    OUT_OF_MEMORY = 2, "there is not enough memory";
    NOT_INITIALIZED = 3, "the driver was not initialised";
    DEINITIALIZED = 4, "the driver is shutting down";
    NO_DEVICE = 100, "there is no device";
    INVALID_DEVICE = 101, "there is no such device";
    INVALID_CONTEXT = 201, "there is no such context, or none is current";
    ECC_UNCORRECTABLE = 214, "memory has failed beyond correction";
    OPERATING_SYSTEM = 304, "the operating system refuses";
    INVALID_HANDLE = 400, "there is nothing of this handle";
    ILLEGAL_STATE = 401, "what is needed for this is not in the right state";
    NOT_READY = 600, "queued work is not complete";
    ILLEGAL_ADDRESS = 700, "queued work touched memory that it must not touch";
    LAUNCH_TIMEOUT = 702, "queued work took too long";
    PEER_ACCESS_ALREADY_ENABLED = 704, "the peer has access already";
    PEER_ACCESS_NOT_ENABLED = 705, "the peer has no access";
    CONTEXT_IS_DESTROYED = 709, "the current context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "the memory is registered already";
    HOST_MEMORY_NOT_REGISTERED = 713, "the memory is not registered";
    LAUNCH_FAILED = 719, "queued work has failed";
    NOT_PERMITTED = 800, "the call is not permitted here";
    NOT_SUPPORTED = 801, "the call is not supported here";
    STREAM_CAPTURE_UNSUPPORTED = 900, "the call is not permitted while a stream is captured";
    STREAM_CAPTURE_INVALIDATED = 901, "the capture was spoiled by an earlier error";
    STREAM_CAPTURE_MERGE = 902, "two captures would become one";
    STREAM_CAPTURE_UNMATCHED = 903, "the capture was not begun on this stream";
    STREAM_CAPTURE_UNJOINED = 904, "the capture has a fork that was not joined";
    STREAM_CAPTURE_ISOLATION = 905, "a dependency would cross the border of the capture";
    STREAM_CAPTURE_IMPLICIT = 906, "the legacy stream would depend on a capture";
    CAPTURED_EVENT = 907, "the event was recorded in a capture";
    STREAM_CAPTURE_WRONG_THREAD = 908, "another thread began the capture";
    UNKNOWN = 999, "it is not known what went wrong";
}

impl Code {
    /// Returns its name in the driver's header.
    pub(crate) fn name(self) -> Option<&'static CStr> {
        if self.0 == 0 {
            return Some(c"CUDA_SUCCESS");
        }
        CODES.iter().find(|(number, ..)| *number == self.0).map(|(_, name, _)| *name)
    }

    /// Returns its meaning.
    pub(crate) fn text(self) -> Option<&'static CStr> {
        if self.0 == 0 {
            return Some(c"no error");
        }
        CODES.iter().find(|(number, ..)| *number == self.0).map(|(.., text)| *text)
    }
}
