//! Recordings of each format, and the traces that they become.

use std::fs;
use std::path::PathBuf;

use millpond_import::{Format, ImportError, Imported, Left, Options, import_content, import_file};
use millpond_trace::Event::{self, Allocate, Complete, Free, Use};
use millpond_trace::{Limits, Trace};

const MIB: u64 = 1 << 20;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../snapshot/tests/fixtures").join(name)
}

fn import(text: &str) -> Imported {
    let imported = import_content(text.as_bytes(), &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    check(&imported.trace);
    imported
}

/// Checks that a trace is valid: its text is read as the same trace.
fn check(trace: &Trace) {
    let text = trace.write_to(Vec::new()).expect("a valid trace is written");
    assert_eq!(&Trace::parse(&text).expect("a valid trace"), trace);
}

fn a(id: u32, bytes: u64, stream: u32) -> Event {
    Allocate { id, bytes, stream }
}

fn left(imported: &Imported) -> Vec<(&str, u64)> {
    imported.left.iter().map(|Left { what, count }| (what.as_str(), *count)).collect()
}

#[test]
fn a_history_follows_what_was_live_before_it() {
    let imported = import_file(fixture("example.4.pickle"), &Options::default()).expect("a snapshot");
    check(&imported.trace);
    let (f, c) = (|id| Free { id }, |id| Complete { id });
    let expected = [
        // Before the history, by address: 400 bytes without an event, 1000 bytes and 7 MiB that events free.
        a(0, 400, 0),
        a(1, 1000, 0),
        a(2, 7 * MIB, 1),
        f(2),
        // The history.
        f(1),
        c(2),
        a(3, MIB, 0),
        a(4, 4 * MIB - 5, 1),
        a(5, 3 * MIB, 1),
        // Between this free and its completion stands a refusal, which is no event of a trace: the two are one.
        f(5),
        a(6, 2 * MIB, 0),
        f(4),
        // The device still used this when the snapshot was taken.
        c(4),
    ];
    assert_eq!(imported.trace.events, expected);
    assert_eq!((imported.format, imported.device), (Format::PyTorch, Some(0)));
    assert_eq!(imported.trace.header.conf(), Some("garbage_collection_threshold:0.8"));
    assert_eq!(imported.trace.header.seconds(), Some(2.5));
    let left = left(&imported);
    for expected in [
        ("blocks that were allocated before the history, whose order is not known", 3),
        ("segments that were allocated, released, mapped or unmapped", 3),
        ("allocations in private pools, which become allocations of the default pool", 1),
        ("blocks still in use by the device in the end, which complete there", 1),
        ("allocations that were refused", 1),
        ("snapshots that were taken", 1),
    ] {
        assert!(left.contains(&expected), "{expected:?} in {left:?}");
    }
}

#[test]
fn refused_requests_are_allocations_that_are_freed_at_once_if_they_are_asked_for() {
    let options = Options { refused: true, ..Options::default() };
    let imported = import_file(fixture("example.4.pickle"), &options).expect("a snapshot");
    check(&imported.trace);
    assert!(!left(&imported).iter().any(|(what, _)| *what == "allocations that were refused"));
    let plain = import_file(fixture("example.4.pickle"), &Options::default()).expect("a snapshot").trace;
    let events = &imported.trace.events;
    // The refusal stands between a free and its completion, which are two events then.
    let at = events.iter().position(|event| *event == Free { id: 6 }).expect("the refused request");
    assert!(matches!(events[at - 1], Allocate { id: 6, .. }) && events[at - 2] == Free { id: 5 }, "{events:?}");
    assert_eq!((events[at + 1], events.len()), (Complete { id: 5 }, plain.events.len() + 3));
}

#[test]
fn every_format_of_a_snapshot_becomes_the_same_trace() {
    let trace = |name: &str| import_file(fixture(name), &Options::default()).expect(name);
    let example = trace("example.json");
    for name in ["example.2.pickle", "example.5.pickle", "example.pt"] {
        assert_eq!(trace(name), example, "{name}");
    }
    let large = trace("large.pickle");
    assert_eq!(large.trace.allocations(), 1200);
    check(&large.trace);
}

#[test]
fn a_device_is_chosen_where_there_are_several() {
    let path = fixture("two_devices.pickle");
    let error = import_file(&path, &Options::default()).expect_err("two devices");
    assert!(matches!(&error, ImportError::Devices { devices } if devices == &[0, 1]), "{error}");
    assert_eq!(error.to_string(), "the snapshot has devices 0, 1; choose one");
    let on = |device| import_file(&path, &Options { device: Some(device), ..Options::default() });
    let second = on(1).expect("device 1");
    assert_eq!(second.trace.events, [a(0, 2 * MIB, 0)]);
    assert_eq!(second.trace.header.values()["device"], 1);
    assert_eq!(
        on(7).expect_err("no device 7").to_string(),
        "the snapshot has nothing of device 7; it has devices 0, 1"
    );
}

#[test]
fn what_a_history_lacks_is_told() {
    let entry = |action: &str, addr: u64, size: u64| {
        format!("{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{size},\"stream\":0}}")
    };
    let events = [
        entry("alloc", 1, 10),
        entry("alloc", 1, 20), // the free of the 10 bytes is missing
        entry("free_requested", 1, 20),
        entry("alloc", 1, 30), // and so is the completion of the 20
        entry("free_requested", 1, 30),
        entry("free_requested", 1, 30), // twice
        entry("free_completed", 1, 30),
        entry("free_completed", 1, 30), // twice
        entry("alloc", 2, 0),
        entry("free_requested", 2, 0),
        entry("juggle", 2, 0),
    ];
    let imported = import(&format!("{{\"segments\":[],\"device_traces\":[[{}]]}}", events.join(",")));
    let (f, c) = (|id| Free { id }, |id| Complete { id });
    let expected = [a(0, 10, 0), f(0), a(1, 20, 0), f(1), c(1), a(2, 30, 0), f(2)];
    assert_eq!(imported.trace.events, expected);
    let left = left(&imported);
    assert_eq!(left.iter().map(|(_, count)| count).sum::<u64>(), 7, "{left:?}");
    assert!(left.contains(&("events of the unknown kind \"juggle\"", 1)), "{left:?}");
}

#[test]
fn a_log_of_rmm_becomes_a_trace() {
    let imported = import(
        "Thread,Time,Action,Pointer,Size,Stream\n\
         140,10:32:09.106743,allocate,0x7f0000000000,1024,0\n\
         140,10:32:09.106800,allocate,0x7f0000000400,2048,0x55d0c0\n\
         141,10:32:09.106900,allocate failure,(nil),99999999,0x55d0c0\n\
         140,10:32:09.107000,free,0x7f0000000000,1024,0\n\
         140,10:32:09.107100,deallocate,0x7f0000000400,2048,0\n\
         140,10:32:09.107200,free,0x7fff00000000,64,0\n\
         140,10:32:09.107300,allocate,0x7f0000000000,5,0\r\n\
         140,10:32:09.107300,allocate,0x7f0000000000,6,0\n\
         140,10:32:09.107400,allocate,(nil),0,0\n",
    );
    let f = |id| Free { id };
    let expected = [a(0, 1024, 0), a(1, 2048, 1), f(0), Use { id: 1, stream: 0 }, f(1), a(2, 5, 0), f(2), a(3, 6, 0)];
    assert_eq!((imported.trace.events.as_slice(), imported.format), (&expected[..], Format::Rmm));
    let left = left(&imported);
    for expected in [
        ("allocations that were refused", 1),
        ("frees of blocks that were allocated before the log began", 1),
        ("frees that the log lacks, found as the address is allocated again", 1),
        ("allocations of 0 bytes", 1),
    ] {
        assert!(left.contains(&expected), "{expected:?} in {left:?}");
    }
}

#[test]
fn lifetimes_become_a_trace() {
    let f = |id| Free { id };
    let imported = import("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n");
    let expected = [a(0, 4, 0), a(1, 4, 0), a(2, 4, 0), f(0), a(3, 4, 0), f(3), f(1), a(4, 4, 0), f(4), f(2)];
    assert_eq!(imported.trace.events, expected);
    assert_eq!((imported.trace.live_peak(), imported.format), (12, Format::Lifetimes));
    assert_eq!(left(&imported), []);

    // `end` belongs to the lifetime, columns stand in any order, and what has no place in a trace is counted.
    let imported =
        import("size,start,end,buffer_id,offset,gaps,alignment\n8,-2,-1,x,0,,1\n9,0,0,y,8,3-4,1\n0,1,1,z,0,,1\n");
    assert_eq!(imported.trace.events, [a(0, 8, 0), f(0), a(1, 9, 0), f(1)]);
    let expected = [
        ("alignments", 3),
        ("offsets that a solution gave", 3),
        ("buffers with gaps in their lifetimes", 1),
        ("buffers of 0 bytes", 1),
    ];
    assert!(expected.iter().all(|one| left(&imported).contains(one)), "{:?}", imported.left);
}

#[test]
fn a_log_of_stalloc_becomes_a_trace() {
    let imported = import(
        "Iteration Index : 0\nmicro-batch : F\n1 0x7f1e41329c00 512 0\nmodule.0.mlp->MoELayer Layer : F-start\n\
         1 0x7f1e41329e00 1024 0x5581\n1 0 0 0\n0 0x7f1e41329c00 512 0\n0 0x1 7 0\nIteration Index : end\n",
    );
    assert_eq!(imported.trace.events, [a(0, 512, 0), a(1, 1024, 1), Free { id: 0 }]);
    assert_eq!(imported.format, Format::Stalloc);
    let expected = [
        ("beginnings of iterations", 2),
        ("beginnings of micro-batches", 1),
        ("beginnings and ends of layers", 1),
        ("events of 0 bytes or at address 0", 1),
        ("frees of blocks that were allocated before the log began", 1),
    ];
    assert_eq!(left(&imported), expected);
}

/// The default stream is stream 0, whichever stream comes first. A block whose address is allocated again was freed.
#[test]
fn streams_and_addresses_of_a_log_come_in_any_order() {
    let imported = import("1 0x200 512 0x5581\n1 0x400 512 0\n1 0x200 1024 0x77\n0 0x200 1024 0x77\n");
    assert_eq!(imported.trace.events, [a(0, 512, 1), a(1, 512, 0), Free { id: 0 }, a(2, 1024, 2), Free { id: 2 }]);
    assert_eq!(imported.trace.streams, 3);
}

/// A log that a killed program left, of each format, cut anywhere in its last line: what is whole is imported, and the
/// rest is told and never read as another number.
#[test]
fn a_last_line_that_is_cut_off_is_left_out_and_told() {
    for (text, events) in [
        ("Action,Pointer,Size,Stream\nallocate,0x10,512,0\nallocate,0x20,4096,0\n", 1),
        ("id,lower,upper,size\na,0,1,512\nb,1,2,4096\n", 2),
        ("1 0x10 512 0\n1 0x20 4096 0\n", 1),
    ] {
        let whole = import(text);
        assert!(!left(&whole).iter().any(|(what, _)| what.contains("cut off")), "{text}");
        let last = text.trim_end().rfind('\n').expect("lines") + 1;
        for end in last + 1..text.len() {
            let cut = import(&text[..end]);
            assert_eq!(cut.trace.events.len(), events, "{:?}", &text[..end]);
            let told = ("last lines without a line break, which may be cut off", 1);
            assert!(left(&cut).contains(&told), "{:?}: {:?}", &text[..end], cut.left);
        }
        // A file whose writer ends in spaces is whole.
        assert_eq!(import(&format!("{text}  ")).trace, whole.trace);
    }
}

#[test]
fn a_log_of_rmm_has_its_refused_requests_and_may_follow_another() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n1,2,allocate,0x10,512,0\n1,2,allocate failure,(nil),4096,7\n";
    let with = |text: &str| {
        let options = Options { refused: true, ..Options::default() };
        let imported = import_content(text.as_bytes(), &options).expect("a log");
        check(&imported.trace);
        imported
    };
    let refused = with(log);
    assert_eq!(refused.trace.events, [a(0, 512, 0), a(1, 4096, 1), Free { id: 1 }]);
    assert!(!left(&refused).iter().any(|(what, _)| what.contains("refused")), "{:?}", refused.left);
    // What no allocator can be asked for is left out, and what fails may have any size.
    for bytes in ["0", "18446744073709551615"] {
        let imported = with(&log.replace("4096", bytes));
        assert!(left(&imported).contains(&("allocations that were refused", 1)), "{:?}", imported.left);
        assert_eq!(imported.trace.events, [a(0, 512, 0)]);
    }
    // The address of another process is other memory.
    let twice = import(&format!("{log}{}", log.replace("512", "1024")));
    assert_eq!(twice.trace.events, [a(0, 512, 0), a(1, 1024, 0)]);
    assert!(left(&twice).iter().any(|(what, count)| what.starts_with("heads of further logs") && *count == 1));
}

