//! Malformed inputs of the three parsers: each is refused at the right place with the right words.

use millpond::conf;
use millpond_conformance::golden::Recording;
use millpond_core::stats::MemoryStats;
use millpond_trace::Trace;

/// A configuration, the byte of its mistake, and a part of the message.
const CONF: &[(&str, usize, &str)] = &[
    // Separators.
    (":", 0, "found `:` where a key should be"),
    (",", 0, "found `,` where a key should be"),
    (",policy:direct", 0, "found `,` where a key should be"),
    ("policy:direct,,backend:native", 14, "found `,` where a key should be"),
    ("policy:direct,", 13, "nothing follows this `,`"),
    ("policy:direct , ", 14, "nothing follows this `,`"),
    ("policy", 6, "`policy` must be followed by `:` and its value, found the end of the text"),
    ("policy,backend:native", 6, "must be followed by `:` and its value, found `,`"),
    ("max_split_size_mb 40", 18, "must be followed by `:` and its value, found `40`"),
    ("policy:", 7, "`policy:` has no value, found the end of the text"),
    ("policy:,backend:native", 7, "`policy:` has no value, found `,`"),
    ("policy::direct", 7, "`policy:` has no value, found `:`"),
    ("policy:direct backend:native", 14, "found `backend` after a complete pair"),
    ("policy:direct:native", 13, "found `:` after a complete pair"),
    ("max_split_size_mb:4 0", 20, "found `0` after a complete pair"),
    ("policy:direct;backend:native", 21, "found `:` after a complete pair"),
    // Brackets.
    ("[policy:direct]", 0, "stray `[`"),
    ("policy:direct]", 13, "stray `]`"),
    ("policy[:direct", 6, "must be followed by `:` and its value, found `[`"),
    ("roundup_power2_divisions:[1:2]]", 30, "stray `]`"),
    ("roundup_power2_divisions:[[1:2]]", 26, "stray `[`"),
    ("roundup_power2_divisions:[1:[2]]", 28, "stray `[`"),
    ("roundup_power2_divisions:[1:2[", 29, "stray `[`"),
    ("roundup_power2_divisions:[1:2", 25, "is never closed"),
    ("roundup_power2_divisions:[1:2,", 25, "is never closed"),
    ("roundup_power2_divisions:[", 25, "is never closed"),
    ("roundup_power2_divisions:[]", 25, "the list of `roundup_power2_divisions` is empty"),
    ("roundup_power2_divisions:[1:2,]", 29, "nothing follows this `,`"),
    ("roundup_power2_divisions:[,1:2]", 26, "found `,` where a key should be"),
    ("roundup_power2_divisions:[1:2,,2:4]", 30, "found `,` where a key should be"),
    ("roundup_power2_divisions:[1:2 2:4]", 30, "found `2` after a complete pair"),
    ("roundup_power2_divisions:[1]", 27, "`1` must be followed by `:` and its value, found `]`"),
    ("roundup_power2_divisions:[1:]", 28, "`1:` has no value, found `]`"),
    // Keys.
    ("Policy:direct", 0, "unknown key `Policy`, did you mean `policy`; the keys are backend, expandable_segments, "),
    ("policy:direct,max_split_size:40", 14, "unknown key `max_split_size`"),
    ("expandable_segments_handle_type:posix_fd", 0, "unknown key `expandable_segments_handle_type`"),
    ("policy:direct,policy:direct", 14, "`policy` is set a second time (first at byte 0)"),
    // Words.
    ("policy:best", 7, "`policy` is `best`, must be `paged`, `classic`, `direct` or `auto`"),
    ("backend:cudaMallocAsync", 8, "hands all caching to the driver"),
    ("backend:Native", 8, "`backend` is `Native`, must be `native`"),
    ("expandable_segments:true", 20, "must be `True` or `False`, spelled so"),
    ("expandable_segments:1", 20, "must be `True` or `False`, spelled so"),
    ("pinned_free_catch_all:TRUE", 22, "must be `True` or `False`, spelled so"),
    // Numbers.
    ("max_split_size_mb:forty", 18, "`max_split_size_mb` is `forty`, must be a whole number"),
    ("max_split_size_mb:-40", 18, "is `-40`, must be a whole number"),
    ("max_split_size_mb:+40", 18, "is `+40`, must be a whole number"),
    ("max_split_size_mb:40.5", 18, "is `40.5`, must be a whole number"),
    ("max_split_size_mb:0x40", 18, "is `0x40`, must be a whole number"),
    ("max_split_size_mb:٤٠", 18, "must be a whole number"),
    ("max_split_size_mb:[40:1]", 18, "`max_split_size_mb` takes a single value, not a list"),
    ("max_split_size_mb:18446744073709551616", 18, "does not fit in 64 bits"),
    ("max_split_size_mb:1099511627777", 18, "must be at most 1099511627776 (1 EiB in MiB)"),
    ("max_split_size_mb:19", 18, "is 19 MiB, must be at least the large segment size, 20 MiB"),
    ("max_split_size_mb:30,large_segment_size_mb:32", 18, "is 30 MiB, must be at least the large segment size, 32 MiB"),
    ("max_non_split_rounding_mb:1", 26, "is 1 MiB, must be at least the large segment size, 20 MiB"),
    ("large_segment_size_mb:10", 22, "is `10`, must be more than 10 (MiB)"),
    ("garbage_collection_threshold:0", 29, "is `0`, must be above 0 and below 1"),
    ("garbage_collection_threshold:1", 29, "is `1`, must be above 0 and below 1"),
    ("garbage_collection_threshold:0.99999999999999999999", 29, "must be above 0 and below 1"),
    ("garbage_collection_threshold:8e-1", 29, "must be a decimal number such as 0.8"),
    ("garbage_collection_threshold:.8", 29, "must be a decimal number such as 0.8"),
    ("garbage_collection_threshold:nan", 29, "must be a decimal number such as 0.8"),
    ("per_process_memory_fraction:1.01", 28, "is `1.01`, must be from 0 to 1"),
    ("per_process_memory_fraction:-0.5", 28, "must be a decimal number"),
    ("per_process_memory_fraction:inf", 28, "must be a decimal number"),
    // Divisions.
    ("roundup_power2_divisions:3", 25, "is 3, must be a power of two"),
    ("roundup_power2_divisions:0", 25, "is 0, must be a power of two"),
    ("roundup_power2_divisions:2147483648", 25, "must be at most 1073741824"),
    ("roundup_power2_divisions:[3:2]", 26, "is 3, must be a power of two"),
    ("roundup_power2_divisions:[0:2]", 26, "is 0, must be a power of two"),
    ("roundup_power2_divisions:[1:6]", 28, "is 6, must be a power of two"),
    ("roundup_power2_divisions:[65536:2]", 26, "is `65536`, must be a size from 1 to 32768 MiB, or `>`"),
    ("roundup_power2_divisions:[4:2,2:2]", 30, "names 2 MiB after 4 MiB"),
    ("roundup_power2_divisions:[4:2,4:2]", 30, "names 4 MiB after 4 MiB"),
    ("roundup_power2_divisions:[1:2,>:4,8:2]", 34, "goes on after `>`"),
    ("roundup_power2_divisions:[<:4]", 26, "is `<`, must be a whole number"),
    // Keys without an effect are checked all the same.
    ("pinned_num_register_threads:3", 28, "is 3, must be a power of two"),
    ("pinned_num_register_threads:256", 28, "is `256`, must be at most 128"),
    ("pinned_reserve_segment_size_mb:0", 31, "must be more than 0 (MiB)"),
    ("pinned_max_cached_size_mb:x", 26, "must be a whole number"),
    ("expandable_segments_reserve:0", 28, "must be more than 0"),
    ("expandable_segments_reserve:0G", 28, "must be more than 0"),
    ("expandable_segments_reserve:80M", 28, "must be a decimal number"),
    ("expandable_segments_reserve_by_class:1", 37, "is `1`, must be a list such as"),
    ("expandable_segments_reserve_by_class:[small:1,small:2]", 46, "names `small` a second time"),
];

