//! The choice of one setting of the frontier, and how sure it is.

use millpond::settings::Settings;

use super::search::each;
use super::{Ended, Frontier, Measured, Searched, Space, Tried};

/// The number of variations of the program that a recommendation is checked on.
pub const VARIATIONS: usize = 8;

/// How much sizes differ in a variation, in percent.
pub const VARY_PERCENT: u32 = 5;

/// The number of settings that are checked, of which one is recommended.
const SHORT_LIST: usize = 6;

/// The share of the reserved bytes that counts as much as half of the driver's time.
const BYTES_FOR_HALF: f64 = 0.01;

/// The least difference in cost for which other settings than the default ones are recommended: a fifth of a percent of
/// the reserved bytes.
const LEAST_GAIN: f64 = 0.002;

/// The least number of variations in which they have to be no worse than the default ones.
const LEAST_BETTER: usize = VARIATIONS * 3 / 4;

/// What makes one setting better than another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Both count: half of the driver's time is worth one percent of the reserved bytes. A program takes its driver's
    /// time once or twice, and its memory as long as it runs.
    Both,
    /// The driver's time alone counts, as what may be reserved is limited.
    Time,
}

impl Aim {
    /// Returns the cost to minimize. A difference of 0.01 is one percent of the reserved bytes.
    pub fn cost(self, measured: &Measured) -> f64 {
        let time = measured.driver_time.as_nanos().max(1) as f64;
        match self {
            Self::Both => (measured.reserved_bytes.max(1) as f64).ln() + BYTES_FOR_HALF * time.log2(),
            Self::Time => BYTES_FOR_HALF * time.log2(),
        }
    }
}

/// A recommendation.
#[derive(Clone, PartialEq, Debug)]
pub struct Recommended {
    /// The settings, and what the program came to under them.
    pub tried: Tried,
    /// What they came to on variations of the program, beside the default settings.
    pub checked: Checked,
}

/// The result of settings on variations of the program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Checked {
    /// The number of variations.
    pub variations: usize,
    /// In how many of them the settings were better than the default settings, or as good.
    pub no_worse: usize,
    /// In how many of them the program ran out of memory under the settings.
    pub unfit: usize,
    /// In how many of them it ran out of memory under the default settings.
    pub default_unfit: usize,
    /// The reserved bytes over those of the default settings, the least and the most.
    pub reserved_over_default: Option<(f64, f64)>,
    /// The driver's time over that of the default settings, the least and the most.
    pub time_over_default: Option<(f64, f64)>,
}

/// Recommends the settings of the frontier that are best on the program and on [`VARIATIONS`] of it: first those that
/// fit the most variations, then those of the lowest mean cost. Where that is hardly lower than the cost of the default
/// settings, or the default settings are better on more than a quarter of the variations, those are recommended.
/// `measure` makes a whole trial of the variation of that
/// number, from 1 on. Returns `None` if the frontier is empty, or if `is_over` returned true before the end.
///
/// # Errors
///
/// Returns the first error of `measure`.
pub fn recommend<E: Send>(
    searched: &Searched,
    space: &Space,
    aim: Aim,
    threads: usize,
    measure: impl Fn(&Settings, usize) -> Result<Ended, E> + Sync,
    is_over: impl Fn() -> bool + Sync,
) -> Result<Option<Recommended>, E> {
    let short = short_list(&searched.frontier, aim);
    if short.is_empty() {
        return Ok(None);
    }
    let default = space.default_settings();
    let settings: Vec<&Settings> = std::iter::once(&default).chain(short.iter().map(|tried| &tried.settings)).collect();
    let jobs: Vec<(&Settings, usize)> =
        settings.iter().flat_map(|settings| (1..=VARIATIONS).map(|variation| (*settings, variation))).collect();
    let ended = each(&jobs, threads, &is_over, |(settings, variation)| measure(settings, *variation));
    let Some(ended) = ended.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let ended = ended.into_iter().collect::<Result<Vec<Ended>, E>>()?;
    let mut rows = ended.chunks(VARIATIONS).map(|row| row.iter().map(|ended| ended.measured()).collect::<Vec<_>>());
    let Some(of_default) = rows.next() else { return Ok(None) };
    let mut best: Option<((usize, f64), Recommended)> = None;
    for (tried, row) in short.into_iter().zip(rows) {
        let cost = mean(aim, &row, &tried.measured);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            let checked = Checked::new(aim, &row, &of_default);
            best = Some((cost, Recommended { tried: tried.clone(), checked }));
        }
    }
    if let (Some(((unfit, cost), recommended)), Some(measured)) = (&best, searched.default) {
        let (default_unfit, default_cost) = mean(aim, &of_default, &measured);
        let is_hardly_better = *cost > default_cost - LEAST_GAIN || recommended.checked.no_worse < LEAST_BETTER;
        if default_unfit <= *unfit && is_hardly_better {
            let checked = Checked::new(aim, &of_default, &of_default);
            return Ok(Some(Recommended { tried: Tried { settings: default, measured }, checked }));
        }
    }
    Ok(best.map(|(_, recommended)| recommended))
}

