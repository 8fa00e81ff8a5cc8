use std::cell::{Cell, RefCell};

use millpond::{BlockState, BlockView, Readiness as Says, SegmentView, Side};
use millpond_backend::{Point, Reuse, StreamId, Tick};
use millpond_core::{PageId, PageView, PoolId, Slot};

use super::{BTreeMap, Clock, Granted, Oracle, Place, Promises, SegmentId, Violation};

mod says;

/// Streams whose open and reached ticks a test sets.
#[derive(Default)]
struct Hands {
    open: RefCell<BTreeMap<StreamId, u64>>,
    reached: RefCell<BTreeMap<StreamId, u64>>,
    waits: RefCell<Vec<(StreamId, Point)>>,
    knows_no_waits: Cell<bool>,
}

impl Hands {
    fn set(&self, stream: u32, open: u64, reached: u64) {
        self.open.borrow_mut().insert(StreamId(stream), open);
        self.reached.borrow_mut().insert(StreamId(stream), reached);
    }
}

impl Clock for Hands {
    fn mark(&self, stream: StreamId) -> Tick {
        Tick(self.open.borrow().get(&stream).copied().unwrap_or(1))
    }

    fn reached(&self, stream: StreamId) -> Option<Tick> {
        Some(Tick(self.reached.borrow().get(&stream).copied().unwrap_or(0)))
    }

    fn comes_after(&self, stream: StreamId, point: Point) -> Option<bool> {
        if self.knows_no_waits.get() { None } else { Some(self.waits.borrow().contains(&(stream, point))) }
    }
}

fn at(offset: u64, bytes: u64, stream: u32) -> Granted {
    Granted {
        place: Place { segment: SegmentId(0), offset },
        bytes,
        requested: bytes,
        stream: StreamId(stream),
        address: None,
        says: Says::Ordered,
    }
}

fn point(stream: u32, tick: u64) -> Point {
    Point { stream: StreamId(stream), tick: Tick(tick) }
}

#[test]
fn live_blocks_may_not_share_a_byte() {
    let (mut oracle, clock) = (Oracle::new(Promises::new(Reuse::InOrder)), Hands::default());
    oracle.granted(&at(512, 1024, 0), None, &clock).unwrap();
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.granted(&at(1536, 512, 1), None, &clock).unwrap();
    for (offset, bytes) in [(0, 512), (1024, 512), (512, 1024), (1024, 4096), (1536, 512)] {
        let found = oracle.apart(&at(offset, bytes, 0)).unwrap_err();
        assert!(matches!(found, Violation::Overlap { .. }), "{offset} {bytes}: {found}");
    }
    oracle.apart(&at(2048, 512, 0)).unwrap();
}

#[test]
fn live_blocks_may_not_share_an_address_either() {
    let (mut oracle, clock) = (Oracle::new(Promises::new(Reuse::InOrder)), Hands::default());
    let with = |segment, address| Granted {
        place: Place { segment: SegmentId(segment), offset: 0 },
        address: Some(address),
        ..at(0, 1024, 0)
    };
    oracle.granted(&with(0, 4096), None, &clock).unwrap();
    oracle.granted(&with(1, 5120), None, &clock).unwrap();
    let found = oracle.granted(&with(2, 4608), None, &clock).unwrap_err();
    assert!(matches!(found, Violation::Overlap { .. }), "{found}");
}

#[test]
fn in_order_the_home_stream_may_reuse_at_once_and_others_may_not() {
    let (mut oracle, clock) = (Oracle::new(Promises::new(Reuse::InOrder)), Hands::default());
    clock.set(0, 5, 4);
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.freed(at(0, 512, 0).place, &clock);
    let found = oracle.granted(&at(0, 512, 1), None, &clock).unwrap_err();
    let expected = Violation::Premature {
        place: at(0, 512, 1).place,
        bytes: 512,
        stream: StreamId(1),
        waits_for: point(0, 5),
        reached: Tick(4),
    };
    assert_eq!(found, expected);

    let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.freed(at(0, 512, 0).place, &clock);
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.freed(at(0, 512, 0).place, &clock);
    clock.set(0, 6, 5);
    oracle.granted(&at(0, 512, 1), None, &clock).unwrap();
}

#[test]
fn a_recorded_stream_counts_up_to_the_free_and_a_point_up_to_itself() {
    for by_point in [false, true] {
        let (mut oracle, clock) = (Oracle::new(Promises::new(Reuse::InOrder)), Hands::default());
        clock.set(1, 3, 2);
        let grant = at(0, 512, 0);
        oracle.granted(&grant, None, &clock).unwrap();
        if by_point {
            oracle.used_until(grant.place, point(1, 3));
        } else {
            oracle.used(grant.place, StreamId(1));
        }
        clock.set(1, 7, 3);
        oracle.freed(grant.place, &clock);
        let again = oracle.granted(&grant, None, &clock);
        assert_eq!(again.is_ok(), by_point, "{again:?}");
    }
}

