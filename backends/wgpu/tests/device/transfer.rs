//! Fills, copies, uploads and downloads, and the order in which they run.

use millpond::{Allocator, Buffer, Stream};
use millpond_backend::{Backend, ClassId, Point, StreamId, Tick, Transfer};
use millpond_wgpu::{Misuse, Segment, Wgpu, WgpuError};

use crate::common;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn stream_and_segments<const N: usize>(device: &Wgpu, bytes: u64) -> (StreamId, [Segment; N]) {
    let stream = device.create_stream().unwrap();
    (stream, [(); N].map(|()| device.reserve(ClassId::DEVICE, bytes).unwrap()))
}

fn bytes(count: u64) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

fn read(device: &Wgpu, stream: StreamId, segment: &Segment, offset: u64, length: usize) -> Vec<u8> {
    let mut seen = vec![0xEE; length];
    device.download(stream, segment, offset, &mut seen).unwrap();
    seen
}

#[test]
fn bytes_go_round() {
    for device in common::both() {
        let (stream, [a, b]) = stream_and_segments(&device, 300 * KIB);
        let data = bytes(150 * KIB);
        device.upload(stream, &data, &a, 8).unwrap();
        device.copy(stream, (&a, 8), (&b, 64 * KIB), data.len() as u64).unwrap();
        device.fill(stream, &b, 64 * KIB, 12, 9).unwrap();
        let seen = read(&device, stream, &b, 64 * KIB - 4, data.len() + 8);
        assert_eq!((&seen[..4], &seen[data.len() + 4..]), (&[0; 4][..], &[0; 4][..]), "neighbours keep their zeros");
        assert_eq!(seen[4..16], [9; 12]);
        assert_eq!(seen[16..data.len() + 4], data[12..]);
        assert_eq!(device.errors(), [""; 0]);
    }
}

#[test]
fn downloads_take_any_range() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    // The segment ends within a word.
    let (stream, [segment]) = stream_and_segments(&device, 1002);
    let data = bytes(1000);
    device.upload(stream, &data, &segment, 0).unwrap();
    for (from, to) in [(0, 1), (1, 4), (3, 5), (7, 8), (8, 8), (5, 999), (0, 1000)] {
        assert_eq!(read(&device, stream, &segment, from as u64, to - from), data[from..to], "{from}..{to}");
    }
    assert_eq!(read(&device, stream, &segment, 999, 3), [data[999], 0, 0]);
}

#[test]
fn fills_are_exact_at_every_length() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (stream, [segment]) = stream_and_segments(&device, 4 * MIB);
    for (round, length) in [4, 4 * KIB - 4, 4 * KIB, 4 * KIB + 4, MIB, 3 * MIB + 20].into_iter().enumerate() {
        for value in [0, 0x10 + round as u8] {
            device.fill(stream, &segment, 0, 4 * MIB, 0xFF).unwrap();
            device.fill(stream, &segment, 16, length, value).unwrap();
            let seen = read(&device, stream, &segment, 0, 4 * MIB as usize);
            let (before, rest) = seen.split_at(16);
            let (filled, after) = rest.split_at(length as usize);
            assert!(before.iter().chain(after).all(|&byte| byte == 0xFF), "beside {length} bytes of {value}");
            assert!(filled.iter().all(|&byte| byte == value), "in {length} bytes of {value}");
        }
    }
}

/// One submission uses more values than patterns are kept.
#[test]
fn patterns_that_were_let_go_still_serve_what_was_recorded() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (stream, [segment]) = stream_and_segments(&device, 40 * MIB);
    for value in 1..=40_u64 {
        device.fill(stream, &segment, (value - 1) * MIB, MIB, value as u8).unwrap();
    }
    for value in 1..=40_u64 {
        assert_eq!(read(&device, stream, &segment, value * MIB - 4, 4), [value as u8; 4]);
    }
}

