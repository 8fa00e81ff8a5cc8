//! The columns of a timeline: which events are in which.

/// The most columns of a timeline: a few for each pixel of a wide panel, so that zooming in shows more.
const COLUMNS_MAX: usize = 2880;

/// The division of the events of a pass into columns of equal numbers of events, as far as they can be equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spans {
    events: usize,
    columns: usize,
}

impl Spans {
    /// Divides this number of events. Where they are few, each has a column of its own.
    pub fn new(events: usize) -> Self {
        Self { events, columns: events.min(COLUMNS_MAX) }
    }

    /// Returns the number of columns.
    pub fn columns(self) -> usize {
        self.columns
    }

    /// Returns the number of events.
    pub fn events(self) -> usize {
        self.events
    }

    /// Returns the column of an event.
    ///
    /// # Panics
    ///
    /// If there is no such event.
    pub fn column(self, event: usize) -> usize {
        assert!(event < self.events, "event {event} of {}", self.events);
        // Widened, as the product of two numbers below 2^32 fits.
        (event as u64 * self.columns as u64 / self.events as u64) as usize
    }

    /// Returns the first event of a column.
    pub fn first(self, column: usize) -> usize {
        (column as u64 * self.events as u64).div_ceil(self.columns.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_in_one_column_and_no_column_is_empty() {
        for events in [1, 2, 719, 2879, 2880, 2881, 5759, 5761, 670_123] {
            let spans = Spans::new(events);
            assert_eq!((spans.column(0), spans.column(events - 1)), (0, spans.columns() - 1));
            for column in 0..spans.columns() {
                let first = spans.first(column);
                assert_eq!(spans.column(first), column, "{events} events");
                assert!(column == 0 || spans.column(first - 1) == column - 1, "{events} events, column {column}");
            }
        }
    }
}
