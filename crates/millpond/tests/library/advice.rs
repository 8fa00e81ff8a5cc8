//! What an out-of-memory error says in each situation: it is true, and what it says to do helps.

use millpond::backend::{Backend as _, Closing, PageCaps, Reuse};
use millpond::{Allocator, Buffer, Error, OutOfMemory, Pool, RemedyAction, Stream};
use millpond_sim::{CostModel, Sim, SimBuilder};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;

const EXPANDABLE: &str = "policy:classic,expandable_segments:True";

const POLICIES: [&str; 5] =
    ["policy:paged", "policy:paged,growth:tight", "policy:classic", EXPANDABLE, "policy:direct"];

fn open(sim: SimBuilder, conf: &str) -> (Sim, Allocator<Sim>) {
    let sim = sim.cost(CostModel::free()).build();
    (sim.clone(), Allocator::builder(sim).conf(conf).build().unwrap())
}

fn refusal(stream: &Stream<Sim>, bytes: u64) -> Box<OutOfMemory> {
    match stream.allocate(bytes) {
        Err(Error::OutOfMemory(error)) => error,
        other => panic!("expected a refusal: {other:?}"),
    }
}

/// Returns what the message says to do. No message may say what only a replay can tell.
fn advice(error: &OutOfMemory) -> String {
    let message = error.to_string();
    for unknown in ["policy:", "gathering", "expandable_segments"] {
        assert!(!message.contains(unknown) && !error.explanation().to_string().contains(unknown), "{message}");
    }
    let (_, advice) = message.split_once("What to do: ").unwrap_or_else(|| panic!("no advice: {message}"));
    advice.to_owned()
}

fn raised_by(error: &OutOfMemory) -> Option<u64> {
    let remedies = &error.explanation().remedies;
    remedies.iter().find(|remedy| remedy.action == RemedyAction::RaiseLimit).map(|remedy| remedy.bytes)
}

#[test]
fn the_limit_has_to_be_raised_by_what_it_says_and_no_less() {
    for (conf, more) in POLICIES.map(|conf| (conf, 0)).into_iter().chain([("policy:classic", 5)]) {
        let (_, allocator) = open(Sim::builder(), conf);
        allocator.set_limit(Some(61 * MIB));
        let stream = allocator.create_stream().unwrap();
        let _live = stream.allocate(40 * MIB).unwrap();
        let bytes = if more > 0 { more * MIB } else { 24 * MIB };
        // A segment of 20 MiB has room for 5, but not for 5 and what is live in 61 MiB: 21 are left.
        if more > 0 {
            allocator.set_limit(Some(50 * MIB));
        }
        let error = refusal(&stream, bytes);
        let more = raised_by(&error).unwrap();
        assert!(advice(&error).starts_with("free buffers, or raise the limit by "), "{conf}: {error}");
        let limit = allocator.limit().unwrap();
        allocator.set_limit(Some(limit + more - 512));
        refusal(&stream, bytes);
        allocator.set_limit(Some(limit + more));
        assert!(stream.allocate(bytes).is_ok(), "{conf}: {error}");
    }
}

/// Returns the bytes of an amount as it is printed.
fn parsed(amount: &str) -> u64 {
    let (number, unit) = amount.split_once(' ').unwrap();
    let unit = match unit {
        "bytes" => 1,
        "KiB" => 1 << 10,
        "MiB" => MIB,
        "GiB" => 1 << 30,
        _ => panic!("no unit: {amount}"),
    };
    let (whole, hundredths) = number.split_once('.').unwrap_or((number, "0"));
    let hundredths = whole.parse::<u64>().unwrap() * 100 + hundredths.parse::<u64>().unwrap();
    hundredths * unit / 100
}

