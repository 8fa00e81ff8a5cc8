//! Several devices in one process: an object of one is refused by the other, and nothing is lost.

use millpond::backend::ClassId;
use millpond::{Allocator, Error};
use millpond_sim::Sim;

fn device(number: u32) -> Allocator<Sim> {
    Allocator::builder(Sim::new()).device(number).build().expect("default settings")
}

#[test]
fn what_belongs_to_another_device_is_refused_with_both_devices() {
    let (first, second) = (device(0), device(1));
    let (ours, theirs) = (first.create_stream().unwrap(), second.create_stream().unwrap());
    let buffer = first.allocate(4096, &ours).unwrap();

    let refused = |what: &str, error: &Error<_>, from: u32, to: u32| match error {
        Error::WrongDevice { what: named, belongs_to, given_to } => {
            let [from, to] = [from, to].map(|number| format!("device {number} (simulated H200)"));
            assert_eq!((*named, &**belongs_to, &**given_to), (what, &*from, &*to));
        }
        other => panic!("{other}"),
    };
    refused("stream", &first.allocate(4096, &theirs).unwrap_err(), 1, 0);
    refused("stream", &buffer.record_stream(&theirs).unwrap_err(), 1, 0);
    let (error, buffer) = second.free(buffer).unwrap_err();
    refused("buffer", &error, 0, 1);

    // The buffer was returned unchanged, and its own allocator accepts it.
    assert_eq!((first.memory_allocated(), second.memory_allocated()), (4096, 0));
    assert!(first.free(buffer).is_ok());
    assert_eq!(first.memory_allocated(), 0);
    first.check();
    second.check();
}

/// One allocator for each class of a device is how a program uses them, so the device alone does not tell them apart.
#[test]
fn two_allocators_of_one_device_are_told_apart() {
    let sim = Sim::new();
    let allocator = |class: ClassId| Allocator::builder(sim.clone()).class(class).build().unwrap();
    let [device, pinned, others] = [ClassId::DEVICE, ClassId(1), ClassId(1)].map(allocator);
    let buffer = pinned.allocate(4096, &pinned.create_stream().unwrap()).unwrap();
    let (error, buffer) = device.free(buffer).unwrap_err();
    let own = "the buffer belongs to the allocator of device 0 (simulated H200, class pinned) and was given to that of \
               device 0 (simulated H200, class device); give it to the allocator that it came from";
    assert_eq!(error.to_string(), own);
    let (error, buffer) = others.free(buffer).unwrap_err();
    let same = "the buffer belongs to the allocator of device 0 (simulated H200) and was given to another allocator of \
                device 0 (simulated H200); give it to the allocator that it came from";
    assert_eq!(error.to_string(), same);
    assert!(pinned.free(buffer).is_ok());
}
