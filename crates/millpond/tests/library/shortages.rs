//! Refusals for lack of something other than memory: the error names it, and its advice helps.

use millpond::backend::{PageCaps, Shortage};
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_sim::{Sim, SimBuilder, SimError};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn opened(sim: SimBuilder, conf: &str) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::builder(sim.build()).conf(conf).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

/// Returns the text of a refusal, which names this shortage.
fn refused(result: Result<Buffer<Sim>, Error<SimError>>, short: Shortage) -> String {
    let error = result.unwrap_err();
    let told = error.out_of_memory().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(told.shortage(), short, "{told}");
    told.to_string()
}

#[test]
fn allocations_run_out() {
    let (allocator, stream) = opened(Sim::builder().max_allocations(4), "policy:classic");
    let mut held: Vec<_> = (0..4).map(|_| stream.allocate(12 * MIB).unwrap()).collect();
    let text = refused(stream.allocate(12 * MIB), Shortage::Allocations);
    assert!(text.contains("the device allows 4 at a time"), "{text}");
    assert!(text.contains("What to do: free buffers and call empty_cache"), "{text}");
    held.pop();
    allocator.empty_cache().unwrap();
    drop(stream.allocate(16 * MIB).unwrap());

    // The other advice: longer segments hold more blocks.
    let blocks = |conf| {
        let (_allocator, stream) = opened(Sim::builder().max_allocations(4), conf);
        let mut held = Vec::new();
        while let Ok(buffer) = stream.allocate(9 * MIB) {
            held.push(buffer);
        }
        held.len()
    };
    assert_eq!((blocks("policy:classic"), blocks("policy:classic,large_segment_size_mb:64")), (8, 28));
}

#[test]
fn pages_are_allocations_too() {
    let (allocator, stream) = opened(Sim::builder().max_allocations(4), "policy:paged");
    let mut held = Vec::new();
    let text = loop {
        match stream.allocate(4 * MIB) {
            Ok(buffer) => held.push(buffer),
            error => break refused(error, Shortage::Allocations),
        }
    };
    assert!(text.contains("out of allocations"), "{text}");
    held.clear();
    allocator.empty_cache().unwrap();
    drop(stream.allocate(4 * MIB).unwrap());
}

#[test]
fn addresses_run_out() {
    let (allocator, stream) = opened(Sim::builder().address_space_bytes(1 << 30), "policy:paged");
    let mut held = Vec::new();
    let text = loop {
        match stream.allocate_growable(MIB, 200 * MIB) {
            Ok(buffer) => held.push(buffer),
            error => break refused(error, Shortage::Addresses),
        }
    };
    assert!(held.len() > 1 && text.contains("out of addresses"), "{text}");
    assert!(text.contains("What to do: free buffers that reserve addresses"), "{text}");
    held.clear();
    allocator.empty_cache().unwrap();
    drop(stream.allocate_growable(MIB, 200 * MIB).unwrap());
}

#[test]
fn one_piece_is_too_large() {
    let (_allocator, stream) = opened(Sim::builder().max_segment_bytes(64 * MIB), "policy:classic");
    let text = refused(stream.allocate(100 * MIB), Shortage::Piece);
    assert!(text.contains("What to do: request several buffers"), "{text}");
    drop([(); 2].map(|()| stream.allocate(50 * MIB).unwrap()));
}

/// Where buffers have to be freed as well, several requests alone would not do.
#[test]
fn a_piece_that_is_too_large_for_a_full_device_takes_both() {
    let sim = Sim::builder().max_segment_bytes(64 * MIB).total_bytes(128 * MIB);
    let (_allocator, stream) = opened(sim, "policy:classic");
    let held = stream.allocate(50 * MIB).unwrap();
    let text = refused(stream.allocate(100 * MIB), Shortage::Piece);
    assert!(text.contains("What to do: free buffers of 22.00 MiB or more, and request several buffers"), "{text}");
    let several = [(); 2].map(|()| stream.allocate(50 * MIB));
    assert!(several.iter().any(Result::is_err), "more than the device has");
    drop(several);
    drop(held);
    drop([(); 2].map(|()| stream.allocate(50 * MIB).unwrap()));
}

/// No number of buffers makes a device larger: whatever the driver was short of, the request has to be smaller.
#[test]
fn more_than_the_whole_device_has_is_asked_for_in_vain() {
    let devices = [
        Sim::builder(),
        Sim::builder().max_segment_bytes(GIB),
        Sim::builder().address_space_bytes(4 * GIB),
        Sim::builder().pages(Some(PageCaps::new(2 * MIB).with_address_bytes(4 * GIB))),
    ];
    for device in devices {
        for conf in ["policy:paged", "policy:classic", "policy:classic,expandable_segments:True", "policy:direct"] {
            for (bytes, held) in [(3 * GIB, 0), (32 << 40, 0), (1 << 50, 0), (3 * GIB, MIB), (1 << 50, MIB)] {
                let (_allocator, stream) = opened(device.clone().total_bytes(2 * GIB), conf);
                let _held = stream.allocate(held).unwrap();
                let error = stream.allocate(bytes).unwrap_err();
                let told = error.out_of_memory().unwrap();
                let text = told.to_string();
                assert!(text.ends_with("What to do: ask for less: the device has 2.00 GiB in all."), "{conf}: {text}");
                assert_eq!(told.explanation().remedies, [], "{conf}: {text}");
            }
        }
    }
}

/// The device says how many addresses it has, and the driver is not asked for more.
#[test]
fn announced_addresses_run_out() {
    let pages = PageCaps::new(2 * MIB).with_address_bytes(1 << 30);
    let (allocator, stream) = opened(Sim::builder().pages(Some(pages)), "policy:paged");
    let mut held = Vec::new();
    let text = loop {
        match stream.allocate_growable(MIB, 200 * MIB) {
            Ok(buffer) => held.push(buffer),
            error => break refused(error, Shortage::Addresses),
        }
    };
    assert!(held.len() > 1 && text.contains("of the 1024.00 MiB that the device has for ranges"), "{text}");
    held.clear();
    allocator.empty_cache().unwrap();
    drop(stream.allocate_growable(MIB, 200 * MIB).unwrap());
}

/// Where memory itself is short, or only the limit, nothing else is named.
#[test]
fn memory_stays_memory() {
    let (_allocator, stream) = opened(Sim::builder().total_bytes(64 * MIB), "policy:classic");
    let text = refused(stream.allocate(100 * MIB), Shortage::Memory);
    assert!(!text.contains("last answer"), "{text}");
    let (allocator, stream) = opened(Sim::builder().max_allocations(1), "policy:classic");
    allocator.set_limit(Some(32 * MIB));
    let _held = stream.allocate(30 * MIB).unwrap();
    let text = refused(stream.allocate(30 * MIB), Shortage::Memory);
    assert!(text.contains("raise the limit"), "{text}");
}
