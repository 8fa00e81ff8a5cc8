//! What was found for one trace, and its line of JSON.

use std::time::Duration;

use millpond::settings::{Policy, Settings};
use millpond_replay::tune::{Aim, Checked, Measured, Recommended, Searched, Space, Tried, cheapest, conf_of};
use serde::Serialize;

/// What was found for one trace.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) events: usize,
    pub(super) streams: u32,
    pub(super) live_peak: u64,
    pub(super) limit: Option<u64>,
    pub(super) space: Space,
    pub(super) aim: Aim,
    pub(super) searched: Searched,
    /// `None` if nothing fits, or the search was interrupted.
    pub(super) recommended: Option<Recommended>,
    /// Whether work is in flight, as asked for or as recorded.
    pub(super) is_in_flight: bool,
    /// What the program reserves without a cache, where nothing fits and that is known.
    pub(super) floor: Option<u64>,
    pub(super) took: Duration,
}

impl Row {
    /// Returns whether settings were tried and none fits.
    pub(super) fn nothing_fits(&self) -> bool {
        self.searched.frontier.all().is_empty() && self.searched.unfit > 0
    }

    /// Returns the recommended settings, or the best ones so far where the search was interrupted.
    pub(super) fn best(&self) -> Option<&Tried> {
        let checked = self.recommended.as_ref().map(|recommended| &recommended.tried);
        checked.or_else(|| cheapest(&self.searched.frontier, self.aim))
    }

    pub(super) fn over_live(&self, measured: &Measured) -> f64 {
        measured.reserved_bytes as f64 / self.live_peak.max(1) as f64
    }

    /// Returns the default settings, with what they came to.
    pub(super) fn default(&self) -> Option<Tried> {
        let measured = self.searched.default?;
        Some(Tried { settings: self.space.default_settings(), measured })
    }

    /// Returns the line of JSON. Without times it is the same for equal searches.
    pub(super) fn json<'a>(&'a self, device: &'a str, passes: usize, seed: u64, has_times: bool) -> Json<'a> {
        let of = |tried: &Tried| OfSettings::new(self, tried);
        Json {
            trace: &self.name,
            device,
            events: self.events,
            streams: self.streams,
            passes,
            seed,
            limit_bytes: self.limit,
            peak_live_bytes: self.live_peak,
            settings_tried: self.searched.tried,
            settings_whole: self.searched.whole,
            settings_beaten: self.searched.beaten,
            settings_unfit: self.searched.unfit,
            is_exhausted: self.searched.is_exhausted,
            seconds: has_times.then_some(self.took.as_secs_f64()),
            default: self.default().as_ref().map(of),
            recommended: self.best().map(of),
            checked: self.recommended.as_ref().map(|recommended| OfCheck::new(&recommended.checked)),
            frontier: self.searched.frontier.all().iter().map(of).collect(),
        }
    }
}

/// Returns the name of the policy, with the settings that are not the default ones.
pub(super) fn described(settings: &Settings) -> String {
    let conf = conf_of(settings);
    let own = ["policy:", "growth:", "expandable_segments:"];
    let rest: Vec<&str> =
        pairs(&conf).into_iter().filter(|pair| !own.iter().any(|key| pair.starts_with(key))).collect();
    let name = settings.policy.variant_name();
    if rest.is_empty() { name.into() } else { format!("{name}, {}", rest.join(", ")) }
}

/// Splits a configuration at the commas that are in no brackets.
fn pairs(conf: &str) -> Vec<&str> {
    let mut depth = 0;
    conf.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
    .collect()
}

/// One trace, as JSON.
#[derive(Serialize)]
pub(super) struct Json<'a> {
    trace: &'a str,
    device: &'a str,
    events: usize,
    streams: u32,
    passes: usize,
    seed: u64,
    limit_bytes: Option<u64>,
    peak_live_bytes: u64,
    settings_tried: usize,
    settings_whole: usize,
    settings_beaten: usize,
    settings_unfit: usize,
    is_exhausted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    default: Option<OfSettings>,
    recommended: Option<OfSettings>,
    checked: Option<OfCheck>,
    frontier: Vec<OfSettings>,
}

#[derive(Serialize)]
struct OfSettings {
    policy: &'static str,
    conf: String,
    peak_reserved_bytes: u64,
    reserved_over_live: f64,
    driver_calls: u64,
    driver_time_us: f64,
    stalls: u64,
    waits: u64,
}

impl OfSettings {
    fn new(row: &Row, tried: &Tried) -> Self {
        let Measured { reserved_bytes, driver_calls, driver_time, stalls, stream_waits } = tried.measured;
        Self {
            policy: Policy::variant_name(tried.settings.policy),
            conf: tried.conf(),
            peak_reserved_bytes: reserved_bytes,
            reserved_over_live: row.over_live(&tried.measured),
            driver_calls,
            driver_time_us: driver_time.as_nanos() as f64 / 1e3,
            stalls,
            waits: stream_waits,
        }
    }
}

#[derive(Serialize)]
struct OfCheck {
    variations: usize,
    no_worse: usize,
    unfit: usize,
    default_unfit: usize,
    reserved_over_default: Option<(f64, f64)>,
    time_over_default: Option<(f64, f64)>,
}

impl OfCheck {
    fn new(checked: &Checked) -> Self {
        let &Checked { variations, no_worse, unfit, default_unfit, reserved_over_default, time_over_default } = checked;
        Self { variations, no_worse, unfit, default_unfit, reserved_over_default, time_over_default }
    }
}

#[cfg(test)]
mod tests {
    use millpond::conf;

    use super::*;

    #[test]
    fn settings_are_called_by_the_name_of_their_policy() {
        for (text, expected) in [
            ("policy:paged", "paged"),
            ("policy:paged,growth:tight,slack:0.1", "tight, slack:0.1"),
            ("policy:classic,expandable_segments:True", "expandable"),
            (
                "policy:classic,large_segment_size_mb:32,roundup_power2_divisions:[1:2,>:8]",
                "classic, large_segment_size_mb:32, roundup_power2_divisions:[1:2,>:8]",
            ),
        ] {
            assert_eq!(described(&conf::parse(text).expect(text).resolve(true)), expected);
        }
    }
}