/// Returns the frames, innermost first, the label and the time of each event.
fn places(trace: &Trace) -> Vec<(Vec<&str>, Option<&str>, Option<u64>)> {
    let details = &trace.details;
    let place = |event| {
        let place = details.place(event);
        let frames = place.stack.map_or(Vec::new(), |stack| details.frames_of(stack).collect());
        (frames, place.label.map(|label| details.label_text(label)), place.micros)
    };
    (0..trace.events.len()).map(place).collect()
}

#[test]
fn a_trace_keeps_the_stacks_labels_and_times_of_a_history() {
    let frame =
        |file: &str, line: u64, name: &str| format!("{{\"filename\":\"{file}\",\"line\":{line},\"name\":\"{name}\"}}");
    let inner = [frame("??", 0, "unwind"), frame("/a/b/net/conv.py", 9, "forward"), frame("/a/train.py", 5, "main")];
    let [inner, outer] = [inner.join(","), frame("/a/train.py", 5, "main")];
    let block = format!("{{\"address\":64,\"size\":512,\"state\":\"active_allocated\",\"frames\":[{outer}]}}");
    let segment = format!("{{\"device\":0,\"address\":64,\"total_size\":512,\"stream\":0,\"blocks\":[{block}]}}");
    let entry = |action: &str, time: u64, rest: &str| {
        format!("{{\"action\":\"{action}\",\"addr\":1,\"size\":10,\"stream\":0,\"time_us\":{time},{rest}}}")
    };
    let entries = [
        entry("alloc", 1000, &format!("\"frames\":[{inner}],\"user_metadata\":\"step 1\",\"category\":\"gradient\"")),
        entry(
            "free_requested",
            1007,
            &format!("\"frames\":[{outer}],\"user_metadata\":\"\",\"category\":\"gradient\""),
        ),
    ];
    let text = format!("{{\"segments\":[{segment}],\"device_traces\":[[{}]]}}", entries.join(","));
    let imported = import(&text);
    let main = "a/train.py:5 main";
    let expected = [
        (vec![main], None, None),
        (vec!["b/net/conv.py:9 forward", main], Some("step 1"), Some(0)),
        (vec![main], Some("gradient"), Some(7)),
        (vec![], None, None),
    ];
    assert_eq!(places(&imported.trace), expected);
    assert!(!left(&imported).iter().any(|(what, _)| what.contains("call stacks")), "{:?}", imported.left);

    let plain = import_content(text.as_bytes(), &Options { without_details: true, ..Options::default() });
    let plain = plain.expect("a snapshot");
    assert!(plain.trace.details.is_empty() && plain.trace.events == imported.trace.events);
    assert!(left(&plain).contains(&("call stacks of events", 2)), "{:?}", plain.left);
    // What is beyond the limit is left out, and told.
    let few = Options { limits: Limits { details: 4, ..Limits::default() }, ..Options::default() };
    let few = import_content(text.as_bytes(), &few).expect("a snapshot");
    assert_eq!((few.trace.events.len(), places(&few.trace)[1].2), (4, Some(0)));
    assert!(left(&few).iter().any(|(what, _)| what.contains("beyond the most that `details`")), "{:?}", few.left);
}

