use std::time::Duration;

use millpond::settings::{Policy, Settings};
use millpond::{Allocator, conf};
use millpond_sim::{CostModel, Sim};
use millpond_trace::{Pattern, Random, Trace};

use super::*;
use crate::life::Life;
use crate::replay::Replay;
use crate::vary::Vary;

fn never(_: u64, _: u64) -> bool {
    false
}

fn on_sim(trial: &Trial, settings: &Settings, limit: Option<u64>, is_beaten: &dyn Fn(u64, u64) -> bool) -> Ended {
    let mut builder = Allocator::builder(device()).settings(settings.clone());
    if let Some(limit) = limit {
        builder = builder.limit(limit);
    }
    let allocator = builder.build().expect("valid settings");
    trial.run(&allocator, 1, None, is_beaten).expect("no driver fails")
}

fn space(trial: &Trial) -> Space {
    Space { has_pages: true, is_limited: false, grows_apart: false, largest: trial.largest() }
}

/// Returns a device whose calls cost what they cost on an H200.
fn device() -> Sim {
    Sim::builder().cost(CostModel::h200()).build()
}

/// Returns a program that ends with blocks that are live.
fn small() -> Trace {
    let whole = Pattern::Streams.trace(1);
    Trace { events: whole.events[..4000].to_vec(), ..whole }
}

fn search(trial: &Trial, count: usize, seed: u64, threads: usize, limit: Option<u64>) -> Searched {
    let space = Space { is_limited: limit.is_some(), ..space(trial) };
    let search = Search { space, budget: Budget::Settings(count), seed, threads };
    let measure = |settings: &Settings, frontier: &Frontier| {
        let beats = |bytes, nanos| frontier.beats(bytes, Duration::from_nanos(nanos));
        Ok::<_, ()>(on_sim(trial, settings, limit, &beats))
    };
    search.run(measure, || false, || ()).expect("no driver fails")
}

fn measured(reserved_bytes: u64, nanos: u64) -> Measured {
    Measured { reserved_bytes, driver_calls: 1, driver_time: Duration::from_nanos(nanos), stalls: 0, stream_waits: 0 }
}

fn dominates(one: &Measured, other: &Measured) -> bool {
    one.reserved_bytes <= other.reserved_bytes && one.driver_time <= other.driver_time
}

fn check_frontier(frontier: &Frontier) {
    let all = frontier.all();
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            assert!(at == other_at || !dominates(&one.measured, &other.measured), "{one:?} beats {other:?}");
        }
    }
    assert!(all.is_sorted_by_key(|tried| tried.measured.reserved_bytes));
}

#[test]
fn a_frontier_has_what_nothing_beats_and_beats_all_else() {
    let mut random = Random::new(5);
    for _ in 0..50 {
        let mut frontier = Frontier::default();
        let points: Vec<Measured> = (0..60).map(|_| measured(random.below(40), random.below(40))).collect();
        for &point in &points {
            let was_beaten = frontier.beats(point.reserved_bytes, point.driver_time);
            assert_eq!(frontier.add(Tried { settings: Settings::default(), measured: point }), !was_beaten);
            check_frontier(&frontier);
        }
        for point in &points {
            assert!(frontier.beats(point.reserved_bytes, point.driver_time), "{point:?}");
            let by_hand = points.iter().any(|other| {
                dominates(other, point)
                    && (other.reserved_bytes, other.driver_time) != (point.reserved_bytes, point.driver_time)
            });
            assert_eq!(frontier.all().iter().any(|tried| tried.measured == *point), !by_hand, "{point:?}");
        }
    }
}

/// A trial leaves out what the search does not need, and comes to what a replay comes to.
#[test]
fn a_trial_is_the_replay() {
    let text = "a 0 4096 0\na 1 9000000 1\nu 1 0\nf 0\na 2 2048 0\nc 0\nm 0 1\nw 2 0\nf 2\ne\na 3 70000000 0\nt 4096\n";
    let traces = [Trace::parse(text.as_bytes()).expect("a trace"), small(), Pattern::Sawtooth.trace(3)];
    for trace in &traces {
        let (trial, replay) = (Trial::new(trace), Replay::new(trace));
        assert_eq!(
            (trial.events(), trial.streams(), trial.live_peak()),
            (replay.events(), replay.streams(), replay.live_peak())
        );
        for text in ["policy:paged", "policy:classic", "policy:classic,expandable_segments:True", "policy:direct"] {
            let settings = conf::parse(text).expect(text).resolve(true);
            let allocator = Allocator::builder(device()).settings(settings.clone()).build().expect("valid");
            let replayed = replay.run(&allocator, 1).expect("no driver fails");
            let measured = on_sim(&trial, &settings, None, &never).measured().expect("it fits");
            let (calls, time) =
                (replayed.driver.calls + replayed.warm_driver.calls, replayed.driver.time + replayed.warm_driver.time);
            assert_eq!(
                (measured.reserved_bytes, measured.driver_calls, measured.driver_time),
                (replayed.life_reserved_peak, calls, time),
                "{text}"
            );
        }
    }
}

