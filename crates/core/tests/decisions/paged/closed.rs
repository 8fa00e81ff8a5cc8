//! Closed groups: what threads free while a group is about to be paused.

use millpond_backend::{StreamId, Tick};
use millpond_core::settings::Growth;
use millpond_core::{Denied, GroupId, Plan, PoolId, Step};

use crate::driver::{Device, Facts, Held, MIB, is_pages, is_pause, point};

/// A group of one pool with three streams, and one of its blocks.
struct Scene {
    device: Device,
    group: GroupId,
    held: Held,
}

impl Scene {
    fn new(facts: Facts) -> Self {
        let pool = PoolId(1);
        let mut device = Device::of(&Facts { shards: vec![(0, pool), (1, pool), (2, pool)], ..facts });
        let group = device.coordinator.create_group();
        device.coordinator.hold_pool(pool);
        device.coordinator.begin_group(pool, group);
        let held = device.allocate(0, 6 * MIB);
        Self { device, group, held }
    }

    fn close(&mut self) {
        assert_eq!(self.device.end(&mut Plan::close(self.group, [0; 2])), Step::Done);
    }

    /// Has the shard take the block back, which stream 2 has used.
    fn take_back(&mut self) {
        self.device.record(self.held, 2);
        self.device.take_back(self.held, 10);
    }

    /// Has the coordinator learn what the block waits for.
    fn pend(&mut self) {
        self.device.pend(self.held, &[point(2, 209)]);
        self.device.check();
    }

    fn users(&mut self) -> Vec<u32> {
        let users = self.device.coordinator.users_of(self.group, &mut self.device.shards);
        users.into_iter().map(|stream| stream.0).collect()
    }

    fn is_freed_under_way(&mut self) -> bool {
        self.device.coordinator.is_freed_under_way(self.group, &mut self.device.shards)
    }
}

/// Whatever comes first: the close, the free, or what the free waits for.
#[test]
fn the_streams_of_what_is_freed_meanwhile_are_waited_for() {
    for facts in [Facts::paged, Facts::holding] {
        for closed_first in [true, false] {
            let mut scene = Scene::new(facts(Growth::Tight, 1 << 30));
            if closed_first {
                scene.close();
            }
            assert!(!scene.is_freed_under_way());
            scene.take_back();
            if !closed_first {
                scene.close();
            }
            assert!(scene.is_freed_under_way(), "stream 2 is known to the thread that frees");
            scene.pend();
            assert!(!scene.is_freed_under_way() && scene.users().contains(&2), "closed first: {closed_first}");
        }
    }
}

/// What was freed before is known, whether its points are with the free memory or not.
#[test]
fn a_free_that_is_over_is_not_under_way() {
    for facts in [Facts::paged, Facts::holding] {
        let mut scene = Scene::new(facts(Growth::Tight, 1 << 30));
        scene.take_back();
        scene.pend();
        assert!(!scene.is_freed_under_way());
        scene.close();
        assert!(!scene.is_freed_under_way() && scene.users().contains(&2));
    }
}

/// Also if the captured stream has no block of the group yet.
#[test]
fn a_group_in_which_a_stream_is_captured_is_not_closed() {
    let mut scene = Scene::new(Facts::paged(Growth::Tight, 1 << 30));
    assert!(scene.device.coordinator.begin_capture(StreamId(2), PoolId(1), Tick(0)));
    let ending = scene.device.end(&mut Plan::close(scene.group, [0; 2]));
    assert_eq!(ending, Step::Denied(Denied::Capturing(StreamId(2))));
}

/// A plan that holds memory of the group ends first: it would hand out a block of a closed shard.
#[test]
fn a_group_is_closed_once_no_other_plan_holds_anything() {
    let mut scene = Scene::new(Facts::paged(Growth::Tight, 1 << 30));
    let mut creates = scene.device.plan(1, 40 * MIB);
    let pages = scene.device.reach(&mut creates, is_pages);
    let mut close = Plan::close(scene.group, [0; 2]);
    let pause = scene.device.reach(&mut close, is_pause);
    scene.device.done(&mut creates, &pages);
    assert!(scene.device.finish(&mut creates, 1).is_some());
    scene.device.done(&mut close, &pause);
    assert_eq!(scene.device.end(&mut close), Step::Done);
    assert!(scene.device.try_allocate(1, MIB).is_none(), "it is closed now");
}
