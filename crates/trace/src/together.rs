//! Several programs as one: in turn, or beside each other.

use crate::{Event, Trace};

/// The numbers that a program's blocks and points have in the whole.
#[derive(Default)]
struct Numbers {
    blocks: Vec<u32>,
    points: Vec<u32>,
    /// What is added to the numbers of its streams.
    streams: u32,
}

/// A program that is put together from others.
#[derive(Default)]
struct Whole {
    events: Vec<Event>,
    blocks: u32,
    points: u32,
}

impl Whole {
    /// Adds an event of a program.
    fn push(&mut self, event: Event, numbers: &mut Numbers) {
        let place = |stream: u32| stream + numbers.streams;
        let event = match event {
            Event::Allocate { bytes, stream, .. } => {
                let id = self.blocks;
                self.blocks += 1;
                numbers.blocks.push(id);
                Event::Allocate { id, bytes, stream: place(stream) }
            }
            Event::Mark { stream, .. } => {
                let point = self.points;
                self.points += 1;
                numbers.points.push(point);
                Event::Mark { point, stream: place(stream) }
            }
            Event::Free { id } => Event::Free { id: numbers.blocks[id as usize] },
            Event::Complete { id } => Event::Complete { id: numbers.blocks[id as usize] },
            Event::Use { id, stream } => Event::Use { id: numbers.blocks[id as usize], stream: place(stream) },
            Event::Until { id, point } => {
                Event::Until { id: numbers.blocks[id as usize], point: numbers.points[point as usize] }
            }
            Event::Submit { stream } => Event::Submit { stream: place(stream) },
            Event::StreamWait { stream, point } => {
                Event::StreamWait { stream: place(stream), point: numbers.points[point as usize] }
            }
            Event::HostWait { point } => Event::HostWait { point: numbers.points[point as usize] },
            Event::Reached { point } => Event::Reached { point: numbers.points[point as usize] },
            Event::Look { .. } | Event::EmptyCache | Event::Trim { .. } => event,
        };
        self.events.push(event);
    }

    fn into_trace(self, streams: u32) -> Trace {
        Trace { events: self.events, streams, ..Trace::default() }
    }
}

impl Trace {
    /// Returns the program that runs these one after the other, on the same streams: training, then evaluation. What
    /// one of them leaves allocated is freed where it ends, in the order of the allocations. Its blocks keep their
    /// order, so that they are numbered from the number of blocks of those before it on.
    ///
    /// The result never ran on PyTorch's allocator, so it has no header, and no details.
    #[must_use]
    pub fn in_turn(traces: &[Trace]) -> Trace {
        let mut whole = Whole::default();
        for trace in traces {
            let mut numbers = Numbers::default();
            for event in &trace.events {
                whole.push(*event, &mut numbers);
            }
            for (id, is_live) in (0..).zip(trace.live_at_end()) {
                if is_live {
                    whole.push(Event::Free { id }, &mut numbers);
                }
            }
        }
        let streams = traces.iter().map(|trace| trace.streams).max().unwrap_or(0);
        whole.into_trace(streams)
    }