/// `direct` gives back what is freed, so that less is reserved then.
#[test]
fn what_a_trial_has_come_to_never_falls() {
    let small = |ids: std::ops::Range<u32>| ids.map(|id| format!("a {id} 4096 0\nf {id}\n")).collect::<String>();
    let text = format!("a 0 70000000 0\n{}f 0\n{}", small(1..3000), small(3000..6000));
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    let settings = conf::parse("policy:direct").expect("a policy").resolve(true);
    let seen = std::cell::RefCell::new(Vec::new());
    let looks = |reserved, time| {
        seen.borrow_mut().push((reserved, time));
        false
    };
    on_sim(&Trial::new(&trace), &settings, None, &looks).measured().expect("it fits");
    let (reserved, times): (Vec<u64>, Vec<u64>) = seen.into_inner().into_iter().unzip();
    assert!(reserved[0] >= 70_000_000 && reserved.len() >= 4, "{reserved:?}");
    assert!(reserved.is_sorted() && times.is_sorted(), "{reserved:?} {times:?}");
}

/// The variation of a number has the sizes that the pass of that number has in a life that varies.
#[test]
fn a_variation_has_the_sizes_of_a_pass_that_varies() {
    let (trace, vary) = (small(), Vary::new(5, 9));
    let varied = Trial::new(&trace).varied(vary, 1);
    let allocator = Allocator::builder(Sim::new()).conf("policy:direct").build().expect("valid settings");
    let replay = Replay::new(&trace);
    let streams: Vec<_> = (0..replay.streams()).map(|_| allocator.create_stream().expect("a stream")).collect();
    let life = Life { vary: Some(vary), ..Life::default() };
    let replayed = replay.run_life(&allocator, &streams, 1, life, |_| ()).expect("no driver fails");
    assert_eq!(varied.live_peak(), replayed.warm[0].live_peak);
    assert_ne!(varied.live_peak(), Trial::new(&trace).live_peak());
}

#[test]
fn every_setting_is_valid_and_is_what_its_configuration_says() {
    let mut random = Random::new(11);
    for (is_limited, grows_apart) in [(false, false), (true, true)] {
        let space = Space { has_pages: true, is_limited, grows_apart, largest: 900 << 20 };
        let mut settings: Vec<Settings> = space.first().into_iter().chain(space.grid()).collect();
        for _ in 0..500 {
            settings.push(space.drawn(&mut random));
            let near = settings[random.index(settings.len())].clone();
            settings.push(space.changed(&near, &mut random));
        }
        for settings in &settings {
            settings.validate().unwrap_or_else(|error| panic!("{error}: {settings:?}"));
            let text = conf_of(settings);
            assert_eq!(conf::parse(&text).expect(&text).resolve(false), *settings, "{text}");
        }
    }
    let without = Space { has_pages: false, is_limited: false, grows_apart: false, largest: 1 << 20 };
    let all = without.first().into_iter().chain(without.grid()).chain((0..200).map(|_| without.drawn(&mut random)));
    assert!(all.into_iter().all(|settings| !settings.policy.needs_pages()), "there are no pages");
}

#[test]
fn the_same_seed_finds_the_same_with_any_number_of_threads() {
    let trial = Trial::new(&small());
    let one = search(&trial, 180, 3, 1, None);
    assert_eq!(one, search(&trial, 180, 3, 3, None));
    assert_eq!((one.tried, one.whole + one.beaten + one.unfit), (180, 180));
    assert!(one.beaten > 0 && one.frontier.all().len() > 2, "{one:?}");
    check_frontier(&one.frontier);
    assert_ne!(one.frontier, search(&trial, 180, 4, 2, None).frontier, "another seed draws other settings");
}

