//! Recordings that do not follow their format: each is refused at its place. And any bytes are read or refused.

use millpond_import::{Format, Options, import_content};
use millpond_trace::{Limits, Trace};
use proptest::collection::vec;
use proptest::prelude::*;

const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n";
const LIVES: &str = "id,lower,upper,size\n";

/// A content, the beginning of the message, and a part of it.
const CASES: &[(&str, &str, &str)] = &[
    ("", "byte 0: ", "the file is empty; name it: pytorch, rmm, lifetimes or stalloc"),
    ("\u{7f}ELF", "byte 0: ", "the format is unknown: `\\x7fELF`"),
    ("# {\"workload\": \"a\"}\na 0 1 0\n", "byte 0: ", "looks like a trace of Millpond, which needs no import"),
    ("Thread,Action,Pointer\n", "line 1, column 1: ", "the head has no column `Size`"),
    ("Action,Pointer,Size\n", "line 1, column 1: ", "the head has no column `Stream`"),
    ("Action,Pointer,Size,Stream,size\n", "line 1, column 28: ", "the column `size` twice"),
    ("RMM,allocate\n", "line 2, column 1: ", "the line has 2 fields, expected 6"),
    ("RMM1,2,allocate,0x10,5,0,7\n", "line 2, column 1: ", "the line has 7 fields, expected 6"),
    ("RMM1,2,allocate,0x10,5,0\n1,2,alocate,0x10,5,0\n", "line 3, column 5: ", "`alocate` is not a valid action"),
    ("RMM1,2,allocate,7f00zz,5,0\n", "line 2, column 14: ", "`7f00zz` is not a valid address"),
    ("RMM1,2,allocate,0x10000000000000000,5,0\n", "line 2, column 14: ", "is not a valid address"),
    ("RMM1,2,allocate,0x,5,0\n", "line 2, column 14: ", "`0x` is not a valid address"),
    ("RMM1,2,allocate,0x+1,5,0\n", "line 2, column 14: ", "`0x+1` is not a valid address"),
    ("RMM1,2,allocate,0x10,-5,0\n", "line 2, column 19: ", "`-5` is not a valid size"),
    ("RMM1,2,allocate,0x10,1152921504606846976,0\n", "line 2, column 19: ", "must be at most 2^60 - 1"),
    ("RMM1,2,allocate,0x10,1152921504606846976x,0\n", "line 2, column 19: ", "is not a valid size"),
    ("RMM1,2,allocate,0x10,5,s0\n", "line 2, column 21: ", "`s0` is not a valid address"),
    ("RMM1,2,allocate,0x10,5,0\n1,2,free,0x10,6,0\n", "line 3, column 15: ", "6 bytes are freed at 0x10, where 5 were"),
    ("lower,upper,size,lower\n", "line 1, column 18: ", "the column `lower` twice"),
    ("LIVESa,0,1\n", "line 2, column 1: ", "the line has 3 fields, expected 4"),
    ("LIVESa,0,one,5\n", "line 2, column 5: ", "`one` is not a valid time"),
    ("LIVESa,0, 1x,5\n", "line 2, column 6: ", "`1x` is not a valid time"),
    ("LIVESa,--1,1,5\n", "line 2, column 3: ", "`--1` is not a valid time"),
    ("LIVESa,9223372036854775808,1,5\n", "line 2, column 3: ", "below 2^63"),
    ("LIVESa,3,3,5\n", "line 2, column 5: ", "the lifetime ends at 3, not after its start at 3"),
    ("LIVESa,0,1,1152921504606846976\n", "line 2, column 7: ", "must be at most 2^60 - 1"),
    ("id,lower,upper,size", "line 1, column 1: ", "the text ends inside this line, expected a line break"),
    ("LIVESa,0,1,1.5\n", "line 2, column 7: ", "`1.5` is not a valid size"),
    ("LIVESa,0,1,99999999999999999999\n", "line 2, column 7: ", "is not a valid size"),
    ("id,lower,end,size\na,0,9223372036854775807,5\n", "line 2, column 5: ", "below 2^63 - 1"),
    ("1 0x10 5 0\n2 0x10 5 0\n", "line 2, column 1: ", "`2` is not a valid event: expected 1 for an allocation"),
    ("1 0x10 5 0\n\n0 0x10 5\n", "line 3, column 1: ", "the line has 3 fields, expected 4"),
    ("1 0x10 5 0\n0 0x10  5 0\n", "line 2, column 1: ", "the line has 5 fields, expected 4"),
    ("1 0x10 5 0\n0 0x10 4 0\n", "line 2, column 8: ", "4 bytes are freed at 0x10, where 5 were"),
    ("1 0x10 1152921504606846976 0\n", "line 1, column 8: ", "must be at most 2^60 - 1"),
    ("1 0x10 5 0\n1 ten 5 0\n", "line 2, column 3: ", "`ten` is not a valid address"),
    (
        "{\"segments\":[],\"device_traces\":[[\
         {\"action\":\"alloc\",\"addr\":1,\"size\":1152921504606846976,\"stream\":0}]]}",
        "device_traces[0][0]: ",
        "the size is 1152921504606846976, must be at most 2^60 - 1",
    ),
    ("{\"segments\": 5}", "byte 13, segments: ", "found a whole number, expected a list"),
    ("[1", "byte 2: ", "the file ends here"),
];

