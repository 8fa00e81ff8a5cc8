//! Slices that several streams use: one stream is held, so that what is not ordered happens first and shows in the
//! bytes.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millpond_cuda::SliceStream;
use millpond_cuda::cudarc::driver::result::memset_d8_async;
use millpond_cuda::cudarc::driver::sys::cuMemcpyDtoDAsync_v2;
use millpond_cuda::cudarc::driver::{CudaStream, DevicePtrMut};
use millpond_cuda_driver::Gate;

use super::slices::{another, with_slices};

const BYTES: usize = 1 << 16;
/// Long enough for a fill that waits for nothing to be done.
const WHILE: Duration = Duration::from_millis(40);

fn hold(control: millpond_cuda_driver::Control, stream: &CudaStream) -> Gate {
    control.hold(0, stream.cu_stream() as usize)
}

/// Overwrites a new slice of the home stream, which may have the memory of one that was dropped, and lets the held
/// stream go on.
fn reuse(home: &SliceStream, gate: Gate) {
    let next = home.zeros::<u8>(BYTES).unwrap();
    thread::sleep(WHILE);
    gate.open();
    drop(next);
}

#[test]
fn a_copy_on_another_stream_keeps_the_memory() {
    with_slices(|control, home| {
        let other = another(home);
        let slice = home.upload(&[7_u8; BYTES]).unwrap();
        let mut copy = home.zeros::<u8>(BYTES).unwrap();
        other.join(home.cudarc()).unwrap();
        let gate = hold(control, &other);
        other.memcpy_dtod(&slice, &mut copy).unwrap();
        drop(slice);
        reuse(home, gate);
        assert_eq!(other.clone_dtoh(&copy).unwrap(), [7; BYTES]);
    });
}

#[test]
fn an_argument_of_a_launch_on_another_stream_keeps_the_memory() {
    with_slices(|control, home| {
        let other = another(home);
        let slice = home.upload(&[7_u8; BYTES]).unwrap();
        let mut copy = home.zeros::<u8>(BYTES).unwrap();
        other.join(home.cudarc()).unwrap();
        let gate = hold(control, &other);
        let _ = slice.on(&other).unwrap();
        let _ = copy.on_mut(&other).unwrap();
        // The simulator runs no kernels: a copy by address stands for one.
        // SAFETY: both slices have these bytes, and the stream is alive.
        unsafe { cuMemcpyDtoDAsync_v2(copy.address(), slice.address(), BYTES, other.cu_stream()) }.result().unwrap();
        drop(slice);
        reuse(home, gate);
        assert_eq!(other.clone_dtoh(&copy).unwrap(), [7; BYTES]);
    });
}

#[test]
fn a_view_keeps_the_memory_of_its_slice() {
    with_slices(|control, home| {
        let other = another(home);
        let slice = home.upload(&[7_u8; BYTES]).unwrap();
        let mut copy = home.zeros::<u8>(100).unwrap();
        other.join(home.cudarc()).unwrap();
        let gate = hold(control, &other);
        other.memcpy_dtod(&slice.slice(BYTES - 100..), &mut copy).unwrap();
        drop(slice);
        reuse(home, gate);
        assert_eq!(other.clone_dtoh(&copy).unwrap(), [7; 100]);
    });
}

#[test]
fn a_read_waits_for_the_write_of_another_stream() {
    with_slices(|control, home| {
        let (other, third) = (another(home), another(home));
        let mut slice = home.upload(&[1_u8; BYTES]).unwrap();
        let mut copies = [home.zeros::<u8>(BYTES).unwrap(), home.zeros::<u8>(BYTES).unwrap()];
        // The first write of all is the home stream's, the second another's.
        for (at, (writer, reader)) in [(home.cudarc(), &other), (&other, &third)].into_iter().enumerate() {
            let gate = hold(control, writer);
            writer.memcpy_htod(&[at as u8 + 2; BYTES], &mut slice).unwrap();
            reader.memcpy_dtod(&slice, &mut copies[at]).unwrap();
            thread::sleep(WHILE);
            gate.open();
            assert_eq!(reader.clone_dtoh(&copies[at]).unwrap(), [at as u8 + 2; BYTES]);
        }
    });
}

