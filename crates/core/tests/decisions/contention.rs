//! Plans near the limit, stepped by hand, in every order or in every order with few changes from one thread to another:
//! no plan is refused a request that fits, and none waits for ever.
//!
//! Each thread has streams of its own and at most one block, and the limit holds one block for each thread. A thread's
//! driver call begins with one move and ends with another, so that the other threads may do anything meanwhile.

use millpond_backend::Tick;
use millpond_core::settings::{Growth, Policy, RecordStream, Segments, Settings};
use millpond_core::{Freed, Outcome, Plan, Requester, Shard, ShardId, Shards, Sizes, Step};

use crate::driver::{Device, Facts, Held, Lane, MIB, empty_cache, is_release, is_reserve};

/// The size of a block: one page of the expandable segments of `classic`, so that a block pins no more than it has.
const BLOCK: u64 = 20 * MIB;
/// More moves than any run needs that comes to its end.
const MOVES_MAX: usize = 400;

/// The present activity of a thread.
enum At {
    Idle,
    /// A plan, with the stream that the request is for.
    Planning(usize, Box<Plan>),
    Performing(usize, Box<Plan>, Step),
    Holding(Held),
}

/// One thread, which allocates and frees on these streams, in this order.
struct Thread {
    script: Vec<usize>,
    at: At,
}

/// A device, and the threads that use it.
struct World {
    device: Device,
    /// The tick that the next free leaves on its stream.
    tick: u64,
    /// Whether freed blocks wait for a stream other than their own.
    pends: bool,
    threads: Vec<Thread>,
    /// The steps that the shell was asked for, with the thread of each.
    log: Vec<String>,
}

/// The settings of one allocator, and whether the driver or the limit refuses.
#[derive(Clone, Debug)]
struct Rules {
    settings: Settings,
    by_driver: bool,
    pends: bool,
}

impl World {
    /// Creates a world with two streams for each thread, and one more that blocks wait for.
    fn new(rules: &Rules, scripts: &[&[usize]]) -> Self {
        let total = scripts.len() as u64 * BLOCK;
        let facts = Facts::new(rules.settings.clone(), 2 * scripts.len() as u32 + 1);
        let facts = Facts { total_bytes: total, limit: (!rules.by_driver).then_some(total), ..facts };
        let mut device = Device::of(&facts);
        device.gpu.segment_bytes = total;
        device.gpu.reached.fill(Tick::ZERO);
        device.gpu.open.fill(Tick::ZERO);
        device.gpu.asked = 0;
        let threads = scripts.iter().map(|script| Thread { script: script.to_vec(), at: At::Idle }).collect();
        Self { device, tick: 0, pends: rules.pends, threads, log: Vec::new() }
    }

    /// Returns whether the thread has something to do and does not wait for another thread.
    fn can_move(&self, thread: usize) -> bool {
        match &self.threads[thread] {
            Thread { at: At::Idle, script } => !script.is_empty(),
            Thread { at: At::Performing(.., Step::Pause { seen }), .. } => self.device.coordinator.progress() != *seen,
            _ => true,
        }
    }

    /// Makes one move of a thread. Returns `false` if its request was refused.
    fn make_move(&mut self, thread: usize) -> bool {
        let at = std::mem::replace(&mut self.threads[thread].at, At::Idle);
        self.threads[thread].at = match at {
            At::Idle => {
                let shard = self.threads[thread].script.remove(0);
                match self.device.hit(shard, BLOCK) {
                    Some(held) => At::Holding(held),
                    None => At::Planning(shard, Box::new(self.device.plan(shard, BLOCK))),
                }
            }
            At::Planning(shard, mut plan) => match self.device.next(&mut plan) {
                Step::Refuse(report) => {
                    self.log.push(format!("{thread}: {report:?}"));
                    return false;
                }
                step => match self.device.granted(&step, shard) {
                    Some(held) => At::Holding(held),
                    None => At::Performing(shard, plan, step),
                },
            },
            At::Performing(shard, mut plan, step) => {
                self.log.push(format!("{thread}: {step:?}"));
                self.device.done(&mut plan, &step);
                At::Planning(shard, plan)
            }
            At::Holding(held) => {
                self.free(held);
                At::Idle
            }
        };
        true
    }

    fn free(&mut self, held: Held) {
        self.tick += 1;
        // The tick is one of every stream.
        self.device.gpu.open.fill(Tick(self.tick));
        if self.pends {
            self.device.record(held, self.threads.len() as u32 * 2);
        }
        self.device.free_unchecked(held, self.tick);
    }

    /// Runs a thread until it waits for another one, or has nothing more to do.
    fn run(&mut self, thread: usize) {
        while self.can_move(thread) {
            assert!(self.make_move(thread));
        }
    }
}

