//! Segments that the host can access: their addresses, and the bytes that the host and device work see.

use millpond_backend::{Backend, ClassKind};

use super::bench::{Bench, Segment};
use super::breach;
use crate::device::DeviceUnderTest;
use crate::session::Stop;

const VERB: &str = "HostMemory::host_address";
const BYTES: u64 = 64 << 10;

/// Returns the address where the host sees a segment, as a number.
fn address<D: DeviceUnderTest>(bench: &Bench<'_, D>, segment: &Segment<D>) -> Result<Option<usize>, Stop> {
    let rule = "returns itself where Caps::host_memory announces it";
    let memory = bench.backend().host_memory().ok_or_else(|| breach("Backend::host_memory", "answers none", rule))?;
    Ok(memory.host_address(segment).map(|pointer| pointer.as_ptr().addr()))
}

/// Checks that each segment of the host's classes has an address that stays the same, and that no two segments share a
/// byte.
pub(super) fn own_addresses<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let (mut live, mut places) = (Vec::new(), Vec::new());
    for class in bench.classes() {
        for _ in 0..3 {
            let segment = bench.reserve(class, BYTES)?;
            let facts = bench.caps().class(class);
            match address(bench, &segment)? {
                Some(at) => places.push((at, facts.name.clone())),
                None if facts.kind == ClassKind::Host => {
                    let found = format!("a segment of the class {:?} has none", facts.name);
                    return Err(breach(
                        VERB,
                        found,
                        "where the host sees the segment; classes of the kind Host are the host's",
                    ));
                }
                None => {}
            }
            live.push(segment);
        }
    }
    for segment in &live {
        let (first, second) = (address(bench, segment)?, address(bench, segment)?);
        if first != second {
            let found = format!("{first:#x?} and then {second:#x?} for the same segment");
            return Err(breach(VERB, found, "valid for the whole segment and until its release"));
        }
    }
    places.sort();
    for pair in places.windows(2) {
        let ((at, class), (next, other)) = (&pair[0], &pair[1]);
        if at + BYTES as usize > *next {
            let found =
                format!("{BYTES} bytes at {at:#x} ({class}) reach over another live segment's at {next:#x} ({other})");
            return Err(breach(VERB, found, "valid for the whole segment: live segments do not overlap"));
        }
    }
    live.into_iter().try_for_each(|segment| bench.release(segment))
}

/// Checks that the host sees what device work wrote once it has waited for the work, and that device work reads what
/// the host wrote.
pub(super) fn sees_what_was_waited_for<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let Some(mover) = bench.backend().transfer() else {
        return Err(Stop::Skip("the device announces no fills and copies".to_owned()));
    };
    let stream = bench.streams[0];
    for class in bench.classes() {
        let [one, two] = [bench.reserve(class, BYTES)?, bench.reserve(class, BYTES)?];
        if address(bench, &one)?.is_some() {
            for round in 1_u8..=8 {
                let queued = mover
                    .fill(stream, &one, 0, BYTES, round)
                    .and_then(|()| mover.fill(stream, &two, 0, BYTES, round + 100))
                    .and_then(|()| mover.copy(stream, (&one, 0), (&two, BYTES / 2), BYTES / 2));
                queued.map_err(|error| breach("Transfer", error, "moves bytes of every class"))?;
                bench.finish_stream(stream)?;
                bench.host_holds(&one, BYTES, &[(0, round), (BYTES - 1, round)])?;
                bench.host_holds(&two, BYTES, &[(0, round + 100), (BYTES / 2, round), (BYTES - 1, round)])?;
                bench.host_writes(&one, BYTES - 1, round + 50)?;
                let mut seen = [0; 4];
                let read = mover.download(stream, &one, BYTES - 4, &mut seen);
                read.map_err(|error| breach("Transfer::download", error, "copies device bytes to the host"))?;
                if seen != [round, round, round, round + 50] {
                    let found =
                        format!("the host wrote {} to the last byte, and device work reads {seen:?}", round + 50);
                    return Err(breach(VERB, found, "where the host sees the segment"));
                }
            }
        }
        bench.release(one)?;
        bench.release(two)?;
    }
    Ok(())
}
