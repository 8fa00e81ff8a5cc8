//! Small situations in which a plan begins. Each consists of a few blocks, and a request that misses or a release.

use millpond_backend::{Reuse, StreamId};
use millpond_core::Plan;
use millpond_core::settings::{Growth, Policy, Segments, Settings};

use super::world::{Facts, World};
use crate::driver::{MIB, empty_cache};

/// The bytes of a small block.
pub(crate) const SMALL: u64 = MIB / 2;

/// The purpose of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// A request for this number of MiB on stream 0.
    Allocate(u64),
    /// A small request on stream 0.
    Small,
    EmptyCache,
    /// A release down to this number of MiB.
    Trim(u64),
}

/// The work that the device has done when the plan begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    All,
    /// No work on blocks that were freed.
    Nothing,
    /// The work of stream 1.
    Other,
}

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) facts: Facts,
    pub(crate) set_up: fn(&mut World),
    pub(crate) done: Done,
    pub(crate) goal: Goal,
}

impl Case {
    /// Creates the situation, and the plan.
    pub(crate) fn begin(&self) -> (World, Plan) {
        let mut world = World::new(&self.facts);
        (self.set_up)(&mut world);
        match self.done {
            Done::All => world.scene.clock.finish(),
            Done::Nothing => {}
            Done::Other => {
                let other = StreamId(1);
                world.scene.clock.close(other);
                let tick = millpond_backend::Tick(world.scene.clock.mark(other).0 - 1);
                world.scene.clock.complete(millpond_backend::Point { stream: other, tick });
            }
        }
        let plan = match self.goal {
            Goal::Allocate(mib) => world.device.plan(0, mib * MIB),
            Goal::Small => world.device.plan(0, SMALL),
            Goal::EmptyCache => empty_cache(),
            Goal::Trim(mib) => Plan::trim(mib * MIB, [0; 2]),
        };
        (world, plan)
    }
}

/// Takes blocks of these sizes, in MiB, on a stream.
fn take(world: &mut World, shard: usize, sizes: &[u64]) -> Vec<u64> {
    sizes.iter().map(|mib| world.allocate(shard, mib * MIB).expect("the situation fits")).collect()
}

/// Frees blocks, each at a tick of its own.
fn free(world: &mut World, ids: &[u64]) {
    for &id in ids {
        let stream = world.scene.live[&id].user;
        world.free(id);
        world.scene.clock.close(stream);
    }
}

/// Sets up memory of another stream: all that the limit allows is free on stream 1, in two pieces, and stream 0 needs
/// most of it.
fn pages_elsewhere(world: &mut World) {
    let blocks = take(world, 1, &[24, 4, 44]);
    free(world, &[blocks[0], blocks[2]]);
}

/// Sets up small blocks of another stream, of which every other one is free, and two free slabs. They are all that the
/// limit allows.
fn small_elsewhere(world: &mut World) {
    let large = take(world, 1, &[2, 2, 2, 2]);
    let small: Vec<_> = (0..8).map(|_| world.allocate(1, SMALL).expect("the situation fits")).collect();
    free(world, &[large[0], large[2], small[0], small[2], small[4], small[6]]);
}

/// Sets up memory of another stream in segments, none of them in pieces.
fn segments_elsewhere(world: &mut World) {
    let blocks = take(world, 1, &[24, 4, 44]);
    let own = take(world, 0, &[12]);
    free(world, &[blocks[0], own[0], blocks[2]]);
}

/// Sets up a free block of stream 0 before a hole, and a live one behind the hole.
fn free_before_hole(world: &mut World) {
    let blocks = take(world, 0, &[20, 20, 20]);
    free(world, &blocks[1..2]);
    world.scene.clock.finish();
    world.run_alone(&mut empty_cache(), 0);
    free(world, &blocks[..1]);
}

/// Sets up memory that stream 0 and then stream 1 have used. Work of both streams may still use it.
fn pages_of_both(world: &mut World) {
    let mine = take(world, 0, &[20, 40]);
    free(world, &mine[1..]);
    world.scene.clock.finish();
    let theirs = take(world, 1, &[24, 14]);
    free(world, &theirs);
}

