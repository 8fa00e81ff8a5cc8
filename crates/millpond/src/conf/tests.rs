//! Tests of the grammar, key by key, and of the way back to text.

use millpond_core::settings::{PolicyName, RecordStream, Scrub};

use super::error::ConfErrorKind as Kind;
use super::*;

fn divisions(list: &str) -> [u64; 16] {
    parse(&format!("roundup_power2_divisions:{list}")).unwrap().rest.divisions.0
}

fn refused(text: &str) -> (usize, Kind) {
    let error = parse(text).expect_err(text);
    (error.position, error.kind)
}

#[test]
fn nothing_gives_the_defaults() {
    for text in ["", " ", "\t\n"] {
        assert_eq!(parse(text), Ok(Options::default()));
    }
}

#[test]
fn every_key_with_an_effect_has_it() {
    let text = "policy:direct,expandable_segments:True,large_segment_size_mb:32,max_split_size_mb:64,\
                max_non_split_rounding_mb:48,garbage_collection_threshold:0.8,roundup_power2_divisions:4,\
                per_process_memory_fraction:0.5,slack:0.25,growth:tight,throw_on_cudamalloc_oom:True,\
                scrub:other_streams,record_stream:hold";
    let policy = Some(PolicyName::Direct);
    let choice = Choice { policy, expandable_segments: true, growth: Growth::Tight, slack: Some(0.25) };
    let rest = Settings {
        large_segment_bytes: 32 * MIB,
        max_split_bytes: Some(64 * MIB),
        max_non_split_rounding_bytes: Some(48 * MIB),
        gc_threshold: 0.8,
        scrub: Scrub::OtherStreams,
        record_stream: RecordStream::Hold,
        divisions: Divisions([4; 16]),
        memory_fraction: 0.5,
        throw_on_oom: true,
        ..Settings::default()
    };
    let expected = Options { policy: choice, rest };
    let parsed = parse_over(Options::default(), text).unwrap();
    assert_eq!((parsed.options, parsed.ignored.len()), (expected, 0));
}

#[test]
fn keys_without_an_effect_are_listed_in_order() {
    let text = "backend:native,release_lock_on_hipmalloc:True,pinned_use_cuda_host_register:False,\
                pinned_num_register_threads:128,pinned_reserve_segment_size_mb:1,pinned_max_round_threshold_mb:0,\
                pinned_max_cached_size_mb:7,pinned_free_catch_all:True,pinned_use_background_threads:True,\
                graph_capture_record_stream_reuse:True,expandable_segments_reserve:80G,\
                expandable_segments_reserve_by_class:[small:0.5,large:1.125]";
    let parsed = parse_over(Options::default(), text).unwrap();
    assert_eq!(parsed.options, Options::default());
    assert_eq!(parsed.ignored.len(), 12);
    assert_eq!(&parsed.ignored[..2], ["backend", "release_lock_on_cudamalloc"]);
    assert_eq!(parsed.ignored[11], "expandable_segments_reserve_by_class");
    assert_eq!(parsed.keys, parsed.ignored);
    assert_eq!(parsed.unserved, [&["graph_capture_record_stream_reuse"], &parsed.ignored[10..]].concat());
    let parsed = parse_over(Options::default(), "slack:1,graph_capture_record_stream_reuse:False").unwrap();
    assert_eq!((parsed.keys.len(), parsed.ignored.len(), parsed.unserved.len()), (2, 1, 0), "it is so anyway");
}

