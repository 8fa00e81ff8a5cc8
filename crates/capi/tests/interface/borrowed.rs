//! Streams that a program destroys without a word, on the simulated driver of CUDA, in this process: captures, handles
//! that come back, and threads that release a stream which others begin to use.

#![cfg(target_os = "linux")] // The simulated driver exists only there.
#![allow(unsafe_code)] // The interface's functions and the driver's.

use std::ffi::{CString, c_void};
use std::ptr;
use std::thread;
use std::time::Duration;

use millpond_capi::api::{
    CAllocator, Usage, millpond_alloc, millpond_alloc_async, millpond_create, millpond_destroy, millpond_empty_cache,
    millpond_free, millpond_free_async, millpond_get_usage, millpond_set_limit, millpond_stream_release,
};
use millpond_cuda::cudarc::driver::sys;
use millpond_cuda_driver::{Control, install};

const MIB: u64 = 1 << 20;
const POLICIES: [&str; 2] = ["policy:classic", "policy:paged"];

/// A handle, of which threads are told as of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Raw(usize);

impl Raw {
    fn create() -> Raw {
        let mut raw: sys::CUstream = ptr::null_mut();
        // SAFETY: the pointer is to a local pointer, and the context is current. 1 is CU_STREAM_NON_BLOCKING.
        unsafe { sys::cuStreamCreate(&raw mut raw, 1) }.result().unwrap();
        Raw(raw as usize)
    }

    fn stream(self) -> sys::CUstream {
        self.0 as sys::CUstream
    }

    fn destroy(self) {
        // SAFETY: the tests made the stream.
        unsafe { sys::cuStreamDestroy_v2(self.stream()) }.result().unwrap();
    }

    /// Calls the body in a capture of the stream, which no call spoils.
    fn captured<T>(self, body: impl FnOnce() -> T) -> T {
        const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        unsafe { sys::cuStreamBeginCapture_v2(self.stream(), RELAXED) }.result().unwrap();
        let returned = body();
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is alive, and the pointer is to a local pointer.
        unsafe { sys::cuStreamEndCapture(self.stream(), &raw mut graph) }.result().unwrap();
        // SAFETY: the capture has made it.
        unsafe { sys::cuGraphDestroy(graph) }.result().unwrap();
        returned
    }
}

/// An allocator, as threads use it.
#[derive(Clone, Copy)]
struct Pond(*mut CAllocator);

// SAFETY: it is a name, which every thread may use.
unsafe impl Send for Pond {}
// SAFETY: as above.
unsafe impl Sync for Pond {}

impl Pond {
    /// Allocates, or returns the status.
    fn alloc(self, bytes: u64, raw: Raw) -> Result<*mut c_void, i32> {
        let mut out = ptr::null_mut();
        // SAFETY: the pointer is to a local pointer, and the stream is alive.
        let status = unsafe { millpond_alloc_async(self.0, bytes, raw.stream().cast(), &raw mut out) };
        if status == 0 { Ok(out) } else { Err(status) }
    }

    fn free(self, address: *mut c_void, raw: Raw) {
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { millpond_free_async(self.0, address, raw.stream().cast()) }, 0);
    }

    /// Frees memory in a capture of a new stream, which is destroyed. Returns the stream and the address.
    fn free_in_a_capture(self, bytes: u64) -> (Raw, *mut c_void) {
        let raw = Raw::create();
        let address = self.alloc(bytes, raw).unwrap();
        raw.captured(|| self.free(address, raw));
        raw.destroy();
        (raw, address)
    }

    fn reserved(self) -> u64 {
        let mut out = Usage { allocated_bytes: 0, max_allocated_bytes: 0, reserved_bytes: 0, max_reserved_bytes: 0 };
        // SAFETY: the pointer is to a local variable.
        assert_eq!(unsafe { millpond_get_usage(self.0, &raw mut out) }, 0);
        out.reserved_bytes
    }
}

/// Runs one test at a time on new allocators, and verifies that no call broke the driver's rules.
fn on_cuda(policies: &[&str], test: impl Fn(Control, Pond)) {
    let control = install().expect("the simulator is built with the tests");
    let _alone = control.alone();
    for policy in policies {
        let (device, conf, mut pond) = (c"cuda:0", CString::new(*policy).unwrap(), ptr::null_mut());
        // SAFETY: the texts end with a 0, and the pointer is to a local pointer.
        assert_eq!(unsafe { millpond_create(device.as_ptr(), conf.as_ptr(), &raw mut pond) }, 0, "{policy}");
        let mut context: sys::CUcontext = ptr::null_mut();
        // SAFETY: the pointers are to local variables, and the driver has a device.
        unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, 0).result().unwrap();
            sys::cuCtxSetCurrent(context).result().unwrap();
        }
        test(control, Pond(pond));
        // SAFETY: no other thread has the allocator.
        assert_eq!(unsafe { millpond_destroy(pond, ptr::null_mut()) }, 0);
        // SAFETY: it was retained above.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(0) }.result().unwrap();
        assert_eq!(control.violations(), [], "{policy}");
    }
}

