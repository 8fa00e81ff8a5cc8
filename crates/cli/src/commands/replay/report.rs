//! What a replay prints: rows of JSON as they come, or one table at the end.

use std::time::Duration;

use millpond::settings::Settings;
use millpond::summary::memory_summary;
use millpond::text::format_bytes;
use millpond::trace::Header;
use millpond::{Replayed, conf};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Done, Limit, variant};
use crate::args::ReplayArgs;
use crate::output::{Align, Output, Table};
use crate::quantity::format_time;

/// One trace under one variant, as JSON.
#[derive(Serialize)]
pub(super) struct Row {
    trace: String,
    device: &'static str,
    policy: String,
    conf: String,
    limit_bytes: Option<u64>,
    events: usize,
    passes: usize,
    cold_ns_per_event: f64,
    warm_ns_per_event: Option<f64>,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    torch_peak_reserved_bytes: Option<u64>,
    reserved_over_live: f64,
    driver_calls: u64,
    driver_time_us: f64,
    warm_driver_calls: u64,
    warm_driver_time_us: f64,
    num_alloc_retries: u64,
    num_ooms: u64,
    warm_num_ooms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Map<String, Value>>,
}

impl Row {
    pub(super) fn new(
        trace: &str,
        device: &'static str,
        settings: &Settings,
        args: &ReplayArgs,
        limit_bytes: Option<u64>,
        header: &Header,
        replayed: &Replayed,
    ) -> Self {
        let stats = &replayed.stats;
        let values = || stats.flat().into_iter().map(|(key, value)| (key, Value::from(value))).collect();
        Self {
            trace: trace.into(),
            device,
            policy: variant::label(settings),
            conf: conf::write(settings),
            limit_bytes,
            events: replayed.events,
            passes: replayed.warm.len(),
            cold_ns_per_event: replayed.cold_ns_per_event(),
            warm_ns_per_event: replayed.warm_ns_per_event(),
            peak_live_bytes: replayed.live_peak,
            peak_reserved_bytes: stats.reserved_bytes.all.peak,
            torch_peak_reserved_bytes: header.peak_reserved(),
            reserved_over_live: replayed.reserved_over_live(),
            driver_calls: replayed.driver.calls,
            driver_time_us: micros(replayed.driver.time),
            warm_driver_calls: replayed.warm_driver.calls,
            warm_driver_time_us: micros(replayed.warm_driver.time),
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            warm_num_ooms: replayed.warm.iter().map(|pass| pass.ooms).sum(),
            memory_summary: args.summary.then(|| memory_summary(stats, 0, false)),
            stats: args.stats.then(values),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.trace.clone(),
            self.policy.clone(),
            self.events.to_string(),
            format!("{:.1}", self.cold_ns_per_event),
            self.warm_ns_per_event.map_or(String::new(), |ns| format!("{ns:.1}")),
            format_bytes(self.peak_live_bytes),
            format_bytes(self.peak_reserved_bytes),
            self.torch_peak_reserved_bytes.map_or(String::new(), format_bytes),
            format!("{:.3}", self.reserved_over_live),
            self.driver_calls.to_string(),
            format_time(Duration::from_secs_f64(self.driver_time_us / 1e6)),
            if self.passes == 0 { String::new() } else { self.warm_driver_calls.to_string() },
            self.num_alloc_retries.to_string(),
            self.num_ooms.to_string(),
        ]
    }

    /// The long answers, under a title of their own.
    fn details(&self) -> String {
        let mut text = String::new();
        if let Some(summary) = &self.memory_summary {
            text += &format!("\n{} under {}\n{summary}", self.trace, self.policy);
        }
        if let Some(stats) = &self.stats {
            let mut table = Table::new(&[("statistic", Align::Left), ("value", Align::Right)]);
            for (key, value) in stats {
                table.row(vec![key.clone(), value.to_string()]);
            }
            text += &format!("\n{} under {}\n{}", self.trace, self.policy, table.render());
        }
        text
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// The rows so far.
pub(super) struct Report {
    limit: Option<Limit>,
    title: String,
    table: Table,
    details: String,
}

impl Report {
    pub(super) fn new(args: &ReplayArgs) -> Self {
        use Align::{Left, Right};
        let table = Table::new(&[
            ("trace", Left),
            ("policy", Left),
            ("events", Right),
            ("cold", Right),
            ("warm", Right),
            ("live", Right),
            ("reserved", Right),
            ("torch", Right),
            ("reserved/live", Right),
            ("calls", Right),
            ("driver", Right),
            ("warm calls", Right),
            ("retries", Right),
            ("OOMs", Right),
        ]);
        Self { limit: args.limit, title: String::new(), table, details: String::new() }
    }

    /// Prints a row, or keeps it for the table.
    pub(super) fn add(&mut self, row: Row, done: &Done, output: &mut Output) {
        if output.is_json() {
            output.json(&row);
            return;
        }
        if self.title.is_empty() {
            let limit = self.limit.map_or(String::new(), |limit| format!(", limited to {limit}"));
            self.title = format!("On {} ({}){limit}; cold and warm in ns per event\n\n", row.device, done.device);
        }
        self.table.row(row.cells());
        self.details += &row.details();
    }

    /// Prints the table, if there is one.
    pub(super) fn finish(self, output: &mut Output) {
        if !self.table.is_empty() {
            output.text(&format!("{}{}{}", self.title, self.table.render(), self.details));
        }
    }
}
