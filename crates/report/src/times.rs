//! When the events of a trace happened.

use millpond_trace::Trace;

use crate::owners::replayed;
use crate::series::Series;
use crate::spans::Spans;

/// The largest number of microseconds that a page can show, which is that of whole numbers in its scripts.
const MICROS_MAX: u64 = (1 << 53) - 1;

/// Returns how long after the first one a time is, as far as a page can show it.
fn since(first: u64, now: u64) -> u64 {
    now.saturating_sub(first).min(MICROS_MAX)
}

/// Returns the time of the first event of each column, and at the end that of the last event, in microseconds since the
/// first event that has a time. Returns `None` for a trace without times.
///
/// An event whose time is not known has that of the one before it. Those before the first known time have that one.
pub fn micros(trace: &Trace, spans: Spans) -> Option<Series> {
    let time = |(at, _)| trace.details.place(at).micros;
    let mut now = replayed(trace).find_map(time)?;
    let first = now;
    let mut micros = Vec::with_capacity(spans.columns() + 1);
    for (event, at) in replayed(trace).enumerate() {
        now = time(at).unwrap_or(now);
        if micros.len() < spans.columns() && spans.first(micros.len()) == event {
            micros.push(since(first, now));
        }
    }
    micros.push(since(first, now));
    Some(Series(micros))
}

#[cfg(test)]
mod tests {
    use millpond_trace::Place;

    use super::*;

    #[test]
    fn a_column_has_the_time_of_its_first_event() {
        let mut trace = Trace::parse(b"a 0 10 0\na 1 20 0\nf 1\nm 0 0\nf 0\na 2 5 0\nc 0\n").expect("a trace");
        let micros_of = |trace: &Trace| micros(trace, Spans::new(6));
        assert_eq!(micros_of(&trace), None);
        // The free before the completion is not replayed, and two events have no time.
        for (event, micros) in [(1, 10), (3, 30), (4, 40), (5, 50)] {
            trace.details.push(event, Place { micros: Some(micros), ..Place::default() });
        }
        assert_eq!(micros_of(&trace), Some(Series(vec![0, 0, 0, 20, 40, 40, 40])));
    }

    #[test]
    fn a_long_trace_has_a_time_for_each_column_and_the_end() {
        let text: String = (0..3000).map(|id| format!("a {id} 10 0\nf {id}\n")).collect();
        let mut trace = Trace::parse(text.as_bytes()).expect("a trace");
        for event in 0..6000 {
            trace.details.push(event, Place { micros: Some(event as u64), ..Place::default() });
        }
        let spans = Spans::new(6000);
        let micros = micros(&trace, spans).expect("times");
        assert_eq!(micros.0.len(), spans.columns() + 1);
        assert_eq!((micros.0[0], micros.0[1000], micros.0.last()), (0, spans.first(1000) as u64, Some(&5999)));
    }
}
