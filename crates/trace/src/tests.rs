//! Tests of the format, the rules and the files.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::*;

const SAMPLE: &str = "# {\"peak_reserved\": 4096, \"seconds\": 15.216, \"site\": [1, null], \"workload\": \"sample\"}\n\
    a 7 512 0\n# a comment\na 18446744073709551615 1000 3\nu 7 3\nm 40 3\nw 7 40\nf 7\nf 18446744073709551615\n\
    a 2 1152921504606846975 65535\nc 7\nt 0\ne\n";

fn sample_events() -> Vec<Event> {
    vec![
        Event::Allocate { id: 0, bytes: 512, stream: 0 },
        Event::Allocate { id: 1, bytes: 1000, stream: 3 },
        Event::Use { id: 0, stream: 3 },
        Event::Mark { point: 0, stream: 3 },
        Event::Until { id: 0, point: 0 },
        Event::Free { id: 0 },
        Event::Free { id: 1 },
        Event::Allocate { id: 2, bytes: (1 << 60) - 1, stream: 65535 },
        Event::Complete { id: 0 },
        Event::Trim { bytes: 0 },
        Event::EmptyCache,
    ]
}

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/traces")).join(name)
}

/// A folder of this test alone, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millpond-trace-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_event_is_read() {
    let trace = Trace::parse(SAMPLE.as_bytes()).unwrap();
    assert_eq!(trace.events, sample_events());
    assert_eq!((trace.streams, trace.allocations()), (65536, 3));
    let header = &trace.header;
    assert_eq!((header.workload(), header.peak_reserved()), (Some("sample"), Some(4096)));
    assert_eq!((header.seconds(), header.peak_requested(), header.torch()), (Some(15.216), None, None));
    assert_eq!(header.values()["site"].to_string(), "[1,null]");
}

