//! The library as a whole: how it is found, and how it describes itself.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use cudarc::driver::{CudaContext, result, sys};
use millpond_cuda_driver::{DEVICES, Kind, install};

use crate::aid::{answer, turn, wait};

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
    }
    // What was forgotten holds the context, so that its reference is still there.
    // SAFETY: as above.
    unsafe { result::primary_ctx::release(1) }.expect("one reference");
    assert_eq!(turn.control.held_bytes(1), held);
    assert_eq!([Kind::Allocation, Kind::Event, Kind::Stream].map(|kind| turn.control.live(kind)), before);
}

#[test]
fn a_context_is_not_handed_out_while_it_ends() {
    type Gate = (Sender<()>, Receiver<()>);
    unsafe extern "C" fn stay(data: *mut c_void) {
        // SAFETY: the pointer is to what the test keeps alive until the function has returned.
        let (began, ends) = unsafe { &*data.cast::<Gate>() };
        began.send(()).expect("the test waits for it");
        ends.recv().expect("the test sends before it ends");
    }
    let turn = turn();
    let ((begins, begun), (end, ends)) = (channel(), channel());
    let gate: Box<Gate> = Box::new((begins, ends));
    let second = CudaContext::new(1).expect("a second device");
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
    let data = (&raw const *gate).cast_mut().cast::<c_void>();
    // SAFETY: the function expects what the pointer points to, and the box outlives the stream's work.
    answer(unsafe { sys::cuLaunchHostFunc(stream, Some(stay), data) }).expect("queued");
    begun.recv().expect("it runs");

    let released = turn.control.calls("cuDevicePrimaryCtxRelease_v2");
    thread::scope(|scope| {
        scope.spawn(move || drop(second));
        while turn.control.calls("cuDevicePrimaryCtxRelease_v2") == released {
            thread::yield_now();
        }
        // It has been called, and may need a moment to begin.
        thread::sleep(Duration::from_millis(20));
        let (opened, opens) = channel();
        let opener = scope.spawn(move || {
            let again = CudaContext::new(1).expect("a second device");
            opened.send(()).expect("the test waits for it");
            again
        });
        let early = opens.recv_timeout(Duration::from_millis(100)).is_ok();
        end.send(()).expect("the function waits for it");
        let again = opener.join().expect("it is opened");
        assert!(!early, "the context was handed out while it ended");
        let stream = again.new_stream().expect("a stream");
        assert_eq!(wait(&stream), Ok(()));
    });
}
