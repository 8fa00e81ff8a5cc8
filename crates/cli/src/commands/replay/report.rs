//! The output of a replay: rows of JSON trace by trace, or one table at the end.

use super::row::{Busy, COLUMNS, Layout, Row, driver_time, ratio};
use super::{Done, Limit, variant};
use crate::args::ReplayArgs;
use crate::output::{Output, Table};

/// The rows so far.
pub(super) struct Report {
    layout: Layout,
    limit: Option<Limit>,
    touch: bool,
    threads: u16,
    scale: u64,
    markdown: bool,
    /// The name of the device, for readers; empty before the first row.
    device: String,
    /// The rows of the trace under way.
    open: Vec<Row>,
    /// The rows for the table.
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(args: &ReplayArgs) -> Self {
        Self {
            layout: Layout { compare: args.compare, no_times: args.no_times },
            limit: args.limit,
            touch: args.touch,
            threads: args.threads,
            scale: args.scale,
            markdown: args.markdown,
            device: String::new(),
            open: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of the trace under way.
    pub(super) fn add(&mut self, row: Row, done: &Done) {
        if self.device.is_empty() {
            self.device = format!("{} ({})", row.device, done.device);
        }
        self.open.push(row);
    }

    /// Ends a trace once all its variants are there: prints the rows as JSON, or keeps them for the table.
    pub(super) fn end_trace(&mut self, output: &mut Output) {
        let mut rows = std::mem::take(&mut self.open);
        if self.layout.compare {
            let expandable = rows.iter().find(|row| row.policy == variant::EXPANDABLE).map(|row| row.driver_time_us);
            for row in &mut rows {
                row.driver_time_over_expandable = over(row.driver_time_us, expandable);
            }
        }
        if output.is_json() {
            rows.iter().for_each(|row| output.json(row));
        } else {
            self.rows.append(&mut rows);
        }
    }

    /// Prints what was kept, including the rows of a trace that was not finished.
    pub(super) fn finish(mut self, output: &mut Output) {
        self.end_trace(output);
        if self.rows.is_empty() {
            return;
        }
        let mut table = Table::new(&COLUMNS);
        self.rows.iter().for_each(|row| table.row(row.cells(&self.layout)));
        totals(&self.rows, self.layout.compare).into_iter().for_each(|cells| table.row(cells));
        let table = if self.markdown { table.markdown() } else { table.render() };
        let details: String = self.rows.iter().map(Row::details).collect();
        output.text(&format!("{}\n\n{table}{details}", self.title()));
    }

    fn title(&self) -> String {
        let limit = self.limit.map_or(String::new(), |limit| format!(", limited to {limit}"));
        let check = if self.touch { ", bytes checked" } else { "" };
        let threads = if self.threads > 1 { format!(", by {} threads", self.threads) } else { String::new() };
        let scale = if self.scale > 1 { format!(", sizes divided by {}", self.scale) } else { String::new() };
        let times = if self.layout.no_times { "" } else { "; cold and warm in ns per event" };
        format!("On {}{threads}{scale}{limit}{check}{times}", self.device)
    }
}

/// Returns a time divided by that of expandable segments, where the latter is known and not 0.
fn over(time: f64, expandable: Option<f64>) -> Option<f64> {
    expandable.filter(|expandable| *expandable > 0.0).map(|expandable| time / expandable)
}

/// Returns a last row for each policy that has several traces: the geometric mean of reserved over live, and sums of
/// what follows it.
fn totals(rows: &[Row], compare: bool) -> Vec<Vec<String>> {
    let mut policies: Vec<&str> = Vec::new();
    for row in rows {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    let of = |policy: &str| -> Vec<&Row> { rows.iter().filter(|row| row.policy == policy).collect() };
    let time = |rows: &[&Row]| rows.iter().map(|row| row.driver_time_us).sum::<f64>();
    let expandable = compare.then(|| time(&of(variant::EXPANDABLE)));
    let several = policies.into_iter().map(|policy| (policy, of(policy))).filter(|(_, rows)| rows.len() > 1);
    let total = |(policy, rows): (&str, Vec<&Row>)| {
        let logarithms: f64 = rows.iter().map(|row| row.reserved_over_live.ln()).sum();
        let sum = |value: fn(&Row) -> u64| rows.iter().map(|row| value(row)).sum::<u64>().to_string();
        let empty = String::new;
        let busy = |value: fn(&Busy) -> u64| {
            let values: Vec<_> = rows.iter().filter_map(|row| row.busy.as_ref().map(value)).collect();
            if values.is_empty() { empty() } else { values.into_iter().sum::<u64>().to_string() }
        };
        let has_warm = rows.iter().any(|row| row.passes > 0);
        vec![
            format!("all {}", rows.len()),
            policy.to_string(),
            empty(),
            empty(),
            empty(),
            empty(),
            empty(),
            empty(),
            ratio((logarithms / rows.len() as f64).exp()),
            sum(|row| row.driver_calls),
            driver_time(time(&rows)),
            over(time(&rows), expandable).map_or(String::new(), ratio),
            if has_warm { sum(|row| row.warm_driver_calls) } else { empty() },
            sum(|row| row.num_alloc_retries),
            sum(|row| row.num_ooms),
            busy(Busy::all_stalls),
            busy(Busy::all_waits),
            empty(),
            busy(|busy| busy.checked_blocks),
        ]
    };
    several.map(total).collect()
}