#[test]
fn a_write_waits_for_the_reads_of_all_streams() {
    with_slices(|control, home| {
        let readers: [Arc<CudaStream>; 2] = [another(home), another(home)];
        for held in 0..2 {
            let mut slice = home.upload(&[1_u8; BYTES]).unwrap();
            let mut copies = [home.zeros::<u8>(BYTES).unwrap(), home.zeros::<u8>(BYTES).unwrap()];
            home.cudarc().synchronize().unwrap();
            let gate = hold(control, &readers[held]);
            for (reader, copy) in readers.iter().zip(&mut copies) {
                reader.memcpy_dtod(&slice, copy).unwrap();
            }
            home.cudarc().memset_zeros(&mut slice).unwrap();
            thread::sleep(WHILE);
            gate.open();
            for (reader, copy) in readers.iter().zip(&copies) {
                assert_eq!(reader.clone_dtoh(copy).unwrap(), [1; BYTES], "reader {held} is held");
            }
        }
    });
}

#[test]
fn writes_to_parts_are_all_waited_for() {
    with_slices(|control, home| {
        let writers = [another(home), another(home)];
        for held in 0..2 {
            let mut slice = home.zeros::<u8>(BYTES).unwrap();
            home.cudarc().synchronize().unwrap();
            let gate = hold(control, &writers[held]);
            let (mut low, mut high) = slice.split_at_mut(BYTES / 2);
            writers[0].memcpy_htod(&[4_u8; BYTES / 2], &mut low).unwrap();
            writers[1].memcpy_htod(&[4_u8; BYTES / 2], &mut high).unwrap();
            let mut copy = home.zeros::<u8>(BYTES).unwrap();
            home.cudarc().memcpy_dtod(&slice, &mut copy).unwrap();
            thread::sleep(WHILE);
            gate.open();
            assert_eq!(home.cudarc().clone_dtoh(&copy).unwrap(), [4; BYTES], "writer {held} is held");
        }
    });
}

#[test]
fn the_host_waits_for_a_stream_that_is_not_registered() {
    with_slices(|control, home| {
        let unknown = home.cudarc().context().new_stream().unwrap();
        let mut slice = home.zeros::<u8>(BYTES).unwrap();
        let gate = hold(control, home.cudarc());
        home.cudarc().memcpy_htod(&[8_u8; BYTES], &mut slice).unwrap();
        let before = control.calls("cuStreamSynchronize");
        let read = thread::scope(|scope| {
            let reads = scope.spawn(|| unknown.clone_dtoh(&slice).unwrap());
            thread::sleep(WHILE);
            gate.open();
            reads.join().unwrap()
        });
        assert_eq!(read, [8; BYTES], "it has not waited for the write");
        assert!(control.calls("cuStreamSynchronize") > before, "its own work may still be running");
    });
}

#[test]
fn the_default_streams_are_registered_by_their_first_use() {
    with_slices(|control, home| {
        let context = home.cudarc().context();
        let slice = home.upload(&[6_u8; 64]).unwrap();
        let before = control.calls("cuStreamSynchronize");
        let mut copies = [home.zeros::<u8>(64).unwrap(), home.zeros::<u8>(64).unwrap()];
        for (stream, copy) in [context.default_stream(), context.per_thread_stream()].iter().zip(&mut copies) {
            stream.memcpy_dtod(&slice, copy).unwrap();
        }
        assert_eq!(control.calls("cuStreamSynchronize"), before, "the host waits for no default stream");
        assert!(format!("{:?}", home.allocator()).contains("streams: 3"), "{:?}", home.allocator());
        for copy in &copies {
            assert_eq!(home.cudarc().clone_dtoh(copy).unwrap(), [6; 64]);
        }
    });
}

/// As two threads would do it: both writes are announced before either is queued.
#[test]
fn writes_to_parts_are_waited_for_whichever_is_queued_first() {
    with_slices(|control, home| {
        let writers = [another(home), another(home)];
        let mut slice = home.zeros::<u8>(BYTES).unwrap();
        let mut copy = home.zeros::<u8>(BYTES).unwrap();
        home.cudarc().synchronize().unwrap();
        let (mut low, mut high) = slice.split_at_mut(BYTES / 2);
        let (first, second) = (low.device_ptr_mut(&writers[0]), high.device_ptr_mut(&writers[1]));
        let gate = hold(control, &writers[0]);
        for ((address, _guard), writer) in [second, first].into_iter().zip(writers.iter().rev()) {
            // SAFETY: half of the slice is there, and the stream is alive.
            unsafe { memset_d8_async(address, 4, BYTES / 2, writer.cu_stream()) }.unwrap();
        }
        home.cudarc().memcpy_dtod(&slice, &mut copy).unwrap();
        thread::sleep(WHILE);
        gate.open();
        assert_eq!(home.cudarc().clone_dtoh(&copy).unwrap(), [4; BYTES]);
    });
}
