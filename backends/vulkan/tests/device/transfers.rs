//! Moving bytes: any offset, any length, more than the staging ring holds, from several threads.

use millpond_backend::{Backend, ClassId, HostMemory, Transfer};
use millpond_trace::Random;

use crate::lab::Lab;

/// Returns an offset and a length within `bytes`.
fn range(random: &mut Random, bytes: u64) -> (u64, u64) {
    let offset = random.below(bytes);
    let length = if random.one_in(2) { random.below(12) } else { random.below(bytes) };
    (offset, length.min(bytes - offset))
}

#[test]
fn bytes_are_where_they_belong_whatever_the_alignment() {
    const BYTES: u64 = 1000;
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let mut random = Random::new(1);
    let segments = [lab.segment(BYTES), lab.segment(BYTES)];
    let mut expected = [vec![0u8; BYTES as usize], vec![0u8; BYTES as usize]];
    segments.iter().for_each(|segment| lab.fill(stream, segment, 0, BYTES, 0).unwrap());
    for step in 0..400 {
        let (offset, bytes) = range(&mut random, BYTES);
        let (begin, end) = (offset as usize, (offset + bytes) as usize);
        let to = random.below(2) as usize;
        match random.below(3) {
            0 => {
                lab.fill(stream, &segments[to], offset, bytes, step as u8).unwrap();
                expected[to][begin..end].fill(step as u8);
            }
            1 => {
                let from = random.below(BYTES - bytes + 1);
                lab.copy(stream, (&segments[1 - to], from), (&segments[to], offset), bytes).unwrap();
                let moved = expected[1 - to][from as usize..(from + bytes) as usize].to_vec();
                expected[to][begin..end].copy_from_slice(&moved);
            }
            _ => {
                let sent: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
                lab.upload(stream, &sent, &segments[to], offset).unwrap();
                expected[to][begin..end].copy_from_slice(&sent);
            }
        }
        if step % 10 == 0 {
            let (offset, bytes) = range(&mut random, BYTES);
            let read = lab.read(stream, &segments[to], offset, bytes);
            assert_eq!(read, expected[to][offset as usize..(offset + bytes) as usize], "step {step}");
        }
    }
    for (segment, expected) in segments.iter().zip(&expected) {
        assert_eq!(lab.read(stream, segment, 0, BYTES), *expected);
    }
    segments.into_iter().for_each(|segment| lab.give_back(segment));
}

#[test]
fn more_than_the_ring_holds_goes_through_it() {
    const BYTES: u64 = (13 << 20) + 3;
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let segment = lab.segment(BYTES + 1);
    let sent: Vec<u8> = (0..BYTES).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    lab.upload(stream, &sent, &segment, 1).unwrap();
    assert!(lab.read(stream, &segment, 1, BYTES) == sent);
    lab.give_back(segment);
}

#[test]
fn threads_share_a_stream_and_its_ring() {
    const BYTES: u64 = (1 << 20) + 64;
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let lab = &lab;
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let segment = lab.segment(BYTES);
                for round in 0..8 {
                    let value = thread * 16 + round;
                    lab.upload(stream, &vec![value; BYTES as usize], &segment, 0).unwrap();
                    assert!(lab.read(stream, &segment, 0, BYTES).iter().all(|&byte| byte == value), "{value}");
                }
                lab.give_back(segment);
            });
        }
    });
}

#[test]
fn threads_with_streams_of_their_own_do_not_meet() {
    let Some(lab) = Lab::open() else { return };
    let lab = &lab;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let stream = lab.create_stream().unwrap();
                for round in 0..25 {
                    let (bytes, value) = (4096 + thread * 100 + round, (thread * 50 + round) as u8);
                    let segment = lab.reserve(ClassId((round % 3) as u16), bytes).unwrap();
                    lab.fill(stream, &segment, 0, bytes, value).unwrap();
                    assert!(lab.read(stream, &segment, 0, bytes).iter().all(|&byte| byte == value), "{value}");
                    lab.give_back(segment);
                }
            });
        }
    });
    assert_eq!(lab.held_bytes(), 0);
}

#[test]
fn nothing_is_moved_where_nothing_is_asked_for() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let segment = lab.segment(16);
    lab.fill(stream, &segment, 16, 0, 1).unwrap();
    lab.copy(stream, (&segment, 0), (&segment, 0), 0).unwrap();
    lab.upload(stream, &[], &segment, 3).unwrap();
    lab.download(stream, &segment, 16, &mut []).unwrap();
    lab.give_back(segment);
}

#[test]
fn the_host_sees_what_the_device_sees() {
    const BYTES: u64 = 4096;
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    for class in [ClassId(1), ClassId(2)] {
        let segment = lab.reserve(class, BYTES).unwrap();
        let address = lab.host_address(&segment).expect("host classes are mapped");
        let value = 40 + class.0 as u8;
        // SAFETY: the segment is mapped and that long, and no work touches it.
        unsafe { address.as_ptr().write_bytes(value, BYTES as usize) };
        assert_eq!(lab.read(stream, &segment, 0, BYTES), [value; BYTES as usize]);
        lab.give_back(segment);
    }
}