/// A program or a person that raises the limit by what is printed has raised it far enough.
#[test]
fn the_printed_amount_is_enough() {
    let mut random = Random::new(5);
    for round in 0..400 {
        let conf = POLICIES[round % POLICIES.len()];
        let (_, allocator) = open(Sim::builder(), conf);
        let limit = random.between(3 * MIB, 200 * MIB);
        allocator.set_limit(Some(limit));
        let stream = allocator.create_stream().unwrap();
        let _held = stream.allocate(random.below(limit)).ok();
        let bytes = random.between(limit / 2, 3 * limit);
        let Err(Error::OutOfMemory(error)) = stream.allocate(bytes) else { continue };
        let said = advice(&error);
        let (_, rest) = said.split_once("raise the limit by ").unwrap_or_else(|| panic!("{conf}: {error}"));
        let printed = rest.split([',', ':']).next().unwrap();
        let explained = error.explanation().to_string();
        assert!(explained.contains(&format!("{printed} by raising the limit")), "{explained}");
        allocator.set_limit(Some(limit + parsed(printed)));
        let served = stream.allocate(bytes);
        assert!(served.is_ok(), "{conf}: {bytes} at {limit}: {error}, then {served:?}");
    }
}

/// A new page has 2 MiB at least, however small the device's own unit is.
#[test]
fn the_limit_is_raised_far_enough_for_whole_pages() {
    for (conf, granularity) in POLICIES.into_iter().flat_map(|conf| [MIB / 16, 2 * MIB, 16 * MIB].map(|g| (conf, g))) {
        for sixteenths in [1, 17, 40, 201, 207, 401] {
            let (_, allocator) = open(Sim::builder().pages(Some(PageCaps::new(granularity))), conf);
            allocator.set_limit(Some(61 * MIB));
            let stream = allocator.create_stream().unwrap();
            let _live: Vec<_> = std::iter::from_fn(|| stream.allocate(5 * MIB).ok()).collect();
            let Err(Error::OutOfMemory(error)) = stream.allocate(sixteenths * MIB / 16) else { continue };
            allocator.set_limit(Some(61 * MIB + raised_by(&error).unwrap()));
            let served = stream.allocate(sixteenths * MIB / 16);
            assert!(served.is_ok(), "{conf}, pages of {granularity}: {error}, then {served:?}");
        }
    }
}

/// Freeing buffers is not advised where all of them are not enough, or there are none.
#[test]
fn more_than_the_limit_is_had_by_raising_it_or_by_asking_for_less() {
    for (conf, held) in POLICIES.into_iter().flat_map(|conf| [(conf, 0), (conf, 8 * MIB)]) {
        let (_, allocator) = open(Sim::builder(), conf);
        allocator.set_limit(Some(64 * MIB));
        let stream = allocator.create_stream().unwrap();
        let _held = stream.allocate(held).unwrap();
        let error = refusal(&stream, 100 * MIB);
        let said = advice(&error);
        assert!(said.starts_with("raise the limit by "), "{conf}: {error}");
        assert!(said.ends_with(", or ask for less: the limit is 64.00 MiB in all."), "{conf}: {error}");
        let remedies: Vec<_> = error.explanation().remedies.iter().map(|remedy| remedy.action).collect();
        assert_eq!(remedies, [RemedyAction::RaiseLimit], "{conf}: {error}");
        allocator.set_limit(Some(64 * MIB + raised_by(&error).unwrap()));
        assert!(stream.allocate(100 * MIB).is_ok(), "{conf}: {error}");
        // The device has not got as much either.
        let (_, allocator) = open(Sim::builder().total_bytes(128 * MIB), conf);
        let stream = allocator.create_stream().unwrap();
        for (limit, said) in [(64, "the limit is 64.00 MiB in all."), (1000, "the device has 128.00 MiB in all.")] {
            allocator.set_limit(Some(limit * MIB));
            let error = refusal(&stream, 1200 * MIB);
            assert_eq!(advice(&error), format!("ask for less: {said}"), "{conf}: {error}");
            assert_eq!(error.explanation().remedies, [], "{conf}: {error}");
        }
    }
    // Nothing is reserved, and the segment of 20 MiB that 2 need has no room.
    let (_, allocator) = open(Sim::builder(), "policy:classic");
    allocator.set_limit(Some(10 * MIB));
    let stream = allocator.create_stream().unwrap();
    let error = refusal(&stream, 2 * MIB);
    assert_eq!(advice(&error), "raise the limit by 10.00 MiB, or ask for less: the limit is 10.00 MiB in all.");
    assert!(stream.allocate(MIB).is_ok());
}