#[test]
fn a_trace_keeps_the_times_and_threads_of_a_log() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n7,23:59:59.999999,allocate,0x10,512,0\n\
        8,00:00:00.000001,allocate,0x20,512,0\n7,00:00:01.5,free,0x10,512,0\n";
    let imported = import(log);
    let [seven, eight] = ["thread 7", "thread 8"].map(Some);
    let expected = [(vec![], seven, Some(0)), (vec![], eight, Some(2)), (vec![], seven, Some(1_500_001))];
    assert_eq!((places(&imported.trace), imported.left.len()), (expected.to_vec(), 0));
    let alone = import(&log.replace("\n8,", "\n7,"));
    assert!(alone.trace.details.has_times() && !alone.trace.details.has_labels());
    let plain =
        import_content(log.as_bytes(), &Options { without_details: true, ..Options::default() }).expect("a log");
    let expected = [("times", 3), ("threads beside the first one: the trace is one sequence", 1)];
    assert_eq!((left(&plain), plain.trace.details.is_empty()), (expected.to_vec(), true));
}

/// RMM has written handles with `0x`, in bare hexadecimal digits, and as `(nil)`.
#[test]
fn a_refused_request_of_rmm_is_kept_in_each_form_that_it_wrote() {
    for (head, pointer, other, none, stream) in [
        ("Thread,Time,Action,Pointer,Size,Stream", "0x7f0000000000", "0x7f0000000400", "(nil)", "0x0"),
        ("Thread,Time,Action,Pointer,Size,Stream", "7f0000000000", "700000000400", "0", "0"),
        ("Thread,Time,Action,Pointer,Size,Stream", "0x7f0000000000", "0x7f0000000400", "0x0", "(nil)"),
    ] {
        let text = format!(
            "{head}\n1,10:00:00:000001,allocate,{pointer},1024,{stream}\n\
             1,10:00:00:000002,allocate,{other},2048,{stream}\n\
             1,10:00:00:000003,allocate failure,{none},9999,{stream}\n\
             1,10:00:00:000004,free,{pointer},1024,{stream}\n"
        );
        let options = Options { refused: true, ..Options::default() };
        let imported = import_content(text.as_bytes(), &options).expect("a log");
        let expected = [a(0, 1024, 0), a(1, 2048, 0), a(2, 9999, 0), Free { id: 2 }, Free { id: 0 }];
        assert_eq!((imported.trace.events.as_slice(), imported.refused), (&expected[..], 1), "{text}");
        assert_eq!((imported.trace.streams, imported.notes.len()), (1, 0));
    }
}

