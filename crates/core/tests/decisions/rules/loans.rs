//! Loans: of what, behind what, and made again and again.

use super::*;

/// A stream that borrows the same size again and again gets the same place. From the ninth time on the device is asked
/// only at every 64th loan, because no other stream has used the place. It is asked again once another stream has.
#[test]
fn a_loan_is_made_again_without_asking() {
    for (slack, bytes) in [(40, 4 * MIB), (40, 512)] {
        let mut device = Device::paged(Growth::Tight);
        device.coordinator.set_limit(Some(slack * MIB));
        device.reached = vec![Tick(9); 3];
        let lender = device.miss(0, 40 * MIB);
        device.free(0, &lender, 5);
        let lend = |device: &mut Device, tick| {
            let lent = device.miss(1, bytes);
            let asks = device.steps.iter().filter(|step| matches!(step, Step::Poll(_))).count();
            assert!(matches!(device.free(0, &lent, 6), Freed::Pending(_)), "it is the lender's");
            device.coordinator.pend(ShardId(0), lent.block, [point(1, tick)], [0; 2], &mut device.shards);
            device.coordinator.check(&mut device.shards);
            ((lent.slot, lent.offset), asks)
        };
        let (place, asks) = lend(&mut device, 20);
        assert_eq!(asks, 1, "the first loan asks how far the streams are");
        for times in 1..130_u64 {
            let asks = usize::from(times < 8 || times.is_multiple_of(64));
            assert_eq!(lend(&mut device, 20 + times), (place, asks), "after {times} in a row");
        }
        // A third stream has the place in between, and its work there is under way.
        let other = device.miss(2, bytes);
        assert_eq!((other.slot, other.offset), place);
        assert!(matches!(device.free(0, &other, 7), Freed::Pending(_)), "it is the lender's");
        device.coordinator.pend(ShardId(0), other.block, [point(2, 50)], [0; 2], &mut device.shards);
        assert_eq!(lend(&mut device, 200).1, 1, "it may be in use");
    }
}

/// A block that is lent is idle again only when the borrower's work is over. With `balanced`, a block whose last use is
/// not reached is not lent while new pages may be created.
#[test]
fn only_idle_blocks_are_lent_and_they_wait_for_the_borrower() {
    for (reached, is_lent) in [(4, false), (5, true)] {
        let mut device = Device::paged(Growth::Balanced);
        device.reached = vec![Tick(0); 3];
        let held = device.miss(1, 40 * MIB);
        device.free(1, &held, 5);
        device.reached = vec![Tick(0), Tick(reached), Tick(0)];
        let mut plan = device.plan(0, 30 * MIB);
        let (lender, grant) = device.run(&mut plan).expect("there is room");
        assert_eq!(lender == ShardId(1), is_lent, "5 was the last use, {reached} is reached");
        if is_lent {
            let Freed::Pending(uses) = device.free(1, &grant, 6) else { panic!("the borrower is still at it") };
            assert_eq!(uses.streams, [StreamId(0)]);
        }
    }
}

/// The best fit of all other streams is still in use. The best of the idle blocks is lent.
#[test]
fn a_block_in_use_does_not_stand_in_for_an_idle_one() {
    let mut device = Device::paged(Growth::Balanced);
    device.reached = vec![Tick(0); 3];
    for (shard, mib) in [(1, 36), (2, 44)] {
        let held = device.miss(shard, mib * MIB);
        device.free(shard, &held, 5);
    }
    device.reached = vec![Tick(0), Tick(4), Tick(5)];
    let mut plan = device.plan(0, 30 * MIB);
    let (lender, _) = device.run(&mut plan).expect("there is room");
    assert_eq!(lender, ShardId(2));
}
