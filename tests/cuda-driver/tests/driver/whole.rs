//! The library as a whole: how it is found, and how it describes itself.

use std::ffi::CStr;
use std::path::Path;

use cudarc::driver::{CudaContext, result, sys};
use millpond_cuda_driver::{DEVICES, Kind, install};

use crate::aid::turn;

#[test]
fn installing_again_answers_the_same() {
    let turn = turn();
    turn.control.set_bytes(1, 12345 << 20);
    let again = install().expect("it is installed");
    let second = CudaContext::new(1).expect("a second device");
    assert_eq!(second.total_mem().expect("it has memory"), 12345 << 20);
    again.reset();
    assert_ne!(second.total_mem().expect("it has memory"), 12345 << 20);
}

#[test]
fn the_file_has_not_the_name_of_the_driver() {
    let executable = std::env::current_exe().expect("a test has a file");
    let folders: Vec<&Path> = executable.ancestors().skip(1).take(2).collect();
    for folder in folders {
        assert!(!folder.join("libcuda.so").exists(), "{} would take the place of a real driver", folder.display());
    }
}

#[test]
fn two_devices_with_numbers_of_their_own() {
    let turn = turn();
    assert_eq!(CudaContext::device_count(), Ok(DEVICES as i32));
    let second = CudaContext::new(1).expect("a second device");
    assert_ne!(turn.context.uuid().expect("a number").bytes, second.uuid().expect("a number").bytes);
    assert!(CudaContext::new(2).is_err(), "there are {DEVICES}");
    assert!(turn.context.has_async_alloc());
}

#[test]
fn codes_have_names() {
    let _turn = turn();
    for code in [sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, sys::CUresult::CUDA_ERROR_CAPTURED_EVENT] {
        let mut text = std::ptr::null();
        // SAFETY: the pointer is to a local pointer.
        assert_eq!(unsafe { sys::cuGetErrorName(code, &raw mut text) }, sys::CUresult::CUDA_SUCCESS);
        // SAFETY: the driver's names end with a 0.
        let name = unsafe { CStr::from_ptr(text) }.to_str().expect("a name");
        assert_eq!(name, format!("{code:?}"));
        assert!(result::DriverError(code).error_string().is_ok());
    }
}

#[test]
fn a_context_that_ends_takes_its_things_along() {
    let turn = turn();
    let held = turn.control.held_bytes(1);
    let before = [Kind::Allocation, Kind::Event, Kind::Stream].map(|kind| turn.control.live(kind));
    {
        let second = CudaContext::new(1).expect("a second device");
        let stream = second.new_stream().expect("a stream");
        let slice = stream.alloc_zeros::<u8>(1 << 20).expect("memory");
        assert!(turn.control.held_bytes(1) > held);
        std::mem::forget(slice);
        std::mem::forget(second.new_event(None).expect("an event"));
        drop(stream);
        // SAFETY: nothing uses the second device any more.
        let code = unsafe { sys::cuDevicePrimaryCtxReset_v2(1) };
        assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
        std::mem::forget(second);
    }
    assert_eq!(turn.control.held_bytes(1), held);
    assert_eq!([Kind::Allocation, Kind::Event, Kind::Stream].map(|kind| turn.control.live(kind)), before);
}
