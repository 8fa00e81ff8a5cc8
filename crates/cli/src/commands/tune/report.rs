//! What a search prints: for one trace its frontier and the recommendation, for several a table.

use millpond::text::format_bytes;
use millpond_replay::tune::{Checked, Measured, Tried, VARY_PERCENT};

use super::TuneArgs;
use super::row::{Row, described};
use crate::output::{Align, Output, Paint, Table, wrapped};
use crate::quantity::format_time;

/// The most settings of a frontier that are printed unless all are asked for.
const SHOWN_MAX: usize = 12;

/// What was found so far.
pub(super) struct Report<'a> {
    args: &'a TuneArgs,
    /// The device, for readers.
    device: String,
    threads: usize,
    /// The number of traces.
    traces: usize,
    rows: Vec<Row>,
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &'a TuneArgs, device: String, threads: usize, traces: usize) -> Self {
        Self { args, device, threads, traces, rows: Vec::new() }
    }

    /// Adds a trace. It is printed at once as JSON, or if it is the only one.
    pub(super) fn add(&mut self, row: Row, output: &mut Output) {
        let &TuneArgs { passes, seed, no_times, markdown, .. } = self.args;
        if output.is_json() {
            output.json(&row.json(&self.device, passes, seed, !no_times));
        } else if self.traces == 1 && !markdown {
            output.text(&self.page(&row, output));
        } else {
            self.rows.push(row);
        }
    }

    /// Prints the table of several traces.
    pub(super) fn finish(&self, output: &mut Output) {
        if self.rows.is_empty() {
            return;
        }
        let mut table = Table::new(&[
            ("trace", Align::Left),
            ("settings", Align::Left),
            ("reserved", Align::Right),
            ("res/live", Align::Right),
            ("calls", Align::Right),
            ("driver", Align::Right),
            ("configuration", Align::Left),
        ])
        .ranked(&[0, 0, 1, 0, 0, 0, 0]);
        for row in &self.rows {
            for (name, paint, tried) in
                [("default", None, row.default()), ("tuned", Some(Paint::Good), row.best().cloned())]
            {
                table.painted_row(paint, cells(row, name, tried.as_ref()));
            }
        }
        let (title, times) = (self.title(&self.rows), self.times());
        let table = if self.args.markdown { table.markdown() } else { output.table(&table) };
        let title = if self.args.markdown { title } else { wrapped(&title, output.width()).join("\n") };
        output.text(&format!("{title}\n\n{table}{times}"));
    }

    fn title(&self, rows: &[Row]) -> String {
        let &TuneArgs { passes, seed, .. } = self.args;
        let limit = self.args.limit.map_or(String::new(), |limit| format!(", limited to {limit}"));
        let work = match self.args.in_flight {
            Some(0) => ", no work in flight".into(),
            Some(events) => format!(", work in flight for {events} events"),
            None if rows.iter().any(|row| row.is_in_flight) => ", work in flight as recorded".into(),
            None => String::new(),
        };
        format!("On {}{limit}{work}; calls and driver of {} passes, seed {seed}", self.device, passes.saturating_add(1))
    }

    /// Returns how many settings were tried for each trace, and in which time.
    fn times(&self) -> String {
        if self.args.no_times {
            return String::new();
        }
        let lines = self.rows.iter().map(|row| format!("{}: {}\n", row.name, self.tried(row)));
        format!("\n{}", lines.collect::<String>())
    }

    fn tried(&self, row: &Row) -> String {
        let searched = &row.searched;
        let time = if self.args.no_times {
            String::new()
        } else {
            format!(" in {} by {} threads", format_time(row.took), self.threads)
        };
        let unfit = if searched.unfit > 0 { format!(", {} out of memory", searched.unfit) } else { String::new() };
        let exhausted = if searched.is_exhausted { "; there are no others" } else { "" };
        let (tried, whole, beaten) = (searched.tried, searched.whole, searched.beaten);
        format!("{tried} settings tried{time}: {whole} to the end, {beaten} beaten before{unfit}{exhausted}")
    }

    /// Returns all that is printed about one trace.
    fn page(&self, row: &Row, output: &Output) -> String {
        let lines = |text: String| wrapped(&text, output.width()).join("\n");
        let live = format_bytes(row.live_peak);
        let subject = format!("{}: {} events, {} streams, {live} live at most", row.name, row.events, row.streams);
        let head = format!(
            "{}\n{}\n{}\n",
            lines(self.title(std::slice::from_ref(row))),
            lines(subject),
            lines(self.tried(row))
        );
        let Some(best) = row.best() else { return head };
        let (mut shown, of) = (self.shown(row, best), row.searched.frontier.all().len());
        let left_out = of - shown.len();
        let (default, is_default) = (row.default(), |tried: &Tried| tried.settings == row.space.default_settings());
        if let Some(default) = default.as_ref().filter(|_| !shown.iter().any(|tried| is_default(tried))) {
            let reserved = default.measured.reserved_bytes;
            shown.insert(shown.partition_point(|tried| tried.measured.reserved_bytes < reserved), default);
        }
        let mut table = Table::new(&[
            ("", Align::Left),
            ("reserved", Align::Right),
            ("res/live", Align::Right),
            ("calls", Align::Right),
            ("driver", Align::Right),
            ("settings", Align::Left),
        ]);
        for tried in &shown {
            let is_best = tried.settings == best.settings;
            let [reserved, ratio, calls, driver] = figures(row, &tried.measured);
            let mark = [if is_default(tried) { "d" } else { "" }, if is_best { "*" } else { "" }].concat();
            let paint = is_best.then_some(Paint::Good);
            table.painted_row(paint, vec![mark, reserved, ratio, calls, driver, described(&tried.settings)]);
        }
        let more = if left_out > 0 { format!("; {left_out} of {of} left out, --all has them") } else { String::new() };
        let legend = format!("(* recommended, d the default{more})\n");
        format!("{head}\n{}{legend}\n{}", output.table(&table), self.verdict(row, best, output))
    }

    /// Returns the settings of the frontier that are printed: both ends, the recommended ones and the default ones, and
    /// between them those that are farthest apart.
    fn shown<'r>(&self, row: &'r Row, best: &Tried) -> Vec<&'r Tried> {
        let mut shown: Vec<&Tried> = row.searched.frontier.all().iter().collect();
        let default = row.space.default_settings();
        while shown.len() > SHOWN_MAX && !self.args.all {
            let apart = |a: &Measured, b: &Measured| {
                let bytes = (b.reserved_bytes as f64 / a.reserved_bytes.max(1) as f64).ln();
                bytes + (a.driver_time.as_secs_f64() / b.driver_time.as_secs_f64().max(1e-9)).ln()
            };
            let gap = |at: &usize| apart(&shown[at - 1].measured, &shown[at + 1].measured);
            let is_kept = |at: &usize| [&best.settings, &default].contains(&&shown[*at].settings);
            let middle = (1..shown.len() - 1).filter(|at| !is_kept(at));
            let Some(least) = middle.min_by(|a, b| gap(a).total_cmp(&gap(b))) else { break };
            shown.remove(least);
        }
        shown
    }

    /// Returns the recommendation, what it gives, and how sure that is.
    fn verdict(&self, row: &Row, best: &Tried, output: &Output) -> String {
        let lines = |text: &str| wrapped(text, output.width()).join("\n") + "\n";
        let is_default = best.settings == row.space.default_settings();
        let what = if is_default { "The default is as good as any" } else { "Recommended" };
        let name = output.style().paint(Paint::Good, &described(&best.settings));
        let mut text = lines(&format!("{what}: {name}")) + &format!("\n  {}\n\n", best.conf());
        match row.searched.default {
            _ if is_default => {}
            Some(default) => text += &lines(&format!("Against the default: {}.", gain(&best.measured, &default))),
            None => text += &lines("The default runs out of memory there."),
        }
        let waits = row.searched.default.map_or(0, |default| default.stream_waits);
        if best.measured.stream_waits > waits {
            text += &lines(&format!(
                "Streams wait for each other on the device {} times, {waits} under the default: what that costs \
                 depends on their kernels, and is no driver time.",
                best.measured.stream_waits
            ));
        }
        text += &match &row.recommended {
            Some(recommended) => lines(&sureness(&recommended.checked, is_default)),
            None => lines("Interrupted: the best so far, and not checked on variations of the program."),
        };
        text
    }
}

