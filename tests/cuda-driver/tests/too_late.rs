//! The simulator is refused where another library already has its name. The test is a process of its own, as a library
//! that is loaded stays.

#![allow(unsafe_code)] // It loads a library.
#![cfg(target_os = "linux")]

use std::{env, fs, process};

use libloading::os::unix::{Library, RTLD_NOW};
use millpond_cuda_driver::{Absent, install};

#[test]
fn a_driver_that_was_loaded_before_is_not_mistaken_for_the_simulator() {
    let executable = env::current_exe().expect("a test has a file");
    let built = executable.with_file_name("libmillpond_cuda_driver.so");
    let other = env::temp_dir().join(format!("millpond-other-driver-{}.so", process::id()));
    fs::copy(&built, &other).expect("a copy of the library stands for another driver");
    // SAFETY: the library runs no code when it is loaded.
    let loaded = unsafe { Library::open(Some(&other), RTLD_NOW) };
    fs::remove_file(&other).expect("what is loaded needs no file");
    let _other = loaded.expect("it has the driver's name inside");
    assert_eq!(install().err(), Some(Absent::TooLate));
    assert_eq!(install().err(), Some(Absent::TooLate), "nor at the second attempt");
}
