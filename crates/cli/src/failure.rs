//! The reasons why the command stops early, and the exit code of each.

use std::fmt;
use std::process::ExitCode;

use millpond::Error;
use millpond::text::with_causes;
use millpond_backend::BackendError;

/// The exit code of a command that was ended by Ctrl-C: 128 and the number of the signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// A failure, described in a sentence that says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// A check that the command made did not hold. Exit code 1.
    Check(String),
    /// The arguments, the environment or a file cannot be used. Exit code 2.
    Input(String),
    /// The device is not there, or its driver failed. Exit code 3.
    Device(String),
    /// The program that was replayed ran out of memory. Exit code 4.
    OutOfMemory(String),
    /// Ctrl-C was pressed. Exit code 130.
    Interrupted,
}

impl Failure {
    /// Creates a failure from an error that the allocator reported: of the device, unless no allocator can serve what
    /// the program asks for.
    pub(crate) fn from_allocator<E: BackendError>(error: &Error<E>) -> Self {
        match error {
            Error::TooLarge { .. } => Self::Input(error.to_string()),
            error => Self::Device(with_causes(error)),
        }
    }

    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Check(_) => 1,
            Self::Input(_) => 2,
            Self::Device(_) => 3,
            Self::OutOfMemory(_) => 4,
            Self::Interrupted => INTERRUPTED,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(text) | Self::Input(text) | Self::Device(text) | Self::OutOfMemory(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted; what there was by then is printed"),
        }
    }
}