#[test]
fn copies_within_one_segment_pass_through_a_bounded_buffer() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (stream, [segment]) = stream_and_segments(&device, 24 * MIB);
    // The data is longer than the scratch buffer, and no multiple of it.
    let data = bytes(9 * MIB + 12);
    device.upload(stream, &data, &segment, 0).unwrap();
    device.copy(stream, (&segment, 0), (&segment, 12 * MIB), data.len() as u64).unwrap();
    device.copy(stream, (&segment, 12 * MIB), (&segment, 4), 8).unwrap();
    assert_eq!(read(&device, stream, &segment, 12 * MIB, data.len()), data);
    assert_eq!(read(&device, stream, &segment, 4, 8), data[..8]);
    let overlap = device.copy(stream, (&segment, 0), (&segment, 8), 12);
    assert!(
        matches!(overlap, Err(WgpuError::Misuse(Misuse::OverlapWithin { from: 0, to: 8, bytes: 12 }))),
        "{overlap:?}"
    );
}

/// Two streams with open encoders use the scratch buffer in turn.
#[test]
fn streams_share_the_scratch_buffer() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (a, [one, two]) = stream_and_segments(&device, 8 * KIB);
    let b = device.create_stream().unwrap();
    for (stream, segment, value) in [(a, &one, 1), (b, &two, 2)] {
        device.fill(stream, segment, 0, 4 * KIB, value).unwrap();
        device.copy(stream, (segment, 0), (segment, 4 * KIB), 4 * KIB).unwrap();
    }
    for (stream, segment, value) in [(b, &two, 2), (a, &one, 1)] {
        assert_eq!(read(&device, stream, segment, 4 * KIB, 4 * KIB as usize), [value; 4 * KIB as usize]);
    }
}

#[test]
fn uploads_keep_to_their_bound_and_are_taken_at_once() {
    let Some(device) = common::open(Wgpu::builder().staging_bytes(64 * KIB)) else { return };
    let (stream, [segment]) = stream_and_segments(&device, MIB);
    let mut data = bytes(48 * KIB);
    device.upload(stream, &data, &segment, 0).unwrap();
    assert_eq!(device.mark(stream), Tick(1), "there was room");
    device.upload(stream, &data, &segment, 48 * KIB).unwrap();
    assert_eq!(device.mark(stream), Tick(2), "there was none, so the stream was submitted");
    let expected = data.clone();
    data.fill(0);
    assert_eq!(read(&device, stream, &segment, 48 * KIB, 48 * KIB as usize), expected);
    let before = device.mark(stream);
    device.upload(stream, &expected, &segment, 0).unwrap();
    assert_eq!(device.mark(stream), before, "all of it is done, so there is room");
    let large = bytes(MIB);
    device.upload(stream, &large, &segment, 0).unwrap();
    assert_eq!(read(&device, stream, &segment, 0, MIB as usize), large);
}

#[test]
fn bad_ranges_are_refused_by_name_and_number() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (stream, [segment]) = stream_and_segments(&device, 96);
    let out = device.fill(stream, &segment, 96, 4, 0);
    assert!(
        matches!(out, Err(WgpuError::Misuse(Misuse::OutOfRange { offset: 96, bytes: 4, segment_bytes: 96, .. }))),
        "{out:?}"
    );
    let out = device.fill(stream, &segment, u64::MAX - 3, 8, 0);
    assert!(matches!(out, Err(WgpuError::Misuse(Misuse::OutOfRange { .. }))), "{out:?}");
    let out = device.upload(stream, &[0; 100], &segment, 0);
    assert!(matches!(out, Err(WgpuError::Misuse(Misuse::OutOfRange { offset: 0, bytes: 100, .. }))), "{out:?}");
    device.fill(stream, &segment, 96, 0, 0).unwrap();
    let Some(other) = common::open(Wgpu::builder()) else { return };
    let stranger = other.reserve(ClassId::DEVICE, 96).unwrap();
    let foreign = device.copy(stream, (&segment, 0), (&stranger, 0), 4);
    assert!(
        matches!(foreign, Err(WgpuError::Misuse(Misuse::Foreign { other: belongs_to, own: given_to, .. }))
            if (belongs_to, given_to) == (other.serial(), device.serial())),
        "{foreign:?}"
    );
    assert_eq!(device.submit(stream).unwrap(), Tick(1), "nothing of it was recorded");
    assert_eq!(device.errors(), [""; 0]);
}

/// What the bytes of a segment should be, beside a device that moves them.
struct Beside {
    device: Wgpu,
    stream: StreamId,
    segments: [Segment; 2],
    expected: [Vec<u8>; 2],
}

impl Beside {
    fn check(&self, what: &str) {
        for (segment, expected) in self.segments.iter().zip(&self.expected) {
            let seen = read(&self.device, self.stream, segment, 0, expected.len());
            let differs = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
            assert_eq!(differs, None, "{what}");
        }
    }