#[test]
fn a_header_says_whether_a_program_is_pytorchs() {
    let of = |header: &str| Trace::parse(format!("# {header}\n").as_bytes()).unwrap().header.is_of_pytorch();
    assert!(of(r#"{"torch": "2.11.0"}"#) && of(r#"{"imported_from": "pytorch"}"#));
    assert!(!of("{}") && !of(r#"{"workload": "engine"}"#) && !of(r#"{"imported_from": "rmm", "torch": "2.11.0"}"#));
}

#[test]
fn nothing_is_a_trace_of_nothing() {
    assert_eq!(Trace::parse(b"").unwrap(), Trace::default());
    assert_eq!(Trace::default().live_peak(), 0);
}

#[test]
fn only_the_first_line_is_a_header() {
    let trace = Trace::parse(b"# plain words\n# {\"workload\": 1}\ne\n").unwrap();
    assert!(trace.header.values().is_empty());
    assert_eq!(trace.events, [Event::EmptyCache]);
}

/// Each line that breaks a rule is refused, with its number and the rule.
#[test]
fn what_breaks_a_rule_is_refused() {
    let cases = [
        ("a 0 1 0\nf 0\nf 0\n", 3, "AlreadyFreed"),
        ("a 0 1 0\nf 0\nc 0\nc 0\n", 4, "AlreadyComplete"),
        ("a 0 1 0\nc 0\n", 2, "NotFreed"),
        ("f 0\n", 1, "Unknown {"),
        ("c 0\n", 1, "Unknown {"),
        ("a 0 1 0\nf 0\nu 0 1\n", 3, "AlreadyFreed"),
        ("a 0 1 0\nm 0 0\nf 0\nw 0 0\n", 4, "AlreadyFreed"),
        ("a 0 1 0\nw 0 0\n", 2, "PointUnknown"),
        ("a 0 1 0\na 0 1 0\n", 2, "Reused"),
        ("a 7 1 0\na 7 1 0\n", 2, "Reused"),
        ("m 0 0\nm 0 0\n", 2, "PointReused"),
        ("a 0 0 0\n", 1, "Size"),
        ("a 0 1152921504606846976 0\n", 1, "Size"),
        ("a 0 1 65536\n", 1, "Stream"),
        ("t 9223372036854775808\n", 1, "Keep"),
        ("a 0 1 0 7\n", 1, "Surplus"),
        ("e 0\n", 1, "Surplus"),
        ("a 00 1 0\n", 1, "Field"),
        ("a  1 0\n", 1, "Field"),
        ("a 0 18446744073709551616 0\n", 1, "Overflow"),
        ("e\na 0 1 0", 2, "CutOff"),
        ("e\n\n", 2, "Blank"),
        ("x 0\n", 1, "UnknownEvent"),
        ("# {\"counted\":true}\ne\n# end 2\n", 3, "Count {"),
        ("# {\"counted\":true}\ne\n# end 1 \n", 3, "Count {"),
        ("# {\"counted\":true}\ne\n# end x\n", 3, "Field"),
        ("# {\"counted\":true}\ne\n# end 1\ne\n", 4, "AfterEnd"),
        ("# {\"counted\":1}\ne\n", 1, "HeaderValue"),
        ("# {\"format\":\"2\"}\ne\n", 1, "HeaderValue"),
        ("# {\"format\":0}\ne\n", 1, "HeaderValue"),
        ("# {\"format\":4}\ne\n", 1, "NewerFormat"),
        ("q 65536\n", 1, "Stream"),
        ("m 0 0\nd 65536 0\n", 2, "Stream"),
        ("d 0 0\n", 1, "PointUnknown"),
        ("h 0\n", 1, "PointUnknown"),
        ("r 0\n", 1, "PointUnknown"),
        ("m 0 0\nr 0 0\n", 2, "Surplus"),
        ("o\n", 1, "Field"),
        ("o 1 0\n", 1, "Surplus"),
        ("# {\"counted\":true}\ne\n# end 1\np main\n", 4, "AfterEnd"),
        ("p\n", 1, "UnknownEvent"),
        ("p \n", 1, "Text"),
        ("p a\tb\n", 1, "Text"),
        ("p main\np main\n", 2, "Repeated"),
        ("n main\np main\nn main\n", 3, "Repeated"),
        ("p main\nk 0 0\nk 0 0\n", 3, "Repeated"),
        ("p main\nk 1 0\n", 2, "NotDefined"),
        ("p main\nk 0 1\n", 2, "NotDefined"),
        ("p main\nk 0 18446744073709551615\n", 2, "NotDefined"),
        ("p main\nk 18446744073709551615 0\n", 2, "NotDefined"),
        ("p main\nk 0 0 0\n", 2, "Surplus"),
        ("s 1\n", 1, "NotDefined"),
        ("l 1\n", 1, "NotDefined"),
        ("i 7\ni 6\n", 2, "Time"),
        ("i 7\ni\ni 6\n", 3, "Time"),
        ("i 18446744073709551615\n", 1, "Time"),
        ("i x\n", 1, "Field"),
    ];
    for (text, number, rule) in cases {
        match Trace::parse(text.as_bytes()).unwrap_err() {
            TraceError::Line { line, problem, .. } => {
                assert_eq!(line, number, "{text:?}: {problem:?}");
                assert!(format!("{problem:?}").starts_with(rule), "{text:?}: {problem:?}");
            }
            other => panic!("{text:?}: {other}"),
        }
    }
    let most = "a 0 1152921504606846975 65535\nt 9223372036854775807\n";
    assert_eq!(Trace::parse(most.as_bytes()).unwrap().streams, 1 << 16);
}

/// Blocks and points are numbered in the order in which they come, whatever their numbers in the file.
#[test]
fn numbers_of_a_file_become_dense() {
    let text = "a 7 1 3\na 0 2 0\na 2 3 1\nm 5 2\nm 0 0\nw 0 0\nw 7 5\nf 0\nf 7\nf 2\n";
    let trace = Trace::parse(text.as_bytes()).unwrap();
    let until = |id, point| Event::Until { id, point };
    let frees = [1, 0, 2].map(|id| Event::Free { id });
    assert_eq!(trace.events[5..], [[until(1, 1), until(0, 0)].as_slice(), &frees].concat());
    assert_eq!((trace.streams, trace.allocations()), (4, 3), "up to the highest that is named");
}

#[test]
fn blocks_live_until_they_complete() {
    let text = "a 0 100 0\na 1 10 0\nf 0\na 2 50 0\nc 0\na 3 60 0\nf 1\na 4 5 0\n";
    // This is 100 + 10 + 50 while block 0 waits; without its completion it would be 120.
    assert_eq!(Trace::parse(text.as_bytes()).unwrap().live_peak(), 160);
    let huge: String = (0..17).map(|block| format!("a {block} {} 0\n", (1_u64 << 60) - 1)).collect();
    assert_eq!(Trace::parse(huge.as_bytes()).unwrap().live_peak(), u64::MAX);
}

#[test]
fn files_keep_everything_in_each_compression() {
    let folder = Folder::new("compression");
    let trace = Trace::parse(SAMPLE.as_bytes()).unwrap();
    for (name, magic) in [("t.trace", &b"# {"[..]), ("t.trace.gz", &[0x1f, 0x8b]), ("t.trace.zst", &[0x28, 0xb5])] {
        let path = folder.0.join(name);
        trace.write(&path).unwrap();
        assert!(fs::read(&path).unwrap().starts_with(magic), "{name}");
        assert_eq!(Trace::read(&path).unwrap(), trace, "{name}");
    }
}

#[test]
fn the_recorded_traces_are_valid() {
    let trace = Trace::read(corpus("bert_multistream.trace.gz")).unwrap();
    assert_eq!((trace.events.len(), trace.allocations(), trace.streams), (59244, 29578, 5));
    assert_eq!(trace.header.peak_reserved(), Some(4_896_849_920));
    assert_eq!(trace.live_peak(), 931_400_704);
    let text = trace.write_to(Vec::new()).unwrap();
    assert_eq!(Trace::parse(&text).unwrap(), trace);
}

/// A reader that returns one byte at a time, so that every line arrives in pieces.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.len().min(buffer.len()).min(1);
        buffer[..read].copy_from_slice(&self.0[..read]);
        self.0 = &self.0[read..];
        Ok(read)
    }
}

/// A trace that was written is refused wherever it is cut, and read whole. One from before traces were counted, or with
/// the promise removed, is read as far as it goes.
#[test]
fn a_cut_trace_is_known() {
    let trace = Trace::parse(SAMPLE.as_bytes()).unwrap();
    let written = trace.write_to(Vec::new()).unwrap();
    assert_eq!(Trace::parse(&written).unwrap(), trace);
    for end in 1..written.len() {
        let error = Trace::parse(&written[..end]).unwrap_err();
        let is_known = match &error {
            TraceError::CutOff { events, .. } => *events < trace.events.len() as u64 + 1,
            TraceError::Line { problem, .. } => *problem == Problem::CutOff,
            _ => false,
        };
        assert!(is_known, "{end}: {error}");
    }
    let text = String::from_utf8(written).unwrap();
    let (whole, _) = text.split_once("# end ").unwrap();
    let older = whole.replace("\"counted\":true,", "");
    assert_eq!(Trace::parse(older.as_bytes()).unwrap(), trace);
    assert_eq!(Trace::parse(format!("{older}# end 3\n").as_bytes()).unwrap(), trace, "a comment");
    assert_eq!(Trace::parse(format!("{text}# a comment\n").as_bytes()).unwrap(), trace);
    let message = TraceError::CutOff { line: 3, events: 1 }.to_string();
    assert!(message.contains("remove `counted` from the header"), "{message}");
    // A header of this name is of the text.
    let values = [("counted".to_owned(), true.into())].into_iter().collect();
    assert_eq!(Header::new(values).unwrap(), Header::default());
}

#[test]
fn pieces_are_read_as_the_whole_is() {
    assert_eq!(Trace::from_reader(Dribble(SAMPLE.as_bytes())).unwrap().events, sample_events());
    let mut parser = parse::Parser::new(&Limits::default());
    let mut text = Vec::new();
    for byte in SAMPLE.bytes() {
        text.push(byte);
        let rest = parser.lines(&text).unwrap().len();
        text.drain(..text.len() - rest);
    }
    assert_eq!(parser.finish(&text).unwrap(), Trace::parse(SAMPLE.as_bytes()).unwrap());
}

#[test]
fn what_compression_hides_is_bounded() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..1000 {
        encoder.write_all(&b"e\n".repeat(1000)).unwrap();
    }
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 10_000, "{}", packed.len());
    let within = |text_bytes| Limits { text_bytes, ..Limits::NONE };
    assert_eq!(Trace::from_reader_within(&packed[..], &within(2_000_000)).unwrap().events.len(), 1_000_000);
    let error = Trace::from_reader_within(&packed[..], &within(1_999_999)).unwrap_err();
    assert!(matches!(error, TraceError::Limit { limit: Limit::TextBytes, most: 1_999_999, .. }), "{error}");
    // By default, text may be 64 times as long as what was read: 2 MB from some 2 KB are too many.
    let error = Trace::from_reader(&packed[..]).unwrap_err();
    assert!(matches!(error, TraceError::Limit { limit: Limit::Expansion, most: 64, .. }), "{error}");
    // Text that is not compressed does not expand.
    assert_eq!(Trace::from_reader(&b"e\n".repeat(1_000_000)[..]).unwrap().events.len(), 1_000_000);
}