/// Where it is held, not even the stream that waits for the other one gets the memory before that is done.
#[test]
fn what_other_streams_use_is_held_where_that_is_promised() {
    for holds in [false, true] {
        let promises = Promises { holds, ..Promises::new(Reuse::InOrder) };
        let (mut oracle, clock) = (Oracle::new(promises), Hands::default());
        clock.set(0, 5, 4);
        clock.set(1, 7, 6);
        clock.waits.borrow_mut().push((StreamId(0), point(1, 7)));
        let grant = at(0, 512, 0);
        oracle.granted(&grant, None, &clock).unwrap();
        oracle.used(grant.place, StreamId(0));
        oracle.used(grant.place, StreamId(1));
        oracle.freed(grant.place, &clock);
        let again = oracle.granted(&grant, None, &clock);
        let Granted { place, bytes, stream, .. } = grant;
        let early = Violation::Premature { place, bytes, stream, waits_for: point(1, 7), reached: Tick(6) };
        assert_eq!(again, if holds { Err(early) } else { Ok(()) });
        if !holds {
            oracle.freed(grant.place, &clock);
        }
    }
}

#[test]
fn after_submit_and_after_done_hold_the_home_stream_back() {
    for (reuse, open, reached, sound) in [
        (Reuse::AfterSubmit, 5, 4, false),
        (Reuse::AfterSubmit, 6, 4, true),
        (Reuse::AfterDone, 6, 4, false),
        (Reuse::AfterDone, 6, 5, true),
    ] {
        let (mut oracle, clock) = (Oracle::new(Promises::new(reuse)), Hands::default());
        clock.set(0, 5, 4);
        oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
        oracle.freed(at(0, 512, 0).place, &clock);
        clock.set(0, open, reached);
        let again = oracle.granted(&at(0, 512, 0), None, &clock);
        assert_eq!(again.is_ok(), sound, "{reuse:?}, open {open}, reached {reached}: {again:?}");
    }
}

#[test]
fn a_part_of_a_freed_range_is_judged_by_that_part_alone() {
    let (mut oracle, clock) = (Oracle::new(Promises::new(Reuse::InOrder)), Hands::default());
    clock.set(0, 2, 1);
    clock.set(1, 9, 1);
    for (offset, stream) in [(0, 0), (512, 1)] {
        let grant = at(offset, 512, 0);
        oracle.granted(&grant, None, &clock).unwrap();
        oracle.used(grant.place, StreamId(stream));
        oracle.freed(grant.place, &clock);
    }
    // The front was used on its home stream only. The whole, and the back after it, still wait for stream 1.
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.freed(at(0, 512, 0).place, &clock);
    let found = oracle.granted(&at(0, 1024, 0), None, &clock).unwrap_err();
    assert!(matches!(found, Violation::Premature { waits_for, .. } if waits_for == point(1, 9)), "{found}");
}

/// The freed bytes lie in the middle of what goes back, reach beyond it, or begin before it.
#[test]
fn memory_that_goes_back_is_named_from_its_first_used_byte_to_its_last() {
    let clock = Hands::default();
    clock.set(0, 5, 4);
    let page = |mapped: [bool; 4]| range(0, mapped.map(|is_there| is_there.then_some((7, true))));
    for (offset, bytes, kept, named) in [
        (512, 1024, [false; 4], 512..1536),
        (PAGE + 512, PAGE, [false, false, true, false], PAGE + 512..2 * PAGE),
        (PAGE - 512, PAGE, [true, false, false, false], PAGE..2 * PAGE - 512),
    ] {
        let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
        oracle.granted(&at(offset, bytes, 0), None, &clock).unwrap();
        oracle.freed(at(offset, bytes, 0).place, &clock);
        let found = oracle.check(&[page(kept)], &clock).unwrap_err();
        let Violation::Released { place, end, .. } = &found else { panic!("{found}") };
        assert_eq!(place.offset..*end, named, "{found}");
        assert!(found.to_string().starts_with(&format!("bytes {}..{} of", named.start, named.end)), "{found}");
    }
    let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
    let (grant, replaced) = (in_range(0, PAGE + 512, 1024, 0), range(0, [None, Some((8, true)), None, None]));
    oracle.granted(&grant, Some(&range(0, [None, Some((7, true)), None, None])), &clock).unwrap();
    oracle.freed(grant.place, &clock);
    let found = oracle.check(&[replaced], &clock).unwrap_err();
    assert!(matches!(found, Violation::ReleasedPage { page: PageId(7), begin: 512, end: 1536, .. }), "{found}");
}