/// A log breaks off where its process was killed, and logs of several processes are joined with and without a line
/// break between them. What there is is read, and the notes say so.
#[test]
fn logs_that_break_off_and_follow_each_other_are_read() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x10,512,0\n";
    let cut = format!("{log}1,10:00:00.000002,fre");
    let f = |id| Free { id };
    let joined = import(&format!("{cut}{log}1,10:00:00.000003,free,0x10,512,0\n"));
    assert_eq!(joined.trace.events, [a(0, 512, 0), a(1, 512, 0), f(1)]);
    let notes = [
        "line 3 breaks off where another log follows; it is left out",
        "the file has 2 logs, one after the other; what one has not freed stays allocated",
    ];
    assert_eq!(joined.notes, notes);
    assert!(left(&joined).contains(&("lines that break off", 1)), "{:?}", joined.left);
    // An editor has added the line break.
    let ended = import(&format!("{cut}\n"));
    assert_eq!(
        (ended.trace.events.len(), ended.notes[0].as_str()),
        (1, "the last line, line 3, breaks off; it is left out")
    );
    let cut = import(&cut);
    assert_eq!(cut.trace.events.len(), 1);
    assert_eq!(cut.notes, ["the last line has no line break, as if it was cut off; the lines before it were read"]);
    assert_eq!(import(log).notes, [""; 0]);
    // Only at the end.
    let error =
        import_content(format!("{log}1,2,fre\n{log}").as_bytes(), &Options::default()).expect_err("a short line");
    assert!(error.to_string().starts_with("line 3, column 1: the line has 3 fields"), "{error}");
}

