//! What was measured: rows, as JSON and as a table.

use std::time::Duration;

use millpond::text::format_bytes;
use serde::Serialize;

use super::measure::{Quantiles, Rounds};
use crate::conditions::Conditions;
use crate::output::{Align, Table};
use crate::quantity::format_time;

/// The clock that measured a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Clock {
    /// The host's.
    Host,
    /// The device's own: the time that the calls would have cost by the clock of the simulated device.
    Device,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Row {
    /// The device, as `--device` names its backend.
    pub(super) device: &'static str,
    #[serde(flatten)]
    pub(super) conditions: Option<Conditions>,
    /// The kind of measurement.
    pub(super) group: &'static str,
    /// What was measured.
    pub(super) case: String,
    /// The digest of the trace that was replayed, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace_digest: Option<String>,
    /// The size of each operation in bytes, where it has one.
    pub(super) bytes: Option<u64>,
    pub(super) clock: Clock,
    /// Nanoseconds for each operation, the median of rounds.
    pub(super) ns: f64,
    /// The least and the most of the rounds; null where it was measured once.
    pub(super) ns_least: Option<f64>,
    pub(super) ns_most: Option<f64>,
    /// Quantiles of single operations, where they were timed one by one.
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) p999_ns: Option<u64>,
    /// Gibibytes a second, where bytes are moved.
    pub(super) gib_per_s: Option<f64>,
    /// The peak of reserved bytes divided by the peak of live bytes, minus 1, where it was measured.
    pub(super) waste: Option<f64>,
    /// Calls of the driver, where they were counted.
    pub(super) driver_calls: Option<u64>,
    /// This time divided by Millpond's time for the same operation, for peers.
    pub(super) times_millpond: Option<f64>,
}

impl Row {
    pub(super) fn new(group: &'static str, case: impl Into<String>, rounds: impl Into<Rounds>) -> Self {
        let Rounds { median: ns, spread } = rounds.into();
        Self {
            device: "",
            conditions: None,
            trace_digest: None,
            group,
            case: case.into(),
            bytes: None,
            clock: Clock::Host,
            ns,
            ns_least: spread.map(|(least, _)| least),
            ns_most: spread.map(|(_, most)| most),
            p50_ns: None,
            p99_ns: None,
            p999_ns: None,
            gib_per_s: None,
            waste: None,
            driver_calls: None,
            times_millpond: None,
        }
    }

    pub(super) fn of_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    pub(super) fn by(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    pub(super) fn with_quantiles(self, Quantiles { p50, p99, p999 }: Quantiles) -> Self {
        Self { p50_ns: Some(p50), p99_ns: Some(p99), p999_ns: Some(p999), ..self }
    }

    /// Adds the bandwidth, which follows from the size and the time.
    pub(super) fn with_bandwidth(self) -> Self {
        let moved = |bytes: u64| bytes as f64 / (self.ns / 1e9) / f64::from(1 << 30);
        Self { gib_per_s: self.bytes.map(moved), ..self }
    }

    /// Adds the share of memory that was reserved in vain, and the number of driver calls.
    pub(super) fn with_waste(self, waste: f64, driver_calls: u64) -> Self {
        Self { waste: Some(waste), driver_calls: Some(driver_calls), ..self }
    }

    fn cells(&self) -> Vec<String> {
        let time = |ns: u64| format_time(Duration::from_nanos(ns));
        let quantile = |ns: Option<u64>| ns.map_or(String::new(), time);
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        vec![
            self.group.into(),
            self.case.clone(),
            self.bytes.map_or(String::new(), format_bytes),
            format_time(Duration::from_secs_f64(self.ns / 1e9)),
            quantile(self.p50_ns),
            quantile(self.p99_ns),
            quantile(self.p999_ns),
            number(self.gib_per_s),
            self.waste.map_or(String::new(), |share| format!("{:.1} %", 100.0 * share)),
            self.driver_calls.map_or(String::new(), |calls| calls.to_string()),
            number(self.times_millpond),
            if self.clock == Clock::Device { "device" } else { "" }.into(),
        ]
    }
}

/// Returns the rows as a table.
pub(super) fn table(rows: &[Row]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("what", Left),
        ("case", Left),
        ("size", Right),
        ("time", Right),
        ("p50", Right),
        ("p99", Right),
        ("p99.9", Right),
        ("GiB/s", Right),
        ("waste", Right),
        ("calls", Right),
        ("x millpond", Right),
        ("clock", Left),
    ])
    .ranked(&[0, 0, 0, 0, 3, 2, 4, 1, 0, 0, 0, 5]);
    rows.iter().for_each(|row| table.row(row.cells()));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_was_measured() {
        let row = Row::new("transfer", "copy", 1e9).of_bytes(1 << 30).with_bandwidth();
        assert_eq!(row.gib_per_s, Some(1.0));
        let quantiles = Quantiles { p50: 10, p99: 20, p999: 30 };
        let rows = [
            row,
            Row::new("cached", "hit", 12.5).with_quantiles(quantiles),
            Row::new("pinned", "copies", 100.0).with_waste(0.125, 7),
        ];
        let text = table(&rows).render();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["what", "case", "size", "time", "p50", "p99", "p99.9", "GiB/s", "waste", "calls"]);
        assert_eq!(lines[1], ["transfer", "copy", "1024.00", "MiB", "1.0", "s", "1.00"]);
        assert_eq!(lines[2], ["cached", "hit", "12.0", "ns", "10.0", "ns", "20.0", "ns", "30.0", "ns"]);
        assert_eq!(lines[3], ["pinned", "copies", "100", "ns", "12.5", "%", "7"]);
        let json = serde_json::to_value(&rows[0]).expect("a value");
        assert_eq!((&json["group"], &json["clock"], &json["p50_ns"]), (&"transfer".into(), &"host".into(), &().into()));
    }
}
