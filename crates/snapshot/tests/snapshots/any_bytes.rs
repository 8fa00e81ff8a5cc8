//! Any bytes: readers return, and what they accept can be written and read again. JSON is what `serde_json` takes for
//! it.

use millpond_snapshot::{
    Action, Block, DEPTH_MAX, Frame, Limits, Other, Segment, Snapshot, SnapshotError, Stack, State, TraceEntry,
};
use proptest::collection::vec;
use proptest::prelude::*;

const LIMITS: Limits = Limits { bytes: 1 << 20, expansion: 64, values: 1 << 14 };

/// Bytes that are likely to be instructions of a pickle.
fn instructions() -> impl Strategy<Value = Vec<u8>> {
    let codes = b"\x80\x02\x95NKMJ\x8aGX\x8c]ael)t\x85\x86\x87}sud(hjqr\x94.\x00\x01\x02segments";
    vec(prop_oneof![8 => proptest::sample::select(codes.to_vec()), 1 => any::<u8>()], 0..200)
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..6).prop_map(|chars| chars.into_iter().collect())
}

fn stack() -> impl Strategy<Value = Stack> {
    let frame = (text(), text(), any::<i64>()).prop_map(|(name, filename, line)| Frame {
        name: name.into(),
        filename: filename.into(),
        line,
        other: Other::new(),
    });
    vec(frame, 0..3).prop_map(Stack::new)
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let states = vec![State::Allocated, State::PendingFree, State::Inactive, State::Other("new".into())];
    let block = (any::<u64>(), 0..i64::MAX as u64, 0..i64::MAX as u64, proptest::sample::select(states), stack());
    let block = block.prop_map(|(address, size, requested_size, state, frames)| Block {
        address: address >> 1,
        size: size >> 2,
        requested_size,
        state,
        frames,
        other: Other::new(),
    });
    let segment = (-1..9_i64, any::<u64>(), any::<u64>(), vec(block, 0..4), text()).prop_map(
        |(device, address, stream, blocks, kind)| {
            let mut segment = Segment::new(device, address, stream, blocks);
            segment.total_size >>= 2;
            segment.allocated_size >>= 2;
            segment.active_size >>= 2;
            segment.requested_size >>= 3;
            segment.segment_pool_id = Some((address, stream));
            segment.other.insert("kind".into(), kind.into());
            segment
        },
    );
    let actions = vec![Action::Alloc, Action::FreeRequested, Action::Oom, Action::Other("jump".into())];
    let entry = (proptest::sample::select(actions), any::<u64>(), 0..i64::MAX as u64, any::<i64>(), stack());
    let entry = entry.prop_map(|(action, addr, size, time, frames)| {
        let mut entry = TraceEntry::new(action, addr, size, addr >> 7);
        entry.time_us = Some(time);
        entry.frames = Some(frames);
        entry.other.insert("share".into(), (size as f64 / 3.0).into());
        entry
    });
    (vec(segment, 0..4), vec(vec(entry, 0..5), 0..3)).prop_map(|(segments, device_traces)| Snapshot {
        segments,
        device_traces,
        ..Snapshot::default()
    })
}

/// Reads and writes a content in every way.
fn survives(content: &[u8]) {
    let snapshot = match Snapshot::parse(content, &LIMITS) {
        Ok(snapshot) => snapshot,
        Err(SnapshotError::Content { place, .. }) => return assert!(place.at <= content.len() as u64, "{place}"),
        Err(_) => return,
    };
    let _ = (snapshot.diff(&Snapshot::default(), 2), snapshot.sums());
    snapshot.write_vma(&Default::default(), Vec::new()).expect("memory takes it");
    for written in [snapshot.write_json(Vec::new()), snapshot.write_pickle(Vec::new())] {
        let again = Snapshot::parse(&written.expect("memory takes it"), &Limits::NONE).expect("what was written");
        assert_eq!(again, snapshot);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_bytes_are_read_or_refused(content in vec(any::<u8>(), 0..300)) {
        survives(&content);
        survives(&[b"\x80\x04", content.as_slice()].concat());
        survives(&[b"PK\x03\x04", content.as_slice()].concat());
    }

    #[test]
    fn any_instructions_are_read_or_refused(code in instructions()) {
        survives(&[b"\x80\x04}(X\x08\x00\x00\x00segments]", code.as_slice(), b"u."].concat());
        survives(&[b"\x80\x02", code.as_slice(), b"."].concat());
    }

    #[test]
    fn any_change_of_a_snapshot_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let whole: [&[u8]; 3] = [
            include_bytes!("../fixtures/example.4.pickle"),
            include_bytes!("../fixtures/example.json"),
            include_bytes!("../fixtures/example.pt"),
        ];
        for content in whole {
            let mut changed = content.to_vec();
            changed[at.index(content.len())] = byte;
            survives(&changed);
            survives(&content[..at.index(content.len())]);
        }
    }

    #[test]
    fn any_snapshot_is_written_and_read_again(snapshot in snapshots()) {
        for written in [snapshot.write_json(Vec::new()), snapshot.write_pickle(Vec::new())] {
            let again = Snapshot::parse(&written.expect("memory takes it"), &Limits::default());
            prop_assert_eq!(again.expect("what was written"), snapshot.clone());
        }
    }

    /// What is no JSON for `serde_json` is none here, and what is refused as no JSON here is none there.
    #[test]
    fn json_is_json(text in "[\\[\\]{}:,\"\\\\ue0-9+.tfn \n\u{e4}-]{0,24}") {
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        let ours = Snapshot::parse(text.as_bytes(), &LIMITS);
        let is_syntax = match &ours {
            Err(SnapshotError::Content { place, problem }) => {
                use millpond_snapshot::Problem::{End, Json, NotText, Trailing};
                place.path.is_empty() && matches!(problem, End { .. } | Json { .. } | NotText | Trailing { .. })
            }
            _ => false,
        };
        let is_root = text.trim_start_matches([' ', '\n']).starts_with(['{', '[']);
        if is_root && theirs.is_ok() {
            prop_assert!(!is_syntax, "{:?} is JSON: {:?}", text, ours);
        } else {
            prop_assert!(ours.is_err(), "{:?} is no JSON", text);
        }
    }
}

/// A pickle's values are counted by themselves, and JSON's from the outermost one: what is read from one form is not
/// too deep for another.
#[test]
fn deep_values_of_a_pickle_can_be_written_as_json() {
    let mut read = 0;
    for depth in 1..DEPTH_MAX + 3 {
        let lists = ["]".repeat(depth), "a".repeat(depth - 1)].concat();
        let begin = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces]\x8c\x01x".as_slice();
        let pickle = [begin, lists.as_bytes(), b"u."].concat();
        let Ok(snapshot) = Snapshot::parse(&pickle, &LIMITS) else { continue };
        let written = snapshot.write_json(Vec::new()).unwrap();
        assert_eq!(Snapshot::parse(&written, &LIMITS).expect("not too deep"), snapshot, "{depth}");
        read += 1;
    }
    assert_eq!(read, DEPTH_MAX - 8, "the rest is refused");
}

#[test]
fn deep_values_are_read_up_to_the_limit() {
    for (depth, is_read) in [(DEPTH_MAX - 8, true), (DEPTH_MAX - 7, false), (DEPTH_MAX + 1, false)] {
        let text = format!("{{\"segments\": [], \"x\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(Snapshot::parse(text.as_bytes(), &LIMITS).is_ok(), is_read, "{depth}");
    }
}
