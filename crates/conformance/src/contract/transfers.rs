//! Fills, copies, uploads and downloads. The host keeps the expected bytes of each segment, and the whole segment is
//! compared with them after each transfer, so that a byte too many shows as well as a byte too few.

use millpond_backend::{Backend, ClassId, Point, StreamId};

use super::bench::{Bench, Segment};
use super::{breach, wrong_byte};
use crate::device::DeviceUnderTest;
use crate::session::Stop;

/// The size of the segments, in bytes. It is no power of two.
const BYTES: u64 = 9000;
/// The size of a transfer that no staging buffer holds in one piece, in bytes.
const LARGE_BYTES: u64 = (9 << 20) + 64;
const UPLOAD: (&str, &str) = ("Transfer::upload", "copies host bytes to the device, to the offset of the segment");
const DOWNLOAD: (&str, &str) =
    ("Transfer::download", "copies device bytes to the host, after all earlier work of the stream");
const FILL: (&str, &str) = ("Transfer::fill", "sets as many bytes as it is told to the value, from the offset on");
const COPY: (&str, &str) = ("Transfer::copy", "copies from one place of the device to another");

/// A verb's name and rule.
type Verb = (&'static str, &'static str);

/// Returns bytes that differ from place to place and from seed to seed.
pub(super) fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    let byte = |at: u64| ((at + (seed << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    (0..bytes).map(byte).collect()
}

/// A segment, and the bytes that it must hold.
struct Pictured<'b, 'd, D: DeviceUnderTest> {
    bench: &'b Bench<'d, D>,
    stream: StreamId,
    class: ClassId,
    segment: Segment<D>,
    bytes: Vec<u8>,
}

impl<'b, 'd, D: DeviceUnderTest> Pictured<'b, 'd, D> {
    /// Reserves a segment and uploads a pattern to it.
    fn new(bench: &'b Bench<'d, D>, class: ClassId, seed: u64) -> Result<Self, Stop> {
        let (stream, segment) = (bench.streams[0], bench.reserve(class, BYTES)?);
        let mut new = Self { bench, stream, class, segment, bytes: vec![0; BYTES as usize] };
        new.upload(0, &pattern(BYTES, seed))?;
        Ok(new)
    }

    fn upload(&mut self, offset: u64, from: &[u8]) -> Result<(), Stop> {
        let done = self.bench.mover()?.upload(self.stream, from, &self.segment, offset);
        self.did(UPLOAD, offset, from.len() as u64, done)?;
        self.bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn did(&self, verb: Verb, offset: u64, bytes: u64, done: Result<(), impl std::fmt::Display>) -> Result<(), Stop> {
        let class = self.class.0;
        done.map_err(|error| {
            breach(verb.0, format!("{bytes} bytes at {offset} of {BYTES}, class {class}: {error}"), verb.1)
        })
    }

    /// Checks that the whole segment holds the expected bytes, after a verb that was given this range.
    fn expect(&self, verb: Verb, offset: u64, bytes: u64) -> Result<(), Stop> {
        let mut seen = vec![!self.bytes[0]; self.bytes.len()];
        let done = self.bench.mover()?.download(self.stream, &self.segment, 0, &mut seen);
        self.did(DOWNLOAD, 0, BYTES, done)?;
        let Some(at) = (0..seen.len()).find(|&at| seen[at] != self.bytes[at]) else { return Ok(()) };
        let inside = if (offset..offset + bytes).contains(&(at as u64)) { "inside" } else { "outside" };
        let (class, found, expected) = (self.class.0, seen[at], self.bytes[at]);
        let found = format!(
            "of {bytes} bytes at {offset} of {BYTES}, class {class}: byte {at}, {inside} of these, is {found:#04x} and \
             must be {expected:#04x}"
        );
        Err(breach(verb.0, found, verb.1))
    }

    fn end(self) -> Result<(), Stop> {
        self.bench.release(self.segment)
    }
}

/// Returns offsets and lengths at the edges, in multiples of what the device transfers.
fn ranges<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Vec<(u64, u64)> {
    let step = bench.device.transfer_alignment();
    let middle = BYTES / 2 / step * step;
    let list = [
        (0, BYTES),
        (0, step),
        (BYTES - step, step),
        (step, BYTES - 2 * step),
        (step, step),
        (3 * step, 5 * step),
        (middle + step, 7 * step),
        (middle, BYTES - middle),
    ];
    list.to_vec()
}

/// Checks that a download returns what was uploaded, for various offsets and lengths.
pub(super) fn upload_and_download<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    for class in bench.classes() {
        let mut segment = Pictured::new(bench, class, 1)?;
        segment.expect(UPLOAD, 0, BYTES)?;
        for (seed, (offset, bytes)) in (2..).zip(ranges(bench)) {
            let mut sent = pattern(bytes, seed);
            segment.upload(offset, &sent)?;
            // The upload has read the bytes before it returned, so that this change has no effect.
            sent.fill(0xEE);
            segment.expect(UPLOAD, offset, bytes)?;
        }
        // Downloads take any offset and any length.
        for (offset, bytes) in [(0, BYTES), (1, 1), (5, 3), (BYTES - 1, 1), (7, BYTES - 8), (BYTES / 2 + 1, 70)] {
            let (margin, end) = (8, (offset + bytes) as usize);
            let mut seen = vec![0xA5; bytes as usize + 2 * margin];
            let read = bench.mover()?.download(
                segment.stream,
                &segment.segment,
                offset,
                &mut seen[margin..][..bytes as usize],
            );
            segment.did(DOWNLOAD, offset, bytes, read)?;
            if seen[margin..][..bytes as usize] != segment.bytes[offset as usize..end] {
                let found =
                    format!("{bytes} bytes at {offset} of {BYTES}, class {}, are not those that are there", class.0);
                return Err(breach(DOWNLOAD.0, found, DOWNLOAD.1));
            }
            begun_download(bench, &segment, offset, bytes)?;
        }
        segment.end()?;
    }
    Ok(())
}

/// Checks that a download which was begun has the bytes once its tick is reached, where the device has such downloads,
/// and that a wait of a thread that sleeps ends there.
fn begun_download<D: DeviceUnderTest>(
    bench: &Bench<'_, D>,
    from: &Pictured<'_, '_, D>,
    offset: u64,
    bytes: u64,
) -> Result<(), Stop> {
    const BEGUN: Verb = ("Transfer::begin_download", "what the bytes are taken from once that tick is reached");
    const ASLEEP: Verb = ("Backend::wait_asleep", "does the same as wait");
    let begun = bench.mover()?.begin_download(from.stream, &from.segment, offset, bytes);
    let Some((tick, readback)) = begun.map_err(|error| breach(BEGUN.0, error, BEGUN.1))? else { return Ok(()) };
    let waited = bench.backend().wait_asleep(Point { stream: from.stream, tick });
    let reached = waited.map_err(|error| breach(ASLEEP.0, error, ASLEEP.1))?;
    if reached < tick {
        return Err(breach(ASLEEP.0, format!("tick {tick} was submitted, and {reached} is reached"), ASLEEP.1));
    }
    let mut seen = vec![0xA5; bytes as usize];
    readback.read(&mut seen).map_err(|error| breach(BEGUN.0, error, BEGUN.1))?;
    if seen != from.bytes[offset as usize..(offset + bytes) as usize] {
        let found = format!("{bytes} bytes at {offset} of {BYTES} are not those that are there");
        return Err(breach(BEGUN.0, found, BEGUN.1));
    }
    Ok(())
}

/// Checks that a fill writes its range and no other byte.
pub(super) fn fill<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    for class in bench.classes() {
        let mut segment = Pictured::new(bench, class, 20)?;
        for (value, (offset, bytes)) in [0, 1, 0x7F, 0x80, 0xFF, 3, 4, 5].into_iter().zip(ranges(bench)) {
            let done = bench.mover()?.fill(segment.stream, &segment.segment, offset, bytes, value);
            segment.did(FILL, offset, bytes, done)?;
            segment.bytes[offset as usize..(offset + bytes) as usize].fill(value);
            segment.expect(FILL, offset, bytes)?;
        }
        segment.end()?;
    }
    Ok(())
}

/// Checks that a copy reads and writes the given ranges: from each class to each, and within a segment.
pub(super) fn copy<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let step = bench.device.transfer_alignment();
    for (seed, source) in (40..).zip(bench.classes()) {
        let from = Pictured::new(bench, source, seed)?;
        if !bench.mover()?.can_copy(&from.segment) {
            let found = format!("answers no for a segment of its own, class {}", source.0);
            return Err(breach("Transfer::can_copy", found, "any of this device's"));
        }
        for class in bench.classes() {
            let mut to = Pictured::new(bench, class, 60)?;
            for (offset, bytes) in ranges(bench) {
                let begin = (BYTES - offset - bytes) / 2 / step * step;
                let done = bench.mover()?.copy(to.stream, (&from.segment, begin), (&to.segment, offset), bytes);
                to.did(COPY, offset, bytes, done)?;
                to.bytes[offset as usize..][..bytes as usize]
                    .copy_from_slice(&from.bytes[begin as usize..][..bytes as usize]);
                to.expect(COPY, offset, bytes)?;
            }
            from.expect(COPY, 0, BYTES)?;
            to.end()?;
        }
        from.end()?;
        let mut within = Pictured::new(bench, source, seed)?;
        let (begin, offset, bytes) = (BYTES / 2 / step * step, step, 100 * step);
        let done = bench.mover()?.copy(within.stream, (&within.segment, begin), (&within.segment, offset), bytes);
        within.did(COPY, offset, bytes, done)?;
        within.bytes.copy_within(begin as usize..(begin + bytes) as usize, offset as usize);
        within.expect(COPY, offset, bytes)?;
        within.end()?;
    }
    Ok(())
}

