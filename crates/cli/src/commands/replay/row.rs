//! One trace under one variant: its line of JSON, and its cells in the table.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond::settings::Settings;
use millpond::stats::{PageStats, PinnedBy, SlackStats};
use millpond::summary::{Terms, memory_summary, split_note};
use millpond_replay::{Pass, Replayed};
use millpond_trace::Header;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ReplayArgs;
use super::{Done, variant};
use crate::conditions::Conditions;
use crate::devices::{Target, UsageRow};
use crate::output::{Align, Output, Table};
use crate::quantity::format_time;

/// What a row is of.
pub(super) struct Of<'a> {
    /// The name of the trace, or of several that are replayed together.
    pub(super) trace: &'a str,
    /// Its digest, where rows become JSON.
    pub(super) digest: Option<&'a str>,
    pub(super) target: &'a Target,
    pub(super) settings: &'a Settings,
    /// The most bytes that may be reserved.
    pub(super) limit: Option<u64>,
    pub(super) header: &'a Header,
}

/// One trace under one variant, as JSON.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) trace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_digest: Option<String>,
    pub(super) device: &'static str,
    #[serde(flatten)]
    conditions: Conditions,
    pub(super) policy: String,
    conf: String,
    limit_bytes: Option<u64>,
    scale: u64,
    threads: usize,
    #[serde(flatten)]
    life: LifeOf,
    pub(super) events: usize,
    pub(super) passes: usize,
    /// The number of events that one thread replayed in all passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) events_replayed: Option<u64>,
    pub(super) cold_ns_per_event: f64,
    pub(super) warm_ns_per_event: Option<f64>,
    /// Of each pass that was not cut short, the first one first.
    ns_per_event_by_pass: Vec<f64>,
    pub(super) peak_live_bytes: u64,
    pub(super) peak_reserved_bytes: u64,
    pub(super) torch_peak_reserved_bytes: Option<u64>,
    pub(super) reserved_over_live: f64,
    life_peak_live_bytes: u64,
    life_peak_reserved_bytes: u64,
    pub(super) life_reserved_over_live: f64,
    pub(super) driver_calls: u64,
    pub(super) driver_time_us: f64,
    pub(super) last_driver_calls: u64,
    last_driver_time_us: f64,
    pub(super) all_driver_calls: u64,
    pub(super) all_driver_time_us: f64,
    driver_calls_by_pass: Vec<u64>,
    driver_time_us_by_pass: Vec<f64>,
    /// Set by the report, which has the rows of all variants; null where there is nothing to compare with.
    pub(super) driver_time_over_expandable: Option<f64>,
    warm_driver_calls: u64,
    warm_driver_time_us: f64,
    pub(super) num_alloc_retries: u64,
    pub(super) num_ooms: u64,
    warm_num_ooms: u64,
    page_stats: BTreeMap<&'static str, u64>,
    slack_stats: SlackOf,
    /// Whether the policy is one of pages, `paged`.
    #[serde(skip)]
    moves_pages: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checked_blocks: Option<u64>,
    #[serde(flatten)]
    pub(super) busy: Option<Busy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_usage: Option<UsageRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Map<String, Value>>,
}

/// What makes the passes one life, as it was asked for.
#[derive(Serialize)]
struct LifeOf {
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vary: Option<String>,
    keep: bool,
}

/// Measurements that only a replay has whose work keeps the device busy.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Busy {
    stalls: u64,
    stall_time_us: f64,
    waits: u64,
    warm_stalls: u64,
    warm_stall_time_us: f64,
    warm_waits: u64,
    last_stalls: u64,
    last_waits: u64,
}

impl Busy {
    fn new(replayed: &Replayed) -> Self {
        let (cold, warm, last) = (replayed.driver, replayed.warm_driver, replayed.last().driver);
        Self {
            stalls: cold.stalls,
            stall_time_us: micros(cold.stall_time),
            waits: cold.stream_waits,
            warm_stalls: warm.stalls,
            warm_stall_time_us: micros(warm.stall_time),
            warm_waits: warm.stream_waits,
            last_stalls: last.stalls,
            last_waits: last.stream_waits,
        }
    }

