//! Parts of recordings: a range of events, or the end.

use std::time::Duration;

use millpond_import::{Imported, Left, Options, import_content};
use millpond_trace::Event::{self, Allocate, Complete, Free, Use};
use millpond_trace::Trace;

fn a(id: u32, bytes: u64, stream: u32) -> Event {
    Allocate { id, bytes, stream }
}

fn import(text: &str, options: &Options) -> Imported {
    let imported = import_content(text.as_bytes(), options).unwrap_or_else(|error| panic!("{error}"));
    let written = imported.trace.write_to(Vec::new()).expect("a valid trace is written");
    assert_eq!(Trace::parse(&written).expect("a valid trace"), imported.trace);
    imported
}

fn part(text: &str, from: u64, to: u64) -> Vec<Event> {
    import(text, &Options { events: Some(from..to), ..Options::default() }).trace.events
}

fn end(text: &str, millis: u64) -> Vec<Event> {
    import(text, &Options { since: Some(Duration::from_millis(millis)), ..Options::default() }).trace.events
}

fn error(text: &str, options: &Options) -> String {
    import_content(text.as_bytes(), options).expect_err("no part").to_string()
}

/// Eight events, one a second: block 1 is freed at 3 and completes at 5.
fn snapshot() -> String {
    let events = [("alloc", 1, 10), ("alloc", 2, 20), ("segment_alloc", 9, 90), ("free_requested", 1, 10)];
    let rest = [("alloc", 3, 30), ("free_completed", 1, 10), ("free_requested", 2, 20), ("free_completed", 2, 20)];
    let entries = events.into_iter().chain(rest).enumerate().map(|(number, (action, addr, size))| {
        let time = 1_000_000 * (number + 7);
        format!("{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{size},\"stream\":{addr},\"time_us\":{time}}}")
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    format!("{{\"segments\":[],\"device_traces\":[[{entries}]]}}")
}

const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
    1,23:59:58.000000,allocate,0x10,10,0\n\
    1,23:59:59.000000,allocate,0x20,20,0\n\
    1,00:00:00:000000,free,0x10,10,7\n\
    1,00:00:01:000000,allocate,0x30,30,0\n\
    1,00:00:02:000000,free,0x20,20,7\n";

#[test]
fn a_part_of_a_history_begins_with_what_is_live_there() {
    let (f, c) = (|id| Free { id }, |id| Complete { id });
    let text = snapshot();
    let whole = import(&text, &Options::default()).trace;
    assert_eq!(whole.events, [a(0, 10, 1), a(1, 20, 2), f(0), a(2, 30, 3), c(0), f(1)]);
    assert_eq!(part(&text, 0, u64::MAX), whole.events);
    // A block that was freed and is not complete is so at the beginning, and at the end it completes.
    assert_eq!(part(&text, 4, u64::MAX), [a(0, 10, 1), a(1, 20, 2), f(0), a(2, 30, 3), c(0), f(1)]);
    assert_eq!(part(&text, 6, 100), [a(0, 20, 2), a(1, 30, 3), f(0)]);
    assert_eq!(part(&text, 1, 5), [a(0, 10, 1), a(1, 20, 2), f(0), a(2, 30, 3), c(0)]);
    assert_eq!(part(&text, 2, 3), [a(0, 10, 1), a(1, 20, 2)]);
    assert_eq!(part(&text, 0, 1), [a(0, 10, 1)]);
    assert_eq!(part(&text, 7, 8), [a(0, 30, 3)]);
}

#[test]
fn a_part_says_what_it_leaves_out() {
    let options = Options { events: Some(4..6), ..Options::default() };
    let imported = import(&snapshot(), &options);
    assert_eq!(imported.trace.header.seconds(), Some(1.0));
    assert!(!imported.trace.header.values().contains_key("segment_addresses"));
    let left: Vec<(&str, u64)> = imported.left.iter().map(|Left { what, count }| (what.as_str(), *count)).collect();
    let expected =
        [("events outside of the part", 6), ("blocks from before the part, which are allocated at its beginning", 2)];
    assert_eq!(left, expected);
}

/// The header names the blocks that stand for refused requests by their numbers in the trace, also in that of a part.
#[test]
fn the_header_names_what_the_program_was_refused() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n1,1,allocate,0x10,10,0\n1,2,allocate,0x20,20,0\n\
        1,3,free,0x10,10,0\n1,4,allocate failure,0x0,99,0\n1,5,allocate,0x30,30,0\n1,6,allocate failure,0x0,98,0\n";
    let header = |refused: bool, events| {
        let header = import(log, &Options { refused, events, ..Options::default() }).trace.header;
        (header.refused_blocks(), header.blocks_before())
    };
    assert_eq!(header(false, None), (vec![], 0));
    assert_eq!(header(true, None), (vec![2, 4], 0));
    // Block 1 is live where the part begins, and is block 0 there.
    assert_eq!(header(true, Some(3..5)), (vec![1], 1));
    assert_eq!(header(true, Some(0..3)), (vec![], 0));
}

#[test]
fn a_part_of_a_log_begins_with_what_is_live_there() {
    let f = |id| Free { id };
    let used = |id, stream| Use { id, stream };
    assert_eq!(part(LOG, 2, 4), [a(0, 10, 0), a(1, 20, 0), used(0, 1), f(0), a(2, 30, 0)]);
    assert_eq!(part(LOG, 3, 9), [a(0, 20, 0), a(1, 30, 0), used(0, 1), f(0)]);
    let stalloc = "1 0x10 512 0\nIteration Index : 1\n1 0x20 4096 0\n0 0x10 512 0\n";
    assert_eq!(part(stalloc, 2, 3), [a(0, 512, 0), a(1, 4096, 0), f(0)]);
    let options = Options { since: Some(Duration::from_secs(1)), ..Options::default() };
    assert!(error(stalloc, &options).contains("no times in the recording"));
}

#[test]
fn the_end_of_a_recording_is_found_by_its_times() {
    let text = snapshot();
    assert_eq!(end(&text, 1000), part(&text, 6, 8));
    assert_eq!(end(&text, 999), part(&text, 7, 8));
    assert_eq!(end(&text, 60_000), part(&text, 0, 8));
    // Over midnight.
    assert_eq!(end(LOG, 2000), part(LOG, 2, 5));
    assert_eq!(end(LOG, 3500), part(LOG, 1, 5));
    let both = Options { since: Some(Duration::from_secs(2)), events: Some(0..3), ..Options::default() };
    assert_eq!(import(LOG, &both).trace.events, part(LOG, 2, 3));
}

#[test]
fn a_part_without_events_is_refused() {
    let with = |from, to| Options { events: Some(from..to), ..Options::default() };
    let message = error(&snapshot(), &with(8, u64::MAX));
    assert_eq!(message, "there is no event from 8 to the end: the recording has 8 events, 0 to 7");
    let message = error(LOG, &with(5, 6));
    assert_eq!(message, "there is no event from 5 to before 6: the recording has 5 events, 0 to 4");
    let lives = "id,lower,upper,size\na,0,1,5\n";
    assert!(error(lives, &with(0, 1)).contains("lifetimes has no events in an order"));
    let since = Options { since: Some(Duration::from_secs(2)), ..Options::default() };
    let late = Options { events: Some(0..2), ..since.clone() };
    assert!(error(LOG, &late).contains("there is no event from 2 to before 2"), "{}", error(LOG, &late));
    let no_times = LOG.replace(":00:", ":xx:").replace(":59:", ":xx:");
    assert!(error(&no_times, &since).contains("no times in the recording"));
}

/// What is outside of the part does not count towards the limit.
#[test]
fn a_part_of_a_recording_beyond_the_limit_is_read() {
    let mut options = Options { events: Some(3..4), ..Options::default() };
    options.limits.events = 2;
    assert_eq!(import(LOG, &options).trace.events.len(), 2);
    options.limits.events = 1;
    assert!(error(LOG, &options).ends_with("raise `events` of the limits to 2"), "{}", error(LOG, &options));
}