/// Neither what a trial has reserved nor its driver's time ever falls, so what is stopped could not have won.
#[test]
fn stopping_early_changes_no_frontier() {
    let trial = Trial::new(&small());
    let search = Search { space: space(&trial), budget: Budget::Settings(150), seed: 8, threads: 2 };
    let whole = |settings: &Settings, _: &Frontier| Ok::<_, ()>(on_sim(&trial, settings, None, &never));
    let whole = search.run(whole, || false, || ()).expect("no driver fails");
    assert_eq!((whole.whole, whole.beaten), (150, 0));
    assert_eq!(whole.frontier, self::search(&trial, 150, 8, 2, None).frontier);
}

#[test]
fn a_recommendation_reproduces_its_figures_and_is_checked() {
    let trial = Trial::new(&small());
    let searched = search(&trial, 120, 0, 2, None);
    let varied: Vec<Trial> = (1..=VARIATIONS).map(|pass| trial.varied(Vary::new(VARY_PERCENT, 0), pass)).collect();
    let measure = |settings: &Settings, at: usize| Ok::<_, ()>(on_sim(&varied[at - 1], settings, None, &never));
    let found = recommend(&searched, &space(&trial), Aim::Both, 2, measure, || false);
    let Recommended { tried, checked } = found.expect("no driver fails").expect("settings that fit");
    let settings = conf::parse(&tried.conf()).expect("its configuration").resolve(false);
    assert_eq!(on_sim(&trial, &settings, None, &never), Ended::Whole(tried.measured));
    assert!(settings.policy.caches(), "without a cache every pass pays: {settings:?}");
    assert_eq!((checked.variations, checked.unfit, checked.default_unfit), (VARIATIONS, 0, 0));
    let default = searched.default.expect("the default fits");
    assert!(Aim::Both.cost(&tried.measured) <= Aim::Both.cost(&default), "{tried:?} {default:?}");
    assert!(tried.settings == space(&trial).default_settings() || checked.no_worse >= 6, "{checked:?}");
    let (least, most) = checked.reserved_over_default.expect("all fit");
    assert!(least <= most && least > 0.1, "{least} to {most}");
    assert!(recommend(&searched, &space(&trial), Aim::Both, 1, measure, || true).expect("none fails").is_none());
}

#[test]
fn under_a_limit_the_fastest_that_fits_is_recommended() {
    let trial = Trial::new(&small());
    let limit = trial.live_peak() + trial.live_peak() / 200;
    let searched = search(&trial, 120, 0, 2, Some(limit));
    assert!(searched.unfit > 0, "plain segments do not fit: {searched:?}");
    let least = |tried: &&Tried| tried.measured.driver_time;
    let fastest = searched.frontier.all().iter().min_by_key(least).expect("some fit");
    for tried in searched.frontier.all() {
        assert!(tried.measured.reserved_bytes <= limit, "{} has {:?} of {limit}", tried.conf(), tried.measured);
    }
    let same = |settings: &Settings, _: usize| Ok::<_, ()>(on_sim(&trial, settings, Some(limit), &never));
    let found = recommend(&searched, &space(&trial), Aim::Time, 2, same, || false).expect("no driver fails");
    assert_eq!(found.expect("some fit").tried, *fastest);
}

#[test]
fn where_nothing_fits_there_is_no_frontier() {
    let trial = Trial::new(&small());
    let searched = search(&trial, 60, 0, 2, Some(trial.live_peak() / 2));
    assert_eq!((searched.unfit, searched.whole, searched.default), (60, 0, None));
    assert!(searched.frontier.all().is_empty());
    let measure = |_: &Settings, _: usize| -> Result<Ended, ()> { panic!("there is nothing to check") };
    assert_eq!(recommend(&searched, &space(&trial), Aim::Time, 1, measure, || false), Ok(None));
}

#[test]
fn a_search_ends_where_there_is_nothing_else_to_try() {
    let trial = Trial::new(&Trace::parse("a 0 4096 0\nf 0\n".as_bytes()).expect("a trace"));
    let search = Search { space: space(&trial), budget: Budget::Settings(20), seed: 0, threads: 1 };
    let measure = |settings: &Settings, _: &Frontier| Ok::<_, &str>(on_sim(&trial, settings, None, &never));
    let over = search.run(measure, || true, || ()).expect("nothing was measured");
    assert_eq!((over.tried, over.default), (0, None));
    let failing = |_: &Settings, _: &Frontier| Err("lost");
    assert_eq!(search.run(failing, || false, || ()), Err("lost"));
    let direct = search.run(measure, || false, || ()).expect("no driver fails");
    let policies: Vec<Policy> = direct.frontier.all().iter().map(|tried| tried.settings.policy).collect();
    assert!(direct.tried == 20 && !policies.is_empty(), "{policies:?}");
}