#[test]
fn the_examples_of_the_divisions_list() {
    let table = divisions("[256:1,512:2,1024:4,>:8]");
    assert_eq!(table, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
    let table = divisions("[64:8,128:2,256:2,512:2,1024:1,>:1]");
    assert_eq!(table, [8, 8, 8, 8, 8, 8, 8, 2, 2, 2, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn slots_between_two_keys_stay_off() {
    assert_eq!(divisions("[1:4,4:2,16:8,>:4]"), [4, 0, 2, 0, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
    assert_eq!(divisions("[2:4]"), [4, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(divisions("[>:8]"), [8; 16]);
    assert_eq!(divisions("[32768:2,>:4]"), [2; 16]);
}

#[test]
fn white_space_around_tokens_is_ignored() {
    let plain = parse("max_split_size_mb:64,roundup_power2_divisions:[1:2,>:4]").unwrap();
    let spaced = parse(" max_split_size_mb :\t64 ,\n roundup_power2_divisions : [ 1 : 2 , > : 4 ] ").unwrap();
    assert_eq!(plain, spaced);
    // White space inside a word is not ignored: PyTorch would read 64 here.
    let found = "`4`".into();
    assert_eq!(refused("max_split_size_mb:6 4"), (20, Kind::MissingComma(found)));
}

#[test]
fn the_large_segment_size_counts_wherever_it_stands() {
    let options = parse("max_split_size_mb:12,large_segment_size_mb:11").unwrap();
    assert_eq!(options.rest.max_split_bytes, Some(12 * MIB));
    let kind = Kind::BelowLargeSegment { key: "max_split_size_mb", mib: 30, large_mib: 40 };
    assert_eq!(refused("max_split_size_mb:30,large_segment_size_mb:40"), (18, kind));
    assert_eq!(parse("max_split_size_mb:20").unwrap().rest.max_split_bytes, Some(20 * MIB));
    assert!(parse("max_split_size_mb:19").is_err());
}

#[test]
fn a_base_keeps_what_the_text_does_not_name() {
    let base = parse("max_split_size_mb:40,throw_on_cudamalloc_oom:True").unwrap();
    let base = Options { rest: base.rest.as_recorded(), ..base };
    let parsed = parse_over(base.clone(), "expandable_segments:True").unwrap();
    assert_eq!(
        parsed.options,
        Options { policy: Choice { expandable_segments: true, ..base.policy.clone() }, ..base.clone() }
    );

    let error = parse_over(base.clone(), "policy:classic,large_segment_size_mb:41").unwrap_err();
    let kind = Kind::LargeSegmentAbove { key: "max_split_size_mb", large_mib: 41, bytes: 40 * MIB };
    assert_eq!((error.position, error.kind), (15, kind));
    assert!(parse_over(base, "large_segment_size_mb:41,max_split_size_mb:41").is_ok());
}

#[test]
fn both_spellings_are_one_key() {
    let kind = Kind::DuplicateKey { key: "release_lock_on_cudamalloc", first: 0 };
    assert_eq!(refused("release_lock_on_hipmalloc:True,release_lock_on_cudamalloc:True"), (31, kind));
}

#[test]
fn messages_name_value_position_and_what_is_accepted() {
    let message = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(
        message("expandable_segments:true"),
        "at byte 20: `expandable_segments` is `true`, must be `True` or `False`, spelled so"
    );
    assert_eq!(
        message("max_split_size_mb:8"),
        "at byte 18: `max_split_size_mb` is 8 MiB, must be at least the large segment size, 20 MiB"
    );
    let unknown = message("max_split:8");
    let begins = "at byte 0: unknown key `max_split`, did you mean `max_split_size_mb`; the keys are backend, ";
    assert!(unknown.starts_with(begins), "{unknown}");
    for (mistake, meant) in [("expandable_segment", "expandable_segments"), ("polcy", "policy")] {
        let unknown = message(&format!("{mistake}:1"));
        assert!(unknown.contains(&format!("`{mistake}`, did you mean `{meant}`;")), "{unknown}");
    }
    let unknown = message("colour:8");
    assert!(unknown.starts_with("at byte 0: unknown key `colour`; the keys are backend, "), "{unknown}");
    assert!(unknown.ends_with(", throw_on_cudamalloc_oom"), "{unknown}");
    let long: String = std::iter::repeat_n('ä', 1000).collect();
    assert!(message(&long).len() < 250, "{}", message(&long));
}

#[test]
fn written_options_parse_back() {
    let texts = [
        "",
        "policy:direct",
        "policy:auto",
        "scrub:always",
        "scrub:other_streams",
        "record_stream:hold",
        "slack:0",
        "release_idle_after:90s,keep_idle_mb:7,release_idle_in_background:True",
        "release_idle_after:1500ms",
        "release_idle_after:2min",
        "release_idle_after:off",
        "slack:0.125",
        "max_split_size_mb:64,garbage_collection_threshold:0.8",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[1:4,4:2,16:8,>:4]",
        "roundup_power2_divisions:[1:4,4:2,16:0,>:4]",
        "roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]",
        "roundup_power2_divisions:[32768:0]",
        "roundup_power2_divisions:[16384:0,>:16]",
        "roundup_power2_divisions:[1:1,32768:2]",
        "per_process_memory_fraction:0,expandable_segments:True,large_segment_size_mb:11",
        "per_process_memory_fraction:0.30000000000000004,max_non_split_rounding_mb:1099511627776",
    ];
    for text in texts {
        let options = parse(text).expect(text);
        let written = write(&options);
        assert_eq!(parse(&written).as_ref(), Ok(&options), "`{text}` was written as `{written}`");
        assert_eq!(write(&parse(&written).unwrap()), written);
    }
}

#[test]
fn every_divisions_table_of_few_values_survives() {
    // All tables with three values in the slots at the borders of runs, and constant values in the others.
    for code in 0..3_usize.pow(7) {
        let mut slots = [2; 16];
        let mut rest = code;
        for slot in [0, 1, 2, 7, 13, 14, 15] {
            slots[slot] = [0, 2, 8][rest % 3];
            rest /= 3;
        }
        let rest = Settings { divisions: Divisions(slots), ..Settings::default() };
        let options = Options { rest, ..Options::default() };
        let written = write(&options);
        assert_eq!(parse(&written), Ok(options), "{written}");
    }
}

#[test]
fn a_size_that_keys_cannot_say_is_written_truthfully() {
    let rest = Settings { max_split_bytes: Some(20 * MIB + MIB / 2), ..Settings::default() };
    let options = Options { rest, ..Options::default() };
    assert_eq!(write(&options), "max_split_size_mb:20.5");
}
