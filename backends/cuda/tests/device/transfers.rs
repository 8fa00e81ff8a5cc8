use std::ptr::NonNull;

use millpond_backend::{Backend, ClassId, HostMemory, Transfer};
use millpond_cuda::{CudaError, Misuse, Role};

use crate::lab::{BYTES, device, finish, give_back, read, segment};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn bytes_of_any_length_come_back_from_any_offset() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let large = cuda.reserve(ClassId::DEVICE, 12 << 20).unwrap();
    for (offset, bytes) in [(0, 1), (3, 7), (4095, 70_001), (1, (11 << 20) - 3), (12 << 20, 0)] {
        let written = pattern(bytes);
        cuda.upload(stream, &written, &large, offset).unwrap();
        assert!(read(&cuda, stream, &large, offset, bytes) == written, "{bytes} bytes at {offset}");
    }
    cuda.fill(stream, &large, 5, 3, 0xAB).unwrap();
    assert_eq!(read(&cuda, stream, &large, 5, 3), [0xAB; 3]);
    give_back(&cuda, large);
}

#[test]
fn uploads_are_taken_before_the_call_returns() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let taken = segment(&cuda);
    finish(&cuda, stream);
    cuda.hold(stream).unwrap();
    let mut bytes = vec![1; 1000];
    cuda.upload(stream, &bytes, &taken, 0).unwrap();
    bytes.fill(2);
    cuda.upload(stream, &bytes, &taken, 1000).unwrap();
    cuda.unhold(stream);
    assert_eq!(read(&cuda, stream, &taken, 999, 2), [1, 2]);
    give_back(&cuda, taken);
}

#[test]
fn page_locked_memory_is_seen_from_both_sides() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let (ours, pinned) = (segment(&cuda), cuda.reserve(ClassId(1), BYTES).unwrap());
    assert_eq!(cuda.held_bytes(), BYTES, "host memory is not the device's");
    assert!(cuda.host_address(&ours).is_none());
    let host = cuda.host_address(&pinned).unwrap();
    cuda.fill(stream, &ours, 0, BYTES, 4).unwrap();
    cuda.copy(stream, (&ours, 0), (&pinned, 0), BYTES).unwrap();
    finish(&cuda, stream);
    // SAFETY: the segment is that long, and the device has finished writing it.
    let seen = unsafe { std::slice::from_raw_parts(host.as_ptr(), BYTES as usize) };
    assert!(seen.iter().all(|&byte| byte == 4));
    // SAFETY: as above, and the slice is not used again.
    unsafe { host.as_ptr().write_bytes(6, BYTES as usize) };
    cuda.copy(stream, (&pinned, 0), (&ours, 0), BYTES).unwrap();
    assert_eq!(read(&cuda, stream, &ours, BYTES - 16, 16), [6; 16]);
    give_back(&cuda, ours);
    give_back(&cuda, pinned);
}

#[test]
fn memory_of_others_is_page_locked_for_a_while() {
    let Some(cuda) = device() else { return };
    let mut own = vec![0_u8; 1 << 16];
    let pointer = NonNull::from(own.as_mut_slice()).cast();
    for _ in 0..2 {
        // SAFETY: the vector stays at its address until the guard is dropped, and no work of a device touches it.
        let registered = unsafe { cuda.register_host(pointer, own.len() as u64) }.unwrap();
        assert_eq!((registered.host_address(), registered.bytes()), (pointer, 1 << 16));
        assert_ne!(registered.address(), 0);
    }
    // SAFETY: nothing is registered.
    let nothing = unsafe { cuda.register_host(pointer, 0) };
    assert_eq!(nothing.unwrap_err(), CudaError::Misuse(Misuse::Empty { call: "cuMemHostRegister" }));
}

#[test]
fn bad_ranges_are_refused_with_their_numbers() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let taken = segment(&cuda);
    let outside = |end| {
        Err(CudaError::Misuse(Misuse::OutOfRange {
            call: None,
            role: Some(Role { name: end, device: 0 }),
            offset: BYTES - 1,
            bytes: 2,
            segment_bytes: BYTES,
        }))
    };
    assert_eq!(cuda.fill(stream, &taken, BYTES - 1, 2, 0), outside("segment"));
    assert_eq!(cuda.upload(stream, &[0; 2], &taken, BYTES - 1), outside("segment"));
    assert_eq!(cuda.download(stream, &taken, BYTES - 1, &mut [0; 2]), outside("segment"));
    assert_eq!(cuda.copy(stream, (&taken, 0), (&taken, BYTES - 1), 2), outside("target"));
    assert_eq!(cuda.copy(stream, (&taken, BYTES - 1), (&taken, 0), 2), outside("source"));
    let from = taken.address();
    assert_eq!(
        cuda.copy(stream, (&taken, 0), (&taken, 8), 9),
        Err(CudaError::Misuse(Misuse::Overlap { from, to: from + 8, bytes: 9 }))
    );
    assert_eq!(cuda.copy(stream, (&taken, 0), (&taken, 8), 8), Ok(()));
    assert_eq!(cuda.reserve(ClassId::DEVICE, 0).unwrap_err(), CudaError::Misuse(Misuse::Empty { call: "reserve" }));
    finish(&cuda, stream);
    give_back(&cuda, taken);
}
