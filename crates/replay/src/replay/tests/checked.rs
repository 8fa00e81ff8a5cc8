//! Checked replays: they find planted bugs, and report nothing where there is none.

use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond_backend::{Closing, Transfer as _};
use millpond_sim::{Completion, CostModel, Sim, SimError};

use super::super::*;
use millpond_trace::Pattern;

/// Creates a device that keeps bytes, and on which work stays in progress until the backend is asked.
pub(super) fn busy_device(seed: u64, closing: Closing, stream_wait: bool) -> Sim {
    let sim = Sim::builder().cost(CostModel::free()).completion(Completion::Seeded(seed));
    sim.closing(closing).stream_wait(stream_wait).build()
}

pub(super) fn allocator(sim: &Sim, settings: Settings) -> Allocator<Sim> {
    Allocator::builder(sim.clone()).settings(settings).build().expect("valid settings")
}

pub(super) fn open(allocator: &Allocator<Sim>, replay: &Replay) -> Vec<Stream<Sim>> {
    (0..replay.streams()).map(|_| allocator.create_stream().expect("a stream")).collect()
}

/// Returns the first events of a pattern, so that a test is short.
pub(super) fn beginning(pattern: Pattern, events: usize) -> Replay {
    let mut trace = pattern.trace(1);
    trace.events.truncate(events);
    Replay::new(&trace)
}

pub(super) fn variants() -> [Settings; 4] {
    let policies = ["paged", "classic", "expandable", "direct"].map(|name| Policy::variant(name).expect(name));
    policies.map(|policy| Settings { policy, ..Settings::default() })
}

#[test]
fn sound_allocators_pass_whatever_is_under_way() {
    for (pattern, events) in [(Pattern::ManyStreams, 3000), (Pattern::Phases, 1500), (Pattern::Growing, 1000)] {
        let replay = beginning(pattern, events);
        for (closing, stream_wait) in [(Closing::Backend, true), (Closing::Submit, true), (Closing::Submit, false)] {
            for settings in variants() {
                let sim = busy_device(3, closing, stream_wait);
                let allocator = allocator(&sim, settings.clone());
                let replayed = replay.run_checked(&allocator, &open(&allocator, &replay), 1, |_| ());
                let replayed = replayed.unwrap_or_else(|error| panic!("{pattern}, {closing:?}, {settings:?}: {error}"));
                // This is every block of both passes, including those that are never freed.
                assert_eq!(replayed.checked_blocks, 2 * replay.allocations as u64, "{pattern}");
                assert_eq!(sim.violations(), [], "{pattern}, {closing:?}, {settings:?}");
            }
        }
    }
}

#[test]
fn what_a_check_took_for_itself_is_given_back() {
    let replay = beginning(Pattern::ManyStreams, 200);
    for closing in [Closing::Backend, Closing::Submit] {
        let sim = busy_device(3, closing, true);
        let allocator = allocator(&sim, Settings::default());
        replay.run_checked(&allocator, &open(&allocator, &replay), 0, |_| ()).expect("sound bytes");
        assert_eq!(sim.held_bytes(), allocator.memory_reserved(), "{closing:?}");
    }
}

#[test]
fn a_check_changes_no_decision_where_work_is_done_at_once() {
    let replay = beginning(Pattern::ManyStreams, 3000);
    let sim = Sim::new();
    for settings in variants() {
        let (plain, checked) = (allocator(&sim, settings.clone()), allocator(&sim, settings));
        let expected = replay.run(&plain, 0).expect("no driver fails");
        let found = replay.run_checked(&checked, &open(&checked, &replay), 0, |_| ()).expect("sound bytes");
        assert_eq!(found.stats, expected.stats);
        assert_eq!(found.driver.calls, expected.driver.calls);
    }
}

#[test]
fn waits_of_the_host_and_of_streams_are_counted_where_work_is_under_way() {
    let replay = beginning(Pattern::ManyStreams, 3000);
    let cost = |sim: Sim, settings: Settings| {
        // The memory is so small that the next owner must wait for the last owner's work.
        let allocator = Allocator::builder(sim).settings(settings).limit(replay.live_peak());
        let allocator = allocator.build().expect("valid settings");
        replay.run_checked(&allocator, &open(&allocator, &replay), 0, |_| ()).expect("sound bytes").driver
    };
    let busy = || Sim::builder().completion(Completion::Seeded(3)).build();
    let [paged, classic, ..] = variants();
    let tight = Settings { policy: Policy::paged(Growth::Tight), ..paged.clone() };
    for (settings, waits_on_the_device) in [(paged.clone(), true), (classic, false), (tight, true)] {
        let driver = cost(busy(), settings.clone());
        assert_eq!(driver.stream_waits > 0, waits_on_the_device, "{settings:?}: {driver:?}");
        assert!(driver.stalls > 0 || waits_on_the_device, "{settings:?}: {driver:?}");
        assert!(driver.stalls + driver.stream_waits < driver.calls, "{settings:?}: {driver:?}");
        assert!(driver.stall_time < driver.time, "{settings:?}: {driver:?}");
    }
    let idle = cost(Sim::new(), paged);
    assert_eq!((idle.stalls, idle.stream_waits), (0, 0), "nothing to wait for: {idle:?}");
}

