//! Grants whose memory may be used, but which describe it wrongly.

use super::*;

const IN_ORDER: Promises = Promises::new(Reuse::InOrder);
const WITH_BARRIERS: Promises = Promises { needs_barrier: true, ..IN_ORDER };
const TRACKING: Promises = Promises { alias_reuse: Reuse::AfterSubmit, ..IN_ORDER };

/// Records a plain block of 1 KiB, freed on stream 0 at tick 5, where tick 4 is reached.
fn freed(promises: Promises, clock: &Hands) -> Oracle {
    let mut oracle = Oracle::new(promises);
    clock.set(0, 5, 4);
    oracle.granted(&Granted { says: Says::Fresh, ..at(0, 1024, 0) }, None, clock).unwrap();
    oracle.freed(at(0, 1024, 0).place, clock);
    oracle
}

/// Records the same over page 7 at the beginning of range 0.
fn freed_page(promises: Promises, clock: &Hands) -> Oracle {
    let mut oracle = Oracle::new(promises);
    clock.set(0, 5, 4);
    let grant = Granted { says: Says::Fresh, ..in_range(0, 0, 1024, 0) };
    oracle.granted(&grant, Some(&range(0, [Some((7, true)), None, None, None])), clock).unwrap();
    oracle.freed(grant.place, clock);
    oracle
}

#[test]
fn bytes_that_somebody_had_are_not_fresh_however_long_ago() {
    let clock = Hands::default();
    for offset in [0, 512] {
        let mut oracle = freed(IN_ORDER, &clock);
        clock.set(0, 9, 8);
        let grant = Granted { says: Says::Fresh, ..at(offset, 1024, 0) };
        let found = oracle.granted(&grant, None, &clock).unwrap_err();
        assert!(matches!(found, Violation::NotFresh { freed, .. } if freed == point(0, 5)), "{found}");
    }
    let mut oracle = freed(IN_ORDER, &clock);
    oracle.granted(&Granted { says: Says::Fresh, ..at(1024, 1024, 0) }, None, &clock).unwrap();
}

#[test]
fn a_page_is_fresh_once_wherever_it_is_mapped() {
    let clock = Hands::default();
    let there = range(1, [None, Some((7, true)), None, None]);
    let fresh = |offset| Granted { says: Says::Fresh, ..in_range(1, offset, 1024, 1) };
    let mut oracle = freed_page(IN_ORDER, &clock);
    clock.set(0, 9, 8);
    let found = oracle.granted(&fresh(PAGE), Some(&there), &clock).unwrap_err();
    assert!(matches!(found, Violation::NotFresh { .. }), "{found}");
    // The rest of the page was never used.
    freed_page(IN_ORDER, &clock).granted(&fresh(PAGE + 1024), Some(&there), &clock).unwrap();
}

#[test]
fn a_new_page_is_fresh_at_addresses_and_under_a_number_that_others_had() {
    let clock = Hands::default();
    let grant = Granted { says: Says::Fresh, ..in_range(0, 0, 1024, 0) };
    for (number, birth) in [(8, 0), (7, 1)] {
        let mut oracle = freed_page(IN_ORDER, &clock);
        clock.set(0, 9, 8);
        let mut view = range(0, [Some((number, true)), None, None, None]);
        view.pages[0].birth = birth;
        oracle.granted(&grant, Some(&view), &clock).unwrap();
    }
}

#[test]
fn what_is_under_way_is_not_complete() {
    let clock = Hands::default();
    let complete = Granted { says: Says::Complete, ..at(0, 512, 0) };
    let found = freed(IN_ORDER, &clock).granted(&complete, None, &clock).unwrap_err();
    let Violation::NotComplete { waits_for, reached, .. } = found else { panic!("{found}") };
    assert_eq!((waits_for, reached), (point(0, 5), Tick(4)));
    let mut oracle = freed(IN_ORDER, &clock);
    clock.set(0, 6, 5);
    oracle.granted(&complete, None, &clock).unwrap();
}

#[test]
fn a_page_that_comes_behind_a_wait_is_ordered_and_not_complete() {
    let clock = Hands::default();
    clock.waits.borrow_mut().push((StreamId(1), point(0, 5)));
    let there = range(1, [Some((7, true)), None, None, None]);
    // A wait alone orders memory: no barrier is missing.
    for (says, sound) in [(Says::Ordered, true), (Says::NeedsBarrier, true), (Says::Complete, false)] {
        let grant = Granted { says, ..in_range(1, 0, 1024, 1) };
        let found = freed_page(WITH_BARRIERS, &clock).granted(&grant, Some(&there), &clock);
        assert_eq!(found.is_ok(), sound, "{says:?}: {found:?}");
    }
}

#[test]
fn order_behind_a_barrier_must_be_called_so() {
    let clock = Hands::default();
    for (promises, says, sound) in [
        (IN_ORDER, Says::Ordered, true),
        (WITH_BARRIERS, Says::Ordered, false),
        (WITH_BARRIERS, Says::NeedsBarrier, true),
    ] {
        let found = freed(promises, &clock).granted(&Granted { says, ..at(0, 512, 0) }, None, &clock);
        assert_eq!(found.is_ok(), sound, "{promises:?}, {says:?}: {found:?}");
        if let Err(found) = found {
            assert!(matches!(found, Violation::NoBarrier { last_use, .. } if last_use == point(0, 5)), "{found}");
        }
    }
    let mut oracle = freed(WITH_BARRIERS, &clock);
    clock.set(0, 6, 5);
    oracle.granted(&at(0, 512, 0), None, &clock).unwrap();
}

#[test]
fn at_another_address_a_tracking_device_keeps_order_between_submits_only() {
    let clock = Hands::default();
    let same = range(0, [Some((7, true)), None, None, None]);
    freed_page(TRACKING, &clock).granted(&in_range(0, 0, 1024, 0), Some(&same), &clock).unwrap();
    let aside = range(0, [None, None, Some((7, true)), None]);
    let elsewhere = range(1, [Some((7, true)), None, None, None]);
    for (view, grant) in [(aside, in_range(0, 2 * PAGE, 1024, 0)), (elsewhere, in_range(1, 0, 1024, 0))] {
        for says in [Says::Ordered, Says::NeedsBarrier] {
            let grant = Granted { says, ..grant };
            let found = freed_page(TRACKING, &clock).granted(&grant, Some(&view), &clock).unwrap_err();
            assert!(matches!(found, Violation::Unsubmitted { freed, .. } if freed == point(0, 5)), "{found}");
        }
        let mut oracle = freed_page(TRACKING, &clock);
        clock.set(0, 6, 4);
        oracle.granted(&grant, Some(&view), &clock).unwrap();
        freed_page(IN_ORDER, &clock).granted(&grant, Some(&view), &clock).unwrap();
    }
}

#[test]
fn a_device_that_promises_nothing_there_must_be_done() {
    let clock = Hands::default();
    let promises = Promises { alias_reuse: Reuse::AfterDone, ..IN_ORDER };
    let elsewhere = range(1, [Some((7, true)), None, None, None]);
    let grant = in_range(1, 0, 1024, 0);
    let mut oracle = freed_page(promises, &clock);
    clock.set(0, 6, 4);
    let found = oracle.granted(&grant, Some(&elsewhere), &clock).unwrap_err();
    assert!(matches!(found, Violation::Premature { waits_for, .. } if waits_for == point(0, 5)), "{found}");
    let mut oracle = freed_page(promises, &clock);
    clock.set(0, 6, 5);
    oracle.granted(&grant, Some(&elsewhere), &clock).unwrap();
}