#[test]
fn a_compressed_log_that_breaks_off_is_read_as_far_as_it_goes() {
    let rows: String = (1..500).map(|row| format!("allocate,0x{row}00,512,0\n")).collect();
    let whole = gzip(format!("Action,Pointer,Size,Stream\n{rows}").as_bytes());
    let cut = millpond_import::import(&whole[..whole.len() - 20], &Options::default()).expect("the beginning");
    assert_eq!(cut.trace.events.len(), 498);
    assert!(
        cut.notes.contains(&"the compressed file breaks off; what comes before was read".into()),
        "{:?}",
        cut.notes
    );
    assert!(millpond_import::import(&whole[..12], &Options::default()).is_err(), "nothing to read");
    let mut broken = whole;
    broken[40] ^= 1;
    assert!(millpond_import::import(&broken[..], &Options::default()).is_err(), "another sum");
}

/// A limit is named as it is called among those of an import.
#[test]
fn a_limit_has_its_own_name() {
    for (limits, name) in [
        (Limits { text_bytes: 9, ..Limits::default() }, "raise `text_bytes` of the limits"),
        (Limits { events: 1, ..Limits::default() }, "raise `events` of the limits"),
    ] {
        let options = Options { limits, ..Options::default() };
        let error = import_file(fixture("example.4.pickle"), &options).expect_err("a limit").to_string();
        assert!(error.contains(name) && !error.contains("`bytes`"), "{error}");
    }
}