    /// Returns the stalls of all passes, as the table has it.
    pub(super) fn all_stalls(&self) -> u64 {
        self.stalls + self.warm_stalls
    }

    /// Returns the waits of all passes.
    pub(super) fn all_waits(&self) -> u64 {
        self.waits + self.warm_waits
    }
}

/// What is reserved beyond the slack, and what work in flight pins: [`SlackStats`].
#[derive(Serialize)]
struct SlackOf {
    most_live_bytes: u64,
    bound_bytes: Option<u64>,
    beyond_bytes: u64,
    pinned_bytes: u64,
    pinned_by: Vec<PinnedOf>,
    sharing: &'static str,
}

/// What the work of one stream pins.
#[derive(Serialize)]
struct PinnedOf {
    stream: u32,
    bytes: u64,
    own_bytes: u64,
}

impl SlackOf {
    fn new(stats: &SlackStats) -> Self {
        let SlackStats { most_live_bytes, bound_bytes, beyond_bytes, pinned_bytes, pinned_by, sharing } = stats;
        let pinned =
            |pinned: &PinnedBy| PinnedOf { stream: pinned.stream.0, bytes: pinned.bytes, own_bytes: pinned.own_bytes };
        Self {
            most_live_bytes: *most_live_bytes,
            bound_bytes: *bound_bytes,
            beyond_bytes: *beyond_bytes,
            pinned_bytes: *pinned_bytes,
            pinned_by: pinned_by.iter().map(pinned).collect(),
            sharing: sharing.name(),
        }
    }

    /// Returns the numbers with their names, those of each stream at the end.
    fn by_name(&self) -> Vec<(String, u64)> {
        let of_all = [
            ("beyond_bytes", self.beyond_bytes),
            ("bound_bytes", self.bound_bytes.unwrap_or_default()),
            ("most_live_bytes", self.most_live_bytes),
            ("pinned_bytes", self.pinned_bytes),
        ];
        let of_streams = self.pinned_by.iter().flat_map(|&PinnedOf { stream, bytes, own_bytes }| {
            [(format!("pinned_by.{stream}.bytes"), bytes), (format!("pinned_by.{stream}.own_bytes"), own_bytes)]
        });
        of_all.map(|(name, bytes)| (name.to_string(), bytes)).into_iter().chain(of_streams).collect()
    }
}

