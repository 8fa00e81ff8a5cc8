//! Files that are no snapshots, or take more than they say: each is refused at the right byte, with the right words.

use millpond_snapshot::{Limits, Snapshot, SnapshotError, content};

/// A content, the beginning of the message, and a part of it.
const JSON: &[(&str, &str, &str)] = &[
    ("", "byte 0: ", "the file is empty"),
    ("  \n", "byte 0: ", "the file is empty"),
    ("hello", "byte 0: ", "expected a snapshot"),
    ("{", "byte 1: ", "the file ends here, expected a key"),
    ("{\"segments\"", "byte 11: ", "expected `:`"),
    ("{\"segments\":", "byte 12: ", "expected a value"),
    ("{\"segments\":[", "byte 13: ", "expected a value"),
    ("{\"segments\":[]", "byte 14: ", "expected `,` or `}`"),
    ("{\"segments\":[]} x", "byte 16: ", "1 bytes follow the end"),
    ("{\"segments\":[],}", "byte 15: ", "found `}`, expected a key"),
    ("{\"segments\":[],\"segments\":[]}", "byte 26, segments: ", "is twice"),
    ("{segments:[]}", "byte 1: ", "found `s`, expected a key"),
    ("[1 2]", "byte 3: ", "expected `,` or `]`"),
    ("[NaN]", "byte 1: ", "found `N`, expected a value"),
    ("[01]", "byte 2: ", "without leading zeros"),
    ("[1.]", "byte 3: ", "expected a digit"),
    ("[1e999]", "byte 1: ", "does not fit in 64 bits"),
    ("[18446744073709551616]", "byte 1: ", "does not fit in 64 bits"),
    ("[\"\\x\"]", "byte 3: ", "behind a backslash"),
    ("[\"\\ud800\"]", "byte 8: ", "second half"),
    ("[\"a\nb\"]", "byte 3: ", "the end of the text"),
    ("{}", "byte 0: ", "the field `segments` is missing"),
    ("{\"segments\": {}}", "byte 13, segments: ", "found a dictionary, expected a list"),
    ("[5]", "byte 1, [0]: ", "found a whole number, expected a dictionary"),
    ("[{\"total_size\":1,\"blocks\":[]}]", "byte 1, [0]: ", "the field `address` is missing"),
    ("[{\"address\":-1}]", "byte 12, [0].address: ", "found a negative number"),
    ("[{\"address\":1,\"total_size\":9223372036854775808}]", "byte 27, [0].total_size: ", "must be at most"),
    ("[{\"address\":1,\"total_size\":1,\"blocks\":[{\"size\":1}]}]", "byte 39, [0].blocks[0]: ", "`state` is missing"),
    (
        "[{\"address\":18446744073709551615,\"total_size\":9,\"blocks\":[\
         {\"size\":9,\"state\":\"inactive\"},{\"size\":9,\"state\":\"inactive\"}]}]",
        "byte 88, [0].blocks[1]: ",
        "beyond the last address",
    ),
    (
        "{\"segments\":[],\"device_traces\":[[{\"action\":\"alloc\"}]]}",
        "byte 33, device_traces[0][0]: ",
        "`size` is missing",
    ),
    (
        "{\"segments\":[],\"device_traces\":[[{\"action\":\"alloc\",\"size\":1}]]}",
        "byte 33, device_traces[0][0]: ",
        "`addr` is missing",
    ),
    (
        "{\"segments\":[],\"device_traces\":[[{\"action\":\"oom\",\"frames\":[{\"name\":1}]}]]}",
        "byte 67, device_traces[0][0].frames[0].name: ",
        "expected a text",
    ),
];

