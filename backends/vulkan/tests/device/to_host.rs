//! What the device wrote for the host: a barrier to the host is placed between the write and the end of its command
//! buffer. No software driver needs it and no layer checks it, so these tests check the recorded commands.

use millpond_backend::{Backend, ClassId, HostMemory, Point, StreamId, Transfer};
use millpond_vulkan::{Segment, Vulkan};

use crate::lab::Lab;
use crate::recorder::{Barrier, Command, Recorder};

/// Returns the segment's first byte as the host sees it.
fn seen_by_the_host(device: &Vulkan, segment: &Segment) -> u8 {
    let address = device.host_address(segment).expect("host classes are mapped");
    // SAFETY: the segment is mapped, and the work on it was waited for.
    unsafe { address.as_ptr().read_volatile() }
}

/// Asserts that a barrier to the host comes after every write to the segment.
fn expect_barrier(commands: &[Command], segment: &Segment) {
    let buffer = segment.buffer();
    let last = commands.iter().rposition(|command| match command {
        Command::Fill { to, .. } | Command::Copy { to, .. } => to.0 == buffer,
        Command::Barrier(_) => false,
    });
    let rest = &commands[last.expect("something was written")..];
    assert!(rest.contains(&Command::Barrier(Barrier::to_host())), "{rest:?}");
}

#[test]
fn what_transfers_write_for_the_host_is_made_available_to_it() {
    const BYTES: u64 = 4096;
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let source = device.reserve(ClassId::DEVICE, BYTES).unwrap();
    device.fill(stream, &source, 0, BYTES, 7).unwrap();
    device.submit(stream).unwrap();
    type Write = fn(&Vulkan, StreamId, &Segment, &Segment);
    let writes: [(Write, u8); 4] = [
        (|device, stream, source, host| device.copy(stream, (source, 0), (host, 0), BYTES).unwrap(), 7),
        (|device, stream, _, host| device.fill(stream, host, 0, BYTES, 8).unwrap(), 8),
        (|device, stream, _, host| device.fill(stream, host, 0, 3, 9).unwrap(), 9),
        (|device, stream, _, host| device.upload(stream, &[10; 5], host, 0).unwrap(), 10),
    ];
    for class in [ClassId(1), ClassId(2)] {
        for (write, value) in writes {
            let host = device.reserve(class, BYTES).unwrap();
            device.calls();
            write(&device, stream, &source, &host);
            // What comes later writes nothing for the host, and the barrier to it comes all the same.
            device.record(stream, |_| ()).unwrap();
            let tick = device.submit(stream).unwrap();
            assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
            assert_eq!(seen_by_the_host(&device, &host), value);
            expect_barrier(&device.commands(), &host);
            // SAFETY: the work was waited for, and no more is recorded.
            unsafe { device.release(host) };
        }
    }
    // SAFETY: as above.
    unsafe { device.release(source) };
}
