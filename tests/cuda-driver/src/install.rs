//! Loads the simulator under the name by which the bindings look for the driver.

use std::path::PathBuf;
use std::sync::OnceLock;

use thiserror::Error;

use crate::Control;

/// The reason why the simulator cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Absent {
    /// The simulator is written for Linux.
    #[error("the CUDA simulator runs on 64-bit Linux only: skip these tests here")]
    Platform,
    /// The library is not beside the running executable.
    #[error(
        "no {file} in any of {folders:?}: name millpond-cuda-driver under [dev-dependencies], then Cargo builds it"
    )]
    NotBuilt {
        /// The library's file name.
        file: String,
        /// The folders that were searched.
        folders: Vec<PathBuf>,
    },
    /// The loader refused the library.
    #[error("{path} cannot be loaded: {reason}")]
    Unloadable {
        /// The path of the library.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// The library is of another version than the test.
    #[error("{path} was built from another version of this package: build it anew")]
    Stale {
        /// The path of the library.
        path: PathBuf,
    },
    /// A driver was loaded before, so that the bindings would use that one.
    #[error("another CUDA driver is loaded already: install the simulator before the first call of the bindings")]
    TooLate,
}

/// Loads the simulator into this process, under the driver's name. Call it before the first call of any bindings; later
/// calls return the same.
///
/// The library is looked for beside the running executable and in `deps` beside it, which is where Cargo builds it when
/// this package is a dependency of the running test.
///
/// # Errors
///
/// Returns [`Absent`] with the reason why there is no simulator. This function never uses a real driver instead; but
/// bindings that are called in spite of an error will find one where there is one.
pub fn install() -> Result<Control, Absent> {
    static INSTALLED: OnceLock<Result<Control, Absent>> = OnceLock::new();
    INSTALLED.get_or_init(load).clone()
}

#[cfg(not(target_os = "linux"))]
fn load() -> Result<Control, Absent> {
    Err(Absent::Platform)
}

#[cfg(target_os = "linux")]
fn load() -> Result<Control, Absent> {
    const FILE: &str = "libmillpond_cuda_driver.so";
    let executable = std::env::current_exe().unwrap_or_default();
    // A test runs in `deps`; a program one folder above, an example beside it.
    let folders: Vec<PathBuf> =
        executable.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]).collect();
    let path = folders.iter().map(|folder| folder.join(FILE)).find(|path| path.is_file());
    let path = path.ok_or(Absent::NotBuilt { file: FILE.to_owned(), folders })?;
    crate::ffi::library::load(&path).map(Control::new)
}