/// The same for pickles.
const PICKLES: &[(&[u8], &str, &str)] = &[
    (b"\x80", "byte 1: ", "expected a protocol"),
    (b"\x80\x04", "byte 2: ", "expected an instruction"),
    (b"\x80\x06}.", "byte 0: ", "the pickle has protocol 6"),
    (b"\x80\x04.", "byte 2: ", "STOP needs a value"),
    (b"\x80\x04](K\x01a.", "byte 6: ", "APPEND needs a value"),
    (b"\x80\x04\x95\x00\x00", "byte 5: ", "the bytes of a number"),
    (b"\x80\x04}\xff.", "byte 3: ", "0xff is no instruction"),
    (b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.", "byte 2: ", "GLOBAL is for objects that are built by calling"),
    (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "byte 14: ", "STACK_GLOBAL"),
    (b"\x80\x04]R.", "byte 3: ", "REDUCE"),
    (b"\x80\x02I5\n.", "byte 2: ", "INT is for protocol 0 or 1"),
    (b"\x80\x04C\x01a.", "byte 2: ", "SHORT_BINBYTES is for bytes"),
    (b"\x80\x04\x8f.", "byte 2: ", "EMPTY_SET is for sets"),
    (b"\x80\x04a.", "byte 2: ", "APPEND needs a value"),
    (b"\x80\x04}K\x01a.", "byte 5: ", "APPEND needs a list"),
    (b"\x80\x04]e.", "byte 3: ", "APPENDS needs a mark"),
    (b"\x80\x04(e.", "byte 3: ", "APPENDS needs a value"),
    (b"\x80\x04](K\x01u.", "byte 6: ", "SETITEMS needs a dictionary"),
    (b"\x80\x04}(K\x01u.", "byte 6: ", "SETITEMS needs a value for each key"),
    (b"\x80\x04}(K\x01K\x02u.", "byte 4: ", "a key of a dictionary is a whole number"),
    (b"\x80\x04K\x01\x87.", "byte 4: ", "TUPLE needs a value"),
    (b"\x80\x04h\x05.", "byte 2: ", "nothing was remembered under the number 5"),
    (b"\x80\x04j\xff\xff\xff\xff.", "byte 2: ", "under the number 4294967295"),
    (b"\x80\x04\x94.", "byte 2: ", "MEMOIZE needs a value"),
    (b"\x80\x04X\xff\xff\xff\xffab.", "byte 2: ", "a text of 4294967295 bytes begins here, and only 3 follow"),
    (b"\x80\x04\x8c\x02\xff\xfe.", "byte 2: ", "not UTF-8"),
    (b"\x80\x04\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", "byte 2: ", "does not fit in 64 bits"),
    (b"\x80\x04\x8a\xff\x00", "byte 5: ", "the bytes of a number"),
    (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x0f.", "byte 2: ", "texts of more than 4 GiB"),
    (b"\x80\x04\x8b\xff\xff\xff\x7f.", "byte 2: ", "LONG4"),
    (b"\x80\x04K\x05.", "byte 2: ", "found a whole number, expected a dictionary"),
    (b"\x80\x04}(\x8c\x08segments]\x8c\x08segmentsN0u.", "byte 26: ", "POP is for taking back what was built"),
    (b"\x80\x04}(\x8c\x08segments]\x8c\x08segments]u.", "byte 25, segments: ", "is twice"),
    (b"\x80\x04}.rest", "byte 4: ", "4 bytes follow the end"),
    (b"PK\x03\x04", "byte 4: ", "the first entry of a zip file"),
    (b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt", "byte 30: ", "begins with `a.txt`"),
    (
        b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\xff\xffdata.pkl\x80",
        "byte 39: ",
        "the first entry",
    ),
    (b"PK\x03\x04\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0data.pkl", "byte 8: ", "compressed"),
    (b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0data.pkl\x80\x04R", "byte 40: ", "REDUCE"),
];

fn error(content: &[u8], limits: &Limits) -> String {
    match Snapshot::parse(content, limits) {
        Ok(snapshot) => panic!("accepted as {snapshot:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_is_refused_at_its_place() {
    let json = JSON.iter().map(|(text, at, part)| (text.as_bytes(), at, part));
    let pickles = PICKLES.iter().map(|(bytes, at, part)| (*bytes, at, part));
    let mut wrong = Vec::new();
    for (content, at, part) in json.chain(pickles) {
        let message = error(content, &Limits::default());
        if !message.starts_with(at) || !message.contains(part) || message.len() > 400 {
            wrong.push(format!("{}: expected {at}..{part}.., got {message}", content.escape_ascii()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn values_in_themselves_end() {
    let nested = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert!(error(&nested, &Limits::default()).starts_with("byte 64: values lie more than 64 deep"));
    // A list that is its own element, under a name that is not known.
    let circle = b"\x80\x04}(\x8c\x01a]\x94h\x00au.";
    assert!(error(circle, &Limits::default()).contains("values lie more than 64 deep in each other, or in themselves"));
}

/// Lists of ten times the list before them, sixteen deep: 10^16 values in 500 bytes. And a text of 1 MiB, sixty times.
#[test]
fn what_is_referred_to_often_counts_often() {
    let mut lists = b"\x80\x04]\x94(".to_vec();
    lists.extend([b'K', 1].repeat(10));
    lists.push(b'e');
    for number in 0..16_u8 {
        lists.extend_from_slice(b"]\x94(");
        lists.extend([b'h', number].repeat(10));
        lists.push(b'e');
    }
    // The root is on top of the lists, which stay below it.
    lists.extend_from_slice(b"}(\x8c\x08segments]\x8c\x01xh\x10u.");
    let message = error(&lists, &Limits { values: 1 << 16, ..Limits::default() });
    assert!(message.contains("the file has more than 65536 values"), "{message}");

    let text = "x".repeat(1 << 20);
    let mut copies = b"\x80\x04}(\x8c\x08segments]\x8c\x01xX".to_vec();
    copies.extend_from_slice(&(1_u32 << 20).to_le_bytes());
    copies.extend_from_slice(text.as_bytes());
    copies.extend_from_slice(b"\x94\x8c\x01y](");
    copies.extend(b"h\x00".repeat(60));
    copies.extend_from_slice(b"eu.");
    assert!(Snapshot::parse(&copies, &Limits::default()).is_ok());
    let message = error(&copies, &Limits { values: 100_000, ..Limits::default() });
    assert!(message.contains("more than 100000 values"), "{message}");
}

#[test]
fn limits_hold() {
    let many = format!("[{}1]", "1,".repeat(1000));
    let limits = Limits { values: 1000, ..Limits::default() };
    assert!(error(many.as_bytes(), &limits).starts_with("byte 1999: the file has more than 1000 values"));
    let limits = Limits { bytes: 100, ..Limits::default() };
    assert!(error(many.as_bytes(), &limits).starts_with("byte 100: the file has more than 100 bytes of content"));
    // A pickle that is marks and references alone.
    let marks = [b"\x80\x04".as_slice(), &b"(".repeat(5000)].concat();
    assert!(error(&marks, &Limits { values: 1000, ..limits }).contains("100 bytes of content"));
    let limits = Limits { values: 1000, ..Limits::default() };
    assert!(error(&marks, &limits).starts_with("byte 1002: the file has more than 1000 values"));
}

/// A few bytes that refer to a value again and again take no more than the limits allow.
#[test]
fn what_is_referred_to_again_counts() {
    let pickle = [b"\x80\x04]q\x00(".as_slice(), &b"h\x00".repeat(500), b"e."].concat();
    let error = Snapshot::parse(&pickle, &Limits { values: 50, ..Limits::NONE }).unwrap_err();
    assert!(matches!(error, SnapshotError::Limit { .. }), "{error}");
}

/// No more is read than the limits allow, whatever it means.
#[test]
fn content_is_read_up_to_its_limit() {
    let limits = Limits { bytes: 999, ..Limits::NONE };
    assert!(matches!(content([0; 1000].as_slice(), &limits), Err(SnapshotError::Limit { .. })));
    assert_eq!(content([0; 999].as_slice(), &limits).map(|bytes| bytes.len()).ok(), Some(999));
}

/// Reads with the limits, and once more with the one that the message advises.
fn with_advice(content: &[u8], limits: Limits) -> String {
    let error = Snapshot::from_reader(content, &limits).expect_err("a limit");
    let text = error.to_string();
    let SnapshotError::Limit { limit, enough: Some(enough), .. } = error else { panic!("no advice: {text}") };
    assert!(text.ends_with(&format!("raise `{}` of its limits to {enough}", limit.name())), "{text}");
    let raised = match limit.name() {
        "bytes" => Limits { bytes: enough, ..limits },
        "expansion" => Limits { expansion: enough, ..limits },
        _ => Limits { values: enough, ..limits },
    };
    if let Err(error) = Snapshot::from_reader(content, &raised) {
        panic!("{text}, and then {error}");
    }
    text
}

#[test]
fn the_limit_that_a_message_advises_is_enough() {
    let none = Limits::NONE;
    let contents: [&[u8]; 6] = [
        include_bytes!("../fixtures/example.2.pickle"),
        include_bytes!("../fixtures/example.4.pickle"),
        include_bytes!("../fixtures/large.pickle"),
        include_bytes!("../fixtures/example.json"),
        include_bytes!("../fixtures/legacy.pickle"),
        include_bytes!("../fixtures/example.pt"),
    ];
    for content in contents {
        for values in [0, 1, 7, 20, 30] {
            let text = with_advice(content, Limits { values, ..none });
            assert!(text.contains(&format!("has more than {values} values")), "{text}");
        }
    }
    let pickle = contents[2];
    for bytes in [0, 1000, pickle.len() as u64 - 1] {
        let text = with_advice(pickle, Limits { bytes, ..none });
        assert!(text.ends_with(&format!("to {}", pickle.len())), "{text}");
    }
    // Spaces after the root are content.
    let spaces = [b"{\"segments\": []}".as_slice(), &b" ".repeat(3 << 20)].concat();
    let packed = zstd::encode_all(&spaces[..], 3).expect("memory takes it");
    let text = with_advice(&packed, Limits { expansion: 2, ..none });
    assert!(text.contains("bytes of content for each byte that it was decompressed from"), "{text}");
    let text = with_advice(&packed, Limits { bytes: 1 << 20, ..none });
    assert!(text.ends_with(&format!("to {}", spaces.len())), "{text}");
}