#[test]
fn where_more_is_asked_for_than_there_may_be_no_policy_has_room() {
    for conf in POLICIES {
        let (_, allocator) = open(Sim::builder(), conf);
        allocator.set_limit(Some(64 * MIB));
        let stream = allocator.create_stream().unwrap();
        let _live = stream.allocate(40 * MIB).unwrap();
        let text = refusal(&stream, 30 * MIB).to_string();
        let expected = "With this request 70.00 MiB must be live at once, 6.00 MiB more than the limit allows: no \
                        policy has room.";
        assert!(text.contains(expected), "{conf}: {text}");
        let (_, allocator) = open(Sim::builder().total_bytes(64 * MIB), conf);
        let stream = allocator.create_stream().unwrap();
        let live = stream.allocate(40 * MIB).unwrap();
        let error = refusal(&stream, 30 * MIB);
        assert!(error.to_string().contains("6.00 MiB more than there is: no policy has room."), "{conf}: {error}");
        assert!(advice(&error).starts_with("free buffers of 6.00 MiB or more: caching cannot"), "{conf}: {error}");
        assert!(raised_by(&error).is_none(), "there is no limit");
        drop(live);
        assert!(stream.allocate(30 * MIB).is_ok());
    }
}

/// Free memory lies in pieces: whether another policy has room depends on what came before.
#[test]
fn of_other_policies_nothing_is_said_that_a_replay_would_have_to_tell() {
    let pieces = |conf: &str, total: u64, limit: Option<u64>| {
        let (_, allocator) = open(Sim::builder().total_bytes(total), conf);
        allocator.set_limit(limit);
        let stream = allocator.create_stream().unwrap();
        let blocks: Vec<_> = (0..10).map(|_| stream.allocate(6 * MIB).unwrap()).collect();
        let kept: Vec<_> = blocks.into_iter().step_by(2).collect();
        (allocator, stream, kept)
    };
    for conf in ["policy:classic", EXPANDABLE] {
        let (allocator, stream, _kept) = pieces(conf, 4 << 30, Some(80 * MIB));
        let error = refusal(&stream, 40 * MIB);
        let text = error.to_string();
        assert!(text.contains("70.00 MiB must be live at once, no more than the limit allows. A replay of"), "{text}");
        assert!(text.contains("record_history") && advice(&error).contains("raise the limit by"), "{text}");
        allocator.set_limit(Some(80 * MIB + raised_by(&error).unwrap()));
        assert!(stream.allocate(40 * MIB).is_ok(), "{text}");

        let (_allocator, stream, kept) = pieces(conf, 81 * MIB, None);
        let error = refusal(&stream, 40 * MIB);
        let text = error.to_string();
        assert!(text.contains("no more than there is. A replay of what"), "{text}");
        assert!(advice(&error).starts_with("free buffers: the request takes "), "{text}");
        drop(kept);
        assert!(stream.allocate(40 * MIB).is_ok(), "{text}");
    }
    // Both have the same live blocks, and one policy serves what the other one refuses.
    let (_allocator, stream, _kept) = pieces("policy:paged", 4 << 30, Some(80 * MIB));
    assert!(stream.allocate(40 * MIB).is_ok());
}