/// Runs a world by a schedule: at each choice between threads it takes the schedule's number, or 0 beyond its end.
/// Returns the number of threads that there were to choose from each time.
fn play(rules: &Rules, scripts: &[&[usize]], schedule: &[usize], most_changes: usize) -> Vec<usize> {
    let mut world = World::new(rules, scripts);
    let (mut choices, mut changes, mut last) = (Vec::new(), 0, None);
    for _ in 0..MOVES_MAX {
        let mut able: Vec<usize> = (0..scripts.len()).filter(|&thread| world.can_move(thread)).collect();
        if able.is_empty() {
            break;
        }
        // The thread that moved last comes first, and is the only one after enough changes.
        if let Some(at) = last.and_then(|last| able.iter().position(|&thread| thread == last)) {
            able.swap(0, at);
            if changes == most_changes {
                able.truncate(1);
            }
        }
        let choice = schedule.get(choices.len()).copied().unwrap_or(0);
        let able_count = able.len();
        if able_count > 1 {
            choices.push(able_count);
        }
        let thread = if able_count > 1 { able[choice] } else { able[0] };
        changes += usize::from(last.is_some_and(|last| last != thread && world.can_move(last)));
        last = Some(thread);
        let served = world.make_move(thread);
        assert!(served, "{rules:?}: thread {thread} is refused what fits; schedule {schedule:?}: {:#?}", world.log);
    }
    let left: Vec<_> = world.threads.iter().map(|thread| thread.script.len()).collect();
    let is_idle = world.threads.iter().all(|thread| matches!(thread.at, At::Idle));
    assert!(is_idle && left.iter().all(|&left| left == 0), "{rules:?}: not at its end: {left:?}, {schedule:?}");
    world.device.check();
    choices
}

/// Plays every schedule with at most this number of changes away from a thread that could have gone on. Returns the
/// number of schedules.
fn explore(rules: &Rules, scripts: &[&[usize]], most_changes: usize) -> u64 {
    let (mut schedule, mut played) = (Vec::new(), 0);
    loop {
        let choices = play(rules, scripts, &schedule, most_changes);
        played += 1;
        schedule.resize(choices.len(), 0);
        // The next schedule in order: the last choice with another option takes that.
        let Some(at) = (0..schedule.len()).rev().find(|&at| schedule[at] + 1 < choices[at]) else { return played };
        schedule.truncate(at + 1);
        schedule[at] += 1;
    }
}

fn all_rules() -> Vec<Rules> {
    let paged = |growth| Settings { policy: Policy::paged(growth), ..Settings::default() };
    let settings = [
        Settings::default(),
        Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() },
        Settings { max_split_bytes: Some(20 * MIB), ..Settings::default() },
        Settings { policy: Policy::Classic(Segments::Snug(0.125)), ..Settings::default() },
        Settings { policy: Policy::Direct, ..Settings::default() },
        paged(Growth::Balanced),
        paged(Growth::Tight),
        Settings { record_stream: RecordStream::Hold, ..paged(Growth::Balanced) },
    ];
    let mut all = Vec::new();
    for settings in settings {
        for pends in [false, true] {
            all.push(Rules { settings: settings.clone(), by_driver: false, pends });
        }
        if !settings.policy.needs_pages() {
            all.push(Rules { settings, by_driver: true, pends: false });
        }
    }
    all
}

/// Both threads leave a block on one stream and want one on another. The first to ask releases both.
#[test]
fn two_threads_in_every_order() {
    let played = explore(&all_rules()[0], &[&[0, 1], &[2]], usize::MAX);
    assert!(played > 2_000, "{played} schedules");
}

#[test]
fn two_threads_that_go_back_and_forth() {
    for rules in all_rules().into_iter().rev() {
        let played = explore(&rules, &[&[0, 1, 0], &[2, 3, 2]], 2);
        assert!(played > 50, "{rules:?}: {played} schedules");
    }
}

#[test]
fn three_threads() {
    for rules in all_rules() {
        let played = explore(&rules, &[&[0, 1], &[2, 3], &[4, 5]], 1);
        assert!(played > 20, "{rules:?}: {played} schedules");
    }
}