    fn copy(&mut self, (of, from): (usize, usize), (into, to): (usize, usize), length: usize) {
        let (source, target) = (&self.segments[of], &self.segments[into]);
        self.device.copy(self.stream, (source, from as u64), (target, to as u64), length as u64).unwrap();
        let moved = self.expected[of][from..from + length].to_vec();
        self.expected[into][to..to + length].copy_from_slice(&moved);
    }
}

#[test]
fn bytes_that_are_no_whole_words_are_moved_and_their_neighbours_stay() {
    for device in common::both() {
        let (stream, segments) = stream_and_segments(&device, 1021);
        let mut test = Beside { device, stream, segments, expected: [(); 2].map(|()| bytes(1021)) };
        for (segment, expected) in test.segments.iter().zip(&test.expected) {
            test.device.upload(stream, expected, segment, 0).unwrap();
        }
        test.check("a segment that ends within a word");
        for (at, length) in [(0, 1), (0, 6), (1, 1), (1, 2), (2, 2), (3, 2), (5, 3), (255, 3), (511, 7), (1016, 5)] {
            let new: Vec<u8> = (0..length).map(|byte| 0xF0 + byte as u8).collect();
            test.device.upload(stream, &new, &test.segments[0], at as u64).unwrap();
            test.expected[0][at..at + length].copy_from_slice(&new);
            test.check(&format!("{length} bytes at {at}"));
            test.device.fill(stream, &test.segments[1], at as u64, length as u64, 0xEE).unwrap();
            test.expected[1][at..at + length].fill(0xEE);
            test.check(&format!("a fill of {length} bytes at {at}"));
        }
        for (from, to, length) in [(0, 1, 1), (1, 0, 9), (3, 7, 2), (3, 7, 30), (2, 9, 600), (6, 402, 77)] {
            test.copy((0, from), (1, to), length);
            test.check(&format!("a copy of {length} bytes from {from} to {to}"));
        }
        test.copy((0, 5), (0, 702), 301);
        test.copy((0, 101), (0, 205), 103);
        test.check("copies within a segment");
        let overlap = test.device.copy(stream, (&test.segments[0], 0), (&test.segments[0], 3), 4);
        assert!(matches!(overlap, Err(WgpuError::Misuse(Misuse::OverlapWithin { bytes: 4, .. }))), "{overlap:?}");
        assert_eq!(test.device.errors(), [""; 0]);
    }
}

#[test]
fn a_long_copy_to_another_phase_is_made_in_pieces() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (stream, [a, b]) = stream_and_segments(&device, 10 * MIB);
    let data = bytes(9 * MIB + 3);
    device.upload(stream, &data, &a, 1).unwrap();
    device.copy(stream, (&a, 1), (&b, 6), data.len() as u64).unwrap();
    assert!(read(&device, stream, &b, 6, data.len()) == data, "the bytes came over");
    assert_eq!(read(&device, stream, &b, 4, 2), [0; 2]);
    assert_eq!(read(&device, stream, &b, 6 + data.len() as u64, 8), [0; 8]);
}

#[test]
fn three_halves_go_and_come_back() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let stream = Allocator::new(device).create_stream().unwrap();
    let halves = stream.allocate_from(&[0x3C00u16, 0x4000, 0x4200]).unwrap();
    stream.upload_elements(&halves.slice(1..2).unwrap(), &[0x4400]).unwrap();
    assert_eq!(stream.download_vec(&halves).unwrap(), [0x3C00, 0x4400, 0x4200]);
    let copy = stream.allocate_elements::<u16>(3).unwrap();
    stream.clear_elements(&copy).unwrap();
    stream.copy_elements(&halves.slice(1..).unwrap(), &copy.slice(..2).unwrap()).unwrap();
    assert_eq!(stream.download_vec(&copy).unwrap(), [0x4400, 0x4200, 0]);
}

