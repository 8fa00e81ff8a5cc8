use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond_backend::{Backend, Budget, ClassId, Transfer, VirtualMemory};
use millpond_cuda::testing::Cuda;

use crate::lab::device;

/// The bytes that the tests leave behind.
const LEFT: u64 = 3 << 30;

fn free(cuda: &Cuda) -> u64 {
    Budget::budget(cuda, ClassId::DEVICE).unwrap().free_bytes
}

/// Waits until as much memory is free as before, within the limits that other tests and processes set.
fn expect_free(cuda: &Cuda, before: u64) {
    let enough = || free(cuda) + LEFT / 2 >= before;
    let came_back = (0..100).any(|_| {
        let enough = enough();
        if !enough {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        enough
    });
    assert!(came_back, "{before} bytes were free, and now {}", free(cuda));
}

#[test]
fn the_last_handle_gives_everything_back() {
    let Some(keeper) = device() else { return };
    let before = free(&keeper);
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let segment = cuda.reserve(ClassId::DEVICE, LEFT / 2).unwrap();
    let pinned = cuda.reserve(ClassId(1), 1 << 20).unwrap();
    cuda.fill(stream, &segment, 0, 1 << 20, 1).unwrap();
    cuda.upload(stream, &[1; 100], &segment, 0).unwrap();
    if let Some(pages) = cuda.caps().pages {
        let bytes = (LEFT / 2).next_multiple_of(pages.granularity);
        let range = cuda.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = cuda.create_page(ClassId::DEVICE, bytes).unwrap();
        // SAFETY: the range is empty.
        unsafe { cuda.map(&range, 0, &page, stream) }.unwrap();
        cuda.fill(stream, &range, 0, 1 << 20, 2).unwrap();
        drop((range, page));
    }
    drop((segment, pinned));
    let twin = cuda.clone();
    drop(cuda);
    assert!(twin.held_bytes() >= LEFT / 2, "a handle is left, and so is what was taken");
    twin.hold(stream).unwrap();
    drop(twin);
    expect_free(&keeper, before);
}

#[test]
fn a_segment_goes_back_where_it_came_from() {
    let (Some(first), Some(second)) = (device(), device()) else { return };
    let segment = first.reserve(ClassId::DEVICE, 1 << 20).unwrap();
    // SAFETY: no work touches it. The call panics before it does anything.
    let released = catch_unwind(AssertUnwindSafe(|| unsafe { second.release(segment) }));
    let panic = released.expect_err("the segment is another handle's");
    let text = panic.downcast_ref::<String>().expect("a message with numbers");
    assert!(text.contains("another handle"), "{text}");
    assert_eq!((first.held_bytes(), second.held_bytes()), (1 << 20, 0));
}