fn error(content: &[u8], options: &Options) -> String {
    match import_content(content, options) {
        Ok(imported) => panic!("accepted as {imported:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_is_refused_at_its_place() {
    let mut wrong = Vec::new();
    for (content, at, part) in CASES {
        let content = content.replace("RMM", RMM).replace("LIVES", LIVES);
        let message = error(content.as_bytes(), &Options::default());
        if !message.starts_with(at) || !message.contains(part) || message.len() > 400 {
            wrong.push(format!("{content:?}: expected {at}..{part}.., got {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_named_format_is_not_found_out() {
    for (format, content, at) in [
        (Format::Rmm, "Thread,Ti", "line 1, column 1: the text ends inside this line"),
        (Format::Stalloc, "1 0x10 5", "line 1, column 1: the text ends inside this line"),
        (Format::Rmm, "", "line 1, column 1: the file is empty, expected Thread,Time,Action"),
        (Format::Rmm, "1 0x10 5 0\n", "line 1, column 1: the head has no column `Action`"),
        (Format::Lifetimes, "\n\n", "line 1, column 1: the file is empty, expected id,lower,upper,size"),
        (Format::Stalloc, "", "line 1, column 1: the file is empty, expected 1 ADDRESS SIZE STREAM"),
        (Format::Stalloc, "Thread,Time\n", "line 1, column 1: the line has 1 fields, expected 4"),
        (Format::PyTorch, "id,lower\n", "byte 0: expected a snapshot"),
    ] {
        let message = error(content.as_bytes(), &Options { format: Some(format), ..Options::default() });
        assert!(message.starts_with(at), "{format}: {content:?}: {message}");
    }
}

#[test]
fn lines_that_are_no_text_or_too_long_are_refused() {
    let options = Options::default();
    let message = error(&[RMM.as_bytes(), b"1,2,\xff\n"].concat(), &options);
    assert!(message.starts_with("line 2, column 5: the line is not UTF-8"), "{message}");
    let message = error(format!("{LIVES}{}\n", "a".repeat(1 << 21)).as_bytes(), &options);
    assert!(message.starts_with("line 2, column 1048577: the line is longer than 1048576 bytes"), "{message}");
    // A head of a million columns is one long line.
    let head = format!("action,pointer{}\n", ",x".repeat(1 << 20));
    assert!(error(head.as_bytes(), &options).contains("the line is longer than"), "a head");
}

/// Imports a content in every format. What is accepted is a valid trace within the limits.
fn survives(content: &[u8]) {
    let limits = Limits { events: 200, streams: 5, text_bytes: 1 << 20, ..Limits::default() };
    for format in Format::ALL.map(Some).into_iter().chain([None]) {
        for (device, events) in [(None, None), (Some(0), Some(1..4)), (Some(1), None), (None, Some(2..u64::MAX))] {
            let options = Options { format, device, events, limits, refused: true, ..Options::default() };
            let Ok(imported) = import_content(content, &options) else { continue };
            let text = imported.trace.write_to(Vec::new()).expect("a valid trace is written");
            assert_eq!(Trace::parse(&text).expect("a valid trace"), imported.trace);
            assert!(imported.trace.events.len() <= 200);
        }
    }
}

fn lines(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let line = vec(proptest::sample::select(words), 1..8);
    (vec(line, 0..12), proptest::sample::select(vec![",", " "]))
        .prop_map(|(lines, separator)| lines.into_iter().map(|line| line.join(separator) + "\n").collect::<String>())
}

const WORDS: &[&str] = &[
    "id",
    "lower",
    "upper",
    "size",
    "end",
    "action",
    "pointer",
    "stream",
    "allocate",
    "free",
    "allocate failure",
    "0",
    "1",
    "2",
    "0x10",
    "0x20",
    "(nil)",
    "-1",
    "512",
    "1152921504606846975",
    "9223372036854775807",
    "Layer :",
    "Iteration Index :",
    "\u{e4}",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn any_bytes_are_imported_or_refused(content in vec(any::<u8>(), 0..200)) {
        survives(&content);
    }

    #[test]
    fn any_lines_are_imported_or_refused(text in lines(WORDS)) {
        for head in ["", "Action,Pointer,Size,Stream\n", "id,lower,upper,size\n"] {
            survives(format!("{head}{text}").as_bytes());
        }
    }

    #[test]
    fn any_rows_are_imported_or_refused(rows in vec((0..3_u8, 0..4_u8, 0..3_u64, 0..4_u8), 0..40)) {
        let mut text = String::from("Action,Pointer,Size,Stream\n");
        for (action, pointer, size, stream) in rows {
            let action = ["allocate", "free", "allocate failure"][usize::from(action)];
            text += &format!("{action},0x{pointer:x},{size},0x{stream:x}\n");
        }
        survives(text.as_bytes());
    }

    #[test]
    fn any_history_is_imported(
        entries in vec((0..4_usize, 0..5_u64, 0..3_u64, 0..3_u64), 0..60),
        blocks in vec((0..3_usize, 0..3_u64), 0..6),
    ) {
        let actions = ["alloc", "free_requested", "free_completed", "segment_alloc"];
        let entries: Vec<String> = entries.into_iter().map(|(action, addr, size, stream)| {
            let action = actions[action];
            format!("{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{size},\"stream\":{stream}}}")
        }).collect();
        let states = ["active_allocated", "active_pending_free", "inactive"];
        let blocks: Vec<String> = blocks.into_iter().map(|(state, size)| {
            format!("{{\"size\":{size},\"state\":\"{}\"}}", states[state])
        }).collect();
        let text = format!(
            "{{\"segments\":[{{\"address\":1,\"total_size\":9,\"blocks\":[{}]}}],\"device_traces\":[[{}]]}}",
            blocks.join(","), entries.join(","),
        );
        survives(text.as_bytes());
        let imported = import_content(text.as_bytes(), &Options::default());
        prop_assert!(imported.is_ok(), "{:?}", imported);
    }
}