#[test]
fn segments_that_no_shader_may_use_take_whole_words_only() {
    let builder = Wgpu::builder().usage(millpond_wgpu::wgpu::BufferUsages::UNIFORM);
    let Some(device) = common::open(builder) else { return };
    let (stream, [segment]) = stream_and_segments(&device, 96);
    let odd = device.fill(stream, &segment, 2, 4, 0);
    assert!(
        matches!(odd, Err(WgpuError::Misuse(Misuse::Misaligned { what: Some("offset"), value: 2, multiple: 4, .. }))),
        "{odd:?}"
    );
    let odd = device.upload(stream, &[0; 5], &segment, 0);
    assert!(
        matches!(odd, Err(WgpuError::Misuse(Misuse::Misaligned { what: Some("size"), value: 5, multiple: 4, .. }))),
        "{odd:?}"
    );
    let odd = device.copy(stream, (&segment, 0), (&segment, 13), 4);
    assert!(
        matches!(odd, Err(WgpuError::Misuse(Misuse::Misaligned { what: Some("offset"), value: 13, .. }))),
        "{odd:?}"
    );
    device.fill(stream, &segment, 4, 8, 1).unwrap();
}

/// A block that recorded, unsubmitted work reads, and that was freed and granted again.
struct Handover {
    device: Wgpu,
    stream: Stream<Wgpu>,
    /// The buffer that the recorded work copies the block to.
    kept: Buffer<Wgpu>,
    granted: Buffer<Wgpu>,
}

const BLOCK: u64 = 4 * KIB;
const OLD: u8 = 0x11;
const NEW: [u8; BLOCK as usize] = [0x22; BLOCK as usize];

impl Handover {
    fn begin() -> Option<Handover> {
        let device = common::open(Wgpu::builder())?;
        let allocator = Allocator::builder(device.clone()).conf("policy:classic").build().unwrap();
        let stream = allocator.create_stream().unwrap();
        let (kept, used) = (stream.allocate(BLOCK).unwrap(), stream.allocate(BLOCK).unwrap());
        let place = (used.segment_id(), used.offset());
        let [from, to] = [&used, &kept].map(|buffer| (buffer.segment().unwrap(), buffer.offset()));
        device.fill(stream.id(), from.0, from.1, BLOCK, OLD).unwrap();
        device.submit(stream.id()).unwrap();
        device.copy(stream.id(), from, to, BLOCK).unwrap();
        drop(used);
        let granted = stream.allocate(BLOCK).unwrap();
        assert_eq!((granted.segment_id(), granted.offset()), place, "the block is granted again");
        Some(Handover { device, stream, kept, granted })
    }

    /// Returns what the work that was recorded before the free has read.
    fn seen_by_the_old_work(&self) -> Vec<u8> {
        self.device.submit(self.stream.id()).unwrap();
        read(&self.device, self.stream.id(), self.kept.segment().unwrap(), self.kept.offset(), BLOCK as usize)
    }
}

#[test]
fn an_upload_into_a_reused_block_comes_after_the_work_of_its_last_owner() {
    let Some(test) = Handover::begin() else { return };
    let (segment, offset) = (test.granted.segment().unwrap(), test.granted.offset());
    test.device.upload(test.stream.id(), &NEW, segment, offset).unwrap();
    assert_eq!(test.seen_by_the_old_work(), [OLD; BLOCK as usize]);
    assert_eq!(read(&test.device, test.stream.id(), segment, offset, BLOCK as usize), NEW);
}

/// The reason why uploads do not use `Queue::write_buffer`: the same program with it reads the bytes of the new user of
/// the block. If wgpu changes this, the test above would pass whatever uploads do.
#[test]
fn the_queues_own_write_overtakes_recorded_work() {
    let Some(test) = Handover::begin() else { return };
    let (segment, offset) = (test.granted.segment().unwrap(), test.granted.offset());
    test.device.queue().write_buffer(segment.buffer(), offset, &NEW);
    assert_eq!(test.seen_by_the_old_work(), NEW);
}

#[test]
fn a_download_submits_its_stream_and_no_other() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (a, [segment]) = stream_and_segments(&device, 64);
    let b = device.create_stream().unwrap();
    device.fill(a, &segment, 0, 64, 4).unwrap();
    assert_eq!(read(&device, b, &segment, 0, 4), [0; 4], "the fill is not submitted");
    assert_eq!((device.mark(a), device.mark(b)), (Tick(1), Tick(2)));
    assert_eq!(read(&device, a, &segment, 0, 4), [4; 4]);
    assert_eq!(device.wait(Point { stream: a, tick: Tick(1) }).unwrap(), Tick(1));
}