/// Memory that was freed and waits for work that was not submitted is not in the program's hands.
#[test]
fn what_waits_for_the_device_is_not_called_live() {
    for conf in ["policy:classic", EXPANDABLE, "policy:direct", "policy:paged"] {
        for stream_wait in [true, false] {
            let sim = Sim::builder().closing(Closing::Submit).stream_wait(stream_wait);
            let (sim, allocator) = open(sim, conf);
            allocator.set_limit(Some(256 * MIB));
            let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
            let buffer = stream.allocate(256 * MIB).unwrap();
            sim.busy(other.id());
            buffer.record_stream(&other).unwrap();
            drop(buffer);
            let error = refusal(&stream, 100 * MIB);
            let text = error.to_string();
            assert!(!text.contains("the program holds"), "{conf}: {text}");
            if conf != "policy:paged" {
                assert!(text.contains("Nothing is free: 256.00 MiB are freed, and wait for the device."), "{text}");
            }
            let said = match conf {
                "policy:direct" => {
                    sim.submit(stream.id()).unwrap();
                    "submit or finish the work of all streams, then try again: 256.00 MiB of freed memory wait for it."
                }
                _ => "submit or finish the work that 256.00 MiB of freed memory wait for, then try again.",
            };
            assert_eq!(advice(&error), said, "{conf}: {text}");
            sim.submit(other.id()).unwrap();
            assert!(stream.allocate(100 * MIB).is_ok(), "{conf}: {text}");
        }
    }
    let (_, allocator) = open(Sim::builder().total_bytes(64 * MIB), "policy:classic");
    let stream = allocator.create_stream().unwrap();
    assert!(refusal(&stream, 65 * MIB).to_string().contains("Nothing is reserved."));
    let _all = stream.allocate(64 * MIB).unwrap();
    assert!(refusal(&stream, MIB).to_string().contains("Nothing is cached: the program holds all of it."));
}

#[test]
fn work_is_to_be_submitted_only_where_that_makes_room() {
    for conf in ["policy:classic", EXPANDABLE] {
        // 12 MiB wait in a segment with a live block, which keeps it from going back.
        let (sim, allocator) = open(Sim::builder().closing(Closing::Submit), conf);
        allocator.set_limit(Some(20 * MIB));
        let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let _live = stream.allocate(2 * MIB).unwrap();
        let buffer = stream.allocate(9 * MIB).unwrap();
        let end = stream.allocate(9 * MIB).unwrap();
        sim.busy(other.id());
        buffer.record_stream(&other).unwrap();
        drop(buffer);
        // Another stream has no use for a part of that segment; its own one has.
        let error = refusal(&other, 9 * MIB);
        assert!(!advice(&error).contains("submit"), "{conf}: {error}");
        let waits = error.explanation().remedies.iter().any(|remedy| remedy.suffices && is_wait(remedy.action));
        assert!(!waits, "{error}");
        let error = refusal(&stream, 9 * MIB);
        assert!(advice(&error).starts_with("submit or finish the work that 9.00 MiB"), "{conf}: {error}");
        sim.submit(other.id()).unwrap();
        refusal(&other, 9 * MIB);
        assert!(stream.allocate(9 * MIB).is_ok(), "{conf}");
        drop(end);
    }
}

fn is_wait(action: RemedyAction) -> bool {
    matches!(action, RemedyAction::Wait(_))
}

#[test]
fn pools_are_to_be_dropped_only_where_that_makes_room() {
    for conf in POLICIES {
        let (_, allocator) = open(Sim::builder(), conf);
        allocator.set_limit(Some(64 * MIB));
        let stream = allocator.create_stream().unwrap();
        let pool = allocator.create_pool().unwrap();
        let inside = pool.stream(stream.id()).unwrap();
        drop(inside.allocate(40 * MIB).unwrap());
        let error = refusal(&stream, 40 * MIB);
        let expected = "drop the references to private pools that no graph needs: they keep 40.00 MiB of free memory.";
        assert_eq!(advice(&error), expected, "{conf}: {error}");
        // The pool's own requests may use its memory: giving it up adds nothing that they have not got.
        if ["policy:classic", "policy:direct"].contains(&conf) {
            let error = refusal(&inside, 50 * MIB);
            assert!(!advice(&error).contains("drop the references"), "{conf}: {error}");
        }
        drop((inside, pool));
        assert!(stream.allocate(40 * MIB).is_ok(), "{conf}");

        // What the device may still use does not go back with the pool.
        let (sim, allocator) = open(Sim::builder().closing(Closing::Submit), conf);
        allocator.set_limit(Some(64 * MIB));
        let stream = allocator.create_stream().unwrap();
        let pool = allocator.create_pool().unwrap();
        let inside = pool.stream(stream.id()).unwrap();
        sim.busy(stream.id());
        drop(inside.allocate(40 * MIB).unwrap());
        let error = refusal(&stream, 60 * MIB);
        assert!(advice(&error).contains("needs, and submit the work that used them: they keep 40"), "{conf}: {error}");
        assert!(error.explanation().remedies.iter().all(|remedy| !remedy.suffices || raised_by(&error).is_some()));
        drop((inside, pool));
        refusal(&stream, 60 * MIB);
        sim.submit(stream.id()).unwrap();
        assert!(stream.allocate(60 * MIB).is_ok(), "{conf}");
    }
}