#[test]
fn configurations() {
    for &(text, position, fragment) in CONF {
        let error = conf::parse(text).expect_err(text);
        let message = error.to_string();
        assert_eq!(error.position, position, "`{text}`: {message}");
        assert!(message.starts_with(&format!("at byte {position}: ")), "`{text}`: {message}");
        assert!(message.contains(fragment), "`{text}`: {message}");
    }
}

/// A trace, the line of its mistake, and a part of the message.
const TRACES: &[(&str, u64, &str)] = &[
    // Lines.
    ("\n", 1, "the line is empty"),
    ("e\n\ne\n", 2, "the line is empty"),
    ("e", 1, "the text ends inside this line, expected a line break"),
    ("a 0 1 0\nf 0", 2, "the text ends inside this line, expected a line break"),
    ("e\n# cut off", 2, "the text ends inside this line"),
    ("e\r\n", 1, "expected the line's end at byte 1; an event has `e` alone; the line is `e\\r`"),
    ("x 1\n", 1, "unknown event, expected a, f, c, u, m, w, q, d, h, r, e, t, p, k, n, s, l, i or a comment"),
    (" f 0\n", 1, "unknown event"),
    ("A 0 1 0\n", 1, "unknown event"),
    ("\u{feff}e\n", 1, "unknown event"),
    // Fields.
    ("a\n", 1, "expected a block's number at byte 1"),
    ("a \n", 1, "expected a block's number at byte 2"),
    ("a 0\n", 1, "expected a size in bytes at byte 3"),
    ("a 0 1\n", 1, "expected a stream's number at byte 5"),
    ("a 0 1 0 0\n", 1, "expected the line's end at byte 7; an event has `a ID SIZE STREAM`"),
    ("a 0 1 0 \n", 1, "expected the line's end at byte 7"),
    ("a  0 1 0\n", 1, "expected a block's number at byte 2"),
    ("a\t0 1 0\n", 1, "expected a block's number at byte 1"),
    ("a 0 -1 0\n", 1, "expected a size in bytes at byte 4"),
    ("a 0 01 0\n", 1, "without a sign or leading zeros"),
    ("a 0 1k 0\n", 1, "expected a stream's number at byte 5"),
    ("alloc 0 1 0\n", 1, "expected a block's number at byte 1"),
    ("a 18446744073709551616 1 0\n", 1, "a block's number must fit in 64 bits"),
    ("e 1\n", 1, "an event has `e` alone"),
    ("t\n", 1, "expected a number of bytes at byte 1"),
    // Ranges.
    ("a 0 0 0\n", 1, "the size is 0, must be from 1 to 2^60 - 1 bytes"),
    ("a 0 1152921504606846976 0\n", 1, "the size is 1152921504606846976"),
    ("a 0 1 65536\n", 1, "the stream is 65536, must be from 0 to 65535"),
    ("m 0 65536\n", 1, "the stream is 65536"),
    ("a 0 1 0\nu 0 65536\n", 2, "the stream is 65536"),
    ("t 9223372036854775808\n", 1, "the bytes to keep are 9223372036854775808"),
    // Lives.
    ("a 0 1 0\na 0 1 0\n", 2, "block 0 was allocated before"),
    ("a 7 1 0\na 0 1 0\na 7 1 0\n", 3, "block 7 was allocated before"),
    ("a 0 1 0\nf 0\na 0 1 0\n", 3, "block 0 was allocated before"),
    ("# {}\nf 5\n", 2, "block 5 was not allocated before"),
    (
        "a 0 1 0\nf 0\n# twice\nf 0\n",
        4,
        "block 0 was freed before, expected a block that is still allocated; the line is `f 0`",
    ),
    ("a 0 1 0\nc 0\n", 2, "block 0 completes before it is freed"),
    ("a 0 1 0\nf 0\nc 0\nc 0\n", 4, "block 0 completed before"),
    ("c 0\n", 1, "block 0 was not allocated before"),
    ("a 0 1 0\nf 0\nu 0 1\n", 3, "block 0 was freed before"),
    ("u 3 0\n", 1, "block 3 was not allocated before"),
    ("a 0 1 0\nw 0 0\n", 2, "point 0 was not defined before"),
    ("m 4 0\nw 0 4\n", 2, "block 0 was not allocated before"),
    ("a 0 1 0\nm 4 0\nf 0\nw 0 4\n", 4, "block 0 was freed before"),
    ("m 4 0\nm 4 1\n", 2, "point 4 was defined before"),
    // Headers.
    ("# {\n", 1, "the header is not a JSON object: EOF"),
    ("# {\"a\": 1} x\n", 1, "the header is not a JSON object: trailing characters"),
    ("#{\"a\" 1}\n", 1, "the header is not a JSON object: expected `:`"),
    ("# {\"workload\": 7}\n", 1, "the header's `workload` must be text"),
    ("# {\"peak_reserved\": -1}\n", 1, "the header's `peak_reserved` must be a whole number of bytes"),
    ("# {\"counted\": false}\n", 1, "the header's `counted` must be true"),
    ("# {\"counted\": true}\ne\n", 3, "the trace was cut off here, after 1 events: its header promises a last line"),
    ("# {\"counted\": true}\ne\n# end 2\n", 3, "the end counts 2 events, and there are 1"),
    ("# {\"counted\": true}\n# end 0\ne\n", 3, "an event follows the line `# end EVENTS`"),
    ("# {\"seconds\": null}\n", 1, "the header's `seconds` must be a number"),
];

