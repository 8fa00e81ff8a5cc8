//! Segments: where they are, what they hold, and how a request that is too large is refused.

use millpond_backend::{Backend, BackendError as _, ClassId, ClassKind, Fault};

use super::bench::{Bench, Segment, told};
use super::{advised, breach, wrong_byte};
use crate::device::DeviceUnderTest;
use crate::session::Stop;

/// The sizes of the segments of each class that are live together, in bytes.
const SIZES: [u64; 5] = [64, 4096 + 12, 1 << 20, 8 << 20, 8 << 20];

fn some_of_each<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<Vec<(ClassId, u64, Segment<D>)>, Stop> {
    let mut live = Vec::new();
    for class in bench.classes() {
        for bytes in SIZES {
            live.push((class, bytes, bench.reserve(class, bytes)?));
        }
    }
    Ok(live)
}

/// Checks that segments start at the alignment of their class, and that no two share an address.
pub(super) fn aligned_and_apart<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const VERB: &str = "Backend::address";
    let live = some_of_each(bench)?;
    let mut places = Vec::new();
    for (class, bytes, segment) in &live {
        let Some(address) = bench.backend().address(segment) else { continue };
        let alignment = bench.caps().class(*class).alignment;
        if !address.is_multiple_of(alignment) {
            let found = format!("a segment of class {} starts at {address:#x}, no multiple of {alignment}", class.0);
            let rule = "every segment starts at a multiple of its Class::alignment";
            let advice = "announce the driver's alignment, or round addresses up in reserve";
            return Err(advised(breach(VERB, found, rule), advice));
        }
        if bench.backend().address(segment) != Some(address) {
            return Err(breach(VERB, format!("another than {address:#x} the second time"), "constant per segment"));
        }
        places.push((address, *bytes));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        let [(address, bytes), (next, _)] = [pair[0], pair[1]];
        if address + bytes > next {
            let found = format!("{bytes} bytes at {address:#x} reach over another live segment at {next:#x}");
            return Err(breach(
                VERB,
                found,
                "live segments do not overlap, and each holds the bytes that were asked for",
            ));
        }
    }
    live.into_iter().try_for_each(|(_, _, segment)| bench.release(segment))
}

/// Checks that every segment holds the number of bytes asked for, and keeps them while its neighbours are written.
pub(super) fn hold_what_was_asked<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const RULE: &str = "live segments of one backend do not overlap, and each holds the bytes that were asked for";
    let (mover, stream) = (bench.mover()?, bench.streams[0]);
    let live = some_of_each(bench)?;
    let all = || live.iter().zip(1_u8..);
    for ((class, bytes, segment), value) in all() {
        // Where fills write whole words, the last bytes of an odd segment are left out.
        let whole = bytes / bench.device.transfer_alignment() * bench.device.transfer_alignment();
        mover.fill(stream, segment, 0, whole, value).map_err(|error| {
            let found = format!("of {bytes} bytes of class {}, {whole} cannot be filled: {error}", class.0);
            breach("Backend::reserve", found, RULE)
        })?;
    }
    for ((class, bytes, segment), value) in all() {
        for offset in [0, bytes / 2, bytes - 16] {
            let mut seen = [0; 16];
            let read = mover.download(stream, segment, offset, &mut seen);
            read.map_err(|error| {
                breach("Transfer::download", format!("16 bytes at {offset} of {bytes}: {error}"), RULE)
            })?;
            if let Some(wrong) = wrong_byte(&seen, &[value; 16]) {
                let found = format!(
                    "{bytes} bytes of class {} were filled with {value}, then other segments with other values; read \
                     from {offset} on, {wrong}",
                    class.0
                );
                let advice = "if a check of the group transfers fails too, mend that first";
                return Err(advised(breach("Backend::reserve", found, RULE), advice));
            }
        }
    }
    live.into_iter().try_for_each(|(_, _, segment)| bench.release(segment))
}

/// Checks that a request beyond the device's memory is refused with an out-of-memory fault, and that the next request
/// is served.
pub(super) fn too_much<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const RULE: &str = "Fault::OutOfMemory when there is no room, or the class cannot make a segment so large";
    for class in bench.classes() {
        let facts = bench.caps().class(class).clone();
        // This does not ask for all of the host's memory: an operating system may grant it and then fail another
        // process.
        let refuses = facts.kind == ClassKind::Device && !bench.caps().oversubscribes;
        let more_than_all = refuses.then(|| facts.total_bytes.saturating_add(1 << 20));
        let more_than_one = facts.max_segment_bytes.checked_add(1);
        let (name, total, most) = (&facts.name, facts.total_bytes, facts.max_segment_bytes);
        let of = format!("of the class {name:?}, whose total_bytes are {total} and max_segment_bytes {most},");
        for bytes in more_than_all.into_iter().chain(more_than_one) {
            let before = bench.told();
            match bench.backend().reserve(class, bytes) {
                Err(error) if error.fault() == Fault::OutOfMemory => {}
                Err(error) => {
                    let found = format!("{bytes} bytes {of} are refused as {:?}: {error}", error.fault());
                    let advice = "return Fault::OutOfMemory from BackendError::fault for this error";
                    return Err(advised(breach("Backend::reserve", found, RULE), advice));
                }
                Ok(segment) => {
                    bench.release(segment)?;
                    let found = breach("Backend::reserve", format!("{bytes} bytes {of} are granted"), RULE);
                    let advice = "announce all memory as Class::total_bytes, in bytes, or Caps::oversubscribes";
                    return Err(advised(found, advice));
                }
            }
            if bench.told() != before {
                let (before, after) = (told(before), told(bench.told()));
                let found = format!("{bytes} bytes are refused, and what is held was {before} and is {after}");
                return Err(breach("Backend::reserve", found, "what is refused takes nothing"));
            }
        }
        let segment = bench.reserve(class, 4096)?;
        bench.release(segment)?;
    }
    Ok(())
}