    /// Returns the program that runs these at the same time, each on streams of its own: of two models on one device,
    /// the streams of the second are numbered behind those of the first. Their events alternate in proportion, so that
    /// each has had the same part of its events at any time. Emptying the cache and trimming concern them all, as they
    /// do in one process.
    ///
    /// The result never ran on PyTorch's allocator, so it has no header, and no details.
    #[must_use]
    pub fn beside(traces: &[Trace]) -> Trace {
        let mut whole = Whole::default();
        let mut streams = 0;
        let mut programs: Vec<(std::slice::Iter<'_, Event>, Numbers)> = Vec::new();
        for trace in traces {
            programs.push((trace.events.iter(), Numbers { streams, ..Numbers::default() }));
            streams += trace.streams;
        }
        let part = |at: usize, left: usize| (traces[at].events.len() - left) as u128;
        // The program that has had the least part of its events is next; of equal ones, the first.
        let is_behind = |at: usize, left: usize, than: usize, than_left: usize| {
            part(at, left) * (traces[than].events.len() as u128)
                < part(than, than_left) * (traces[at].events.len() as u128)
        };
        loop {
            let mut next: Option<usize> = None;
            for at in 0..programs.len() {
                let left = programs[at].0.len();
                let leads = next.is_none_or(|than| is_behind(at, left, than, programs[than].0.len()));
                if left > 0 && leads {
                    next = Some(at);
                }
            }
            let Some(next) = next else { break };
            let (events, numbers) = &mut programs[next];
            if let Some(event) = events.next() {
                whole.push(*event, numbers);
            }
        }
        whole.into_trace(streams)
    }

    /// Returns for each block whether no event frees it.
    fn live_at_end(&self) -> Vec<bool> {
        let mut live = Vec::new();
        for event in &self.events {
            match *event {
                Event::Allocate { .. } => live.push(true),
                Event::Free { id } => live[id as usize] = false,
                _ => {}
            }
        }
        live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceWriter;

    fn trace(text: &str) -> Trace {
        Trace::parse(text.as_bytes()).expect("a trace")
    }

    /// Checks that a trace is valid, as its reader finds.
    fn is_valid(trace: &Trace) {
        let mut text = Vec::new();
        let mut writer = TraceWriter::new(&mut text, &trace.header).expect("memory takes everything");
        trace.events.iter().for_each(|&event| writer.event(&event).expect("a valid event"));
        writer.finish().expect("memory takes everything");
        assert_eq!(&Trace::parse(&text).expect("a valid trace"), trace);
    }

    const FIRST: &str = "a 0 100 0\nm 0 1\na 1 200 1\nf 0\n";
    const SECOND: &str = "a 0 300 0\nm 0 0\nw 0 0\nf 0\nc 0\na 1 400 0\nu 1 2\ne\n";
    const TIMED: &str = "m 0 1\nq 1\nd 0 0\nh 0\nr 0\no 5\n";

    #[test]
    fn points_and_streams_of_timing_are_numbered_on() {
        let in_turn = Trace::in_turn(&[trace(TIMED), trace(TIMED)]);
        assert_eq!(in_turn, trace(&format!("{TIMED}m 1 1\nq 1\nd 0 1\nh 1\nr 1\no 5\n")));
        let beside = Trace::beside(&[trace("m 0 0\n"), trace(TIMED)]);
        let timing: Vec<_> = beside.events.iter().copied().filter(Event::is_timing).collect();
        assert_eq!(timing, trace("m 0 0\nm 1 2\nq 2\nd 1 1\nh 1\nr 1\no 5\n").events[2..]);
    }

    #[test]
    fn in_turn_each_ends_before_the_next_begins() {
        let whole = Trace::in_turn(&[trace(FIRST), trace(SECOND)]);
        let text = format!("{FIRST}f 1\na 2 300 0\nm 1 0\nw 2 1\nf 2\nc 2\na 3 400 0\nu 3 2\ne\nf 3\n");
        assert_eq!(whole, trace(&text));
        is_valid(&whole);
        assert_eq!(whole.live_peak(), 400);
        assert_eq!(Trace::in_turn(&[]), Trace::default());
    }

    #[test]
    fn beside_each_other_they_share_the_time_and_no_stream() {
        let whole = Trace::beside(&[trace(FIRST), trace(SECOND)]);
        let text = "a 0 100 0\na 1 300 2\nm 0 2\nm 1 1\nw 1 0\nf 1\na 2 200 1\nc 1\na 3 400 2\nf 0\nu 3 4\ne\n";
        assert_eq!(whole, trace(text));
        is_valid(&whole);
        assert_eq!((whole.streams, whole.events.len()), (5, 12));
        assert_eq!(Trace::beside(&[trace(FIRST)]).events, trace(FIRST).events);
    }
}