/// A checker, and a change of one byte of one block that the checker does not know of.
struct Tampered<'a> {
    checker: Checker<'a, Sim>,
    backend: Sim,
    block: u32,
    offset: u64,
}

impl Watch<Sim> for Tampered<'_> {
    type Error = CheckError<millpond_sim::SimError>;

    fn granted(&mut self, id: u32, buffer: &Buffer<Sim>, stream: &Stream<Sim>) -> Result<(), Self::Error> {
        self.checker.granted(id, buffer, stream)?;
        if id == self.block {
            let (backend, segment) = (self.backend.clone(), buffer.segment().expect("a segment"));
            let place = buffer.offset() + self.offset;
            let mut byte = [0];
            backend.download(stream.id(), segment, place, &mut byte).expect("a byte");
            backend.upload(stream.id(), &[byte[0] ^ 1], segment, place).expect("room");
        }
        Ok(())
    }

    fn used(&mut self, id: u32, buffer: &Buffer<Sim>, stream: &Stream<Sim>) -> Result<(), Self::Error> {
        self.checker.used(id, buffer, stream)
    }

    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<Sim>) -> Result<(), Self::Error> {
        self.checker.freeing(event, id, buffer)
    }

    fn over(&mut self) -> Result<(), Self::Error> {
        self.checker.over()
    }
}

/// Makes one pass with an observer.
fn watched<W: Watch<Sim>>(
    replay: &Replay,
    allocator: &Allocator<Sim>,
    streams: &[Stream<Sim>],
    watch: &mut W,
) -> Result<Pass, W::Error> {
    replay.watched_pass(allocator, streams, &mut replay.submits(allocator, streams, false), watch, Deadline::NEVER)
}

/// A trace in which block 1 takes five pages and one byte. Its free is event 3. The free of block 0, which completes
/// later, is no event of a pass.
const FIVE_PAGES: &str = "a 0 512 0\na 1 10485761 0\nf 0\nf 1\nc 0\na 2 512 0\n";

#[test]
fn one_wrong_byte_in_any_mark_is_found_and_named() {
    let replay = Replay::new(&Trace::parse(FIVE_PAGES.as_bytes()).expect("a trace"));
    let sim = Sim::new();
    // The block's capacity is rounded up to 512 bytes.
    let last = 10 * (1 << 20) + 511;
    for offset in [0, 63, 2 << 20, (8 << 20) + 15, last - 63, last] {
        let allocator = allocator(&sim, Settings::default());
        let streams = open(&allocator, &replay);
        let checker = Checker::new(&allocator, 0, 0).expect("a device that moves bytes");
        let mut tampered = Tampered { checker, backend: sim.clone(), block: 1, offset };
        let Err(CheckError::WrongByte(wrong)) = watched(&replay, &allocator, &streams, &mut tampered) else {
            panic!("byte {offset} was changed and not found")
        };
        let place = replay.place_in_trace(wrong.event);
        assert_eq!((wrong.block, wrong.offset, place, wrong.pass), (1, offset, 3, 0));
        assert_eq!((wrong.bytes, wrong.expected ^ wrong.found), (last + 1, 1));
        let text = wrong.to_string();
        assert!(text.contains("frees block 1") && text.contains(&format!("whose byte {offset} holds")), "{text}");
    }
}

#[test]
fn events_keep_the_number_that_they_have_in_the_trace() {
    let replay = Replay::new(&Trace::parse(FIVE_PAGES.as_bytes()).expect("a trace"));
    let places: Vec<usize> = (0..=replay.events()).map(|at| replay.place_in_trace(at)).collect();
    assert_eq!(places, [0, 1, 3, 4, 5, 6], "event 2 became part of event 4");
}

