use millpond_cuda::{CudaError, Misuse, Role};

use crate::lab::{BYTES, device, finish, give_back, read, segment, two_devices};
use millpond_backend::Transfer;

#[test]
fn cudarc_works_on_part_of_a_segment() {
    let Some(cuda) = device() else { return };
    let stream = cuda.context().new_stream().unwrap();
    let lane = cuda.register(&stream).unwrap();
    let taken = segment(&cuda);
    cuda.fill(lane, &taken, 0, BYTES, 1).unwrap();
    for _ in 0..3 {
        // SAFETY: the bytes belong to the test, any bytes are valid numbers, and all work is on one stream.
        let mut view = unsafe { taken.view::<u32>(&stream, 4096, 256) }.unwrap();
        stream.memset_zeros(&mut view.as_view_mut()).unwrap();
        assert_eq!(stream.clone_dtoh(&*view).unwrap(), vec![0_u32; 256]);
        stream.memcpy_htod(&[0x0101_0101; 256], &mut view.as_view_mut()).unwrap();
        assert_eq!(stream.clone_dtoh(&*view).unwrap(), vec![0x0101_0101; 256]);
    }
    assert_eq!(read(&cuda, lane, &taken, 0, BYTES as usize), vec![1; BYTES as usize], "a view was freed");
    finish(&cuda, lane);
    give_back(&cuda, taken);
}

#[test]
fn views_that_cannot_be_are_refused() {
    let Some(cuda) = device() else { return };
    let stream = cuda.context().new_stream().unwrap();
    let taken = segment(&cuda);
    // SAFETY: the views are not used.
    let (outside, uneven) =
        unsafe { (taken.view::<u64>(&stream, BYTES - 8, 2).err(), taken.view::<u64>(&stream, 4, 1).err()) };
    let outside_of = |offset, bytes| {
        CudaError::Misuse(Misuse::OutOfRange {
            call: None,
            role: Some(Role { name: "segment", device: 0 }),
            offset,
            bytes,
            segment_bytes: BYTES,
        })
    };
    assert_eq!(outside, Some(outside_of(BYTES - 8, 16)));
    let value = taken.address() + 4;
    assert_eq!(
        uneven,
        Some(CudaError::Misuse(Misuse::Misaligned { call: "view", what: None, value, multiple: 8, multiple_is: None }))
    );
    give_back(&cuda, taken);
}

#[test]
fn a_view_is_of_its_segments_context() {
    let Some((first, second)) = two_devices() else { return };
    let (taken, stream) = (segment(&first), second.context().new_stream().unwrap());
    // SAFETY: the view is not used.
    let error = unsafe { taken.view::<u8>(&stream, 0, 1) }.err();
    assert_eq!(error, Some(CudaError::ForeignStream { ordinal: 0 }));
    give_back(&first, taken);
}
