//! Two allocators, one on each device: each has memory and statistics of its own, and buffers of one are copied to the
//! other's by the streams of either.

use millpond::{Allocator, Buffer, Error, Stream};
use millpond_backend::Fault;
use millpond_cuda::CudaError;
use millpond_cuda::testing::Cuda;

use crate::lab::two_devices;

const BYTES: u64 = 3 << 20;

fn allocators(conf: &str) -> Option<[Allocator<Cuda>; 2]> {
    let (first, second) = two_devices()?;
    let build = |cuda: Cuda, number| Allocator::builder(cuda).device(number).conf(conf).build();
    match (build(first, 0), build(second, 1)) {
        (Ok(first), Ok(second)) => Some([first, second]),
        (first, second) => {
            eprintln!("SKIPPED: {}", first.and(second).expect_err("one of them is not built"));
            None
        }
    }
}

fn bytes(stream: &Stream<Cuda>, buffer: &Buffer<Cuda>) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len() as usize];
    stream.download(buffer, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn each_has_memory_and_books_of_its_own() {
    for conf in ["policy:paged", "policy:classic"] {
        let Some([first, second]) = allocators(conf) else { continue };
        let (here, there) = (first.create_stream().unwrap(), second.create_stream().unwrap());
        let buffer = here.allocate(BYTES).unwrap();
        assert_eq!((first.memory_allocated(), second.memory_allocated()), (buffer.capacity(), 0));
        assert_eq!((second.memory_reserved(), second.backend().held_bytes()), (0, 0), "{conf}");
        let other = there.allocate(2 * BYTES).unwrap();
        assert_eq!((first.memory_allocated(), second.memory_allocated()), (buffer.capacity(), other.capacity()));
        assert_eq!(first.backend().held_bytes(), first.memory_reserved(), "{conf}");
        drop(buffer);
        first.empty_cache().unwrap();
        assert_eq!((first.memory_reserved(), second.memory_reserved() >= other.capacity()), (0, true), "{conf}");
        first.check();
        second.check();
    }
}

/// Only the devices wait, and each buffer is dropped as soon as the work on it is queued.
#[test]
fn bytes_go_round_between_buffers_of_two_devices() {
    for conf in ["policy:paged", "policy:classic"] {
        let Some([first, second]) = allocators(conf) else { continue };
        let (here, there) = (first.create_stream().unwrap(), second.create_stream().unwrap());
        let (first_device, second_device) = (first.backend().clone(), second.backend().clone());
        for round in 1..20 {
            let from = here.allocate(BYTES).unwrap();
            here.fill(&from, 0, BYTES, round).unwrap();
            let to = there.allocate(BYTES).unwrap();
            second_device.wait_for_peer(there.id(), &first_device, here.point()).unwrap();
            there.copy((&from, 0), (&to, 0), BYTES).unwrap();
            first_device.wait_for_peer(here.id(), &second_device, there.point()).unwrap();
            drop(from);
            // The same block is allocated again, and is written behind the copy.
            let again = here.allocate(BYTES).unwrap();
            here.fill(&again, 0, BYTES, 200).unwrap();
            // The copy back is made by a stream of the first device.
            let back = here.allocate(BYTES).unwrap();
            first_device.wait_for_peer(here.id(), &second_device, there.point()).unwrap();
            here.copy((&to, 0), (&back, 0), BYTES).unwrap();
            second_device.wait_for_peer(there.id(), &first_device, here.point()).unwrap();
            drop(to);
            assert_eq!(bytes(&here, &back), vec![round; BYTES as usize], "{conf}, round {round}");
        }
        first.check();
        second.check();
    }
}

#[test]
fn what_is_the_others_is_refused_with_both_devices() {
    let Some([first, second]) = allocators("policy:auto") else { return };
    let (here, there) = (first.create_stream().unwrap(), second.create_stream().unwrap());
    let (ours, theirs) = (here.allocate(BYTES).unwrap(), there.allocate(BYTES).unwrap());
    let number = |device: &str| device.split(' ').nth(1).and_then(|number| number.parse().ok());
    let others = |error: Error<CudaError>| match error {
        Error::WrongDevice { what, belongs_to, given_to } => (what, number(&belongs_to), number(&given_to)),
        other => panic!("{other}"),
    };
    assert_eq!(others(first.allocate(1, &there).unwrap_err()), ("stream", Some(1), Some(0)));
    assert_eq!(others(ours.record_stream(&there).unwrap_err()), ("stream", Some(1), Some(0)));
    assert_eq!(others(here.fill(&theirs, 0, 1, 1).unwrap_err()), ("buffer", Some(1), Some(0)));
    assert_eq!(others(here.upload(&theirs, 0, &[1]).unwrap_err()), ("buffer", Some(1), Some(0)));
    assert_eq!(others(here.copy((&theirs, 0), (&theirs, 512), 1).unwrap_err()), ("buffer", Some(1), Some(0)));
    let (error, theirs) = first.free(theirs).unwrap_err();
    assert_eq!(others(error), ("buffer", Some(1), Some(0)));
    assert!(second.free(theirs).is_ok());
    drop(ours);
    here.synchronize().unwrap();
    there.synchronize().unwrap();
}

#[test]
fn a_lost_device_leaves_the_other_allocator_alone() {
    let Some([first, second]) = allocators("policy:auto") else { return };
    let (here, there) = (first.create_stream().unwrap(), second.create_stream().unwrap());
    second.backend().fail_nth(1, Fault::Lost);
    let error = there.allocate(BYTES).unwrap_err();
    assert_eq!(error.fault(), Fault::Lost, "{error}");
    let told = there.allocate(BYTES).unwrap_err();
    assert!(matches!(&told, Error::Driver { source: CudaError::Lost { device: 1, .. }, .. }), "{told:?}");
    let buffer = here.allocate(BYTES).unwrap();
    here.fill(&buffer, 0, BYTES, 9).unwrap();
    assert_eq!(bytes(&here, &buffer), vec![9; BYTES as usize]);
}
