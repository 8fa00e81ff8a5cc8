//! What a pass does, column by column: the least and the most of what changes from event to event, exactly.

use millpond::DriverActivity;

use crate::spans::Spans;

/// The least and the most of a quantity in a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The least value behind an event of the column.
    pub min: u64,
    /// The most behind one.
    pub max: u64,
}

impl Extent {
    const EMPTY: Self = Self { min: u64::MAX, max: 0 };

    fn add(&mut self, value: u64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
}

/// One column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The requested bytes that were live.
    pub live: Extent,
    /// The bytes that were reserved.
    pub reserved: Extent,
    /// The first event behind which the most was live.
    pub at: usize,
    /// The driver's activity during its events.
    pub driver: DriverActivity,
    /// The requests that were refused.
    pub refused: u64,
}

/// The columns of a pass that is under way.
pub(crate) struct Columns {
    spans: Spans,
    columns: Vec<Column>,
    /// The driver's activity before the column under way.
    before: DriverActivity,
    refused: u64,
}

impl Columns {
    /// Creates the columns of a pass, which begins after some activity of the driver.
    pub(crate) fn new(spans: Spans, before: DriverActivity) -> Self {
        Self { spans, columns: Vec::with_capacity(spans.columns()), before, refused: 0 }
    }

    pub(crate) fn refused(&mut self) {
        self.refused += 1;
    }

    /// Adds the state behind an event. Events come in order.
    pub(crate) fn add(&mut self, event: usize, live: u64, reserved: u64, driver: DriverActivity) {
        let place = self.spans.column(event);
        if place == self.columns.len() {
            if let Some(last) = self.columns.last() {
                self.before = add(self.before, last.driver);
            }
            let (empty, none) = (Extent::EMPTY, DriverActivity::default());
            self.columns.push(Column { live: empty, reserved: empty, at: event, driver: none, refused: 0 });
        }
        let Some(column) = self.columns.last_mut() else { return };
        if column.live.max < live {
            column.at = event;
        }
        column.live.add(live);
        column.reserved.add(reserved);
        column.driver = driver.since(self.before);
        column.refused += std::mem::take(&mut self.refused);
    }

    pub(crate) fn finish(self) -> Vec<Column> {
        self.columns
    }
}

fn add(one: DriverActivity, other: DriverActivity) -> DriverActivity {
    DriverActivity {
        calls: one.calls + other.calls,
        time: one.time + other.time,
        stalls: one.stalls + other.stalls,
        stall_time: one.stall_time + other.stall_time,
        stream_waits: one.stream_waits + other.stream_waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(calls: u64) -> DriverActivity {
        DriverActivity { calls, ..DriverActivity::default() }
    }

    #[test]
    fn no_minimum_and_no_maximum_is_lost_and_every_call_is_in_one_column() {
        let events = 10_007;
        let spans = Spans::new(events);
        // Two events that one sample in a column would miss.
        let live = |event: usize| match event {
            5003 => 1 << 40,
            7001 => 0,
            event => 1000 + (event as u64 * 7919) % 997,
        };
        let mut columns = Columns::new(spans, calls(5));
        for event in 0..events {
            columns.add(event, live(event), live(event) + 10, calls(5 + event as u64 / 3));
        }
        let columns = columns.finish();
        assert_eq!(columns.len(), spans.columns());
        assert_eq!(columns[spans.column(5003)].live.max, 1 << 40);
        assert_eq!(columns[spans.column(5003)].at, 5003);
        assert_eq!(columns[spans.column(7001)].live.min, 0);
        for (place, column) in columns.iter().enumerate() {
            let end = if place + 1 < columns.len() { spans.first(place + 1) } else { events };
            let within = spans.first(place)..end;
            let (least, most) = (within.clone().map(live).min(), within.map(live).max());
            assert_eq!((Some(column.live.min), Some(column.live.max)), (least, most));
            assert_eq!((column.reserved.min, column.reserved.max), (column.live.min + 10, column.live.max + 10));
        }
        assert_eq!(columns.iter().map(|column| column.driver.calls).sum::<u64>(), (events as u64 - 1) / 3);
    }
}
