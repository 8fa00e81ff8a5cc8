use super::{Op, Pattern, Workload};

/// Runs the lists as a subject would, twice, and returns the number of live blocks after each list.
fn walk(workload: &Workload) -> Vec<usize> {
    let mut full = vec![false; workload.slots];
    let mut after = Vec::new();
    let mut go = |ops: &[Op], full: &mut [bool]| {
        for op in ops {
            match *op {
                Op::Allocate { slot, stream, bytes } => {
                    assert!(bytes > 0 && stream < workload.streams);
                    assert!(!std::mem::replace(&mut full[slot as usize], true), "slot {slot} was full");
                }
                Op::Free { slot } => {
                    assert!(std::mem::replace(&mut full[slot as usize], false), "slot {slot} was empty");
                }
            }
        }
        after.push(full.iter().filter(|full| **full).count());
    };
    go(&workload.prepare, &mut full);
    for _ in 0..2 {
        go(&workload.timed, &mut full);
        go(&workload.finish, &mut full);
    }
    after
}

fn sizes(workload: &Workload) -> Vec<u64> {
    let size = |op: &Op| if let Op::Allocate { bytes, .. } = op { Some(*bytes) } else { None };
    workload.prepare.iter().chain(&workload.timed).filter_map(size).collect()
}

#[test]
fn a_hit_pair_leaves_nothing() {
    let workload = Pattern::Hit { bytes: 4096 }.workload(1).expect("no file is read");
    assert_eq!(walk(&workload), [0; 5]);
    assert!(sizes(&workload).iter().all(|bytes| *bytes == 4096));
}

#[test]
fn churn_keeps_its_blocks_and_its_sizes() {
    let workload = Pattern::Churn { live: 100, max_bytes: 1000 }.workload(7).expect("no file is read");
    assert_eq!(walk(&workload), [100; 5]);
    let sizes = sizes(&workload);
    assert!(sizes.iter().all(|bytes| (1..=1000).contains(bytes)));
    let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
    assert!((490.0..510.0).contains(&mean), "uniform sizes have a mean of 500, these of {mean}");
}

#[test]
fn rmm_allocates_73_percent_of_the_time_below_its_cap() {
    let workload = Pattern::Rmm { allocations: 10_000, max_bytes: 1 << 20 }.workload(7).expect("no file is read");
    assert_eq!(walk(&workload), [0; 5]);
    assert_eq!(workload.timed.len(), 20_000);
    // Before the frees at the end: 10,000 allocations are 73 % of the steps.
    let last = workload.timed.iter().rposition(|op| matches!(op, Op::Allocate { .. })).expect("there are some");
    let share = 10_000.0 / (last + 1) as f64;
    assert!((0.72..0.74).contains(&share), "{share}");
    let capped = Pattern::Rmm { allocations: 2_000, max_bytes: 1 << 30 }.workload(7).expect("no file is read");
    let (mut live, mut peak, mut held) = (0, 0, vec![0; capped.slots]);
    for op in &capped.timed {
        match *op {
            Op::Allocate { slot, bytes, .. } => {
                held[slot as usize] = bytes;
                live += bytes;
            }
            Op::Free { slot } => live -= held[slot as usize],
        }
        peak = peak.max(live);
    }
    assert!((12_000 << 20..=16_000 << 20).contains(&peak), "{peak}");
}

#[test]
fn a_seed_draws_the_same_again_and_another_seed_something_else() {
    let draw = |seed| Pattern::Churn { live: 10, max_bytes: 1000 }.workload(seed).expect("no file is read").timed;
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn a_recorded_program_becomes_operations() {
    let workload = Pattern::Trace("prefetch").workload(0).expect("the corpus has the trace");
    assert_eq!(walk(&workload), [0, 3, 0, 3, 0]);
    assert_eq!(sizes(&workload).len(), 10_891);
    assert_eq!(workload.timed.len(), 10_891 + 10_888);
    assert!(workload.streams > 1);
}

#[test]
fn the_most_alive_is_what_was_asked_for_at_one_time() {
    let op = |slot, bytes| Op::Allocate { stream: 0, slot, bytes };
    let timed = vec![op(1, 5), Op::Free { slot: 0 }, op(0, 2), Op::Free { slot: 1 }, Op::Free { slot: 0 }, op(0, 10)];
    let workload = Workload { prepare: vec![op(0, 10)], timed, slots: 2, streams: 1, ..Workload::default() };
    assert_eq!(workload.live_peak(), 15);
}

#[test]
fn a_shortened_list_can_be_gone_over_as_often() {
    for pattern in [Pattern::Churn { live: 100, max_bytes: 1000 }, Pattern::Hit { bytes: 4096 }] {
        let workload = pattern.workload(7).expect("no file is read");
        let short = workload.shortened(200);
        assert_eq!((short.timed.as_slice(), &short.prepare), (&workload.timed[..200], &workload.prepare));
        assert_eq!(walk(&short), walk(&workload));
    }
}

#[test]
#[should_panic(expected = "3 operations of 20000 are no list")]
fn a_list_is_not_cut_within_a_pair() {
    Pattern::Hit { bytes: 4096 }.workload(1).expect("no file is read").shortened(3);
}
