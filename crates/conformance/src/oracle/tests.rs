use std::cell::{Cell, RefCell};

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::{BTreeMap, Clock, Granted, Oracle, Place, SegmentId, Violation};

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
        wait_for: None,
    }
}

fn point(stream: u32, tick: u64) -> Point {
    Point { stream: StreamId(stream), tick: Tick(tick) }
}

#[test]
fn live_blocks_may_not_share_a_byte() {
    let (mut oracle, clock) = (Oracle::new(Reuse::InOrder), Hands::default());
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
    let (mut oracle, clock) = (Oracle::new(Reuse::InOrder), Hands::default());
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
    let (mut oracle, clock) = (Oracle::new(Reuse::InOrder), Hands::default());
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

    let mut oracle = Oracle::new(Reuse::InOrder);
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
        let (mut oracle, clock) = (Oracle::new(Reuse::InOrder), Hands::default());
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

#[test]
fn after_submit_and_after_done_hold_the_home_stream_back() {
    for (reuse, open, reached, sound) in [
        (Reuse::AfterSubmit, 5, 4, false),
        (Reuse::AfterSubmit, 6, 4, true),
        (Reuse::AfterDone, 6, 4, false),
        (Reuse::AfterDone, 6, 5, true),
    ] {
        let (mut oracle, clock) = (Oracle::new(reuse), Hands::default());
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
    let (mut oracle, clock) = (Oracle::new(Reuse::InOrder), Hands::default());
    clock.set(0, 2, 1);
    clock.set(1, 9, 1);
    for (offset, stream) in [(0, 0), (512, 1)] {
        let grant = at(offset, 512, 0);
        oracle.granted(&grant, None, &clock).unwrap();
        oracle.used(grant.place, StreamId(stream));
        oracle.freed(grant.place, &clock);
    }
    // The front was used at home only. The whole, and the back after it, still wait for stream 1.
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.freed(at(0, 512, 0).place, &clock);
    let found = oracle.granted(&at(0, 1024, 0), None, &clock).unwrap_err();
    assert!(matches!(found, Violation::Premature { waits_for, .. } if waits_for == point(1, 9)), "{found}");
}

#[test]
fn what_a_grant_tells_its_user_to_wait_for_is_allowed() {
    let (mut oracle, clock) = (Oracle::new(Reuse::InOrder), Hands::default());
    clock.set(0, 5, 4);
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    oracle.freed(at(0, 512, 0).place, &clock);
    oracle.granted(&Granted { wait_for: Some(point(0, 5)), ..at(0, 512, 1) }, None, &clock).unwrap();
}

#[test]
fn memory_that_is_in_use_may_not_go_back() {
    let (mut oracle, clock) = (Oracle::new(Reuse::InOrder), Hands::default());
    clock.set(0, 5, 4);
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
    let found = oracle.check(&[], &clock).unwrap_err();
    assert!(matches!(found, Violation::NoMemory { bytes: 512, .. }), "{found}");
    oracle.freed(at(0, 512, 0).place, &clock);
    let found = oracle.check(&[], &clock).unwrap_err();
    assert!(matches!(found, Violation::Released { waits_for, .. } if waits_for == point(0, 5)), "{found}");

    let mut oracle = Oracle::new(Reuse::InOrder);
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
        let found = Oracle::new(Reuse::InOrder).granted(&grant, None, &clock).unwrap_err();
        assert!(matches!(found, Violation::Misshapen { .. }), "{found}");
    }
}
