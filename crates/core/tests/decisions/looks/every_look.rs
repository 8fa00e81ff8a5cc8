//! One other thread, or one other plan, at every moment of a plan.

use super::cases::{self, Case, Goal, SMALL};
use super::scene::Scene;
use super::world::{End, Failing, NEVER, World};
use crate::driver::MIB;
use millpond_backend::StreamId;
use millpond_core::{Shard, Step};

/// An operation of a thread on the shards.
type Strike = fn(&mut Scene, &mut [Shard]);

const STRIKES: [(&str, Strike); 10] = [
    ("frees the oldest block", |scene, shards| {
        if let Some(&id) = scene.live.keys().next() {
            scene.free(shards, id);
        }
    }),
    ("frees all blocks", |scene, shards| {
        for id in scene.live.keys().copied().collect::<Vec<_>>() {
            scene.free(shards, id);
        }
    }),
    ("takes 4 MiB of stream 0", |scene, shards| _ = scene.hit(shards, 0, 4 * MIB)),
    ("takes 12 MiB of stream 0", |scene, shards| _ = scene.hit(shards, 0, 12 * MIB)),
    ("takes 20 MiB of stream 1", |scene, shards| _ = scene.hit(shards, 1, 20 * MIB)),
    ("takes all of stream 1", |scene, shards| {
        while scene.hit(shards, 1, 40 * MIB).or_else(|| scene.hit(shards, 1, 10 * MIB)).is_some() {}
    }),
    ("uses memory of stream 1 once more", |scene, shards| {
        for bytes in [44, 24].map(|mib| mib * MIB) {
            if let Some(id) = scene.hit(shards, 1, bytes) {
                scene.clock.close(StreamId(1));
                scene.free(shards, id);
            }
        }
    }),
    ("uses small blocks of stream 1 once more", |scene, shards| {
        let used = [scene.hit(shards, 1, SMALL), scene.hit(shards, 1, SMALL)];
        scene.clock.close(StreamId(1));
        used.into_iter().flatten().for_each(|id| scene.free(shards, id));
    }),
    ("uses memory of stream 0 once more, cut in two", |scene, shards| {
        let parts = [scene.hit(shards, 0, 6 * MIB), scene.hit(shards, 0, 4 * MIB)];
        scene.clock.close(StreamId(0));
        parts.into_iter().flatten().for_each(|id| scene.free(shards, id));
    }),
    ("uses memory of stream 1 on stream 0 as well", |scene, shards| {
        if let Some(id) = scene.hit(shards, 1, 30 * MIB) {
            scene.record(shards, id, StreamId(0));
            scene.clock.close(StreamId(0));
            scene.free(shards, id);
        }
    }),
];

/// Runs a part of a test, and prints what it was if it fails.
fn named<R>(case: &Case, what: impl std::fmt::Debug, run: impl FnOnce() -> R) -> R {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(answer) => answer,
        Err(reason) => {
            eprintln!("in the case `{}` with {:?} and {:?} done: {what:?}", case.name, case.facts, case.done);
            std::panic::resume_unwind(reason)
        }
    }
}

/// Without any disturbance each plan comes to its end, and what it waits for serves it.
#[test]
fn undisturbed_plans_are_served() {
    for case in cases::all() {
        named(&case, "undisturbed", || {
            let (mut world, mut plan) = case.begin();
            let end = world.run_alone(&mut plan, 0);
            let is_served = matches!(end, End::Granted(_)) || (case.goal != Goal::Allocate(50) && end == End::Done);
            let is_served = is_served || matches!(case.goal, Goal::EmptyCache | Goal::Trim(_));
            // Work that was never submitted is not waited for, and work that is submitted later may not be done in
            // time.
            let may_refuse = world.scene.clock.submits && case.done != cases::Done::All;
            assert!(is_served || may_refuse, "{end:?}");
            world.check();
            world.drain();
        });
    }
}

/// Runs a plan with `strike` called before one of its looks. Returns whether the plan has that number of looks.
fn struck_at(case: &Case, strike: Strike, place: u32) -> bool {
    let (mut world, mut plan) = case.begin();
    let (mut looks, mut struck, events) = (place, false, world.scene.events);
    let mut meddle = |scene: &mut Scene, shards: &mut [Shard]| {
        struck = true;
        strike(scene, shards);
    };
    for _ in 0..1000 {
        let step = world.next(&mut plan, &mut looks, &mut meddle);
        if world.perform(&mut plan, step, 0, &mut looks, &mut meddle).is_some() {
            world.check();
            world.drain();
            return struck;
        }
        // If nothing has changed, the rest of the run cannot differ.
        if looks > place && world.scene.events == events {
            return true;
        }
    }
    panic!("a plan without an end: {plan:?}");
}

