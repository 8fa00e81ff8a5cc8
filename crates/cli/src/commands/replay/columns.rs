//! The columns of the table: each is one entry of [`COLUMNS`].

use millpond::text::format_bytes;

use super::row::{Busy, Row, driver_time};
use crate::output::Align;

/// A column of the table.
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) align: Align,
    /// The field of the JSON that has the same value.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test holds it against the fields of the JSON"))]
    json: &'static str,
    shown: fn(&Layout) -> bool,
    cell: fn(&Row) -> String,
    /// The cell of the last row, of all traces under one policy.
    total: fn(&Group<'_>) -> String,
}

/// The choice of columns.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Whether variants stand side by side. Columns that are the same for all of them are then left out.
    pub(super) compare: bool,
    /// Whether the host's times are left out.
    pub(super) no_times: bool,
}

/// The rows of one policy.
pub(super) struct Group<'a> {
    pub(super) policy: &'a str,
    pub(super) rows: Vec<&'a Row>,
    /// The driver's time of all traces with expandable segments, where that was replayed as well.
    pub(super) expandable_us: Option<f64>,
}

impl Group<'_> {
    /// Returns the driver's time of all traces.
    pub(super) fn time_us(&self) -> f64 {
        self.rows.iter().map(|row| row.driver_time_us).sum()
    }

    fn sum(&self, value: fn(&Row) -> u64) -> String {
        self.rows.iter().map(|row| value(row)).sum::<u64>().to_string()
    }

    /// Returns the sum, or nothing where it is 0.
    fn some(&self, value: fn(&Row) -> u64) -> String {
        if self.rows.iter().all(|row| value(row) == 0) { String::new() } else { self.sum(value) }
    }

    /// Returns the sum of what only a replay has that keeps the device busy, or nothing.
    fn busy(&self, value: fn(&Busy) -> u64) -> String {
        let values: Vec<_> = self.rows.iter().filter_map(|row| row.busy.as_ref().map(value)).collect();
        if values.is_empty() { String::new() } else { values.into_iter().sum::<u64>().to_string() }
    }

    /// Returns the waste by the geometric mean of what is reserved over what is live.
    fn waste(&self, ratio: fn(&Row) -> f64) -> String {
        let logarithms: f64 = self.rows.iter().map(|row| ratio(row).ln()).sum();
        waste((logarithms / self.rows.len() as f64).exp())
    }

    /// Returns a value over all passes, or nothing where there is one pass.
    fn lived(&self, value: fn(&Self) -> String) -> String {
        if self.rows.iter().any(|row| row.passes > 0) { value(self) } else { String::new() }
    }
}

/// The columns that are left out where the table is too wide, the first one first.
const LEFT_OUT: [&str; 10] =
    ["all driver", "events", "all calls", "last calls", "of exp.", "cold", "warm", "PyTorch", "live", "life waste"];

/// Returns how early each column is left out, as [`Table::ranked`](crate::output::Table::ranked) takes it.
pub(super) fn ranks() -> [u8; COLUMNS.len()] {
    let rank = |head: &str| LEFT_OUT.iter().rev().position(|left_out| *left_out == head).map_or(0, |at| at + 1);
    COLUMNS.map(|column| rank(column.head) as u8)
}

impl Column {
    /// Returns the cell of a row; empty where the layout leaves the column out.
    pub(super) fn cell(&self, row: &Row, layout: &Layout) -> String {
        if (self.shown)(layout) { (self.cell)(row) } else { String::new() }
    }

    /// Returns the cell of the last row of a policy.
    pub(super) fn total(&self, group: &Group<'_>) -> String {
        (self.total)(group)
    }
}