#[test]
fn a_handle_that_comes_back_during_a_capture_of_another_stream_spoils_it_not() {
    on_cuda(&POLICIES, |_, pond| {
        let other = Raw::create();
        let (raw, freed) = pond.free_in_a_capture(4 * MIB);
        let block = other.captured(|| {
            assert_eq!(Raw::create(), raw);
            pond.alloc(4 * MIB, raw).unwrap()
        });
        assert_ne!(block, freed, "the work of the former stream is not known to be over");
        pond.free(block, raw);
        assert_eq!(pond.alloc(4 * MIB, raw), Ok(block), "the stream has a number of its own");
        pond.free(block, raw);
        [raw, other].into_iter().for_each(Raw::destroy);
    });
}

#[test]
fn what_was_freed_in_a_capture_goes_back_with_the_cache() {
    on_cuda(&POLICIES, |_, pond| {
        pond.free_in_a_capture(4 * MIB);
        assert!(pond.reserved() >= 4 * MIB);
        // SAFETY: the allocator lives.
        assert_eq!(unsafe { millpond_empty_cache(pond.0) }, 0);
        assert_eq!(pond.reserved(), 0);
    });
}

#[test]
fn what_was_freed_in_a_capture_serves_others_when_memory_is_short() {
    on_cuda(&POLICIES, |_, pond| {
        // SAFETY: the allocator lives.
        assert_eq!(unsafe { millpond_set_limit(pond.0, 40 * MIB) }, 0);
        let (raw, _) = pond.free_in_a_capture(40 * MIB);
        let other = Raw::create();
        assert_eq!(other, raw);
        let block = pond.alloc(40 * MIB, other).unwrap();
        pond.free(block, other);
        other.destroy();
    });
}

/// A thread that releases a stream has not told the device yet that the stream is over.
#[test]
fn a_stream_that_is_released_while_it_is_borrowed_is_borrowed_again() {
    on_cuda(&POLICIES[..1], |control, pond| {
        let raw = Raw::create();
        let mut kept = ptr::null_mut();
        // SAFETY: the pointer is to a local pointer, and the stream is alive.
        assert_eq!(unsafe { millpond_alloc(pond.0, MIB, raw.stream().cast(), &raw mut kept) }, 0);
        let stop = control.stop_nth("cuEventRecord", 1);
        thread::scope(|scope| {
            // SAFETY: the stream is alive.
            let release = scope.spawn(|| unsafe { millpond_stream_release({ pond }.0, raw.stream().cast()) });
            stop.wait();
            let first = scope.spawn(|| pond.alloc(MIB, raw).map(|block| pond.free(block, raw)));
            thread::sleep(Duration::from_millis(30));
            stop.go_on();
            assert_eq!(release.join().unwrap(), 0);
            assert_eq!(first.join().unwrap(), Ok(()));
        });
        let block = pond.alloc(MIB, raw).unwrap();
        pond.free(block, raw);
        pond.free(kept, raw);
        raw.destroy();
    });
}

#[test]
fn a_stream_that_is_released_while_it_is_opened_is_opened_again() {
    on_cuda(&POLICIES[..1], |control, pond| {
        let raw = Raw::create();
        let alloc = || {
            let mut out = ptr::null_mut();
            // SAFETY: the pointer is to a local pointer, and the stream is alive.
            assert_eq!(unsafe { millpond_alloc({ pond }.0, MIB, raw.stream().cast(), &raw mut out) }, 0);
            // SAFETY: the allocator lives.
            assert_eq!(unsafe { millpond_free({ pond }.0, out) }, 0);
        };
        alloc();
        let stop = control.stop_nth("cuEventRecord", 1);
        thread::scope(|scope| {
            // SAFETY: the stream is alive.
            let release = scope.spawn(|| unsafe { millpond_stream_release({ pond }.0, raw.stream().cast()) });
            stop.wait();
            let open = scope.spawn(alloc);
            thread::sleep(Duration::from_millis(30));
            stop.go_on();
            assert_eq!(release.join().unwrap(), 0);
            open.join().unwrap();
        });
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { millpond_stream_release(pond.0, raw.stream().cast()) }, 0, "it is another number");
        raw.destroy();
    });
}