/// A pause is over when the first release has ended. What that gives back serves the plan, while the next release of
/// the same sweep is under way.
#[test]
fn a_pause_ends_with_one_release() {
    let rules = all_rules().into_iter().find(|rules| rules.by_driver).expect("there are such rules");
    let mut world = World::new(&rules, &[&[0], &[1]]);
    (0..2).for_each(|thread| world.run(thread));
    let device = &mut world.device;
    assert_eq!(device.reserved(), 2 * BLOCK);
    let mut emptying = empty_cache();
    let release = device.reach(&mut emptying, is_release);
    let mut plan = device.plan(2, BLOCK);
    let step = device.next(&mut plan);
    let refused = device.gpu.perform(&step);
    assert_eq!(refused, Outcome::Refused, "{step:?}");
    device.learn(&mut plan, refused);
    let step = device.next(&mut plan);
    let Step::Pause { seen } = step else { panic!("{step:?}") };
    assert_eq!(device.coordinator.progress(), seen, "nothing has changed yet");
    // One of the two segments is back, and the driver call for the other is under way.
    device.done(&mut emptying, &release);
    assert_ne!(device.coordinator.progress(), seen, "one release has ended");
    device.reach(&mut emptying, is_release);
    device.learn(&mut plan, Outcome::Done);
    let step = device.next(&mut plan);
    assert!(is_reserve(&step), "{step:?}");
}

/// A plan that is lost in the middle of a sweep, or with its turn, does not obstruct other plans.
#[test]
fn a_lost_plan_stands_in_the_way_of_none() {
    let rules = &all_rules()[0];
    for steps in 0..6 {
        let mut world = World::new(rules, &[&[0], &[1], &[4]]);
        (0..2).for_each(|thread| world.run(thread));
        let device = &mut world.device;
        device.set_limit(2 * BLOCK);
        let mut lost = device.plan(2, BLOCK);
        for _ in 0..steps {
            let step = device.next(&mut lost);
            if step.is_end() {
                break;
            }
            device.done(&mut lost, &step);
        }
        device.coordinator.lose(&mut lost);
        // The other plan is served or refused, and waits for nothing.
        for _ in 0..MOVES_MAX {
            if !world.can_move(2) || !world.make_move(2) {
                break;
            }
        }
        let waits = matches!(world.threads[2].at, At::Performing(..));
        assert!(!waits, "lost after {steps} steps: {:?}", world.log);
    }
}

/// Shards in which another thread exchanges one block for another just before a look, unless they are held.
struct Traded<'a> {
    shards: &'a mut Vec<Shard>,
    looks: &'a mut u32,
    trade: &'a mut Option<Held>,
    wanted: (&'a Sizes, Lane),
    held: bool,
}

impl Shards for Traded<'_> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        if !self.held {
            *self.looks = self.looks.saturating_sub(1);
            if *self.looks == 0
                && let Some(held) = self.trade.take()
            {
                let freed = self.shards[held.shard].free(held.grant.block, Tick(1), 0);
                assert!(matches!(freed, Freed::Done { .. }), "{freed:?}");
                let want = self.wanted.0.want(BLOCK).expect("a size that exists");
                // If the block is no longer there, the thread has none for the moment.
                let Lane { stream, shard } = self.wanted.1;
                self.shards[shard.0 as usize].allocate(&want, 0, Requester::in_order(stream));
            }
        }
        self.shards.visit(shard, f);
    }

    fn hold(&mut self) {
        self.held = true;
    }

    fn let_go(&mut self) {
        self.held = false;
    }
}

/// A thread that never has more than one block exchanges it for another between any two looks of a plan. To looks at
/// one stream after the other it seems to have both.
#[test]
fn a_block_is_traded_for_another_between_two_looks() {
    for rules in all_rules().into_iter().filter(|rules| !rules.pends && rules.settings.policy != Policy::Direct) {
        for (first, second) in [(0, 1), (1, 0)] {
            for look in 1..40 {
                let mut world = World::new(&rules, &[&[first, second, first], &[2]]);
                // Thread 0 has had a block on both streams, one after the other, while there was room.
                world.device.set_limit(4 * BLOCK);
                world.device.gpu.segment_bytes += 2 * BLOCK;
                for _ in 0..60 {
                    if matches!((&world.threads[0].at, world.threads[0].script.len()), (At::Holding(_), 0)) {
                        break;
                    }
                    assert!(world.make_move(0));
                }
                let At::Holding(held) = world.threads[0].at else { panic!("{rules:?}: thread 0 holds nothing") };
                let mut device = world.device;
                device.coordinator.set_limit((!rules.by_driver).then_some(2 * BLOCK));
                device.gpu.segment_bytes -= 2 * BLOCK;
                let (mut looks, mut trade) = (look, Some(held));
                let (sizes, wanted) = (device.sizes.clone(), device.lanes[second]);
                let mut plan = device.plan(2, BLOCK);
                loop {
                    let (shards, looks, trade) = (&mut device.shards, &mut looks, &mut trade);
                    let mut shards = Traded { shards, looks, trade, wanted: (&sizes, wanted), held: false };
                    match device.coordinator.next(&mut plan, &mut shards) {
                        Step::Grant(_) | Step::Lend { .. } => break,
                        Step::Refuse(report) => panic!("{rules:?}, look {look}: refused: {report:?}"),
                        step => device.done(&mut plan, &step),
                    }
                }
            }
        }
    }
}
