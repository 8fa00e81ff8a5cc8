//! Whether streams run side by side on the device or have it in turn, found out from how fast they come on.
//!
//! Where kernels of one stream fill the device, several streams together come on no faster than one, and a wait of one
//! for another costs nothing, as that one runs meanwhile. Where kernels are small each stream comes on as fast as it
//! would alone, and a wait costs time.
//!
//! The measure of work is the number of blocks that were granted to a stream. A
//! stream is marked where one of its ticks is closed, as the device reaches that when it is done with all work so far,
//! and a *span* is what the stream does between two marks: how long that took, its own work, and the work of the other
//! streams in that time. A span with a wait that the allocator has queued is not counted, as the stream stood still for
//! a part of it. When a mark is reached is known only as exactly as the device is asked often: spans follow each other
//! in a *row* until it is long beside that.
//!
//! In some rows the others do little, and in others they do a lot. If a stream takes longer for its own work the more
//! the others do, streams have the device in turn; if it does not, they run side by side.
//!
//! This module knows no blocks and no clock: ticks, numbers of grants and times are told to it.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use crate::looks;
use crate::stats::Sharing;

/// The most marks of a stream that are outstanding. A stream that is farther behind gets no more.
const MARKS_MAX: usize = 64;
/// The number of spans that are remembered: of a stream those that are not counted yet, and for each stream of all.
const SPANS_MAX: usize = 32;
/// The least work of a span that is counted: a shorter one says more of when streams were looked at.
const WORK_LEAST: u64 = 8;
/// How many times as long as what is not known of its ends a row of spans has to be.
const SHARP: u64 = 4;
/// The most work of the others, as a multiple of a stream's own, where a row says anything of that stream.
const OTHERS_MOST: f64 = 5.0;
/// The number of counted rows from one conclusion to the next.
const STRIDE: u32 = 4;
/// How many conclusions in a row it takes to count streams as side by side. Those that are wrongly taken for it cost
/// some memory.
const AGREE_SIDE_BY_SIDE: u32 = 3;
/// How many it takes to count them as in turn. Those that are wrongly taken for it cost a multiple of the time.
const AGREE_IN_TURN: u32 = 6;
/// The delay by others' work below which streams count as side by side.
const SIDE_BY_SIDE: f64 = 0.3;
/// The delay above which they count as in turn.
const IN_TURN: f64 = 0.5;
/// The delay above which they do after they were side by side: where memory was spent and the host is the limit,
/// streams that run out of work look delayed.
const IN_TURN_AGAIN: f64 = 0.9;

/// A moment in the work of a stream.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// A tick that covers the work.
    tick: Tick,
    /// The number of blocks that were granted by then.
    work: u64,
    /// Whether the time that the work takes says nothing.
    vague: bool,
}

/// What a stream has done between two marks.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: u64,
    end: u64,
    work: u64,
    vague: bool,
    /// By how much sooner than `begin` it may have begun, as the device was not asked for so long.
    begin_blur: u64,
    /// By how much sooner than `end` it may have ended.
    end_blur: u64,
}

/// Spans in a row that are counted as one.
#[derive(Clone, Copy, Debug)]
struct Row {
    span: Span,
    /// The work of the other streams.
    others: f64,
}

impl Row {
    /// Returns the row with one more span, or that span alone if it does not follow or the row ends with it.
    fn and(self, next: Row) -> Row {
        if next.span.vague || next.span.begin != self.span.end {
            return next;
        }
        let span = Span {
            end: next.span.end,
            work: self.span.work + next.span.work,
            end_blur: next.span.end_blur,
            ..self.span
        };
        Row { span, others: self.others + next.others }
    }

    /// Returns whether the row is long beside what is not known of its ends.
    fn is_sharp(&self) -> bool {
        let Span { begin, end, work, begin_blur, end_blur, .. } = self.span;
        work >= WORK_LEAST && (end - begin) / SHARP >= begin_blur + end_blur
    }
}

