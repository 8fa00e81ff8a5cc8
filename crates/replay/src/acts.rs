//! The passes of a life: what the first pass replays, and what each pass after it does.

use std::borrow::Cow;

use millpond_trace::Event;

use crate::replay::Replay;
use crate::vary::Vary;

/// What each pass of a life replays.
///
/// Without kept blocks and without variation every pass is the trace. A kept block is allocated in the first pass,
/// which does not free it, and is left out of the passes after it, with all that they would do with it.
pub(crate) struct Acts<'a> {
    first: Cow<'a, Replay>,
    later: Cow<'a, Replay>,
    /// The sum of the kept blocks in bytes.
    kept_bytes: u64,
    vary: Option<Vary>,
}

impl<'a> Acts<'a> {
    /// Prepares a life. `kept` says which blocks stay, by number.
    pub(crate) fn new(replay: &'a Replay, kept: &[bool], vary: Option<Vary>) -> Self {
        let is_kept = |id: &u32| kept.get(*id as usize).copied().unwrap_or(false);
        if !kept.contains(&true) {
            let same = Cow::Borrowed(replay);
            return Self { first: same.clone(), later: same, kept_bytes: 0, vary };
        }
        let bytes = |event: &Event| match event {
            Event::Allocate { id, bytes, .. } if is_kept(id) => *bytes,
            _ => 0,
        };
        let kept_bytes = replay.events.iter().map(bytes).sum();
        let first = replay.without(|event| matches!(event, Event::Free { id } if is_kept(id)), 0);
        let later = replay.without(|event| block(event).as_ref().is_some_and(is_kept), kept_bytes);
        Self { first: Cow::Owned(first), later: Cow::Owned(later), kept_bytes, vary }
    }

    /// Returns what the first pass replays.
    pub(crate) fn first(&self) -> &Replay {
        &self.first
    }

    /// Returns the number of events of each pass after the first.
    pub(crate) fn later_events(&self) -> usize {
        self.later.events()
    }

    /// Returns what the pass replays. The first is number 0.
    pub(crate) fn of(&self, pass: usize) -> Cow<'_, Replay> {
        match self.vary {
            _ if pass == 0 => Cow::Borrowed(&self.first),
            None => Cow::Borrowed(&self.later),
            Some(vary) => Cow::Owned(self.later.varied(vary, pass, self.kept_bytes)),
        }
    }
}

/// Returns the block that an event is about.
fn block(event: &Event) -> Option<u32> {
    match *event {
        Event::Allocate { id, .. }
        | Event::Free { id }
        | Event::Complete { id }
        | Event::Use { id, .. }
        | Event::Until { id, .. } => Some(id),
        Event::Mark { .. }
        | Event::Submit { .. }
        | Event::StreamWait { .. }
        | Event::HostWait { .. }
        | Event::Reached { .. }
        | Event::Look { .. }
        | Event::EmptyCache
        | Event::Trim { .. } => None,
    }
}

impl Replay {
    /// Returns the replay without some of its events. `others` are the bytes that are live beside it all the time.
    fn without(&self, is_left_out: impl Fn(&Event) -> bool, others: u64) -> Self {
        let (mut events, mut left_out) = (Vec::with_capacity(self.events.len()), Vec::new());
        let mut before = self.left_out.iter().copied().peekable();
        let mut place = 0;
        for event in &self.events {
            while before.next_if_eq(&place).is_some() {
                left_out.push(place);
                place += 1;
            }
            if is_left_out(event) {
                left_out.push(place);
            } else {
                events.push(*event);
            }
            place += 1;
        }
        left_out.extend(before);
        let live_peak = live_peak(&events, others);
        Self { events, left_out, live_peak, ..self.clone() }
    }

    /// Returns the replay with the sizes of a pass.
    fn varied(&self, vary: Vary, pass: usize, others: u64) -> Self {
        let varied = |event: &Event| match *event {
            Event::Allocate { id, bytes, stream } => Event::Allocate { id, bytes: vary.bytes(pass, bytes), stream },
            other => other,
        };
        let events: Vec<Event> = self.events.iter().map(varied).collect();
        let live_peak = live_peak(&events, others);
        Self { events, live_peak, ..self.clone() }
    }
}

/// Returns the largest sum in bytes of the blocks that are live at one time, with `others` live beside them.
fn live_peak(events: &[Event], others: u64) -> u64 {
    let mut sizes = std::collections::HashMap::new();
    let (mut live, mut peak) = (others, others);
    for event in events {
        match *event {
            Event::Allocate { id, bytes, .. } => {
                sizes.insert(id, bytes);
                live = live.saturating_add(bytes);
                peak = peak.max(live);
            }
            Event::Free { id } => live -= sizes.remove(&id).unwrap_or(0),
            _ => {}
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use millpond_trace::Trace;

    use super::*;

    /// Block 1 stays. Block 0 is freed at event 3 and complete at event 5.
    const TEXT: &str = "a 0 4096 0\na 1 8192 0\nu 1 1\nf 0\na 2 2048 0\nc 0\nf 2\nm 0 1\nw 1 0\nf 1\n";

    fn replay() -> Replay {
        Replay::new(&Trace::parse(TEXT.as_bytes()).expect("a trace"))
    }

    #[test]
    fn a_kept_block_is_allocated_once() {
        let replay = replay();
        let acts = Acts::new(&replay, &[false, true, false], None);
        let (first, later) = (acts.of(0), acts.of(1));
        assert_eq!((first.events(), later.events(), acts.later_events()), (8, 5, 5));
        let places =
            |replay: &Replay| -> Vec<usize> { (0..replay.events()).map(|at| replay.place_in_trace(at)).collect() };
        assert_eq!(places(&first), [0, 1, 2, 4, 5, 6, 7, 8]);
        assert_eq!(places(&later), [0, 4, 5, 6, 7]);
        assert_eq!(later.events[1], Event::Allocate { id: 2, bytes: 2048, stream: 0 });
        assert_eq!((replay.live_peak(), first.live_peak(), later.live_peak()), (14336, 14336, 14336));
    }

    #[test]
    fn without_anything_to_change_every_pass_is_the_trace() {
        let replay = replay();
        let acts = Acts::new(&replay, &[], None);
        assert!(matches!(acts.of(7), Cow::Borrowed(_)) && acts.of(7).events == replay.events);
    }

    #[test]
    fn varied_passes_know_what_they_have_alive() {
        let replay = replay();
        let acts = Acts::new(&replay, &[false, true, false], Some(Vary::new(50, 1)));
        assert_eq!(acts.of(0).live_peak(), 14336, "the first pass is as recorded");
        let varied = acts.of(1);
        let sizes: Vec<u64> = (varied.events.iter())
            .filter_map(|event| if let Event::Allocate { bytes, .. } = event { Some(*bytes) } else { None })
            .collect();
        assert_ne!(sizes, [4096, 2048]);
        assert_eq!(varied.live_peak(), 8192 + sizes[0] + sizes[1]);
        assert_ne!(acts.of(2).events, varied.events);
    }
}