#[test]
fn compressed_recordings_are_read() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lifetimes.csv.gz");
    fs::write(&path, gzip(b"id,lower,upper,size\na,0,1,5\n")).expect("a file");
    assert_eq!(import_file(&path, &Options::default()).expect("a table").trace.allocations(), 1);
}

/// Returns a text as a member of gzip, not compressed.
fn gzip(text: &[u8]) -> Vec<u8> {
    let mut sum = !0_u32;
    for byte in text {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    let length = text.len() as u16;
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    member.extend_from_slice(&length.to_le_bytes());
    member.extend_from_slice(&(!length).to_le_bytes());
    member.extend_from_slice(text);
    member.extend_from_slice(&(!sum).to_le_bytes());
    member.extend_from_slice(&u32::from(length).to_le_bytes());
    member
}

/// A recording that exceeds a limit is counted, and with the limit that the message names it is read.
#[test]
fn the_limit_that_a_message_advises_is_enough() {
    let none = Limits::NONE;
    let rmm: &[u8] = b"Action,Pointer,Size,Stream\nallocate,1,5,1\nallocate,2,5,2\nfree,2,5,3\nallocate,3,5,3\n";
    let lives: &[u8] = b"id,lower,upper,size\na,0,1,1\nb,0,1,1\nc,1,2,1\n";
    let stalloc: &[u8] = b"1 0x10 512 0\n1 0x20 4096 7\n0 0x10 512 0\n";
    let snapshot = fs::read(fixture("example.4.pickle")).expect("a snapshot");
    for content in [rmm, lives, stalloc, &snapshot[..]] {
        for events in [0, 1, 3, 12, 50] {
            let options = Options { limits: Limits { events, ..none }, ..Options::default() };
            advice_holds(content, options);
        }
        for limits in [Limits { streams: 0, ..none }, Limits { streams: 1, ..none }, Limits { text_bytes: 9, ..none }] {
            advice_holds(content, Options { limits, ..Options::default() });
        }
    }
}

/// Imports with limits, and raises them as the messages say, until the recording is read.
fn advice_holds(content: &[u8], mut options: Options) {
    for _ in 0..3 {
        let Err(error) = import_file_of(content, &options) else { return };
        let Some((limit, Some(enough))) = error.limit() else { panic!("no advice: {error}") };
        assert!(error.to_string().ends_with(&format!("`{}` of the limits to {enough}", limit.name())), "{error}");
        let Limits { text_bytes, events, streams, .. } = &mut options.limits;
        let raised = match limit.name() {
            "text_bytes" => text_bytes,
            "events" => events,
            _ => streams,
        };
        assert!(*raised < enough, "{error}");
        *raised = enough;
    }
    // The values of a snapshot and the events of its trace are one limit, which may take two messages.
    assert!(import_file_of(content, &options).is_ok(), "{options:?}");
}

fn import_file_of(content: &[u8], options: &Options) -> Result<Imported, ImportError> {
    millpond_import::import(content, options)
}

#[test]
fn limits_hold() {
    let with = |limits: Limits, text: &str| {
        let options = Options { limits, ..Options::default() };
        import_content(text.as_bytes(), &options).expect_err("a limit").to_string()
    };
    let rmm = "Action,Pointer,Size,Stream\nallocate,1,5,1\nallocate,2,5,2\nallocate,3,5,3\n";
    let error = with(Limits { events: 2, ..Limits::default() }, rmm);
    assert!(error.starts_with("line 4, column 1: the trace would have more than 2 events"), "{error}");
    let error = with(Limits { streams: 2, ..Limits::default() }, rmm);
    assert!(error.starts_with("line 4, column 14: the recording has more than 2 different streams"), "{error}");
    let lifetimes = "id,lower,upper,size\na,0,1,1\nb,0,1,1\n";
    let error = with(Limits { events: 3, ..Limits::default() }, lifetimes);
    assert!(error.starts_with("line 3, column 1: the trace would have more than 3 events"), "{error}");
    let entry = "{\"action\":\"alloc\",\"addr\":1,\"size\":1,\"stream\":0}";
    let pytorch = format!("{{\"segments\":[],\"device_traces\":[[{entry},{entry}]]}}");
    let error = with(Limits { events: 9, streams: 0, ..Limits::default() }, &pytorch);
    assert!(error.starts_with("device_traces[0][0]: the recording has more than 0 different streams"), "{error}");
    let error = with(Limits { events: 1, ..Limits::default() }, &pytorch);
    assert!(error.starts_with("byte 31: the file has more than 2 values"), "{error}");
}

#[test]
fn the_addresses_of_segments_are_kept_where_a_replay_can_follow_them() {
    let entry = |action: &str, addr: u64, size: u64| {
        format!("{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{size},\"stream\":0}}")
    };
    let header = |segments: &str, events: &[String]| {
        let text = format!("{{\"segments\":[{segments}],\"device_traces\":[[{}]]}}", events.join(","));
        import(&text).trace.header.segment_addresses()
    };
    let (high, low) = (0x7f00_0040_0000, 0x7f00_0020_0000);
    let mut events = vec![
        entry("segment_alloc", high, 2 * MIB),
        entry("alloc", high, MIB),
        entry("segment_alloc", low, 2 * MIB),
        entry("free_requested", high, MIB),
        entry("segment_free", high, 2 * MIB),
        entry("segment_alloc", high, 20 * MIB),
    ];
    let given = [(2 * MIB, high), (2 * MIB, low), (20 * MIB, high)];
    assert_eq!(header("", &events), given);
    // A block from before the history: the first segments are not known.
    events.push(entry("free_requested", 0x7f00_0000_0000, 512));
    assert_eq!(header("", &events), []);
    events.pop();
    events.push(entry("segment_map", low, 2 * MIB));
    assert_eq!(header("", &events), []);
    events.pop();
    assert_eq!(header("", &vec![events[0].clone(); 17_000]).len(), 1 << 14);
}

/// A configuration and a name without a bound, and as many segments as are kept: the trace can be written, and read
/// again.
#[test]
fn a_header_has_room_for_what_a_recording_tells() {
    let segments: Vec<String> = (0..20_000u64)
        .map(|at| {
            let address = u64::MAX - (1 << 40) + at * 2 * MIB;
            format!(r#"{{"action":"segment_alloc","addr":{address},"size":{},"stream":0}}"#, 2 * MIB)
        })
        .collect();
    let snapshot = |conf: &str| {
        let conf = serde_json::Value::from(conf);
        let (settings, trace) = (format!(r#"{{"PYTORCH_CUDA_ALLOC_CONF":{conf}}}"#), segments.join(","));
        format!(r#"{{"segments":[],"device_traces":[[{trace}]],"allocator_settings":{settings}}}"#)
    };
    let limit = 16 << 10;
    for (character, bytes) in [("a", limit), ("\u{1}", limit), ("a", limit + 1), ("\u{1}", limit + 1), ("a", 3 << 20)] {
        let text = character.repeat(bytes);
        let options = Options { name: Some(text.clone()), ..Options::default() };
        let imported = import_content(snapshot(&text).as_bytes(), &options).expect("a snapshot");
        check(&imported.trace);
        let header = &imported.trace.header;
        let kept = (bytes <= limit).then_some(text.as_str());
        assert!(header.conf() == kept && header.workload() == kept, "{bytes} bytes");
        assert_eq!(header.segment_addresses().len(), 1 << 14);
        let left: Vec<_> = left(&imported).into_iter().filter(|(what, _)| what.contains("more than 16384")).collect();
        assert_eq!(left.len(), if bytes <= limit { 0 } else { 2 }, "{left:?}");
    }
}
