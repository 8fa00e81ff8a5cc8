//! The output of a replay: rows of JSON trace by trace, or one table at the end.

use millpond::settings::Settings;

use super::ReplayArgs;
use super::columns::{COLUMNS, Group, Layout, over, ranks};
use super::row::Row;
use super::{Done, Limit, variant};
use crate::output::{Output, Table, wrapped};

/// The rows so far.
pub(super) struct Report {
    layout: Layout,
    limit: Option<Limit>,
    touch: bool,
    threads: u16,
    scale: u64,
    /// What is added to the title about programs that live long.
    life: String,
    /// Whether a row has the work of the recorded run in flight.
    as_recorded: bool,
    markdown: bool,
    /// The name of the device, for readers; empty before the first row.
    device: String,
    /// The rows of the trace under way.
    open: Vec<Row>,
    /// The rows for the table.
    rows: Vec<Row>,
    /// How many allocations were refused, over all passes.
    refused: u64,
    allow_oom: bool,
}

impl Report {
    pub(super) fn new(args: &ReplayArgs, variants: &[Settings]) -> Self {
        let mut policies = variants.iter().map(|settings| settings.policy.variant_name());
        let first = policies.next();
        let compare = policies.any(|policy| Some(policy) != first);
        Self {
            layout: Layout { compare, no_times: args.no_times },
            limit: args.limit,
            touch: args.touch,
            threads: args.threads,
            scale: args.scale,
            life: args.life.title(),
            as_recorded: false,
            markdown: args.markdown,
            device: String::new(),
            open: Vec::new(),
            rows: Vec::new(),
            refused: 0,
            allow_oom: args.allow_oom,
        }
    }

    /// Adds a row of the trace under way.
    pub(super) fn add(&mut self, row: Row, done: &Done) {
        if self.device.is_empty() {
            self.device = format!("{} ({})", row.device, done.device);
        }
        self.refused += done.replayed.passes().map(|pass| pass.ooms).sum::<u64>();
        self.as_recorded |= done.as_recorded;
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

    /// Prints what was kept, including the rows of a trace that was not finished. Returns how many allocations were
    /// refused, or 0 if that is allowed.
    pub(super) fn finish(mut self, output: &mut Output) -> u64 {
        self.end_trace(output);
        let refused = if self.allow_oom { 0 } else { self.refused };
        if self.rows.is_empty() {
            return refused;
        }
        let heads = COLUMNS.map(|column| (column.head, column.align));
        let mut table = Table::new(&heads).ranked(&ranks());
        let cells = |row| COLUMNS.iter().map(|column| column.cell(row, &self.layout)).collect();
        self.rows.iter().for_each(|row| table.row(cells(row)));
        totals(&self.rows, self.layout.compare).into_iter().for_each(|cells| table.row(cells));
        let table = if self.markdown { table.markdown() } else { output.table(&table) };
        let details: String = self.rows.iter().map(|row| row.details(output)).collect();
        let title = wrapped(&self.title(), output.width()).join("\n");
        output.text(&format!("{title}\n\n{table}{details}"));
        refused
    }

    fn title(&self) -> String {
        let limit = self.limit.map_or(String::new(), |limit| format!(", limited to {limit}"));
        let check = if self.touch { ", bytes checked" } else { "" };
        let threads = if self.threads > 1 { format!(", by {} threads", self.threads) } else { String::new() };
        let scale = if self.scale > 1 { format!(", sizes divided by {}", self.scale) } else { String::new() };
        let times = if self.layout.no_times { "" } else { "; cold and warm in ns per event" };
        let work = if self.as_recorded { ", work in flight as recorded" } else { "" };
        format!("On {}{threads}{scale}{limit}{}{work}{check}{times}", self.device, self.life)
    }
}

/// Returns a last row for each policy that has several traces: the geometric means of reserved over live, and sums of
/// what follows them.
fn totals(rows: &[Row], compare: bool) -> Vec<Vec<String>> {
    let mut policies: Vec<&str> = Vec::new();
    for row in rows {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    let group =
        |policy| Group { policy, rows: rows.iter().filter(|row| row.policy == policy).collect(), expandable_us: None };
    let expandable_us = compare.then(|| group(variant::EXPANDABLE).time_us());
    let groups = policies.into_iter().map(|policy| Group { expandable_us, ..group(policy) });
    let several = groups.filter(|group| group.rows.len() > 1);
    several.map(|group| COLUMNS.iter().map(|column| column.total(&group)).collect()).collect()
}
