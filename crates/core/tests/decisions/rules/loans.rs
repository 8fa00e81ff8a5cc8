//! Loans that are made again and again.

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