#[test]
fn memory_that_is_in_use_may_not_go_back() {
    let (mut oracle, clock) = (Oracle::new(Promises::new(Reuse::InOrder)), Hands::default());
    clock.set(0, 5, 4);
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    let found = oracle.check(&[], &clock).unwrap_err();
    assert!(matches!(found, Violation::NoMemory { bytes: 512, .. }), "{found}");
    oracle.freed(at(0, 512, 0).place, &clock);
    let found = oracle.check(&[], &clock).unwrap_err();
    assert!(matches!(found, Violation::Released { waits_for, .. } if waits_for == point(0, 5)), "{found}");

    let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.freed(at(0, 512, 0).place, &clock);
    clock.set(0, 6, 5);
    oracle.check(&[], &clock).unwrap();
    assert_eq!(oracle.live_blocks(), 0);
}

#[test]
fn a_misshapen_grant_is_found() {
    let clock = Hands::default();
    for grant in [
        Granted { requested: 513, ..at(0, 512, 0) },
        at(256, 512, 0),
        at(0, 0, 0),
        Granted { address: Some(4097), ..at(0, 512, 0) },
    ] {
        let found = Oracle::new(Promises::new(Reuse::InOrder)).granted(&grant, None, &clock).unwrap_err();
        assert!(matches!(found, Violation::Misshapen { .. }), "{found}");
    }
}

/// Returns a range of 4 pages of 4 KiB each as a layout shows it. `places` has the page that is mapped at each place,
/// and whether that is its primary place.
fn range(segment: u64, places: [Option<(u32, bool)>; 4]) -> SegmentView {
    let page = |(at, place): (usize, &Option<(u32, bool)>)| {
        let (page, is_home) = (*place)?;
        Some(PageView {
            page: PageId(page),
            birth: 0,
            offset: at as u64 * PAGE,
            bytes: PAGE,
            is_home,
            is_leaving: !is_home,
        })
    };
    let pages: Vec<PageView> = places.iter().enumerate().filter_map(page).collect();
    let is_backed = |at: u64| pages.iter().any(|page| page.offset == at * PAGE && page.is_home);
    let block = |at| BlockView {
        side: Side::Large,
        offset: at * PAGE,
        size: PAGE,
        requested: 0,
        guarded: 0,
        state: if is_backed(at) { BlockState::Inactive } else { BlockState::Unmapped },
    };
    SegmentView {
        id: SegmentId(segment),
        slot: Slot(0),
        stream: StreamId(0),
        pool: PoolId(0),
        side: Side::Large,
        address: 0,
        bytes: 4 * PAGE,
        page_bytes: PAGE,
        blocks: (0..4).map(block).collect(),
        pages,
        is_paused: false,
    }
}

const PAGE: u64 = 4096;

fn in_range(segment: u64, offset: u64, bytes: u64, stream: u32) -> Granted {
    Granted { place: Place { segment: SegmentId(segment), offset }, ..at(offset, bytes, stream) }
}

/// Records one block over page 7 at the beginning of range 0, used and freed on stream 0, which is at tick 5 and has
/// reached 4.
fn freed_in_flight(clock: &Hands) -> Oracle {
    let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
    clock.set(0, 5, 4);
    let grant = in_range(0, 0, PAGE, 0);
    oracle.granted(&grant, Some(&range(0, [Some((7, true)), None, None, None])), clock).unwrap();
    oracle.freed(grant.place, clock);
    oracle
}

#[test]
fn a_page_in_flight_moves_only_behind_a_wait() {
    let elsewhere = range(1, [None, Some((7, true)), None, None]);
    let grant = in_range(1, PAGE, PAGE, 1);
    let clock = Hands::default();
    let found = freed_in_flight(&clock).granted(&grant, Some(&elsewhere), &clock).unwrap_err();
    assert!(matches!(found, Violation::Premature { waits_for, .. } if waits_for == point(0, 5)), "{found}");
    clock.waits.borrow_mut().push((StreamId(2), point(0, 5)));
    let found = freed_in_flight(&clock).granted(&grant, Some(&elsewhere), &clock).unwrap_err();
    assert!(matches!(found, Violation::Premature { .. }), "another stream waits: {found}");
    clock.waits.borrow_mut().push((StreamId(1), point(0, 5)));
    freed_in_flight(&clock).granted(&grant, Some(&elsewhere), &clock).unwrap();

    let clock = Hands::default();
    freed_in_flight(&clock).granted(&in_range(1, PAGE, PAGE, 0), Some(&elsewhere), &clock).unwrap();
    let mut oracle = freed_in_flight(&clock);
    clock.set(0, 6, 5);
    oracle.granted(&grant, Some(&elsewhere), &clock).unwrap();
}