#[test]
fn traces() {
    for &(text, line, fragment) in TRACES {
        let message = Trace::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(message.starts_with(&format!("line {line}: ")), "{text:?}: {message}");
        assert!(message.contains(fragment), "{text:?}: {message}");
        let streamed = Trace::from_reader(text.as_bytes()).expect_err(text).to_string();
        assert_eq!(streamed, message);
    }
}

const HEADER: &str = r#"{"name":"n","seed":1,"conf":"","limit_mb":0,"shape":"s","torch":"2.11","total":1000000000}"#;

/// A header alone, and a part of the message about line 1.
const GOLDEN_HEADERS: &[(&str, &str)] = &[
    ("", "EOF while parsing"),
    ("[]", "expected"),
    (r#"{"name":"n"}"#, "missing field `seed`"),
    (r#"{"name":1}"#, "column 9: invalid type: integer `1`, expected a string"),
    (r#"{"name":"n","name":"n"}"#, "duplicate field `name`"),
    (r#"{"nam":"n"}"#, "unknown field `nam`, expected one of `name`, `seed`"),
    (r#"{"name":"n","seed":-1}"#, "invalid value: integer `-1`"),
    (
        r#"{"name":"n","seed":1,"conf":"","limit_mb":0,"shape":"s","torch":"2.11","total":0}"#,
        "`total` is 0, must be the device's bytes",
    ),
    (
        r#"{"name":"n","seed":1,"conf":"","limit_mb":954,"shape":"s","torch":"2.11","total":1000000000}"#,
        "`limit_mb` is 954, must not exceed the device's 1000000000 bytes",
    ),
];

/// Operations after the header and `begin`, the line of the mistake, and a part of the message.
const GOLDEN_OPS: &[(&str, usize, &str)] = &[
    ("{}\n", 3, "missing field `op`"),
    ("\n", 3, "EOF while parsing"),
    ("{\"op\":\"sync\"}\n", 3, "missing field `d`"),
    (r#"{"op":"sync","d":{}}"#, 3, "the text ends inside this line"),
    ("{\"op\":\"sync\",\"d\":{}} x\n", 3, "trailing characters"),
    ("{\"op\":\"sync\",\"d\":{},\"why\":1}\n", 3, "unknown field `why`"),
    ("{\"op\":\"sync\",\"d\":{},\"id\":1}\n", 3, "`sync` has no `id`"),
    ("{\"op\":\"sync\",\"d\":[]}\n", 3, "expected an object of statistics"),
    (
        "{\"op\":\"sync\",\"d\":{}}\n{\"op\":\"wait\",\"d\":{}}\n",
        4,
        "unknown operation \"wait\", expected begin, alloc",
    ),
    ("{\"op\":\"sync\",\"d\":{\"num_oom\":1}}\n", 3, "unknown statistic \"num_oom\""),
    ("{\"op\":\"sync\",\"d\":{\"num_ooms\":\"1\"}}\n", 3, "invalid type: string \"1\", expected i64"),
    ("{\"op\":\"sync\",\"d\":{\"num_ooms\":1.5}}\n", 3, "expected i64"),
    ("{\"op\":\"sync\",\"d\":{\"num_ooms\":1,\"num_ooms\":1}}\n", 3, "the statistic `num_ooms` is there twice"),
    ("{\"op\":\"sync\",\"d\":{},\"segments\":null}\n", 3, "invalid type: null"),
    ("{\"op\":\"begin\",\"d\":{}}\n", 3, "`begin` comes a second time"),
    ("{\"op\":\"alloc\",\"id\":0,\"d\":{}}\n", 3, "`alloc` needs `size`"),
    ("{\"op\":\"alloc\",\"id\":-1,\"d\":{}}\n", 3, "invalid value: integer `-1`, expected u32"),
    ("{\"op\":\"alloc\",\"id\":0,\"size\":0,\"stream\":0,\"addr\":1,\"d\":{}}\n", 3, "`size` is 0"),
    ("{\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":0,\"d\":{}}\n", 3, "needs `addr`, or `oom` and `msg`"),
    ("{\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":0,\"oom\":true,\"d\":{}}\n", 3, "`alloc` needs `msg`"),
    ("{\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":0,\"oom\":false,\"d\":{}}\n", 3, "`oom` is false"),
    (
        "{\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":0,\"addr\":1,\"oom\":true,\"d\":{}}\n",
        3,
        "both `addr` and `oom`",
    ),
    (
        "{\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":0,\"addr\":1,\"msg\":\"m\",\"d\":{}}\n",
        3,
        "`alloc` has no `msg`",
    ),
    ("{\"op\":\"free\",\"d\":{}}\n", 3, "`free` needs `id`"),
    ("{\"op\":\"free\",\"id\":9,\"d\":{}}\n", 3, "block 9 was not allocated before"),
    ("{\"op\":\"record_stream\",\"id\":9,\"stream\":0,\"d\":{}}\n", 3, "block 9 was not allocated before"),
    ("{\"op\":\"free\",\"id\":16777216,\"d\":{}}\n", 3, "the block's number is 16777216, must be below 16777216"),
    ("{\"op\":\"busy\",\"d\":{}}\n", 3, "`busy` needs `stream`"),
    ("{\"op\":\"busy\",\"stream\":1024,\"d\":{}}\n", 3, "the stream is 1024, must be below 1024"),
    ("{\"op\":\"record_stream\",\"id\":9,\"stream\":4294967295,\"d\":{}}\n", 3, "the stream is 4294967295"),
    ("{\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":1000000,\"addr\":1,\"d\":{}}\n", 3, "the stream is 1000000"),
    (
        "{\"op\":\"alloc\",\"id\":0,\"size\":1152921504606846976,\"stream\":0,\"addr\":1,\"d\":{}}\n",
        3,
        "must be at most 2^60 - 1",
    ),
];

/// Two operations that a number's rules do not let follow each other; the mistake is on line 4.
const GOLDEN_PAIRS: &[(&str, &str, &str)] = &[
    ("\"addr\":1", "\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":0,\"addr\":1", "block 0 was allocated before"),
    ("\"oom\":true,\"msg\":\"m\"", "\"op\":\"free\",\"id\":0", "block 0 does not exist: its allocation failed"),
];

/// Layouts, and a part of the message about line 3.
const GOLDEN_LAYOUTS: &[(&str, &str)] = &[
    ("[[512,512,1,0]]", "invalid length 4"),
    (r#"[[512,512,2,0,[[512,0,"inactive"]]]]"#, "is marked 2, must be 0 (small) or 1 (large)"),
    (r#"[[512,512,1,0,[[512,0,"free"]]]]"#, "unknown variant `free`, expected one of `active_allocated`"),
    (r#"[[512,512,1,0,[[511,0,"inactive"]]]]"#, "hold 511 bytes, must hold its 512"),
    ("[[512,0,1,0,[]]]", "hold 0 bytes, must hold its 0"),
    (r#"[[512,512,1,0,[[0,0,"inactive"],[512,0,"inactive"]]]]"#, "has a block of 0 bytes"),
    (
        r#"[[512,512,1,0,[[512,0,"inactive"]]],[1023,1,1,0,[[1,0,"inactive"]]]]"#,
        "the segment at 1023 begins before the end of the one before it, 1024",
    ),
    (r#"[[18446744073709551615,1,1,0,[[1,0,"inactive"]]]]"#, "ends beyond 64 bits"),
];

fn begin() -> String {
    let values: Vec<String> =
        MemoryStats::default().flat().iter().map(|(key, value)| format!("{key:?}:{value}")).collect();
    format!("{{\"op\":\"begin\",\"d\":{{{}}}}}", values.join(","))
}

fn expect_golden(text: &str, line: usize, fragment: &str) {
    let message = Recording::from_reader(text.as_bytes()).expect_err(text).to_string();
    assert!(message.starts_with(&format!("line {line}: ")), "{text}: {message}");
    assert!(message.contains(fragment), "{text}: {message}");
}

#[test]
fn golden_headers() {
    for (header, fragment) in GOLDEN_HEADERS {
        expect_golden(&format!("{header}\n"), 1, fragment);
    }
    expect_golden("", 1, "the text is empty, expected a header");
    expect_golden(HEADER, 1, "the text ends inside this line");
    expect_golden(&format!("{HEADER}\n"), 2, "the text ends, expected `begin`");
}

#[test]
fn golden_operations() {
    let begin = begin();
    assert!(Recording::from_reader(format!("{HEADER}\n{begin}\n").as_bytes()).is_ok());
    for (ops, line, fragment) in GOLDEN_OPS {
        expect_golden(&format!("{HEADER}\n{begin}\n{ops}"), *line, fragment);
    }
    for (outcome, second, fragment) in GOLDEN_PAIRS {
        let first = format!("{{\"op\":\"alloc\",\"id\":0,\"size\":1,\"stream\":0,{outcome},\"d\":{{}}}}");
        expect_golden(&format!("{HEADER}\n{begin}\n{first}\n{{{second},\"d\":{{}}}}\n"), 4, fragment);
    }
    for (layout, fragment) in GOLDEN_LAYOUTS {
        let op = format!("{{\"op\":\"sync\",\"d\":{{}},\"segments\":{layout}}}");
        expect_golden(&format!("{HEADER}\n{begin}\n{op}\n"), 3, fragment);
    }
    expect_golden(&format!("{HEADER}\n{{\"op\":\"sync\",\"d\":{{}}}}\n"), 2, "expected `begin` before any other");
    expect_golden(&format!("{HEADER}\n{{\"op\":\"begin\",\"d\":{{}}}}\n"), 2, "`begin` lacks the statistic");
}

#[test]
fn golden_frees_once() {
    let alloc = r#"{"op":"alloc","id":0,"size":1,"stream":0,"addr":1,"d":{}}"#;
    let free = r#"{"op":"free","id":0,"d":{}}"#;
    let text = format!("{HEADER}\n{}\n{alloc}\n{free}\n{free}\n", begin());
    expect_golden(&text, 5, "block 0 was freed before");
}