/// Sets up a window of stream 0 over memory that both streams have used, which is kept, and free memory behind it.
fn kept_window(world: &mut World) {
    let (mine, theirs) = (take(world, 0, &[12, 4]), take(world, 1, &[24, 4, 20]));
    free(world, &[mine[0], theirs[0], theirs[2]]);
    world.scene.clock.finish();
    let gathered = take(world, 0, &[50]);
    free(world, &gathered);
}

/// Sets up a long idle block of each of the other streams.
fn idle_elsewhere(world: &mut World) {
    for shard in 1..world.device.lanes.len() {
        let blocks = take(world, shard, &[44 + shard as u64 * 2, 2]);
        free(world, &blocks[..1]);
    }
}

/// Sets up blocks that wait for other streams, one of them also for a point.
fn waiting_elsewhere(world: &mut World) {
    let blocks = take(world, 0, &[24, 20, 12]);
    let World { scene, device, .. } = world;
    scene.record(&mut device.shards, blocks[0], StreamId(1));
    let point = millpond_backend::Point { stream: StreamId(1), tick: scene.clock.mark(StreamId(1)) };
    scene.until(&mut device.shards, blocks[1], point);
    scene.record(&mut device.shards, blocks[1], StreamId(1));
    free(world, &blocks[..2]);
}

/// Sets up a spare page: it was created, and could not be mapped.
fn spare_page(world: &mut World) {
    let held = take(world, 1, &[6]);
    world.failing = super::world::Failing { after: Some(1), refused: false };
    let _ = world.allocate(0, 30 * MIB);
    world.failing = Default::default();
    free(world, &held);
}

fn paged(growth: Growth, limit: u64) -> Facts {
    let settings = Settings { policy: Policy::paged(growth), ..Settings::default() };
    Facts { limit: Some(limit * MIB), ..Facts::new(settings) }
}

fn expandable(limit: u64) -> Facts {
    let settings = Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() };
    Facts { limit: Some(limit * MIB), ..Facts::new(settings) }
}

fn classic(limit: u64) -> Facts {
    Facts { limit: Some(limit * MIB), ..Facts::new(Settings::default()) }
}

