//! Buffers that begin at a multiple of an alignment. The swarm of the conformance suite has them among all else.

use millpond::history::Recording;
use millpond::{ALIGNMENT_MAX, Allocator, Error, ErrorKind, Stream};
use millpond_sim::Sim;

const MIB: u64 = 1 << 20;
const CONFS: [&str; 5] = [
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:direct",
];

fn opened(conf: &str) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

#[test]
fn a_buffer_begins_at_every_alignment_and_keeps_its_length() {
    for conf in CONFS {
        let (allocator, stream) = opened(conf);
        let mut held = vec![stream.allocate(512).unwrap()];
        for alignment in (0..=21).map(|log| 1 << log) {
            for bytes in [1, 512, 100_000, 3 * MIB] {
                let buffer = stream.allocate_aligned(bytes, alignment).unwrap();
                let address = buffer.address().unwrap();
                assert!(address.is_multiple_of(alignment), "{conf}: {address:#x} for {alignment}");
                assert!(buffer.len() == bytes && buffer.capacity() >= bytes, "{conf}: {buffer:?}");
                stream.fill(&buffer, 0, bytes, alignment.ilog2() as u8).unwrap();
                held.push(buffer);
            }
        }
        for (at, buffer) in held.iter().enumerate().skip(1) {
            let mut ends = [0xEE; 2];
            stream.download(buffer, 0, &mut ends[..1]).unwrap();
            stream.download(buffer, buffer.len() - 1, &mut ends[1..]).unwrap();
            assert_eq!(ends, [((at - 1) / 4) as u8; 2], "{conf}: {buffer:?}");
        }
        drop(held);
        allocator.check();
        assert_eq!(allocator.memory_allocated(), 0, "{conf}");
    }
}

#[test]
fn other_alignments_are_refused() {
    let (allocator, stream) = opened("");
    for alignment in [0, 3, 513, 3 << 20, ALIGNMENT_MAX + 1, 2 * ALIGNMENT_MAX, u64::MAX, 1 << 63] {
        for bytes in [0, 1, MIB] {
            let error = stream.allocate_aligned(bytes, alignment).unwrap_err();
            assert!(matches!(error, Error::Alignment { alignment: given, .. } if given == alignment), "{error}");
            assert_eq!(error.kind(), ErrorKind::Input);
            assert!(error.to_string().contains(&alignment.to_string()), "{error}");
        }
    }
    assert_eq!(allocator.memory_reserved(), 0);
}

#[test]
fn extremes_are_served_or_refused_by_name() {
    let (_, stream) = opened("");
    assert_eq!(stream.allocate_aligned(0, 4096).unwrap().address(), None);
    let huge = stream.allocate_aligned(MIB, ALIGNMENT_MAX).unwrap();
    assert!(huge.address().is_some_and(|address| address.is_multiple_of(ALIGNMENT_MAX)));
    for bytes in [u64::MAX, 1 << 60, (1 << 60) - 1] {
        let error = stream.allocate_aligned(bytes, 4096).unwrap_err();
        assert!(matches!(error, Error::TooLarge { requested } if requested == bytes), "{error}");
    }
}

/// The cache holds blocks that begin anywhere. Their reuse neither asks the driver nor loses the alignment.
#[test]
fn cached_memory_serves_every_alignment() {
    for conf in ["policy:classic", "policy:paged"] {
        let (allocator, stream) = opened(conf);
        let (first, rest) = (stream.allocate(512 * 3).unwrap(), stream.allocate(512 * 1000).unwrap());
        drop(rest);
        let reserved = allocator.memory_reserved();
        for alignment in [1024, 4096, 65536, 131_072, 1024] {
            let buffer = stream.allocate_aligned(1000, alignment).unwrap();
            assert!(buffer.address().is_some_and(|address| address.is_multiple_of(alignment)), "{conf}");
            let waste = allocator.memory_allocated() - 512 * 3 - 1024;
            assert_eq!(waste, alignment - 512, "{conf}: what the documentation says");
        }
        assert_eq!(allocator.memory_reserved(), reserved, "{conf}");
        drop(first);
    }
}

#[test]
fn an_aligned_buffer_grows_at_its_place() {
    for conf in ["policy:classic", "policy:paged"] {
        let (allocator, stream) = opened(conf);
        let _first = stream.allocate(512).unwrap();
        let mut buffer = stream.allocate_aligned(1000, 4096).unwrap();
        let (offset, address) = (buffer.offset(), buffer.address());
        stream.fill(&buffer, 0, 1000, 7).unwrap();
        buffer.grow(50_000).unwrap();
        assert_eq!((buffer.len(), buffer.offset(), buffer.address()), (51_000, offset, address), "{conf}");
        assert!(buffer.capacity() >= 51_000);
        stream.fill(&buffer, 50_999, 1, 9).unwrap();
        let requested = allocator.stats().requested_bytes.all.current;
        assert_eq!(requested, 512 + 51_000 + 4096 - 512, "{conf}: with the padding");
        drop(buffer);
        assert_eq!(allocator.stats().requested_bytes.all.current, 512, "{conf}");
        allocator.check();
    }
}

/// A history has the block, whose padding counts as requested, at its grant and at its free.
#[test]
fn a_history_shows_the_longer_request() {
    let (allocator, stream) = opened("policy:classic");
    allocator.record_history(Recording::all(100));
    drop(stream.allocate_aligned(1000, 4096).unwrap());
    let history = allocator.history();
    let of_blocks = history.entries.iter().filter(|entry| entry.action.name() != "segment_alloc");
    let told: Vec<_> = of_blocks.map(|entry| (entry.action.name(), entry.offset, entry.requested)).collect();
    let padded = 1000 + 4096 - 512;
    assert_eq!(told, [("alloc", 0, padded), ("free_requested", 0, padded), ("free_completed", 0, padded)]);
}

/// The program asked for 100 bytes, and the rest is for the alignment.
#[test]
fn a_refusal_names_the_bytes_and_the_alignment() {
    for conf in CONFS {
        let (allocator, stream) = opened(conf);
        allocator.set_limit(Some(32 * MIB));
        let error = stream.allocate_aligned(100, 64 * MIB).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("for a request of 100 bytes at a multiple of 64.00 MiB on stream"), "{conf}: {text}");
        let padded = error.out_of_memory().unwrap().report().requested_bytes;
        assert!((64 * MIB - 512..=64 * MIB).contains(&padded), "{conf}: {padded}");
    }
}