#[test]
fn what_others_have_of_a_device_is_not_the_limits_fault() {
    for conf in POLICIES {
        let (sim, allocator) = open(Sim::builder().total_bytes(100 * MIB), conf);
        allocator.set_limit(Some(90 * MIB));
        let stream = allocator.create_stream().unwrap();
        sim.set_others(70 * MIB);
        let error = refusal(&stream, 60 * MIB);
        assert!(advice(&error).contains("in the programs that share the device"), "{conf}: {error}");
        assert!(!error.to_string().contains("must be live at once") && raised_by(&error).is_none(), "{conf}: {error}");
        sim.set_others(0);
        assert!(stream.allocate(60 * MIB).is_ok());
    }
}

#[test]
fn a_device_that_grants_more_than_it_has_is_no_bound() {
    for conf in POLICIES {
        let (_, allocator) = open(Sim::builder().total_bytes(64 * MIB).oversubscribes(true), conf);
        allocator.set_limit(Some(96 * MIB));
        let stream = allocator.create_stream().unwrap();
        let _live = stream.allocate(60 * MIB).unwrap();
        let error = refusal(&stream, 40 * MIB);
        assert!(error.to_string().contains("4.00 MiB more than the limit allows: no policy has room."), "{error}");
        assert!(advice(&error).contains("raise the limit by 4.00 MiB"), "{conf}: {error}");
    }
}

#[test]
fn what_is_refused_at_once_may_be_had_by_emptying_the_cache() {
    for conf in ["policy:classic", EXPANDABLE, "policy:paged"] {
        let conf = format!("{conf},per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True");
        let (_, allocator) = open(Sim::builder().total_bytes(128 * MIB), &conf);
        let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        drop(other.allocate(40 * MIB).unwrap());
        if let Err(Error::OutOfMemory(error)) = stream.allocate(60 * MIB) {
            assert_eq!(advice(&error), "call empty_cache, which frees 40.00 MiB, then try again.", "{conf}");
            let remedy = error.explanation().remedies[0];
            assert_eq!((remedy.action, remedy.suffices), (RemedyAction::EmptyCache, true));
            allocator.empty_cache().unwrap();
        }
        let live = stream.allocate(60 * MIB).unwrap();
        let error = refusal(&stream, 60 * MIB);
        assert!(advice(&error).starts_with("free buffers, or leave throw_on_cudamalloc_oom unset"), "{conf}: {error}");
        drop(live);
    }
}

/// A program whose streams have work that is not submitted, and private pools.
struct Program {
    sim: Sim,
    allocator: Allocator<Sim>,
    streams: Vec<Stream<Sim>>,
    pools: Vec<(Pool<Sim>, Stream<Sim>)>,
    live: Vec<Buffer<Sim>>,
    random: Random,
    /// How often each kind of advice was followed: to wait, to drop pools, to raise the limit.
    followed: [u64; 3],
}

impl Program {
    fn new(conf: &str, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let reuse = random.pick(&[Reuse::InOrder, Reuse::InOrder, Reuse::AfterSubmit, Reuse::AfterDone]);
        let most = random.between(24, 160) * MIB + random.below(4) * 4096;
        let is_limit = random.one_in(2);
        let sim = Sim::builder().closing(Closing::Submit).stream_wait(random.one_in(2)).reuse(reuse);
        let (sim, allocator) = open(sim.total_bytes(if is_limit { 4 << 30 } else { most }), conf);
        allocator.set_limit(is_limit.then_some(most));
        let streams = (0..2).map(|_| allocator.create_stream().unwrap()).collect();
        Self { sim, allocator, streams, pools: Vec::new(), live: Vec::new(), random, followed: [0; 3] }
    }

