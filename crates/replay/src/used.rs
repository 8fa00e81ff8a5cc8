//! The streams that a trace uses. Only those are opened, so that high stream numbers cost nothing.

use std::collections::BTreeSet;

use millpond_trace::{Event, Trace};

/// The numbers of the streams that a trace uses, in order. Their indices are the streams of a replay.
pub(crate) struct Used(Vec<u32>);

impl Used {
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut used = BTreeSet::new();
        let mut last = None;
        for event in &trace.events {
            let stream = stream_of(event);
            // Most events are on the same stream as the event before.
            if stream.is_some() && stream != last {
                used.extend(stream);
                last = stream;
            }
        }
        Self(used.into_iter().collect())
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns the event with its stream's number replaced by the stream's index. This is cheap where the two are
    /// equal.
    pub(crate) fn renumbered(&self, event: Event) -> Event {
        let place = |stream: u32| {
            if self.0.get(stream as usize) == Some(&stream) { stream } else { self.place(stream) }
        };
        match event {
            Event::Allocate { id, bytes, stream } => Event::Allocate { id, bytes, stream: place(stream) },
            Event::Use { id, stream } => Event::Use { id, stream: place(stream) },
            Event::Mark { point, stream } => Event::Mark { point, stream: place(stream) },
            Event::Submit { stream } => Event::Submit { stream: place(stream) },
            Event::StreamWait { stream, point } => Event::StreamWait { stream: place(stream), point },
            other => other,
        }
    }

    fn place(&self, stream: u32) -> u32 {
        match self.0.binary_search(&stream) {
            Ok(place) => place as u32,
            Err(_) => panic!("stream {stream} is in the trace and not among those that it uses: {:?}", self.0),
        }
    }
}

fn stream_of(event: &Event) -> Option<u32> {
    match *event {
        Event::Allocate { stream, .. }
        | Event::Use { stream, .. }
        | Event::Mark { stream, .. }
        | Event::Submit { stream }
        | Event::StreamWait { stream, .. } => Some(stream),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_by_their_order_and_none_is_made_up() {
        let text = "m 0 65535\na 0 1 3\nu 0 700\nf 0\nq 9\nd 8 0\n";
        let trace = Trace::parse(text.as_bytes()).expect("a trace");
        let used = Used::of(&trace);
        let events: Vec<_> = trace.events.iter().map(|&event| used.renumbered(event)).collect();
        let wanted = [
            Event::Mark { point: 0, stream: 4 },
            Event::Allocate { id: 0, bytes: 1, stream: 0 },
            Event::Use { id: 0, stream: 3 },
            Event::Free { id: 0 },
            Event::Submit { stream: 2 },
            Event::StreamWait { stream: 1, point: 0 },
        ];
        assert_eq!((used.count(), &events[..]), (5, &wanted[..]));
    }
}
