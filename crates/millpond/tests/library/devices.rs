//! Several devices in one process: an object of one is refused by the other, and nothing is lost.

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