/// Returns every situation.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for done in [Done::All, Done::Nothing] {
        let mut add = |name, facts, set_up, goal| cases.push(Case { name, facts, set_up, done, goal });
        add("segments elsewhere", classic(100), segments_elsewhere, Goal::Allocate(50));
        add("segments in the way of a release", classic(100), segments_elsewhere, Goal::EmptyCache);
        add("a trim of segments", classic(100), segments_elsewhere, Goal::Trim(30));
        let gc = Settings { gc_threshold: 0.01, ..Settings::default() };
        add("garbage", Facts::new(gc), segments_elsewhere, Goal::Allocate(50));
        add("waiting for another stream", classic(60), waiting_elsewhere, Goal::Allocate(30));
        add("pages of another range", expandable(120), pages_elsewhere, Goal::Allocate(50));
        add("a range with a hole", expandable(90), free_before_hole, Goal::Allocate(30));
        add("ranges to be emptied", expandable(120), pages_elsewhere, Goal::EmptyCache);
        let slack = Settings { policy: Policy::Classic(Segments::Snug(1.0)), ..Settings::default() };
        add("within the slack", Facts::new(slack), segments_elsewhere, Goal::Allocate(50));
        let direct = Settings { policy: Policy::Direct, ..Settings::default() };
        add(
            "nothing is cached",
            Facts { limit: Some(90 * MIB), ..Facts::new(direct) },
            segments_elsewhere,
            Goal::Allocate(50),
        );
    }
    let (tight, balanced) = (Growth::Tight, Growth::Balanced);
    for (growth, times) in [(tight, [Done::Nothing, Done::Other]), (balanced, [Done::Nothing, Done::All])] {
        for done in times {
            let mut add = |name, facts, set_up, goal| cases.push(Case { name, facts, set_up, done, goal });
            add("pages elsewhere", paged(growth, 80), pages_elsewhere, Goal::Allocate(50));
            let blunt = Facts { aliasing: false, ..paged(growth, 80) };
            add("pages elsewhere, without aliases", blunt, pages_elsewhere, Goal::Allocate(50));
            let deaf = Facts { stream_wait: false, ..paged(growth, 80) };
            add("pages elsewhere, without waits", deaf, pages_elsewhere, Goal::Allocate(50));
            add("small blocks elsewhere", paged(growth, 12), small_elsewhere, Goal::Small);
            let deaf = Facts { stream_wait: false, ..paged(growth, 12) };
            add("small blocks elsewhere, without waits", deaf, small_elsewhere, Goal::Small);
            let submitting = Facts { submits: true, ..paged(growth, 80) };
            add("pages elsewhere, of work not submitted", submitting, pages_elsewhere, Goal::Allocate(50));
            add("a hole to fill", paged(growth, 90), free_before_hole, Goal::Allocate(30));
            add("memory of both streams", paged(growth, 64), pages_of_both, Goal::Allocate(36));
            add("memory of both streams, in part", paged(growth, 64), pages_of_both, Goal::Allocate(22));
            add("memory of both streams to release", paged(growth, 64), pages_of_both, Goal::EmptyCache);
            add("a kept window", paged(growth, 64), kept_window, Goal::Allocate(48));
            add("the memory of a kept window", paged(growth, 64), kept_window, Goal::Allocate(10));
            add("a kept window to release", paged(growth, 64), kept_window, Goal::EmptyCache);
            add("a trim of pages", paged(growth, 80), pages_elsewhere, Goal::Trim(40));
            let three = Facts { streams: 3, ..paged(growth, 200) };
            add("idle elsewhere", three, idle_elsewhere, Goal::Allocate(40));
            add("waiting under pages", paged(growth, 60), waiting_elsewhere, Goal::Allocate(30));
            add("a spare page", paged(growth, 60), spare_page, Goal::Allocate(50));
            add("a spare page to release", paged(growth, 60), spare_page, Goal::EmptyCache);
        }
    }
    for reuse in [Reuse::AfterSubmit, Reuse::AfterDone] {
        let (done, submits) = (Done::Nothing, reuse == Reuse::AfterSubmit);
        let mut add = |name, facts, set_up, goal| cases.push(Case { name, facts, set_up, done, goal });
        add("segments, not in order", Facts { reuse, submits, ..classic(100) }, segments_elsewhere, Goal::Allocate(50));
        add("waiting, not in order", Facts { reuse, submits, ..classic(60) }, waiting_elsewhere, Goal::Allocate(30));
        let pages = Facts { reuse, submits, ..paged(Growth::Tight, 80) };
        add("pages, not in order", pages, pages_elsewhere, Goal::Allocate(50));
        add("a release, not in order", Facts { reuse, submits, ..classic(100) }, segments_elsewhere, Goal::EmptyCache);
    }
    cases
}

/// Returns a situation in which the program holds all that the limit allows, on the other stream.
pub(crate) fn nothing_left() -> Case {
    let set_up = |world: &mut World| _ = take(world, 1, &[24, 44]);
    Case { name: "nothing left", facts: paged(Growth::Tight, 80), set_up, done: Done::All, goal: Goal::Allocate(40) }
}

/// Returns plans that run at the same time.
pub(crate) fn rivals(world: &World) -> Vec<(Plan, usize)> {
    let last = world.device.lanes.len() - 1;
    let request = |lane: usize, mib: u64| (world.device.plan(lane, mib * MIB), lane);
    vec![
        request(0, 20),
        request(last, 20),
        request(last, 44),
        (empty_cache(), 0),
        (Plan::trim(30 * MIB, [0; 2]), 0),
        (Plan::reclaim([0; 2]), 0),
    ]
}