/// What is known of one stream.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// The number of granted blocks that it was told of so far.
    work: u64,
    /// The marks that are not known to be reached, in order.
    marks: VecDeque<Mark>,
    /// The work up to the last mark that was reached, and when that was. If there were no marks after it, the time is
    /// that of the next mark.
    passed: u64,
    since: u64,
    /// How much sooner that may have been.
    blur: u64,
    /// Whether the stream waits for others behind its last mark.
    waits: bool,
    /// The last spans that are not counted.
    uncounted: VecDeque<Span>,
    /// What was counted last, and is not long enough yet.
    row: Option<Row>,
}

impl Lane {
    /// Takes in how far the stream is, which was asked `blur` nanoseconds ago for the last time. Returns what it has
    /// done since its last mark that was reached, if that took any time.
    fn reach(&mut self, tick: Tick, now: u64, blur: u64) -> Option<Span> {
        let reached = self.marks.partition_point(|mark| mark.tick <= tick);
        let last = self.marks[reached.checked_sub(1)?];
        let vague = self.marks.drain(..reached).any(|mark| mark.vague);
        let (begin, work, begin_blur) = (self.since, last.work - self.passed, self.blur);
        let span = Span { begin, end: now, work, vague, begin_blur, end_blur: blur };
        (self.passed, self.since, self.blur) = (last.work, now, blur);
        if span.end <= span.begin {
            return None;
        }
        if self.uncounted.len() == SPANS_MAX {
            self.uncounted.pop_front();
        }
        self.uncounted.push_back(span);
        Some(span)
    }

    /// Sets a mark behind all work that is queued, of which `granted` blocks are new. Work that is done needs none.
    fn mark(&mut self, tick: Tick, is_reached: bool, granted: u64, now: u64) {
        self.work += granted;
        let work = self.work;
        let (last_tick, last_work) = self.marks.back().map_or((Tick::ZERO, self.passed), |mark| (mark.tick, mark.work));
        if is_reached && self.marks.is_empty() {
            self.passed = work;
            return;
        }
        if work == last_work || tick <= last_tick || self.marks.len() == MARKS_MAX {
            return;
        }
        // Without a mark before it, a part of the work may be done already.
        let is_first = self.marks.is_empty();
        if is_first {
            (self.since, self.blur) = (now, 0);
        }
        self.marks.push_back(Mark { tick, work, vague: is_first || self.waits });
        self.waits = false;
    }

    /// Returns the time up to which it is known what the stream has done, unless that is now.
    fn known_until(&self) -> Option<u64> {
        if self.marks.is_empty() { None } else { Some(self.since) }
    }
}

/// How fast streams come on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// By the number of the stream.
    lanes: Vec<Lane>,
    /// The streams with marks, by the time up to which it is known what they have done.
    behind: BTreeSet<(u64, StreamId)>,
    /// The streams with spans that are not counted.
    uncounted: BTreeSet<StreamId>,
    /// What the streams have done, in order of the ends.
    spans: VecDeque<(StreamId, Span)>,
    seen: Seen,
    counted: u32,
    /// What the last conclusions speak for, and how many of them in a row.
    leaning: Sharing,
    agreed: u32,
    /// The time that was told last.
    now: Option<u64>,
    /// How streams share the device, as far as that is known.
    pub(crate) sharing: Sharing,
}

impl Pace {
    /// Takes in how far streams were at a time. Costs a look at these, at those with spans that are not counted, and
    /// for each that is counted at all spans of its time.
    pub(crate) fn look(&mut self, reached: impl Iterator<Item = Point>, now: u64) {
        let is_first = self.now.is_none();
        let blur = self.now.map_or(0, |before| now.saturating_sub(before));
        self.now = Some(now);
        if blur > 0 && self.sharing == Sharing::Untold {
            self.sharing = Sharing::Unknown;
        }
        if is_first {
            return;
        }
        for Point { stream, tick } in reached {
            looks::note(1);
            if let Some(span) = self.change(stream, |lane| lane.reach(tick, now, blur)).flatten() {
                self.spans.push_back((stream, span));
                self.uncounted.insert(stream);
            }
        }
        let too_many = self.spans.len().saturating_sub(SPANS_MAX * self.lanes.len());
        self.spans.drain(..too_many);
        self.count(now);
    }