/// Checks that every verb refuses a range that leaves the segment, and that nothing is written.
pub(super) fn ranges_are_checked<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const RULE: &str = "an error for a range that leaves the segment";
    let step = bench.device.transfer_alignment();
    let (stream, mover) = (bench.streams[0], bench.mover()?);
    let (target, other) = (Pictured::new(bench, ClassId::DEVICE, 80)?, Pictured::new(bench, ClassId::DEVICE, 81)?);
    let (inside, outside) = (&target.segment, u64::MAX / step * step);
    for (offset, bytes) in
        [(0, BYTES + step), (BYTES, step), (BYTES - step, 2 * step), (outside, step), (2 * BYTES / step * step, 16)]
    {
        let sent = vec![0xCC; bytes as usize];
        let mut back = sent.clone();
        let answers = [
            ("Transfer::upload", mover.upload(stream, &sent, inside, offset).is_ok()),
            ("Transfer::download", mover.download(stream, inside, offset, &mut back).is_ok()),
            ("Transfer::fill", mover.fill(stream, inside, offset, bytes, 0xCC).is_ok()),
            ("Transfer::copy, to", mover.copy(stream, (&other.segment, 0), (inside, offset), bytes).is_ok()),
            ("Transfer::copy, from", mover.copy(stream, (inside, offset), (&other.segment, 0), bytes).is_ok()),
        ];
        if let Some((verb, _)) = answers.into_iter().find(|(_, granted)| *granted) {
            let found = format!("{bytes} bytes at {offset} of a segment of {BYTES} bytes are taken");
            return Err(breach(verb, found, RULE));
        }
    }
    target.expect(("Transfer", RULE), 0, 0)?;
    other.expect(("Transfer", RULE), 0, 0)?;
    target.end()?;
    other.end()
}

