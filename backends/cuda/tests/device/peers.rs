//! Tests of two devices: bytes are copied from one to the other, whichever device opened its memory to the other, and
//! an impossible copy is refused with an error that names both devices.

use millpond_backend::{Backend, BackendError, ClassId, Fault, Point, StreamId, Tick, Transfer, VirtualMemory};
use millpond_cuda::cudarc::driver::sys;
use millpond_cuda::testing::Cuda;
use millpond_cuda::{CudaError, Misuse, Page, Remedy, Role, Segment};

use crate::lab::{BYTES, finish, give_back, read, segment, two_devices};

/// Memory of one device: a segment, or a range with a page in it.
struct Memory {
    segment: Segment,
    page: Option<Page>,
}

impl Memory {
    fn classic(cuda: &Cuda) -> Memory {
        Memory { segment: segment(cuda), page: None }
    }

    /// Returns `None`, and prints a line, on a device without virtual memory.
    fn paged(cuda: &Cuda, stream: StreamId) -> Option<Memory> {
        let Some(facts) = cuda.caps().pages else {
            eprintln!("SKIPPED: device {} has no virtual memory", cuda.ordinal());
            return None;
        };
        let bytes = BYTES.next_multiple_of(facts.granularity);
        let segment = cuda.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = cuda.create_page(ClassId::DEVICE, bytes).unwrap();
        // SAFETY: the range is empty.
        unsafe { cuda.map(&segment, 0, &page, stream) }.unwrap();
        Some(Memory { segment, page: Some(page) })
    }

    /// Returns memory of each kind that the device has, a segment first.
    fn all(cuda: &Cuda, stream: StreamId) -> Vec<Memory> {
        std::iter::once(Memory::classic(cuda)).chain(Memory::paged(cuda, stream)).collect()
    }

    fn give_back(self, cuda: &Cuda, stream: StreamId) {
        match self.page {
            // SAFETY: the tests have waited for all work on it, and queue no more.
            Some(page) => unsafe {
                cuda.unmap(&self.segment, 0, &page, stream);
                cuda.release_page(page);
                cuda.release_range(self.segment);
            },
            None => give_back(cuda, self.segment),
        }
    }
}