    /// Changes what is known of a stream, if anything is.
    fn change<R>(&mut self, stream: StreamId, change: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        let lane = self.lanes.get_mut(stream.0 as usize)?;
        let before = lane.known_until();
        let result = change(lane);
        let after = lane.known_until();
        if before != after {
            before.map(|until| self.behind.remove(&(until, stream)));
            self.behind.extend(after.map(|until| (until, stream)));
        }
        Some(result)
    }

    /// Notes that a number of blocks was granted to a stream since the last mark, whose work is what the device does
    /// before it reaches a tick, and that the tick is reached or not.
    pub(crate) fn mark(&mut self, point: Point, is_reached: bool, granted: u64) {
        if let Some(now) = self.now {
            let streams = self.lanes.len().max(point.stream.0 as usize + 1);
            self.lanes.resize_with(streams, Lane::default);
            self.change(point.stream, |lane| lane.mark(point.tick, is_reached, granted, now));
        }
    }

    /// Notes that a stream waits for others on the device. `covered` is a tick of it that covers the wait.
    pub(crate) fn wait(&mut self, stream: StreamId, covered: Tick) {
        let Some(lane) = self.lanes.get_mut(stream.0 as usize) else { return };
        match lane.marks.back_mut().filter(|mark| mark.tick >= covered) {
            Some(mark) => mark.vague = true,
            None => lane.waits = true,
        }
    }

    /// Returns whether it may be found out how streams share the device: there are marks.
    pub(crate) fn may_find_out(&self) -> bool {
        !self.lanes.is_empty()
    }
    /// Counts the spans in which it is known what the other streams have done.
    fn count(&mut self, now: u64) {
        let mut known = Vec::new();
        looks::note(self.uncounted.len());
        for &id in &self.uncounted {
            let other = self.behind.iter().find(|(_, other)| *other != id);
            let until = other.map_or(now, |(until, _)| *until);
            let counted = self.lanes[id.0 as usize].uncounted.iter().take_while(|span| span.end <= until);
            known.extend(counted.map(|span| (id, Row { span: *span, others: self.others_work(id, span) })));
        }
        for (id, row) in known {
            let lane = &mut self.lanes[id.0 as usize];
            lane.uncounted.pop_front();
            if lane.uncounted.is_empty() {
                self.uncounted.remove(&id);
            }
            let row = lane.row.take().map_or(row, |before| before.and(row));
            if row.span.vague {
                continue;
            }
            if row.is_sharp() { self.add(&row) } else { lane.row = Some(row) }
        }
    }

    /// Returns the work of the other streams during a span of one, as if each of theirs went on evenly.
    fn others_work(&self, of: StreamId, during: &Span) -> f64 {
        let since = self.spans.iter().rev().take_while(|(_, span)| span.end > during.begin);
        let inside = |(_, span): &(StreamId, Span)| {
            let both = span.end.min(during.end).saturating_sub(span.begin.max(during.begin));
            span.work as f64 * both as f64 / (span.end - span.begin) as f64
        };
        since.filter(|(stream, _)| *stream != of).map(inside).sum()
    }

    fn add(&mut self, row: &Row) {
        let own = row.span.work as f64;
        if row.others > own * OTHERS_MOST {
            return;
        }
        self.seen.add(row.others / own, (row.span.end - row.span.begin) as f64 / own);
        self.counted += 1;
        if self.counted.is_multiple_of(STRIDE) {
            self.conclude();
        }
    }

    /// Finds out how streams share the device.
    fn conclude(&mut self) {
        let Some(delay) = self.seen.delay() else { return };
        let (new, most) = match self.sharing {
            Sharing::SideBySide => (Sharing::InTurn, delay > IN_TURN_AGAIN),
            Sharing::InTurn => (Sharing::SideBySide, delay < SIDE_BY_SIDE),
            _ if delay < SIDE_BY_SIDE => (Sharing::SideBySide, true),
            _ => (Sharing::InTurn, delay > IN_TURN),
        };
        let before = if self.leaning == new { self.agreed } else { 0 };
        (self.leaning, self.agreed) = (new, if most { before + 1 } else { 0 });
        let needed = if new == Sharing::InTurn { AGREE_IN_TURN } else { AGREE_SIDE_BY_SIDE };
        if self.agreed == needed {
            (self.sharing, self.agreed) = (new, 0);
        }
    }
}

