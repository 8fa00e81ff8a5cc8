//! What became of a call: the code that C sees, and the text for people.

use millpond::text::with_causes;
use millpond::{BuildError, Error};
use millpond_backend::{BackendError, Fault};
use millpond_cuda::CudaError;

/// The result of a call. The header documents the codes under the same names and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs)] // The header has their documentation.
pub enum Code {
    Ok = 0,
    OutOfMemory = 1,
    BadArgument = 2,
    BadAllocator = 3,
    NotABlock = 4,
    NoDevice = 5,
    Unsupported = 6,
    DeviceLost = 7,
    Driver = 8,
    Internal = 9,
    NoRoom = 10,
}

/// A call that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }

    pub(crate) fn bad_argument(text: impl Into<String>) -> Failure {
        Failure::new(Code::BadArgument, text)
    }

    /// Returns the failure of a function that must not be given a null pointer there.
    #[cold]
    pub(crate) fn null(what: &str) -> Failure {
        Failure::bad_argument(format!("`{what}` is a null pointer, and must point to something"))
    }

    #[cold]
    pub(crate) fn not_a_block(address: u64) -> Failure {
        let text = format!(
            "{address:#x} is not the address of a live block of this allocator: it was freed before, lies inside a \
             block, or came from elsewhere"
        );
        Failure::new(Code::NotABlock, text)
    }
}

impl<E: BackendError> From<Error<E>> for Failure {
    #[cold]
    fn from(error: Error<E>) -> Failure {
        let code = match (&error, error.fault()) {
            (Error::TooLarge { .. }, _) | (_, Fault::OutOfMemory) => Code::OutOfMemory,
            (_, Fault::Lost) => Code::DeviceLost,
            (Error::Driver { .. } | Error::NotReached { .. }, _) => Code::Driver,
            (Error::Unsupported { .. }, _) => Code::Unsupported,
            (Error::NoRoom { .. }, _) => Code::NoRoom,
            _ => Code::BadArgument,
        };
        Failure::new(code, with_causes(&error))
    }
}

impl From<BuildError> for Failure {
    #[cold]
    fn from(error: BuildError) -> Failure {
        let code = if matches!(error, BuildError::Unsupported { .. }) { Code::Unsupported } else { Code::BadArgument };
        // The source is part of the text.
        Failure::new(code, error.to_string())
    }
}

impl From<CudaError> for Failure {
    #[cold]
    fn from(error: CudaError) -> Failure {
        /// `CUDA_ERROR_INVALID_HANDLE`: a stream that the driver does not know.
        const INVALID_HANDLE: u32 = 400;
        let code = match (&error, error.fault()) {
            (
                CudaError::NoDriver
                | CudaError::MissingSymbol { .. }
                | CudaError::DriverTooOld { .. }
                | CudaError::NoDevice { .. },
                _,
            ) => Code::NoDevice,
            (_, Fault::Lost) => Code::DeviceLost,
            (_, Fault::OutOfMemory) => Code::OutOfMemory,
            (CudaError::Driver { code, .. }, _) if code.0 == INVALID_HANDLE => Code::BadArgument,
            (CudaError::ForeignStream { .. } | CudaError::Unregistered { .. } | CudaError::NotImported { .. }, _) => {
                Code::BadArgument
            }
            (
                CudaError::NotShareable { .. }
                | CudaError::NotInPages { .. }
                | CudaError::NoDmaBuf { .. }
                | CudaError::DmaBufRefused { pages: 2.., .. },
                _,
            ) => Code::Unsupported,
            _ => Code::Driver,
        };
        Failure::new(code, with_causes(&error))
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::{Point, StreamId, Tick};
    use millpond_cuda::Code as Returned;

    use super::*;

    #[test]
    fn errors_of_the_library_have_their_codes() {
        let stream = StreamId(3);
        let driver = |code| {
            let source = CudaError::Driver { call: "cuFly", code: Returned(code) };
            Error::Driver { call: "fly", lost: source.fault() == Fault::Lost, source }
        };
        let cases = [
            (Error::TooLarge { requested: u64::MAX }, Code::OutOfMemory),
            (Error::UnknownStream { stream }, Code::BadArgument),
            (Error::SetAside { stream }, Code::BadArgument),
            (Error::NotReached { point: Point { stream, tick: Tick(2) }, reached: Tick(1) }, Code::Driver),
            (Error::Unsupported { what: "wings", device: "a pond".into(), advice: "swim" }, Code::Unsupported),
            (driver(1), Code::Driver),
            (driver(2), Code::OutOfMemory),
            (driver(700), Code::DeviceLost),
        ];
        for (error, code) in cases {
            let text = error.to_string();
            assert_eq!(Failure::from(error).code, code, "{text}");
        }
        assert_eq!(Failure::from(driver(1)).text.matches("cuFly").count(), 1, "the driver's own error is in the text");
    }

    #[test]
    fn errors_of_opening_a_device_have_their_codes() {
        let lost = CudaError::Lost { device: 0, call: "cuFly", code: Returned(700) };
        let dma_buf =
            |pages| CudaError::DmaBufRefused { call: "cuFly", address: 0, bytes: 1, pages, code: Returned(1) };
        let cases = [
            (CudaError::NoDriver, Code::NoDevice),
            (CudaError::NoDevice { ordinal: 3, count: 1 }, Code::NoDevice),
            (CudaError::DriverTooOld { found: (11, 8), needed: (12, 0) }, Code::NoDevice),
            (CudaError::Driver { call: "cuFly", code: Returned(400) }, Code::BadArgument),
            (CudaError::Unregistered { stream: StreamId(1) }, Code::BadArgument),
            (CudaError::Driver { call: "cuFly", code: Returned(2) }, Code::OutOfMemory),
            (CudaError::Driver { call: "cuFly", code: Returned(999) }, Code::Driver),
            (lost, Code::DeviceLost),
            (CudaError::NoDmaBuf { device: 0 }, Code::Unsupported),
            (dma_buf(2), Code::Unsupported),
            (dma_buf(1), Code::Driver),
        ];
        for (error, code) in cases {
            let text = error.to_string();
            assert_eq!(Failure::from(error).code, code, "{text}");
        }
    }
}