/// Returns how many variations do not fit, and the mean cost of those that do and of the program itself.
fn mean(aim: Aim, row: &[Option<Measured>], nominal: &Measured) -> (usize, f64) {
    let unfit = row.iter().filter(|measured| measured.is_none()).count();
    let costs = row.iter().flatten().chain([nominal]).map(|measured| aim.cost(measured));
    (unfit, costs.sum::<f64>() / (row.len() - unfit + 1) as f64)
}

/// Returns the settings that may be recommended: those that cache, or all where none of those fits. Without a cache a
/// program calls its driver as often in its last pass as in the first.
fn candidates(frontier: &Frontier) -> Vec<&Tried> {
    let caches: Vec<&Tried> = frontier.all().iter().filter(|tried| tried.settings.policy.caches()).collect();
    if caches.is_empty() { frontier.all().iter().collect() } else { caches }
}

/// Returns the settings of the lowest cost, the lowest first.
fn short_list(frontier: &Frontier, aim: Aim) -> Vec<&Tried> {
    let mut all = candidates(frontier);
    all.sort_by(|a, b| aim.cost(&a.measured).total_cmp(&aim.cost(&b.measured)));
    all.truncate(SHORT_LIST);
    all
}

impl Checked {
    fn new(aim: Aim, row: &[Option<Measured>], of_default: &[Option<Measured>]) -> Self {
        let no_worse = |(own, default): &(&Option<Measured>, &Option<Measured>)| match (own, default) {
            (Some(own), Some(default)) => aim.cost(own) <= aim.cost(default),
            (own, default) => own.is_some() || default.is_none(),
        };
        let pairs = || row.iter().zip(of_default);
        let both = || pairs().filter_map(|(own, default)| Some(((*own)?, (*default)?)));
        let reserved = both().map(|(own, default)| own.reserved_bytes as f64 / default.reserved_bytes.max(1) as f64);
        let time = both()
            .map(|(own, default)| own.driver_time.as_nanos() as f64 / default.driver_time.as_nanos().max(1) as f64);
        let unfit = |row: &[Option<Measured>]| row.iter().filter(|measured| measured.is_none()).count();
        Self {
            variations: row.len(),
            no_worse: pairs().filter(no_worse).count(),
            unfit: unfit(row),
            default_unfit: unfit(of_default),
            reserved_over_default: range(reserved),
            time_over_default: range(time),
        }
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.map(|value| (value, value)).reduce(|(least, most), (value, _)| (least.min(value), most.max(value)))
}

/// Returns the settings of the frontier of the lowest cost, which are not checked on variations.
pub fn cheapest(frontier: &Frontier, aim: Aim) -> Option<&Tried> {
    candidates(frontier).into_iter().min_by(|a, b| aim.cost(&a.measured).total_cmp(&aim.cost(&b.measured)))
}