/// The least number of rows that say anything.
const SEEN_LEAST: usize = 16;
/// The most rows that are remembered.
const SEEN_MOST: usize = 64;
/// By how much the others' work has to differ in two rows that are compared, and the least number of such pairs.
const APART: f64 = 0.5;
const PAIRS_LEAST: usize = 20;
/// What the newest rows say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(VecDeque<Ratios>);

/// What a row says, over its own work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratios {
    /// The work of the others.
    others: f64,
    time: f64,
}

impl Seen {
    /// Adds a row, and forgets the oldest one if there are too many.
    pub(crate) fn add(&mut self, others: f64, time: f64) {
        if self.0.len() == SEEN_MOST {
            self.0.pop_front();
        }
        self.0.push_back(Ratios { others, time });
    }

    /// Returns by how much the work of the others holds up a stream, as a share of the time that the same amount of its
    /// own work takes: 0 where streams run side by side, and 1 where they have the device in turn. `None` if too little
    /// was seen, or the others did nearly as much each time.
    ///
    /// That is the slope of a line through all that was seen, over its height where the others do nothing: the median
    /// of the slopes between any two of them (the estimator of Theil and Sen), which a few wrong ones do not change.
    pub(crate) fn delay(&self) -> Option<f64> {
        let of_two = |(at, one): (usize, &Ratios)| {
            let later = self.0.range(at + 1..).filter(move |other| (other.others - one.others).abs() >= APART);
            later.map(|other| (other.time - one.time) / (other.others - one.others)).collect::<Vec<_>>()
        };
        let slopes: Vec<f64> = self.0.iter().enumerate().flat_map(of_two).collect();
        if self.0.len() < SEEN_LEAST || slopes.len() < PAIRS_LEAST {
            return None;
        }
        let slope = median(slopes);
        let height = median(self.0.iter().map(|seen| seen.time - slope * seen.others).collect());
        Some(if height > 0.0 { slope / height } else { 1.0 })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three streams of which now one has work and now all have, on a device that is looked at every microsecond.
    struct World {
        pace: Pace,
        now: u64,
        /// The work that each stream has done.
        done: [u64; 3],
        /// The work up to the last mark of each.
        queued: [u64; 3],
        side_by_side: bool,
    }

    impl World {
        fn new(side_by_side: bool) -> Self {
            Self { pace: Pace::default(), now: 0, done: [0; 3], queued: [0; 3], side_by_side }
        }

        /// Lets some streams work for some microseconds, each with work queued for six more.
        fn work(&mut self, streams: &[u32], steps: u64) {
            self.work_unseen(streams, steps, 1);
        }

        /// Runs with a look at the device every few microseconds only.
        fn work_unseen(&mut self, streams: &[u32], steps: u64, each_look: u64) {
            for _ in 0..steps {
                self.now += 1000 * each_look;
                let each = each_look * if self.side_by_side { 60 } else { 60 / streams.len() as u64 };
                streams.iter().for_each(|&stream| self.done[stream as usize] += each);
                let at = |stream: u32| Point { stream: StreamId(stream), tick: Tick(self.done[stream as usize]) };
                self.pace.look([0, 1, 2].map(at).into_iter(), self.now);
                for &stream in streams {
                    let queued = self.done[stream as usize] + 360;
                    let new = queued - core::mem::replace(&mut self.queued[stream as usize], queued);
                    self.pace.mark(Point { stream: StreamId(stream), tick: Tick(queued) }, false, new);
                }
            }
        }

        /// Lets one stream work, which the others wait for, and then all of them, several times.
        fn take_turns(&mut self, times: u32) {
            for _ in 0..times {
                for stream in [1, 2] {
                    let tick = Tick(self.done[stream as usize] + 360);
                    self.pace.wait(StreamId(stream), tick);
                }
                self.work(&[0], 40);
                self.work(&[0, 1, 2], 40);
            }
        }
    }

    /// A mistake costs more where streams are taken for in turn.
    #[test]
    fn it_takes_more_to_count_streams_as_in_turn() {
        for (before, delay, expected) in [
            (Sharing::Unknown, 0.0, (3, Sharing::SideBySide)),
            (Sharing::Unknown, 1.0, (6, Sharing::InTurn)),
            (Sharing::SideBySide, 1.0, (6, Sharing::InTurn)),
            (Sharing::InTurn, 0.0, (3, Sharing::SideBySide)),
        ] {
            let mut pace = Pace { sharing: before, ..Pace::default() };
            (0..40)
                .map(|row| f64::from(row % 4))
                .for_each(|others| pace.seen.add(others, 20.0 * (1.0 + delay * others)));
            let mut conclusions = 0;
            while pace.sharing == before {
                pace.conclude();
                conclusions += 1;
            }
            assert_eq!((conclusions, pace.sharing), expected, "from {before:?}");
        }
    }

    #[test]
    fn streams_are_found_side_by_side_or_in_turn() {
        for (side_by_side, expected) in [(true, Sharing::SideBySide), (false, Sharing::InTurn)] {
            let mut world = World::new(side_by_side);
            world.work(&[0], 40);
            assert_eq!(world.pace.sharing, Sharing::Unknown, "too little was seen");
            assert_eq!(world.pace.sharing, Sharing::Unknown);
            for _ in 0..9 {
                world.take_turns(1);
                assert!([Sharing::Unknown, expected].contains(&world.pace.sharing), "never the other");
            }
            assert_eq!(world.pace.sharing, expected);
            assert_eq!(world.pace.sharing, if side_by_side { Sharing::SideBySide } else { Sharing::InTurn });
        }
    }

    /// Where the host is busy with something else for long, streams get far until they are looked at again, and the
    /// next look shows little.
    #[test]
    fn a_device_that_is_seldom_looked_at_does_not_mislead() {
        for side_by_side in [true, false] {
            let mut world = World::new(side_by_side);
            for turn in 0..200 {
                let streams: &[u32] = if turn % 2 == 0 { &[0] } else { &[0, 1, 2] };
                world.work(streams, 2);
                world.work_unseen(streams, 1, 50);
                let wrong = if side_by_side { Sharing::InTurn } else { Sharing::SideBySide };
                assert_ne!(world.pace.sharing, wrong, "turn {turn}");
            }
        }
    }

    #[test]
    fn a_program_may_change() {
        let mut world = World::new(true);
        for expected in [Sharing::SideBySide, Sharing::InTurn, Sharing::SideBySide] {
            world.take_turns(30);
            assert_eq!(world.pace.sharing, expected);
            world.side_by_side = !world.side_by_side;
        }
    }

    /// What was found out stays as long as there is nothing to compare with.
    #[test]
    fn streams_that_are_always_together_stay_side_by_side() {
        let mut world = World::new(true);
        world.take_turns(10);
        world.work(&[0, 1, 2], 500);
        assert_eq!(world.pace.sharing, Sharing::SideBySide);
    }

    #[test]
    fn where_no_time_passes_memory_is_spent() {
        let mut world = World::new(false);
        assert_eq!(world.pace.sharing, Sharing::Untold, "no time was told");
        for _ in 0..100 {
            world.now = 0;
            world.work(&[0, 1, 2], 1);
        }
        assert_eq!(world.pace.sharing, Sharing::Untold);
    }

    /// One stream alone shows nothing of several.
    #[test]
    fn little_memory_is_spent_where_nothing_is_found_out() {
        let mut world = World::new(true);
        world.work(&[0], 20_000);
        assert_eq!(world.pace.sharing, Sharing::Unknown);
    }

    /// Two spans of a stream, 100 blocks in 10 us each, of which the first begins at a mark with none before it.
    #[test]
    fn a_span_without_a_clear_beginning_or_with_a_wait_is_not_counted() {
        for (wait, counted) in [(None, 1), (Some(150), 0), (Some(250), 1)] {
            let mut pace = Pace::default();
            let at = |tick| Point { stream: StreamId(0), tick: Tick(tick) };
            pace.look([at(0)].into_iter(), 1);
            pace.mark(at(100), false, 100);
            pace.look([at(0)].into_iter(), 2);
            pace.mark(at(200), false, 100);
            if let Some(tick) = wait {
                pace.wait(StreamId(0), Tick(tick));
            }
            pace.look([at(0)].into_iter(), 9_900);
            pace.look([at(100)].into_iter(), 10_000);
            pace.look([at(100)].into_iter(), 19_900);
            pace.look([at(200)].into_iter(), 20_000);
            assert_eq!((pace.counted, pace.seen.0.len()), (counted, counted as usize), "{wait:?}");
        }
    }

    /// Where the host does something else for long, a stream seems to have done all of that time's work at its end.
    #[test]
    fn a_row_is_counted_once_it_is_long_beside_what_is_not_known_of_its_ends() {
        let mut pace = Pace::default();
        let at = |tick| Point { stream: StreamId(0), tick: Tick(tick) };
        pace.look([at(0)].into_iter(), 1);
        (1..=4).for_each(|mark| pace.mark(at(100 * mark), false, 100));
        let counted =
            [(100, 10_000), (200, 10_100), (300, 10_200), (300, 99_900), (400, 100_000)].map(|(tick, now)| {
                pace.look([at(tick)].into_iter(), now);
                pace.counted
            });
        assert_eq!(counted, [0, 0, 0, 0, 1]);
        assert_eq!(pace.seen.0.back().copied(), Some(Ratios { others: 0.0, time: 300.0 }), "300 blocks in 90 us");
    }

    /// A stream that is long behind has a bounded number of marks, and one that is looked at often of spans.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut pace = Pace::default();
        let at = |tick| Point { stream: StreamId(0), tick: Tick(tick) };
        for tick in 1..500 {
            pace.look([at(0)].into_iter(), tick);
            pace.mark(at(tick), false, 1);
        }
        assert_eq!(pace.lanes[0].marks.len(), MARKS_MAX);
        for tick in 1..500 {
            pace.look([at(tick)].into_iter(), 500 + tick);
            pace.mark(at(500 + tick), false, 1);
        }
        assert!(pace.spans.len() <= SPANS_MAX, "{pace:?}");
        // A stream that stands still holds up the count of the others.
        pace.mark(at(2000), false, 1000);
        pace.mark(Point { stream: StreamId(1), tick: Tick(1) }, false, 1);
        for tick in 2000..2500 {
            pace.look([at(tick)].into_iter(), tick);
            pace.mark(at(tick + 1), false, 1);
        }
        assert_eq!(pace.lanes[0].uncounted.len(), SPANS_MAX);
        assert_eq!(pace.spans.len(), 2 * SPANS_MAX);
    }

    /// Few rows tell nothing, and a few that are wrong change nothing.
    #[test]
    fn the_delay_is_that_of_most_rows() {
        for delay in [0.0, 0.4, 1.0] {
            let mut seen = Seen::default();
            for row in 0..40 {
                assert_eq!(seen.delay().is_some(), row >= SEEN_LEAST, "{row} rows");
                let others = f64::from(row as u32 % 4);
                let wrong = if row % 5 == 4 { 9.0 } else { 1.0 };
                seen.add(others, 20.0 * wrong * (1.0 + delay * others));
            }
            let found = seen.delay().expect("there are enough rows");
            assert!((found - delay).abs() < 0.15, "{found} instead of {delay}");
        }
        let mut seen = Seen::default();
        (0..40).for_each(|_| seen.add(1.0, 20.0));
        assert_eq!(seen.delay(), None, "the others did as much each time");
        (0..200).for_each(|_| seen.add(1.0, 20.0));
        assert_eq!(seen.0.len(), SEEN_MOST, "old rows are forgotten");
    }
}