    fn step(&mut self, conf: &str) {
        let at = self.random.below(2) as usize;
        let stream = self.streams[at].clone();
        match self.random.below(10) {
            0 => drop(self.sim.busy(stream.id())),
            1 => self.sim.submit(stream.id()).map(drop).unwrap(),
            2 if self.pools.len() < 2 => {
                let pool = self.allocator.create_pool().unwrap();
                let inside = pool.stream(stream.id()).unwrap();
                self.pools.push((pool, inside));
            }
            3..6 if !self.live.is_empty() => {
                let buffer = self.live.swap_remove(self.random.below(self.live.len() as u64) as usize);
                if self.random.one_in(2) {
                    buffer.record_stream(&stream).unwrap();
                }
            }
            _ => {
                let largest = self.random.pick(&[MIB, 8 * MIB, 40 * MIB]);
                let bytes = self.random.between(1, largest);
                let inside = self.pools.first().map(|(_, inside)| inside.clone()).filter(|_| self.random.one_in(4));
                let asking = inside.unwrap_or(stream);
                match asking.allocate(bytes) {
                    Ok(buffer) => self.live.push(buffer),
                    Err(Error::OutOfMemory(error)) => {
                        self.follow(conf, &error);
                        if bytes + 20 * MIB > error.report().total_bytes {
                            return;
                        }
                        if let Err(again) = asking.allocate(bytes) {
                            panic!("{conf}: it did not help: {bytes} on {}: {error}\nthen: {again}", asking.id());
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Does what the message says, or frees all buffers and ends all work where it says nothing that is sure to help.
    fn follow(&mut self, conf: &str, error: &OutOfMemory) {
        let advice = advice(error);
        for remedy in &error.explanation().remedies {
            match remedy.action {
                RemedyAction::Wait(_) if remedy.suffices => assert!(advice.contains("submit"), "{conf}: {error}"),
                RemedyAction::DropPools if remedy.suffices => {
                    assert!(advice.contains("submit") || advice.contains("drop the references"), "{conf}: {error}");
                }
                _ => {}
            }
        }
        let streams: Vec<_> = self.streams.iter().map(|stream| stream.id()).collect();
        let submit = |sim: &Sim| streams.iter().for_each(|&stream| sim.submit(stream).map(drop).unwrap());
        if advice.contains("submit or finish") {
            self.followed[0] += 1;
            let enough = error.explanation().remedies.iter().find(|remedy| remedy.suffices && is_wait(remedy.action));
            match enough.map(|remedy| remedy.action) {
                Some(RemedyAction::Wait(stream)) => self.sim.submit(stream).map(drop).unwrap(),
                _ => submit(&self.sim),
            }
        } else if advice.contains("drop the references") {
            self.followed[1] += 1;
            self.pools.clear();
            if advice.contains("submit the work") {
                submit(&self.sim);
            }
        } else if let Some(more) = raised_by(error) {
            self.followed[2] += 1;
            assert!(advice.contains("raise the limit"), "{conf}: {error}");
            self.allocator.set_limit(self.allocator.limit().map(|limit| limit + more));
        } else {
            self.live.clear();
            self.pools.clear();
            submit(&self.sim);
        }
    }
}

#[test]
fn advice_that_is_followed_makes_the_request_succeed() {
    let others = ["policy:classic,slack:0.125", "policy:classic,max_split_size_mb:24,garbage_collection_threshold:0.7"];
    for conf in POLICIES.into_iter().chain(others) {
        let mut followed = [0; 3];
        for seed in 0..150 {
            let mut program = Program::new(conf, seed);
            for _ in 0..120 {
                program.step(conf);
            }
            program.allocator.check();
            followed.iter_mut().zip(program.followed).for_each(|(all, more)| *all += more);
        }
        assert!(followed.iter().all(|&count| count > 10), "{conf}: {followed:?}");
    }
}