fn cells(row: &Row, name: &str, tried: Option<&Tried>) -> Vec<String> {
    let Some(tried) = tried else {
        let nothing = || String::from("-");
        return vec![row.name.clone(), name.into(), nothing(), nothing(), nothing(), nothing(), "out of memory".into()];
    };
    let [reserved, ratio, calls, driver] = figures(row, &tried.measured);
    // A space behind a comma means nothing in a configuration, and lets it be broken into lines.
    vec![row.name.clone(), name.into(), reserved, ratio, calls, driver, tried.conf().replace(',', ", ")]
}

fn figures(row: &Row, measured: &Measured) -> [String; 4] {
    [
        format_bytes(measured.reserved_bytes),
        format!("{:.3}", row.over_live(measured)),
        measured.driver_calls.to_string(),
        format_time(measured.driver_time),
    ]
}

/// Returns what settings give against others.
fn gain(own: &Measured, default: &Measured) -> String {
    let bytes = own.reserved_bytes as f64 / default.reserved_bytes.max(1) as f64;
    let time = own.driver_time.as_secs_f64() / default.driver_time.as_secs_f64().max(1e-9);
    let difference = own.reserved_bytes.abs_diff(default.reserved_bytes);
    let less = if own.reserved_bytes <= default.reserved_bytes { "less" } else { "more" };
    format!(
        "{} {less} reserved ({:+.1} %), {:.2} times its driver time ({} for {}), {} driver calls for {}",
        format_bytes(difference),
        100.0 * (bytes - 1.0),
        time,
        format_time(own.driver_time),
        format_time(default.driver_time),
        own.driver_calls,
        default.driver_calls,
    )
}

/// Returns how sure a recommendation is.
fn sureness(checked: &Checked, is_default: bool) -> String {
    let Checked { variations, no_worse, unfit, default_unfit, .. } = checked;
    let mut text =
        format!("Checked on {variations} variations of the program, sizes varied by up to {VARY_PERCENT} %: ");
    if is_default {
        text += "no other setting of the frontier is clearly better over all of them";
    } else {
        text += &format!("no worse than the default in {no_worse} of {variations}");
        if let (Some((few, many)), Some((short, long))) = (checked.reserved_over_default, checked.time_over_default) {
            text += &format!(
                ", with {few:.3} to {many:.3} of its reserved bytes and {short:.2} to {long:.2} of its driver time"
            );
        }
    }
    if *unfit > 0 {
        text += &format!("; out of memory in {unfit} of {variations}");
    }
    if *default_unfit > 0 && !is_default {
        text += &format!("; the default is out of memory in {default_unfit} of {variations}");
    }
    text + "."
}