/// Checks that each call is queued behind those before it, and that a download waits for them without further calls.
pub(super) fn in_order<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const RULE: &str = "each call is queued on a stream in order";
    let mover = bench.mover()?;
    let [from, to] = [bench.reserve(ClassId::DEVICE, BYTES)?, bench.reserve(ClassId::DEVICE, BYTES)?];
    for (value, &stream) in (1_u8..).zip(bench.streams.iter().cycle().take(12)) {
        let queued = mover
            .fill(stream, &from, 0, BYTES, value)
            .and_then(|()| mover.copy(stream, (&from, 0), (&to, 0), BYTES))
            .and_then(|()| mover.upload(stream, &[value ^ 0x55; 64], &from, 0))
            .and_then(|()| mover.fill(stream, &from, 64, 64, 0));
        queued.map_err(|error| breach("Transfer", error, RULE))?;
        let mut seen = [0; 128];
        for (segment, expected) in
            [(&to, [value; 128]), (&from, [[value ^ 0x55; 64], [0; 64]].concat().try_into().unwrap_or([0; 128]))]
        {
            let read = mover.download(stream, segment, 0, &mut seen);
            read.map_err(|error| breach(DOWNLOAD.0, error, DOWNLOAD.1))?;
            if let Some(wrong) = wrong_byte(&seen, &expected) {
                let found = format!(
                    "on {stream}: filled with {value}, copied, uploaded, filled over; of the first 128 bytes, {wrong}"
                );
                return Err(breach("Transfer", found, RULE));
            }
        }
        // The next stream is not ordered after this one, so its work is finished first.
        bench.finish()?;
    }
    bench.release(from)?;
    bench.release(to)
}

/// Checks that transfers of several MiB are complete, whatever pieces they are split into.
pub(super) fn large<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let (mover, stream) = (bench.mover()?, bench.streams[0]);
    let segment = bench.reserve(ClassId::DEVICE, 2 * LARGE_BYTES)?;
    let sent = pattern(LARGE_BYTES, 99);
    let mut seen = vec![0; LARGE_BYTES as usize];
    let uploaded = mover.upload(stream, &sent, &segment, 0);
    uploaded.map_err(|error| breach(UPLOAD.0, format!("{LARGE_BYTES} bytes: {error}"), UPLOAD.1))?;
    let copied = mover.copy(stream, (&segment, 0), (&segment, LARGE_BYTES), LARGE_BYTES);
    copied.map_err(|error| breach(COPY.0, format!("{LARGE_BYTES} bytes within a segment: {error}"), COPY.1))?;
    for (verb, offset) in [(UPLOAD, 0), (COPY, LARGE_BYTES)] {
        let read = mover.download(stream, &segment, offset, &mut seen);
        read.map_err(|error| breach(DOWNLOAD.0, format!("{LARGE_BYTES} bytes: {error}"), DOWNLOAD.1))?;
        if let Some(at) = (0..sent.len()).find(|&at| sent[at] != seen[at]) {
            let found = format!("byte {at} of {LARGE_BYTES} is {:#04x} and must be {:#04x}", seen[at], sent[at]);
            return Err(breach(verb.0, found, verb.1));
        }
    }
    bench.release(segment)
}
