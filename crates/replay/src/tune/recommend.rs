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

/// How many times as much a share of the reserved bytes counts as the same share of the driver's time.
const BYTES_OVER_TIME: f64 = 10.0;

/// What makes one setting better than another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Both count: a tenth of the driver's time is worth one percent of the reserved bytes.
    Both,
    /// The driver's time alone counts, as what may be reserved is limited.
    Time,
}

impl Aim {
    /// Returns what is to be as low as possible. A difference of 0.01 is one percent of the reserved bytes.
    pub fn cost(self, measured: &Measured) -> f64 {
        let time = measured.driver_time.as_nanos().max(1) as f64;
        match self {
            Self::Both => (measured.reserved_bytes.max(1) as f64).ln() + time.ln() / BYTES_OVER_TIME,
            Self::Time => time.ln() / BYTES_OVER_TIME,
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

/// What settings came to on variations of the program.
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
/// fit the most variations, then those of the lowest mean cost. `measure` makes a whole trial of the variation of that
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
        let unfit = row.iter().filter(|measured| measured.is_none()).count();
        let costs = row.iter().flatten().chain([&tried.measured]).map(|measured| aim.cost(measured));
        let mean = costs.sum::<f64>() / (VARIATIONS - unfit + 1) as f64;
        if best.as_ref().is_none_or(|((fewest, least), _)| (unfit, mean) < (*fewest, *least)) {
            let checked = Checked::new(aim, &row, &of_default);
            best = Some(((unfit, mean), Recommended { tried: tried.clone(), checked }));
        }
    }
    Ok(best.map(|(_, recommended)| recommended))
}

/// Returns the settings of the lowest cost, the lowest first.
fn short_list(frontier: &Frontier, aim: Aim) -> Vec<&Tried> {
    let mut all: Vec<&Tried> = frontier.all().iter().collect();
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
        let time = both().map(|(own, default)| {
            own.driver_time.as_nanos() as f64 / default.driver_time.as_nanos().max(1) as f64
        });
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
