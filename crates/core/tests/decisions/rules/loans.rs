//! Loans: of what, and behind what.

use super::*;

/// A block that is lent is idle again only when the borrower's work is over. With `balanced`, a block whose last use is
/// not reached is not lent while new pages may be created.
#[test]
fn only_idle_blocks_are_lent_and_they_wait_for_the_borrower() {
    for (reached, is_lent) in [(4, false), (5, true)] {
        let mut device = paged(Growth::Balanced);
        device.gpu.reached.fill(Tick(0));
        device.use_until(1, 40 * MIB, 5);
        device.gpu.reached = vec![Tick(0), Tick(reached), Tick(0)];
        let mut plan = device.plan(0, 30 * MIB);
        let held = device.finish(&mut plan, 0).expect("there is room");
        assert_eq!(held.shard == 1, is_lent, "5 was the last use, {reached} is reached");
        if is_lent {
            let Freed::Pending(uses) = device.take_back(held, 6) else { panic!("the borrower is still at it") };
            assert_eq!(uses.streams, [StreamId(0)]);
        }
    }
}

/// The best fit of all other streams is still in use. The best of the idle blocks is lent.
#[test]
fn a_block_in_use_does_not_stand_in_for_an_idle_one() {
    let mut device = paged(Growth::Balanced);
    device.gpu.reached.fill(Tick(0));
    for (shard, mib) in [(1, 36), (2, 44)] {
        device.use_until(shard, mib * MIB, 5);
    }
    device.gpu.reached = vec![Tick(0), Tick(4), Tick(5)];
    let mut plan = device.plan(0, 30 * MIB);
    assert_eq!(device.finish(&mut plan, 0).map(|held| held.shard), Some(2));
}