#[test]
fn a_device_that_cannot_tell_its_waits_is_trusted_with_pages() {
    let clock = Hands::default();
    clock.knows_no_waits.set(true);
    let elsewhere = range(1, [Some((7, true)), None, None, None]);
    freed_in_flight(&clock).granted(&in_range(1, 0, PAGE, 1), Some(&elsewhere), &clock).unwrap();
    let same = range(0, [Some((7, true)), None, None, None]);
    freed_in_flight(&clock).granted(&in_range(0, 0, PAGE, 1), Some(&same), &clock).unwrap();
}

#[test]
fn only_the_bytes_of_a_page_that_were_used_are_waited_for() {
    let clock = Hands::default();
    clock.set(0, 5, 4);
    let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
    let grant = in_range(0, 0, 1024, 0);
    oracle.granted(&grant, Some(&range(0, [Some((7, true)), None, None, None])), &clock).unwrap();
    oracle.freed(grant.place, &clock);
    // The page has moved. Its unused part is free for all streams and its used part is not, wherever a block begins.
    let moved = range(1, [None, None, Some((7, true)), Some((8, true))]);
    oracle.granted(&in_range(1, 2 * PAGE + 1024, PAGE, 1), Some(&moved), &clock).unwrap();
    let found = oracle.granted(&in_range(1, 2 * PAGE + 512, 512, 1), Some(&moved), &clock).unwrap_err();
    assert!(matches!(found, Violation::Premature { waits_for, .. } if waits_for == point(0, 5)), "{found}");
}

#[test]
fn a_page_has_one_tenant_wherever_it_is_mapped() {
    let clock = Hands::default();
    let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
    let here = range(0, [Some((7, true)), Some((8, true)), None, None]);
    oracle.granted(&in_range(0, 512, PAGE, 0), Some(&here), &clock).unwrap();
    let there = range(1, [None, None, Some((8, true)), None]);
    let beside = in_range(1, 2 * PAGE + 512, 512, 0);
    oracle.granted(&beside, Some(&there), &clock).unwrap();
    let found = oracle.granted(&in_range(1, 2 * PAGE, 512, 0), Some(&there), &clock).unwrap_err();
    let other = in_range(0, 512, PAGE, 0).place;
    assert!(matches!(found, Violation::SharedPage { other: first, .. } if first == other), "{found}");
}

#[test]
fn retired_and_empty_addresses_are_not_handed_out() {
    let clock = Hands::default();
    let retired = range(0, [Some((7, true)), Some((8, false)), Some((9, true)), None]);
    let found = Oracle::new(Promises::new(Reuse::InOrder))
        .granted(&in_range(0, 0, 3 * PAGE, 0), Some(&retired), &clock)
        .unwrap_err();
    assert!(matches!(found, Violation::Retired { page: PageId(8), at: PAGE, .. }), "{found}");
    let found =
        Oracle::new(Promises::new(Reuse::InOrder)).granted(&in_range(0, 2 * PAGE, 4608, 0), Some(&retired), &clock);
    assert!(matches!(found, Err(Violation::Unbacked { at, .. }) if at == 3 * PAGE), "{found:?}");
}

#[test]
fn pages_stay_behind_a_live_block() {
    let clock = Hands::default();
    let mut oracle = Oracle::new(Promises::new(Reuse::InOrder));
    let before = range(0, [Some((7, true)), Some((8, true)), None, None]);
    oracle.granted(&in_range(0, 0, 2 * PAGE, 0), Some(&before), &clock).unwrap();
    oracle.check(&[before], &clock).unwrap();
    let after = range(0, [Some((7, true)), Some((9, true)), None, None]);
    let found = oracle.check(&[after], &clock).unwrap_err();
    assert!(matches!(found, Violation::Moved { .. }), "{found}");
}

#[test]
fn addresses_and_pages_in_flight_stay_mapped() {
    let clock = Hands::default();
    // The page has moved, and its old addresses are still mapped, so the device's work there may continue.
    let home = range(1, [Some((7, true)), None, None, None]);
    let retired = range(0, [Some((7, false)), None, None, None]);
    freed_in_flight(&clock).check(&[retired, home.clone()], &clock).unwrap();
    let unmapped = range(0, [None; 4]);
    let found = freed_in_flight(&clock).check(&[unmapped.clone(), home], &clock).unwrap_err();
    assert!(matches!(found, Violation::Released { waits_for, .. } if waits_for == point(0, 5)), "{found}");
    let replaced = range(0, [Some((8, true)), None, None, None]);
    let found = freed_in_flight(&clock).check(&[replaced], &clock).unwrap_err();
    assert!(matches!(found, Violation::ReleasedPage { page: PageId(7), .. }), "{found}");
    let mut oracle = freed_in_flight(&clock);
    clock.set(0, 6, 5);
    oracle.check(&[unmapped], &clock).unwrap();
}