#[test]
fn a_device_that_moves_no_bytes_cannot_be_checked() {
    let sim = Sim::builder().transfer(false).name("mute").build();
    let (replay, allocator) = (beginning(Pattern::Random, 10), allocator(&sim, Settings::default()));
    let refused = replay.run_checked(&allocator, &open(&allocator, &replay), 0, |_| ()).expect_err("no transfers");
    assert!(matches!(refused, CheckError::NoTransfer { .. }), "{refused}");
    assert!(refused.to_string().starts_with("mute neither fills nor copies"), "{refused}");
}

#[test]
fn a_device_that_keeps_no_bytes_is_replayed_and_not_checked() {
    let sim = || Sim::builder().keep_contents(false).build();
    let replay = beginning(Pattern::Random, 200);
    let replayed = replay.run(&allocator(&sim(), Settings::default()), 0).expect("nothing is read");
    let kept = replay.run(&allocator(&Sim::builder().build(), Settings::default()), 0).expect("nothing is read");
    assert_eq!(replayed.stats, kept.stats);

    let allocator = allocator(&sim(), Settings::default());
    let refused = replay.run_checked(&allocator, &open(&allocator, &replay), 0, |_| ()).expect_err("nothing is kept");
    assert!(matches!(&refused, CheckError::Driver { source: SimError::NotKept { .. }, .. }), "{refused:?}");
    assert!(millpond::text::with_causes(&refused).contains("keep_contents(true)"), "{refused:?}");
}

/// Planted reuse that does not wait for the streams that a block was recorded on.
#[test]
fn planted_early_reuse_shows_in_the_bytes() {
    let replay = beginning(Pattern::ManyStreams, 3000);
    for settings in &variants()[1..3] {
        for closing in [Closing::Backend, Closing::Submit] {
            let planted = Settings { plant: Some(millpond::plant::Plant::EarlyReuse), ..settings.clone() };
            let allocator = allocator(&busy_device(3, closing, true), planted);
            let found = replay.run_checked(&allocator, &open(&allocator, &replay), 0, |_| ());
            assert!(matches!(found, Err(CheckError::WrongByte(_))), "{closing:?}: {found:?}");
        }
    }
}

#[test]
fn threads_on_streams_of_their_own_find_their_own_marks() {
    let replay = beginning(Pattern::ManyStreams, 1000);
    for (closing, policy) in
        [(Closing::Backend, Policy::paged(Growth::Balanced)), (Closing::Submit, Policy::Classic(Segments::Plain))]
    {
        let sim = busy_device(3, closing, true);
        let allocator = allocator(&sim, Settings { policy, ..Settings::default() });
        let streams: Vec<_> = (0..3).map(|_| open(&allocator, &replay)).collect();
        let replayed = replay.run_threads(&allocator, &streams, 1, true, |_| ()).expect("sound bytes");
        assert_eq!((replayed.threads, replayed.checked_blocks), (3, 3 * 2 * replay.allocations as u64));
        let allocations = replayed.stats.allocation.all.allocated;
        assert_eq!(allocations, 3 * replay.allocations as u64, "the statistics are those of one pass of all threads");
        assert_eq!(sim.violations(), [], "{closing:?}");
    }
}

#[test]
fn one_thread_comes_to_what_a_replay_comes_to() {
    let replay = beginning(Pattern::Phases, 1500);
    let sim = Sim::new();
    let (alone, threads) = (allocator(&sim, Settings::default()), allocator(&sim, Settings::default()));
    let expected = replay.run(&alone, 0).expect("no driver fails");
    let found = replay.run_threads(&threads, &[open(&threads, &replay)], 0, false, |_| ()).expect("no driver fails");
    assert_eq!((found.stats, found.live_peak, found.threads), (expected.stats, expected.live_peak, 1));
}

/// Reuse of freed memory before its last work is done shows in what that work writes.
#[test]
fn a_freed_block_is_read_and_then_written_once_more() {
    let sim = Sim::new();
    let allocator = allocator(&sim, Settings::default());
    let stream = allocator.create_stream().expect("a stream");
    let mut checker = Checker::new(&allocator, 0, 0).expect("a device that moves bytes");
    let [first, block] = [(); 2].map(|()| stream.allocate(5 << 20).expect("room"));
    // With the first block the table of marks comes to the device.
    checker.granted(0, &first, &stream).expect("no driver fails");
    checker.freeing(0, 0, &first).expect("no driver fails");
    let before = sim.calls().transfer;
    checker.granted(1, &block, &stream).expect("no driver fails");
    let written = sim.calls().transfer - before;
    checker.freeing(1, 1, &block).expect("no driver fails");
    assert!(written >= 3, "{written} marks of five MiB");
    assert_eq!(sim.calls().transfer - before, 3 * written, "written, read, and written again");
    checker.over().expect("every mark is right");
}