/// A number at the right, shown always.
const fn number(
    head: &'static str,
    json: &'static str,
    cell: fn(&Row) -> String,
    total: fn(&Group<'_>) -> String,
) -> Column {
    Column { head, align: Align::Right, json, shown: |_| true, cell, total }
}

/// The columns. One that is empty in every row is left out of the table.
pub(super) const COLUMNS: [Column; 22] = [
    Column {
        align: Align::Left,
        ..number("trace", "trace", |row| row.trace.clone(), |group| format!("all {}", group.rows.len()))
    },
    Column { align: Align::Left, ..number("policy", "policy", |row| row.policy.clone(), |group| group.policy.into()) },
    Column { shown: |layout| !layout.compare, ..number("events", "events", |row| row.events.to_string(), nothing) },
    Column {
        shown: |layout| !layout.no_times,
        ..number("cold", "cold_ns_per_event", |row| nanos(row.cold_ns_per_event), nothing)
    },
    Column {
        shown: |layout| !layout.no_times,
        ..number("warm", "warm_ns_per_event", |row| row.warm_ns_per_event.map_or(String::new(), nanos), nothing)
    },
    number("live", "peak_live_bytes", |row| format_bytes(row.peak_live_bytes), nothing),
    number("reserved", "peak_reserved_bytes", |row| format_bytes(row.peak_reserved_bytes), nothing),
    Column {
        shown: |_| true,
        ..number("PyTorch", "torch_peak_reserved_bytes", |row| bytes(row.torch_peak_reserved_bytes), nothing)
    },
    number(
        "waste",
        "reserved_over_live",
        |row| waste(row.reserved_over_live),
        |group| group.waste(|row| row.reserved_over_live),
    ),
    number(
        "life waste",
        "life_reserved_over_live",
        |row| lived(row, |row| waste(row.life_reserved_over_live)),
        |group| group.lived(|group| group.waste(|row| row.life_reserved_over_live)),
    ),
    number("calls", "driver_calls", |row| row.driver_calls.to_string(), |group| group.sum(|row| row.driver_calls)),
    number("driver", "driver_time_us", |row| driver_time(row.driver_time_us), |group| driver_time(group.time_us())),
    number(
        "of exp.",
        "driver_time_over_expandable",
        |row| row.driver_time_over_expandable.map_or(String::new(), ratio),
        |group| over(group.time_us(), group.expandable_us).map_or(String::new(), ratio),
    ),
    number(
        "last calls",
        "last_driver_calls",
        |row| lived(row, |row| row.last_driver_calls.to_string()),
        |group| group.lived(|group| group.sum(|row| row.last_driver_calls)),
    ),
    number(
        "all calls",
        "all_driver_calls",
        |row| lived(row, |row| row.all_driver_calls.to_string()),
        |group| group.lived(|group| group.sum(|row| row.all_driver_calls)),
    ),
    number(
        "all driver",
        "all_driver_time_us",
        |row| lived(row, |row| driver_time(row.all_driver_time_us)),
        |group| group.lived(|group| driver_time(group.rows.iter().map(|row| row.all_driver_time_us).sum())),
    ),
    number(
        "retries",
        "num_alloc_retries",
        |row| some(row.num_alloc_retries),
        |group| group.some(|row| row.num_alloc_retries),
    ),
    number("OOMs", "num_ooms", |row| some(row.num_ooms), |group| group.some(|row| row.num_ooms)),
    number("stalls", "stalls", |row| busy(row, Busy::all_stalls), |group| group.busy(Busy::all_stalls)),
    number("waits", "waits", |row| busy(row, Busy::all_waits), |group| group.busy(Busy::all_waits)),
    number("passes", "events_replayed", |row| row.events_replayed.map_or(String::new(), |n| passes(row, n)), nothing),
    number(
        "checked",
        "checked_blocks",
        |row| row.checked_blocks.map_or(String::new(), |blocks| blocks.to_string()),
        |group| group.some(|row| row.checked_blocks.unwrap_or(0)),
    ),
];

/// Returns a time divided by that of expandable segments, where the latter is known and not 0.
pub(super) fn over(time: f64, expandable: Option<f64>) -> Option<f64> {
    expandable.filter(|expandable| *expandable > 0.0).map(|expandable| time / expandable)
}

/// Returns a count, or nothing where it is 0.
fn some(count: u64) -> String {
    if count == 0 { String::new() } else { count.to_string() }
}

/// Returns a value over all passes, or nothing where there is one pass.
fn lived(row: &Row, value: fn(&Row) -> String) -> String {
    if row.passes == 0 { String::new() } else { value(row) }
}

fn nothing(_: &Group<'_>) -> String {
    String::new()
}

fn busy(row: &Row, value: fn(&Busy) -> u64) -> String {
    row.busy.as_ref().map_or(String::new(), |busy| value(busy).to_string())
}

fn passes(row: &Row, events: u64) -> String {
    format!("{:.2}", events as f64 / row.events.max(1) as f64)
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or(String::new(), format_bytes)
}

/// Formats nanoseconds per event, in at most five characters up to 10 us.
fn nanos(ns: f64) -> String {
    if ns < 1000.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

/// Returns the share of what is live that is reserved beyond it.
fn waste(reserved_over_live: f64) -> String {
    format!("{:.1} %", 100.0 * (reserved_over_live - 1.0))
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the table shows the JSON has, under the name that the column says.
    #[test]
    fn every_column_has_its_field_in_the_json() {
        let source = include_str!("row.rs");
        for column in &COLUMNS {
            let is_field = |line: &str| {
                let name = line.trim().trim_start_matches("pub(super) ");
                name.strip_prefix(column.json).is_some_and(|rest| rest.starts_with(": "))
            };
            assert!(source.lines().any(is_field), "{}: no field {}", column.head, column.json);
        }
    }
}