/// Another thread makes an operation before each of a plan's looks at a shard, one in each run.
#[test]
fn a_thread_strikes_before_every_look() {
    let mut runs = 0;
    for case in cases::all() {
        for (name, strike) in STRIKES {
            let places = (0..).take_while(|&place| named(&case, (name, place), || struck_at(&case, strike, place)));
            runs += places.count();
        }
    }
    assert!(runs > 5_000, "only {runs} runs");
}

/// Another thread frees all that the plan needs, and the device has finished with it, before one of the plan's looks. A
/// plan that is refused has counted the frees of each shard after it last looked for memory there, so only what is
/// freed after that count comes too late.
#[test]
fn a_free_before_the_last_count_is_not_overlooked() {
    let case = cases::nothing_left();
    let run = |place| {
        let (mut world, mut plan) = case.begin();
        let mut looks = place;
        let end = world.run(&mut plan, 0, &mut looks, &mut |scene, shards| {
            STRIKES[1].1(scene, shards);
            scene.clock.finish();
        });
        (end, place.wrapping_sub(looks))
    };
    let (end, looks) = run(NEVER);
    assert_eq!(end, End::Refused, "an undisturbed plan finds nothing");
    // The report of the refusal looks at each shard four times.
    let report = 4 * case.facts.streams as u32;
    for place in 0..looks - report {
        assert!(matches!(run(place).0, End::Granted(_)), "freed before look {place} of {looks}");
    }
    assert_eq!(run(looks - 1).0, End::Refused, "the last look is for the report");
}

/// Each fallible call of the driver fails once, in both ways. Nothing is lost, and no claim is left that obstructs
/// other plans.
#[test]
fn every_call_fails_once() {
    for case in cases::all() {
        for refused in [true, false] {
            for after in 0.. {
                let failed = named(&case, (refused, after), || {
                    let (mut world, mut plan) = case.begin();
                    world.failing = Failing { after: Some(after), refused };
                    world.run_alone(&mut plan, 0);
                    let failed = world.failing.after.is_none();
                    world.check();
                    world.drain();
                    failed
                });
                if !failed {
                    break;
                }
            }
        }
    }
}

/// Takes this number of steps of a plan. Returns how it ended, if it did, or the step that is to be performed next.
fn advance(world: &mut World, plan: &mut millpond_core::Plan, steps: usize) -> Result<Step, End> {
    for _ in 0..steps {
        let step = world.next_alone(plan);
        match world.perform_alone(plan, step, 0) {
            Some(end) => return Err(end),
            None => continue,
        }
    }
    Ok(world.next_alone(plan))
}

/// Takes steps of a plan until it has to wait for the other one. Returns whether it took any, and the step with which
/// it waits, or `None` once it is over.
fn runs_on(world: &mut World, plan: &mut millpond_core::Plan, user: usize, first: Step) -> (bool, Option<Step>) {
    let mut step = first;
    for taken in 0..1000 {
        if matches!(step, Step::Pause { seen } if seen == world.device.coordinator.progress()) {
            return (taken > 0, Some(step));
        }
        if world.perform_alone(plan, step, user).is_some() {
            return (true, None);
        }
        step = world.next_alone(plan);
    }
    panic!("a plan without an end: {plan:?}");
}

/// Runs two plans to their ends by turns, each until it has to wait for the other. They must never both have to wait.
fn run_both(world: &mut World, mut plans: [(millpond_core::Plan, usize, Option<Step>); 2]) {
    while plans.iter().any(|(.., step)| step.is_some()) {
        let mut moved = false;
        for (plan, user, step) in &mut plans {
            if let Some(held) = step.take() {
                let (took, waits_with) = runs_on(world, plan, *user, held);
                *step = waits_with;
                moved |= took;
            }
            world.leaving = 0;
        }
        assert!(moved, "each waits for the other: {plans:?}");
    }
}

/// Another plan runs from its beginning, as far as it can, while a step of the first is under way, for each of its
/// steps. Then both continue by turns.
#[test]
fn another_plan_runs_within_every_step() {
    for case in cases::all() {
        let count = cases::rivals(&case.begin().0).len();
        let (mut rival, mut steps) = (0, 0);
        while rival < count {
            let over = named(&case, (rival, steps), || {
                let (mut world, mut plan) = case.begin();
                let step = advance(&mut world, &mut plan, steps);
                let (mut other, user) = cases::rivals(&world).swap_remove(rival);
                if let Ok(Step::Release { bytes, .. }) = &step {
                    world.leaving = *bytes;
                }
                let asked = world.next_alone(&mut other);
                let over = step.is_err();
                run_both(&mut world, [(other, user, Some(asked)), (plan, 0, step.ok())]);
                world.check();
                world.drain();
                over
            });
            (rival, steps) = if over { (rival + 1, 0) } else { (rival, steps + 1) };
        }
    }
}