/// Returns what the policy did with pages, under the names of [`PageStats`].
fn by_name(stats: &PageStats) -> [(&'static str, u64); 8] {
    let &PageStats { pages, shadows, created, released, moved, moved_behind_wait, returned, unmapped } = stats;
    [
        ("pages", pages),
        ("created", created),
        ("released", released),
        ("moved", moved),
        ("moved_behind_wait", moved_behind_wait),
        ("returned", returned),
        ("shadows", shadows),
        ("unmapped", unmapped),
    ]
}

impl Row {
    pub(super) fn new(of: &Of<'_>, args: &ReplayArgs, done: &Done) -> Self {
        let &Of { trace, digest, target, settings, limit: limit_bytes, header } = of;
        let (replayed, usage) = (&done.replayed, done.usage.as_ref());
        let stats = &replayed.stats;
        let values = || stats.flat().into_iter().map(|(key, value)| (key, Value::from(value))).collect();
        Self {
            trace: trace.into(),
            trace_digest: digest.map(str::to_owned),
            device: target.name(),
            conditions: Conditions::new(target, &done.device),
            policy: variant::label(settings),
            conf: variant::conf_text(settings),
            limit_bytes,
            scale: args.scale,
            threads: replayed.threads,
            life: LifeOf {
                in_flight: match args.life.in_flight {
                    None => done.as_recorded.then(|| "as recorded".into()),
                    Some(time) => Some(time.to_string()),
                },
                vary: args.life.vary.map(|vary| vary.to_string()),
                keep: args.life.keep,
            },
            events: replayed.events,
            passes: replayed.whole_warm_passes().count(),
            events_replayed: args.time.map(|_| replayed.events_replayed()),
            cold_ns_per_event: replayed.cold_ns_per_event(),
            warm_ns_per_event: replayed.warm_ns_per_event(),
            ns_per_event_by_pass: [&replayed.cold]
                .into_iter()
                .chain(replayed.whole_warm_passes())
                .map(per_event)
                .collect(),
            peak_live_bytes: replayed.live_peak,
            peak_reserved_bytes: stats.reserved_bytes.all.peak,
            torch_peak_reserved_bytes: header.peak_reserved(),
            reserved_over_live: replayed.reserved_over_live(),
            life_peak_live_bytes: replayed.life_live_peak,
            life_peak_reserved_bytes: replayed.life_reserved_peak,
            life_reserved_over_live: replayed.life_reserved_over_live(),
            driver_calls: replayed.driver.calls,
            driver_time_us: micros(replayed.driver.time),
            last_driver_calls: replayed.last().driver.calls,
            last_driver_time_us: micros(replayed.last().driver.time),
            all_driver_calls: replayed.driver.calls + replayed.warm_driver.calls,
            all_driver_time_us: micros(replayed.driver.time + replayed.warm_driver.time),
            driver_calls_by_pass: replayed.passes().map(|pass| pass.driver.calls).collect(),
            driver_time_us_by_pass: replayed.passes().map(|pass| micros(pass.driver.time)).collect(),
            driver_time_over_expandable: None,
            warm_driver_calls: replayed.warm_driver.calls,
            warm_driver_time_us: micros(replayed.warm_driver.time),
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            warm_num_ooms: replayed.warm.iter().map(|pass| pass.ooms).sum(),
            page_stats: BTreeMap::from(by_name(&replayed.pages)),
            slack_stats: SlackOf::new(&replayed.slack),
            moves_pages: settings.policy.moves_pages(),
            checked_blocks: args.touch.then_some(replayed.checked_blocks),
            busy: (args.touch || args.life.in_flight.is_some() || done.as_recorded).then(|| Busy::new(replayed)),
            memory_summary: args.summary.then(|| {
                let note = split_note(settings, &[]).map_or(String::new(), |note| format!("note: {note}\n"));
                memory_summary(stats, &replayed.pages, &replayed.slack, usage, 0, Terms::PyTorch, false) + &note
            }),
            memory_usage: usage.filter(|_| args.summary).map(UsageRow::new),
            stats: args.stats.then(values),
        }
    }

    /// Returns the summary and the statistics that were asked for, each under its own title.
    pub(super) fn details(&self, output: &Output) -> String {
        let mut text = String::new();
        if let Some(summary) = &self.memory_summary {
            text += &format!("\n{} under {}\n{summary}", self.trace, self.policy);
        }
        if let Some(stats) = &self.stats {
            let mut table = Table::new(&[("statistic", Align::Left), ("value", Align::Right)]);
            for (key, value) in stats {
                table.row(vec![key.clone(), value.to_string()]);
            }
            for (name, value) in self.page_stats.iter().filter(|_| self.moves_pages) {
                table.row(vec![format!("page_stats.{name}"), value.to_string()]);
            }
            for (name, value) in self.slack_stats.by_name().into_iter().filter(|_| self.moves_pages) {
                table.row(vec![format!("slack_stats.{name}"), value.to_string()]);
            }
            if self.moves_pages {
                table.row(vec!["slack_stats.sharing".into(), self.slack_stats.sharing.into()]);
            }
            text += &format!("\n{} under {}\n{}", self.trace, self.policy, output.table(&table));
        }
        text
    }
}

/// Returns the nanoseconds for each event of a pass.
fn per_event(pass: &Pass) -> f64 {
    pass.time.as_nanos() as f64 / pass.events.max(1) as f64
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

pub(super) fn driver_time(us: f64) -> String {
    format_time(Duration::from_secs_f64(us / 1e6))
}