/// Opens two devices whose memory is open to each other. Returns `None`, and prints a line, where they cannot reach it.
fn open_to_each_other() -> Option<(Cuda, Cuda)> {
    let _there = two_devices()?;
    let open = |ordinal: usize| Cuda::builder().device(ordinal).peers(&[1 - ordinal]).build();
    match (open(0), open(1)) {
        (Ok(first), Ok(second)) => Some((first, second)),
        (first, second) => {
            let error = first.and(second).expect_err("one of them does not open");
            assert!(matches!(error, CudaError::NoPeerAccess { .. }), "{error}");
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// Copies each kind of memory to each kind of the other device, in both directions, each on a stream of either device.
fn copy_all_ways(first: &Cuda, second: &Cuda) {
    let streams = [first.create_stream().unwrap(), second.create_stream().unwrap()];
    let devices = [first, second];
    let memories = [Memory::all(first, streams[0]), Memory::all(second, streams[1])];
    let mut value = 0;
    for (source, target) in [(0, 1), (1, 0)] {
        for from in &memories[source] {
            for to in &memories[target] {
                for copier in [source, target] {
                    value += 1;
                    devices[source].fill(streams[source], &from.segment, 0, BYTES, value).unwrap();
                    finish(devices[source], streams[source]);
                    devices[target].fill(streams[target], &to.segment, 0, BYTES, 0).unwrap();
                    finish(devices[target], streams[target]);
                    let ends = ((&from.segment, 3), (&to.segment, 1000));
                    devices[copier].copy(streams[copier], ends.0, ends.1, BYTES - 2000).unwrap();
                    finish(devices[copier], streams[copier]);
                    let came = read(devices[target], streams[target], &to.segment, 999, BYTES as usize - 1998);
                    let (inner, edges) = (&came[1..came.len() - 1], [came[0], came[came.len() - 1]]);
                    let how = format!("{from:?} to {to:?} by device {copier}", from = from.segment, to = to.segment);
                    assert!(inner.iter().all(|&byte| byte == value), "{how}: wrong bytes");
                    assert_eq!(edges, [0, 0], "{how}: bytes beside the target");
                }
            }
        }
    }
    for ((device, stream), memories) in devices.into_iter().zip(streams).zip(memories) {
        memories.into_iter().for_each(|memory| memory.give_back(device, stream));
        assert_eq!(device.held_bytes(), 0);
    }
}

#[test]
fn bytes_go_both_ways_without_peer_access() {
    let Some((first, second)) = two_devices() else { return };
    copy_all_ways(&first, &second);
}

#[test]
fn bytes_go_both_ways_with_peer_access() {
    let Some((first, second)) = open_to_each_other() else { return };
    assert_eq!((first.peers(), second.peers()), (vec![1], vec![0]));
    copy_all_ways(&first, &second);
}

/// The driver calls of this test access the memory as a kernel of the peer would.
#[test]
fn the_peer_reaches_what_is_open_to_it() {
    let Some((first, second)) = open_to_each_other() else { return };
    let here = first.create_stream().unwrap();
    reach_all(&first, &second, here, Memory::all(&first, here));
}

/// What is mapped already is opened to a device that is let in later, and so is what is mapped after that.
#[test]
fn a_peer_is_let_in_later() {
    if open_to_each_other().is_none() {
        return;
    }
    let Some((first, second)) = two_devices() else { return };
    let here = first.create_stream().unwrap();
    let mut memories = Memory::all(&first, here);
    memories.extend(Memory::paged(&first, here));
    assert!(first.peers().is_empty());
    first.open_to(0).unwrap();
    assert!(first.peers().is_empty(), "it needs no permission for itself");
    for _ in 0..2 {
        first.open_to(1).unwrap();
        assert_eq!(first.peers(), [1]);
        memories.extend(Memory::all(&first, here));
    }
    reach_all(&first, &second, here, memories);
    assert!(matches!(first.open_to(77), Err(CudaError::NoDevice { ordinal: 77, .. })));
}

/// Has the second device write to memory of the first one and read it, and gives it back.
fn reach_all(first: &Cuda, second: &Cuda, here: StreamId, memories: Vec<Memory>) {
    let there = second.create_stream().unwrap();
    let back = second.reserve(ClassId::DEVICE, BYTES).unwrap();
    for (memory, value) in memories.into_iter().zip(21..) {
        second.context().bind_to_thread().unwrap();
        let (address, raw) = (memory.segment.address(), second.raw_stream(there).unwrap());
        // SAFETY: the memory is open to the device whose stream this is, and no other work touches it.
        unsafe { sys::cuMemsetD8Async(address, value, BYTES as usize, raw) }.result().unwrap();
        // SAFETY: as above; the source was just written on the same stream.
        unsafe { sys::cuMemcpyAsync(back.address(), address, BYTES as usize, raw) }.result().unwrap();
        finish(second, there);
        assert_eq!(read(second, there, &back, BYTES - 100, 100), [value; 100]);
        assert_eq!(read(first, here, &memory.segment, BYTES / 2, 100), [value; 100]);
        memory.give_back(first, here);
    }
    give_back(second, back);
}

#[test]
fn page_locked_memory_is_near_to_every_device() {
    let Some((first, second)) = two_devices() else { return };
    let there = second.create_stream().unwrap();
    let (pinned, ours, theirs) = (first.reserve(ClassId(1), BYTES).unwrap(), segment(&second), segment(&second));
    second.fill(there, &ours, 0, BYTES, 31).unwrap();
    second.copy(there, (&ours, 0), (&pinned, 7), 1000).unwrap();
    second.copy(there, (&pinned, 7), (&theirs, 9), 1000).unwrap();
    assert_eq!(read(&second, there, &theirs, 9, 1000), [31; 1000]);
    // A copy in the other direction has to be made by the device that owns the memory.
    let here = first.create_stream().unwrap();
    let refused = first.copy(here, (&pinned, 0), (&theirs, 0), 1);
    assert_eq!(
        refused,
        Err(CudaError::Misuse(Misuse::Foreign { call: "cuMemcpyAsync", own: 0, other: 1, remedy: Remedy::AskOwner }))
    );
    give_back(&first, pinned);
    give_back(&second, ours);
    give_back(&second, theirs);
}

#[test]
fn what_cannot_be_copied_is_refused_with_both_devices() {
    let Some((first, second)) = two_devices() else { return };
    let here = first.create_stream().unwrap();
    let (ours, theirs) = (segment(&first), segment(&second));
    let foreign = |call| Err(CudaError::Misuse(Misuse::Foreign { call, own: 0, other: 1, remedy: Remedy::AskOwner }));
    assert_eq!(first.fill(here, &theirs, 0, 1, 0), foreign("cuMemsetD8Async"));
    assert_eq!(first.upload(here, &[1], &theirs, 0), foreign("cuMemcpyHtoDAsync"));
    assert_eq!(first.download(here, &theirs, 0, &mut [0]), foreign("cuMemcpyDtoHAsync"));
    assert_eq!(first.copy(here, (&theirs, 0), (&theirs, 2000), 10), foreign("cuMemcpyAsync"));
    let outside = |end, device| {
        Err(CudaError::Misuse(Misuse::OutOfRange {
            call: None,
            role: Some(Role { name: end, device }),
            offset: BYTES,
            bytes: 1,
            segment_bytes: BYTES,
        }))
    };
    assert_eq!(first.copy(here, (&ours, BYTES), (&theirs, 0), 1), outside("source", 0));
    assert_eq!(first.copy(here, (&ours, 0), (&theirs, BYTES), 1), outside("target", 1));
    let text = first.copy(here, (&ours, 0), (&theirs, BYTES), 1).unwrap_err().to_string();
    assert!(text.contains("the target") && text.contains("on device 1"), "{text}");
    assert!(first.can_copy(&theirs) && first.can_copy(&ours));
    give_back(&first, ours);
    give_back(&second, theirs);
}

#[test]
fn streams_of_two_devices_wait_for_each_other() {
    let Some((first, second)) = two_devices() else { return };
    let (here, there) = (first.create_stream().unwrap(), second.create_stream().unwrap());
    let (ours, theirs) = (segment(&first), segment(&second));
    finish(&first, here);
    first.hold(here).unwrap();
    first.fill(here, &ours, 0, BYTES, 77).unwrap();
    let written = Point { stream: here, tick: first.mark(here) };
    second.wait_for_peer(there, &first, written).unwrap();
    second.copy(there, (&ours, 0), (&theirs, 0), BYTES).unwrap();
    let copied = Point { stream: there, tick: second.mark(there) };
    assert!(second.reached(there).unwrap() < copied.tick, "the copy has overtaken what writes its source");
    // In the other direction, the work that is queued next here waits for the copy there.
    first.wait_for_peer(here, &second, copied).unwrap();
    first.fill(here, &ours, 0, BYTES, 1).unwrap();
    first.unhold(here);
    assert_eq!(read(&second, there, &theirs, 0, BYTES as usize), vec![77; BYTES as usize]);
    finish(&first, here);
    let calls = second.fallible_calls();
    second.wait_for_peer(there, &first, written).unwrap();
    assert_eq!(second.fallible_calls(), calls, "a point that is known to be reached needs no driver");
    let beyond = Point { stream: here, tick: Tick(first.mark(here).0 + 5) };
    let refused = second.wait_for_peer(there, &first, beyond);
    assert!(
        matches!(refused, Err(CudaError::Misuse(Misuse::NeverMarked { point, .. })) if point == beyond),
        "{refused:?}"
    );
    give_back(&first, ours);
    give_back(&second, theirs);
}

#[test]
fn a_lost_device_is_named_and_the_other_goes_on() {
    let Some((first, second)) = two_devices() else { return };
    let (here, there) = (first.create_stream().unwrap(), second.create_stream().unwrap());
    let (ours, theirs) = (segment(&first), segment(&second));
    let point = Point { stream: there, tick: second.mark(there) };
    second.fail_nth(1, Fault::Lost);
    assert_eq!(second.copy(there, (&ours, 0), (&theirs, 0), 1).unwrap_err().fault(), Fault::Lost);
    for lost in [first.wait_for_peer(here, &second, point), second.copy(there, (&ours, 0), (&theirs, 0), 1)] {
        assert!(matches!(lost, Err(CudaError::Lost { device: 1, .. })), "{lost:?}");
    }
    first.fill(here, &ours, 0, 100, 3).unwrap();
    assert_eq!(read(&first, here, &ours, 0, 100), [3; 100]);
    give_back(&first, ours);
    give_back(&second, theirs);
}
