//! Work on the stream that a cache has set aside, through a handle that was created earlier.

use millpond_sim::{Completion, Sim};

use crate::allocator::Allocator;
use crate::error::Error;

#[test]
fn work_on_the_caches_own_stream_does_not_reach_bytes_that_are_lent() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let allocator = Allocator::new(sim.clone());
    let stream = allocator.create_stream().unwrap_or_else(|error| panic!("{error}"));
    let [cache, other] = [allocator.pinned(), allocator.pinned()].map(|cache| cache.unwrap_or_else(|e| panic!("{e}")));
    let device = stream.allocate(8).unwrap_or_else(|error| panic!("{error}"));
    assert!(stream.fill(&device, 0, 8, 7).is_ok() && stream.synchronize().is_ok());

    let [mut pinned, mut others] = [&cache, &other].map(|cache| cache.allocate(8).unwrap_or_else(|e| panic!("{e}")));
    let place = pinned.host_address();
    // This handle is like that of a thread that names the stream after it is opened and before it is set aside.
    let early = allocator.open(pinned.buffer().stream());
    let refused = |answer: Result<(), Error<_>>| {
        assert!(matches!(answer, Err(Error::SetAside { stream }) if stream == early.id()), "{answer:?}");
    };
    refused(early.download_pinned((&device, 0), (&mut pinned, 0), 8));
    refused(early.upload_pinned((&pinned, 0), (&device, 0), 8));
    refused(pinned.record_use(&early));
    refused(allocator.stream(early.id()).map(drop));

    drop(pinned);
    let mut next = cache.allocate(8).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(next.host_address(), place);
    next.bytes_mut().unwrap_or_else(|error| panic!("{error}")).fill(2);
    let lent = next.bytes().unwrap_or_else(|error| panic!("{error}"));
    sim.complete(early.id());
    assert_eq!(lent, [2; 8], "bytes changed under a slice");

    // For another cache this is a stream like any other.
    assert!(early.download_pinned((&device, 0), (&mut others, 0), 8).is_ok());
    assert!(matches!(others.bytes(), Err(Error::InUse { .. })));
    assert!(others.wait().is_ok());
    assert!(matches!(others.bytes(), Ok([7, 7, 7, 7, 7, 7, 7, 7])));
    assert_eq!(sim.violations(), []);
}
