//! What a file refers to often is in memory once, and counts little; what it takes more than once counts each time.

use std::io::{self, Read};
use std::sync::Arc;

use millpond_snapshot::{Limits, Snapshot, Stack};

fn text(text: &str) -> Vec<u8> {
    [&[0x8c, text.len() as u8], text.as_bytes()].concat()
}

fn pair(key: &str, value: &[u8]) -> Vec<u8> {
    [&text(key), value].concat()
}

fn dict(pairs: &[Vec<u8>]) -> Vec<u8> {
    [b"}(", &pairs.concat()[..], b"u"].concat()
}

fn frame(line: u8) -> Vec<u8> {
    dict(&[pair("name", &text("step")), pair("filename", &text("a.py")), pair("line", &[b'K', line])])
}

fn entry(frames: &[u8]) -> Vec<u8> {
    let [action, addr] = [pair("action", &text("alloc")), pair("addr", b"K\x01")];
    dict(&[action, addr, pair("size", b"K\x01"), pair("stream", b"K\x00"), pair("frames", frames)])
}

/// Returns a snapshot with this history as a pickle.
fn pickle(entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = [b"](](", &entries.concat()[..], b"ee"].concat();
    [b"\x80\x04", &dict(&[pair("segments", b"]"), pair("device_traces", &entries)])[..], b"."].concat()
}

fn stacks(snapshot: &Snapshot) -> Vec<&Stack> {
    let frames = snapshot.device_traces[0].iter().map(|entry| entry.frames.as_ref());
    frames.map(|stack| stack.expect("a stack")).collect()
}

fn with_values(values: u64) -> Limits {
    Limits { values, ..Limits::default() }
}

/// Each event of PyTorch has a list of its own, whose frames are objects that all lists share.
#[test]
fn a_frame_that_stacks_share_is_there_once_and_counts_little() {
    // The frame is remembered in the first entry, and the others refer to it.
    let first = entry(&[b"](", &frame(7)[..], b"q\x00e"].concat());
    let other = entry(&[b"](", &b"h\x00".repeat(500)[..], b"e"].concat());
    let pickle = pickle(&[first, other.clone(), other]);
    let snapshot = Snapshot::parse(&pickle, &with_values(200)).expect("a thousand references");
    let stacks = stacks(&snapshot);
    assert_eq!((stacks[2].frames().len(), &*stacks[2].frames()[499].name), (500, "step"));
    let one = &stacks[0].frames()[0];
    assert!(stacks[1].frames().iter().chain(stacks[2].frames()).all(|frame| Arc::ptr_eq(frame, one)));
    assert!(std::ptr::eq(stacks[1].frames(), stacks[2].frames()), "equal stacks are one");
    let error = Snapshot::parse(&pickle, &with_values(150)).expect_err("a thousand references are 125 values");
    assert!(error.to_string().contains("more than 150 values"), "{error}");
}

#[test]
fn equal_frames_and_stacks_become_one_where_the_file_has_several() {
    let entries = [[7, 8], [7, 8], [8, 7]].map(|lines| entry(&[b"](", &lines.map(frame).concat()[..], b"e"].concat()));
    let snapshot = Snapshot::parse(&pickle(&entries), &Limits::default()).expect("a snapshot");
    let stacks = stacks(&snapshot);
    assert!(std::ptr::eq(stacks[0].frames(), stacks[1].frames()));
    assert!(Arc::ptr_eq(&stacks[0].frames()[0], &stacks[2].frames()[1]) && stacks[0] != stacks[2]);
}

/// Nothing in JSON refers to what stands elsewhere, so that each stack has all of its frames again.
#[test]
fn frames_of_json_are_there_once_and_count_little() {
    let frames = (0..100).map(|line| format!("{{\"name\": \"step\", \"filename\": \"a.py\", \"line\": {line}}}"));
    let frames = frames.collect::<Vec<_>>().join(", ");
    let entry = format!("{{\"action\": \"alloc\", \"addr\": 1, \"size\": 1, \"frames\": [{frames}]}}");
    let json = format!("{{\"segments\": [], \"device_traces\": [[{}]]}}", vec![entry; 100].join(","));
    let snapshot = Snapshot::parse(json.as_bytes(), &with_values(2500)).expect("10,000 references are 1,250 values");
    let stacks = stacks(&snapshot);
    assert!(std::ptr::eq(stacks[0].frames(), stacks[99].frames()));
    assert_eq!((stacks[99].frames().len(), stacks[99].frames()[99].line), (100, 99));
    assert!(Snapshot::parse(json.as_bytes(), &with_values(1000)).is_err());
}

/// A stack that is shared is made once. Events and segments that are shared are made as often as they are referred to.
#[test]
fn what_is_made_more_than_once_counts_each_time() {
    let stack = [b"](", &frame(7)[..], b"q\x00", &b"h\x00".repeat(1000)[..], b"eq\x01"].concat();
    let rest = vec![entry(b"h\x01"); 100];
    let shared_stack = pickle(&[vec![entry(&stack)], rest].concat());
    let snapshot = Snapshot::parse(&shared_stack, &with_values(2500)).expect("a stack of 1001 frames");
    assert_eq!(stacks(&snapshot)[100].frames().len(), 1001);

    let event = [&entry(b"]")[..], b"q\x00"].concat();
    let shared_event = pickle(&[event, b"h\x00".repeat(1000)]);
    assert!(Snapshot::parse(&shared_event, &with_values(4100)).is_ok());
    let error = Snapshot::parse(&shared_event, &with_values(3900)).expect_err("1001 events of 4 values");
    assert!(error.to_string().contains("more than 3900 values"), "{error}");
}

/// A reader that has a few bytes at a time.
struct Drops<'a>(&'a [u8], usize);

impl Read for Drops<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len());
        self.0.read(&mut buffer[..count])
    }
}

#[test]
fn content_may_come_in_pieces_of_any_length() {
    let wholes: [&[u8]; 3] = [
        include_bytes!("../fixtures/example.4.pickle"),
        include_bytes!("../fixtures/example.json"),
        include_bytes!("../fixtures/example.pt"),
    ];
    for whole in wholes {
        let expected = Snapshot::parse(whole, &Limits::default()).expect("a snapshot");
        for bytes in [1, 3, 1000] {
            let read = Snapshot::from_reader(Drops(whole, bytes), &Limits::default());
            assert_eq!(read.expect("a snapshot"), expected, "{bytes}");
        }
    }
}

/// A text that is longer than what is read at a time.
#[test]
fn a_text_may_be_longer_than_a_block() {
    let long = "\u{e4}b".repeat(300_000);
    let json = format!("{{\"segments\": [], \"x\": \"{long}\"}}");
    let snapshot = Snapshot::from_reader(json.as_bytes(), &Limits::default()).expect("a snapshot");
    assert_eq!(snapshot.other["x"], long);
    let pickle = snapshot.write_pickle(Vec::new()).expect("memory takes it");
    assert_eq!(Snapshot::from_reader(&pickle[..], &Limits::default()).expect("a snapshot"), snapshot);
}