#[test]
fn events_and_different_streams_are_bounded() {
    let text = "# some\na 0 1 65535\na 1 1 7\nu 0 7\nm 0 9\n";
    let within = |limits: Limits| Trace::from_reader_within(text.as_bytes(), &limits).map(|trace| trace.events.len());
    assert_eq!(within(Limits { events: 4, streams: 3, ..Limits::NONE }).unwrap(), 4);
    let told = |limits| within(limits).unwrap_err().to_string();
    let events = told(Limits { events: 3, ..Limits::NONE });
    assert_eq!(
        events,
        "line 5: the trace has more than 3 events, the most that this reader accepts; to read it, raise \
        `events` of its limits to 4"
    );
    let streams = told(Limits { streams: 2, ..Limits::NONE });
    assert!(streams.starts_with("line 5: the trace has more than 2 different streams"), "{streams}");
    let many: String = (0..1025).map(|stream| format!("m {stream} {}\n", stream * 60)).collect();
    let error = Trace::parse(many.as_bytes()).unwrap_err();
    assert!(matches!(error, TraceError::Limit { limit: Limit::Streams, most: 1024, line: 1025, .. }), "{error}");
}

#[test]
fn damaged_files_are_errors() {
    let folder = Folder::new("damage");
    let path = folder.0.join("t.gz");
    Trace::parse(SAMPLE.as_bytes()).unwrap().write(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let cut = Trace::from_reader(&bytes[..bytes.len() - 9]).unwrap_err();
    assert!(matches!(cut, TraceError::Read { .. }), "{cut}");
    let missing = Trace::read(folder.0.join("none")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot open ") && missing.contains("none: "), "{missing}");
}

#[test]
fn a_line_has_a_limit() {
    let long = vec![b'#'; parse::LINE_BYTES_MAX + 1];
    for text in [long.clone(), [&long[..], b"\n"].concat()] {
        let error = Trace::parse(&text).unwrap_err();
        assert!(matches!(error, TraceError::Line { line: 1, problem: Problem::LineTooLong { .. }, .. }), "{error}");
        assert!(error.to_string().len() < 200);
    }
    assert!(Trace::parse(&[&long[1..], b"\n"].concat()).is_ok());
}

#[test]
fn the_writer_holds_events_to_the_rules() {
    let mut writer = TraceWriter::new(Vec::new(), &Header::default()).unwrap();
    let refused = [
        (Event::Allocate { id: 1, bytes: 1, stream: 0 }, "the number is 1, must be 0"),
        (Event::Allocate { id: 0, bytes: 0, stream: 0 }, "the size is 0"),
        (Event::Allocate { id: 0, bytes: 1, stream: 65536 }, "the stream is 65536"),
        (Event::Free { id: 0 }, "block 0 was not allocated"),
        (Event::Complete { id: 0 }, "block 0 was not allocated"),
        (Event::Until { id: 0, point: 0 }, "block 0 was not allocated"),
        (Event::Mark { point: 2, stream: 0 }, "the number is 2, must be 0"),
        (Event::Trim { bytes: 1 << 63 }, "the bytes to keep are 9223372036854775808"),
    ];
    for (event, expected) in refused {
        let message = writer.event(&event).unwrap_err().to_string();
        assert!(message.contains(expected) && message.starts_with("event 0 "), "{message}");
    }
    writer.event(&Event::Allocate { id: 0, bytes: 1, stream: 0 }).unwrap();
    writer.event(&Event::Use { id: 0, stream: 9 }).unwrap();
    assert!(writer.event(&Event::Until { id: 0, point: 0 }).is_err());
    assert_eq!(writer.finish().unwrap(), b"# {\"counted\":true}\na 0 1 0\nu 0 9\n# end 2\n");
}

#[test]
fn header_values_of_the_wrong_kind_are_refused() {
    let segments = "segment_addresses";
    for (key, value) in [
        ("workload", "1"),
        ("peak_reserved", "1.5"),
        ("peak_active", "-1"),
        ("seconds", "\"1\""),
        (segments, "7"),
        (segments, "[7]"),
        (segments, "[[7]]"),
        (segments, "[[7, 8, 9]]"),
        (segments, "[[7, -8]]"),
    ] {
        let text = format!("# {{\"{key}\": {value}}}\n");
        let message = Trace::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(message.starts_with(&format!("line 1: the header's `{key}` must be ")), "{message}");
    }
}

/// Whatever header there is can be written, and what was written can be read.
#[test]
fn a_header_is_as_long_as_a_line_may_be() {
    let header = |conf: String| Header::new([("conf".to_owned(), conf.into())].into_iter().collect());
    let frame = r##"# {"conf":"","counted":true,"format":2}"##.len();
    let most = parse::LINE_BYTES_MAX - frame;
    for (text, times) in [("a", most), ("\n", most / 2), ("\u{1}", most / 6), ("é", most / 2)] {
        let longest = header(text.repeat(times)).expect("it fits");
        let trace = Trace { header: longest, events: vec![Event::EmptyCache], streams: 0, ..Trace::default() };
        let written = trace.write_to(Vec::new()).expect("memory takes everything");
        let read = Trace::parse(&written).expect("what was written can be read");
        assert!(read.header == trace.header, "another header was read");
        let message = header(text.repeat(times + 1)).expect_err("it is too long").to_string();
        assert!(message.contains("may take 1048576: leave out its longest values"), "{message}");
    }
    // A line that may be as long as it is, and would be longer as it is written.
    let numbers = format!("# {{\"a\":[{}1]}}\n", "1e15,".repeat(200_000));
    let message = Trace::parse(numbers.as_bytes()).expect_err("it would be too long").to_string();
    assert!(message.starts_with("line 1: the header takes "), "{message}");
}

#[test]
fn a_header_tells_where_segments_lay() {
    let trace = Trace::parse(b"# {\"segment_addresses\": [[2097152, 139999], [7, 0]]}\na 0 1 0\n").expect("a trace");
    assert_eq!(trace.header.segment_addresses(), [(2_097_152, 139_999), (7, 0)]);
    assert_eq!(trace.scaled_down(2).header.segment_addresses(), []);
    assert_eq!(Trace::parse(b"a 0 1 0\n").expect("a trace").header.segment_addresses(), []);
}

#[test]
fn a_scaled_trace_has_smaller_sizes_and_nothing_else_in_it() {
    let text = "a 0 1000000 0\na 1 513 1\nu 0 1\nt 4096\nf 0\na 2 1 0\n";
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    assert_eq!(trace.scaled_down(1), trace);
    let tenth = trace.scaled_down(10);
    let sizes = |trace: &Trace| -> Vec<u64> {
        let size = |event: &Event| match *event {
            Event::Allocate { bytes, .. } | Event::Trim { bytes } => Some(bytes),
            _ => None,
        };
        trace.events.iter().filter_map(size).collect()
    };
    assert_eq!(sizes(&tenth), [100_352, 512, 512, 512]);
    assert_eq!((tenth.events.len(), tenth.streams), (trace.events.len(), trace.streams));
}

const DETAILED: &str = "# {\"format\":2}\n\
    p train.py:40 main\np model.py:12 forward\nk 0 0\nk 1 1\nn weights\ns 1\nl 1\ni 5\na 0 512 0\n\
    l 0\ns 2\na 1 512 0\ni 9\nf 1\ni\ns 0\nf 0\n";

#[test]
fn details_hold_for_the_events_that_follow() {
    let Trace { details, events, .. } = Trace::parse(DETAILED.as_bytes()).unwrap();
    assert_eq!((events.len(), details.frames().len(), details.calls().len()), (4, 2, 2));
    let told = |event| {
        let Place { stack, label, micros } = details.place(event);
        let frames = stack.map(|stack| details.frames_of(stack).collect::<Vec<_>>().join(" < "));
        (frames.unwrap_or_default(), label.map_or("", |label| details.label_text(label)).to_owned(), micros)
    };
    assert_eq!(told(0), ("train.py:40 main".into(), "weights".into(), Some(5)));
    assert_eq!(told(1), ("model.py:12 forward < train.py:40 main".into(), String::new(), Some(5)));
    assert_eq!(told(2), ("model.py:12 forward < train.py:40 main".into(), String::new(), Some(9)));
    assert_eq!(told(3), (String::new(), String::new(), None));
}

#[test]
fn details_are_written_as_they_are_read() {
    let mut trace = Trace::parse(DETAILED.as_bytes()).unwrap();
    let text = trace.write_to(Vec::new()).unwrap();
    assert!(text.starts_with(b"# {\"counted\":true,\"format\":2}\n"), "{}", String::from_utf8_lossy(&text));
    assert_eq!(Trace::parse(&text).unwrap(), trace);
    assert_eq!(trace.scaled_down(4).details, trace.details);
    trace.details = Details::default();
    let text = String::from_utf8(trace.write_to(Vec::new()).unwrap()).unwrap();
    assert_eq!(text, "# {\"counted\":true}\na 0 512 0\na 1 512 0\nf 1\nf 0\n# end 4\n");
}

#[test]
fn details_that_no_event_has_are_written_too() {
    for text in ["p main\n", "p main\nk 0 0\nn a\ne\n", "p main\nk 0 0\ns 1\ne\np other\nn b\ns 0\ne\ni 7\n"] {
        let trace = Trace::parse(text.as_bytes()).unwrap();
        let written = trace.write_to(Vec::new()).unwrap();
        assert_eq!(Trace::parse(&written).unwrap(), trace, "{text:?}");
    }
}

/// A program that meets its stacks as it runs writes each where it first needs it.
#[test]
fn details_are_written_as_they_come() {
    let mut details = Details::default();
    let mut writer = TraceWriter::with_details(Vec::new(), &Header::default()).unwrap();
    for (id, frames) in [["main", "forward"], ["main", "backward"], ["main", "forward"]].into_iter().enumerate() {
        let place = Place { stack: details.stack(frames), ..Place::default() };
        let event = Event::Allocate { id: id as u32, bytes: 1, stream: 0 };
        writer.event_at(&event, place, &details).unwrap();
        details.push(id, place);
    }
    let text = writer.finish().unwrap();
    assert_eq!(String::from_utf8_lossy(&text).matches("p main").count(), 1);
    assert_eq!(Trace::parse(&text).unwrap().details, details);
}

#[test]
fn the_number_of_details_is_limited() {
    let read = |details| Trace::from_reader_within(DETAILED.as_bytes(), &Limits { details, ..Limits::NONE });
    assert_eq!(read(5).unwrap().events.len(), 4);
    match read(4).unwrap_err() {
        TraceError::Limit { limit: Limit::Details, most: 4, line: 6, enough: Some(5) } => {}
        other => panic!("{other}"),
    }
}

/// Whatever limit a trace exceeds, the error names the value that is enough, and one less is not.
#[test]
fn the_limit_that_an_error_names_is_enough() {
    let mut text = String::from(DETAILED);
    // More than one block of text, and streams that are named only at its end.
    for id in 2..60_000 {
        text += &format!("a {id} 512 {}\n", if id < 59_990 { 1 } else { id - 59_990 });
    }
    let read = |limits: &Limits| Trace::from_reader_within(text.as_bytes(), limits);
    let enough = |limits: &Limits, expected: Limit| match read(limits).unwrap_err() {
        TraceError::Limit { limit, enough: Some(enough), .. } if limit == expected => enough,
        other => panic!("{other}"),
    };
    let limits = |limit, most| match limit {
        Limit::Events => Limits { events: most, ..Limits::NONE },
        Limit::Streams => Limits { streams: most, ..Limits::NONE },
        Limit::Details => Limits { details: most, ..Limits::NONE },
        _ => Limits { text_bytes: most, ..Limits::NONE },
    };
    for limit in [Limit::Events, Limit::Streams, Limit::Details, Limit::TextBytes] {
        let limits = |most| limits(limit, most);
        let value = enough(&limits(1), limit);
        assert!(read(&limits(value)).is_ok(), "{limit} {value}");
        assert_eq!(enough(&limits(value - 1), limit), value);
    }
    let message = read(&limits(Limit::Events, 7)).unwrap_err().to_string();
    assert!(message.ends_with("raise `events` of its limits to 60002"), "{message}");
}

/// Submits, waits and points that are reached come back as they were written, in a trace that says that it has them.
#[test]
fn timing_is_read_as_it_was_written() {
    let text = "m 7 2\nq 2\nd 9 7\nh 7\nr 7\no 18446744073709551615\n";
    let timing = [
        Event::Mark { point: 0, stream: 2 },
        Event::Submit { stream: 2 },
        Event::StreamWait { stream: 9, point: 0 },
        Event::HostWait { point: 0 },
        Event::Reached { point: 0 },
        Event::Look { nanos: u64::MAX },
    ];
    for details in ["", "n a\nl 1\n"] {
        let trace = Trace::parse(format!("{details}{text}").as_bytes()).unwrap();
        assert_eq!((&trace.events[..], trace.streams, trace.is_timed()), (&timing[..], 10, true));
        let written = trace.write_to(Vec::new()).unwrap();
        assert_eq!(Trace::parse(&written).unwrap(), trace);
        assert!(written.starts_with(b"# {\"counted\":true,\"format\":3}\n"), "{}", String::from_utf8_lossy(&written));
    }
    let plain = Trace::parse(b"m 0 0\n").unwrap();
    assert!(!plain.is_timed() && plain.write_to(Vec::new()).unwrap().starts_with(b"# {\"counted\":true}\n"));
    let mut writer = TraceWriter::with_timing(Vec::new(), &Header::default()).unwrap();
    for event in [Event::HostWait { point: 0 }, Event::Reached { point: 0 }, Event::StreamWait { stream: 0, point: 0 }]
    {
        assert!(matches!(writer.event(&event), Err(TraceError::Event { event: 0, .. })), "{event:?}");
    }
}
