//! What a report shows, as the page reads it.

use millpond::PinnedBy;
use millpond_replay::{Fits, Pass, Replayed};
use serde::Serialize;

use crate::columns::{Column, Extent};
use crate::holders::Holders;
use crate::map::Row;
use crate::named::Named;
use crate::owners::Block;
use crate::sampler::{Moment, Refusal, Sampled};
use crate::scout::{PassSeen, Scouted};
use crate::series::Series;
use crate::who::Who;

/// One program, replayed under one policy or several. A page writes the series of its runs once each, so they are not
/// serialized with it.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// What is known about it: names and values, for readers.
    pub facts: Vec<(String, String)>,
    /// The events of a pass.
    pub events: usize,
    /// The columns of the timeline.
    pub columns: usize,
    /// The times at which the columns begin and the last one ends, as [`micros`](crate::micros) returns them.
    pub micros: Option<Series>,
    /// The bytes of a cell of the map.
    pub cell: u64,
    /// The moments of the map, of all runs: their events, and why they were chosen.
    pub moments: Vec<(usize, String)>,
    /// Who holds memory when the most is live.
    pub holders: Holders,
    /// Who allocates, as far as the trace knows.
    pub who: Who,
    /// The blocks that the maps name.
    pub blocks: Named,
    /// The replays, in the order of the policies.
    #[serde(skip)]
    pub runs: Vec<Run>,
    /// Which policies fit, where a request was refused.
    pub fits: Option<FitsData>,
    /// What became of it, in a sentence or two; what can be typed is between backticks.
    pub headline: String,
}

/// Which policies fit a program within its limit.
#[derive(Clone, Debug, Serialize)]
pub struct FitsData {
    /// The answer in a sentence.
    pub sentence: String,
    /// The name of each policy, the requests that it refused, and the most bytes that it reserved.
    pub policies: Vec<(&'static str, u64, u64)>,
}

impl From<&Fits> for FitsData {
    fn from(fits: &Fits) -> Self {
        let policies = fits.policies.iter().map(|fit| (fit.policy(), fit.refused, fit.reserved_peak));
        Self { sentence: fits.sentence() + ".", policies: policies.collect() }
    }
}

/// A replay under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The name of the policy.
    pub policy: String,
    /// The most requested bytes that were live at one time of the first pass.
    pub live: u64,
    /// The most bytes that were reserved at one time of the first pass.
    pub reserved: u64,
    /// The most that was live, and the most that was reserved, over all passes.
    pub life: (u64, u64),
    /// The most that was reserved by the end of a pass over the most that was live by then, in the worst pass.
    pub life_ratio: f64,
    /// The timeline of the first pass.
    #[serde(skip)]
    pub columns: ColumnSeries,
    /// The names of the parts of the waste ledger, and their bytes in each column behind its event with the most live.
    #[serde(skip)]
    pub parts: Vec<(&'static str, Series)>,
    /// The events of those samples.
    #[serde(skip)]
    pub at: Series,
    /// The mappings in windows that were made up to each of them.
    #[serde(skip)]
    pub mapped: Series,
    /// The number of samples at which the second run, which made them, had reserved something else than the first.
    pub differs: usize,
    /// The map at each of the program's moments.
    pub moments: Vec<MomentData>,
    /// The passes.
    pub passes: Vec<PassData>,
    /// Whether the program has settled, in a sentence.
    pub verdict: String,
    /// The first refusal of the first pass.
    pub refusal: Option<RefusalData>,
}

/// The columns of a first pass, as lists.
#[derive(Clone, Debug, Default)]
pub struct ColumnSeries {
    /// The least that was live.
    pub live_min: Series,
    /// The most that was live.
    pub live_max: Series,
    /// The least that was reserved.
    pub reserved_min: Series,
    /// The most that was reserved.
    pub reserved_max: Series,
    /// The driver's calls.
    pub calls: Series,
    /// Waits of a stream for another one, and of the host.
    pub waits: Series,
    /// Refused requests.
    pub refused: Series,
}

/// The map at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct MomentData {
    /// The event.
    pub at: usize,
    /// The parts of the ledger, in the order of [`Run::parts`].
    pub parts: Vec<u64>,
    /// The rows of the map.
    pub rows: Vec<Row>,
}

/// Freed memory that work in flight keeps from being used by others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pinned {
    /// Its bytes, each counted once.
    pub bytes: u64,
    /// By stream: its number, the bytes that wait for it, and the free bytes that it used last itself.
    pub streams: Vec<(u32, u64, u64)>,
}

impl Pinned {
    fn new(slack: &millpond::SlackStats) -> Self {
        let by = |by: &PinnedBy| (by.stream.0, by.bytes, by.own_bytes);
        Self { bytes: slack.pinned_bytes, streams: slack.pinned_by.iter().map(by).collect() }
    }
}

/// One pass.
#[derive(Clone, Debug, Serialize)]
pub struct PassData {
    /// The most requested bytes that were live.
    pub live: u64,
    /// The most bytes that were reserved.
    pub reserved: u64,
    /// The driver's calls.
    pub calls: u64,
    /// Their time, in microseconds.
    pub micros: u64,
    /// Waits of streams for each other on the device.
    pub waits: u64,
    /// Waits of the host.
    pub stalls: u64,
    /// Refused requests.
    pub refused: u64,
    /// The most that work in flight pinned, of some moments; nothing where none is in flight.
    pub pinned: Pinned,
}

/// The first refusal.
#[derive(Clone, Debug, Serialize)]
pub struct RefusalData {
    /// The event.
    pub at: usize,
    /// The requested bytes.
    pub requested: u64,
    /// The bytes that the policy takes from the driver for it: a segment, or whole pages.
    pub tried: u64,
    /// The stream of the request.
    pub stream: u32,
    /// The bytes that were reserved.
    pub reserved: u64,
    /// The most that may be reserved: the limit, or the device's memory.
    pub limit: u64,
    /// The parts of the ledger, in the order of [`Run::parts`].
    pub parts: Vec<u64>,
    /// All free bytes, wherever they are.
    pub free: u64,
    /// The largest free range: its stream and bytes.
    pub hole: Option<(u32, u64)>,
    /// The largest free range that the request's own stream could use.
    pub usable: Option<(u32, u64)>,
    /// The blocks beside the largest free range.
    pub pins: Vec<PinData>,
    /// The message of the error.
    pub message: String,
}

/// A block beside the largest free range.
#[derive(Clone, Debug, Serialize)]
pub struct PinData {
    /// Whether it lies before the range.
    pub before: bool,
    /// Its bytes.
    pub bytes: u64,
    /// Whether it is freed and waits for a point.
    pub waiting: bool,
    /// The event that allocated it.
    pub born: Option<usize>,
    /// How long it lives, in words; empty if it is not known.
    pub lifetime: &'static str,
}

impl Run {
    /// Puts together what two runs of the same replay saw.
    pub fn new(policy: String, replayed: &Replayed, scouted: &Scouted, sampled: &Sampled, blocks: &[Block]) -> Self {
        let passes: Vec<PassData> = replayed.passes().zip(&scouted.passes).map(|(p, seen)| pass(p, seen)).collect();
        let samples = &sampled.samples;
        let names = samples.first().map(|sample| sample.ledger.parts().map(|(name, _)| name)).unwrap_or_default();
        let part = |place: usize| samples.iter().map(|sample| sample.ledger.parts()[place].1).collect();
        let same = samples.iter().zip(&scouted.columns).filter(|(sample, column)| {
            column.reserved.min <= sample.reserved && sample.reserved <= column.reserved.max
        });
        Self {
            policy,
            live: scouted.most_live.bytes,
            reserved: replayed.stats.reserved_bytes.all.peak,
            life: (passes.iter().map(|pass| pass.live).max().unwrap_or(0), replayed.life_reserved_peak),
            life_ratio: replayed.life_reserved_over_live(),
            columns: ColumnSeries::new(&scouted.columns),
            parts: names.into_iter().enumerate().map(|(place, name)| (name, part(place))).collect(),
            at: samples.iter().map(|sample| sample.at as u64).collect(),
            mapped: samples.iter().map(|sample| sample.pages.moved).collect(),
            differs: scouted.columns.len() - same.count(),
            moments: sampled.moments.iter().map(moment).collect(),
            verdict: crate::verdict::of(&passes),
            passes,
            refusal: sampled.refusal.as_ref().map(|refusal| refusal_data(refusal, blocks)),
        }
    }

    /// Returns the rows of its maps.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.moments.iter().flat_map(|moment| &moment.rows)
    }

    /// Returns what was reserved at most over what was live at most, in the first pass.
    pub fn ratio(&self) -> f64 {
        self.reserved as f64 / self.live.max(1) as f64
    }
}

impl ColumnSeries {
    fn new(columns: &[Column]) -> Self {
        let of = |value: fn(&Column) -> u64| columns.iter().map(value).collect();
        let extent = |extent: fn(&Column) -> Extent| -> [Series; 2] {
            [columns.iter().map(|c| extent(c).min).collect(), columns.iter().map(|c| extent(c).max).collect()]
        };
        let ([live_min, live_max], [reserved_min, reserved_max]) = (extent(|c| c.live), extent(|c| c.reserved));
        Self {
            live_min,
            live_max,
            reserved_min,
            reserved_max,
            calls: of(|column| column.driver.calls),
            waits: of(|column| column.driver.stream_waits + column.driver.stalls),
            refused: of(|column| column.refused),
        }
    }
}

fn pass(pass: &Pass, seen: &PassSeen) -> PassData {
    PassData {
        live: seen.live_peak,
        reserved: seen.reserved_peak,
        calls: pass.driver.calls,
        micros: u64::try_from(pass.driver.time.as_micros()).unwrap_or(u64::MAX),
        waits: pass.driver.stream_waits,
        stalls: pass.driver.stalls,
        refused: pass.ooms,
        pinned: Pinned::new(&seen.slack),
    }
}

fn moment(moment: &Moment) -> MomentData {
    MomentData {
        at: moment.at,
        parts: moment.ledger.parts().map(|(_, bytes)| bytes).into(),
        rows: moment.map.rows.clone(),
    }
}

fn refusal_data(refusal: &Refusal, blocks: &[Block]) -> RefusalData {
    let report = &refusal.report;
    let range = |range: &millpond::FreeRange| (range.stream.0, range.bytes);
    let pins = report.largest_free.iter().flat_map(|free| free.pinned_by.iter().map(|pin| (free.offset, pin)));
    let pins = pins.zip(&refusal.beside).map(|((hole, pin), id)| {
        let block = id.and_then(|id| blocks.get(id as usize));
        PinData {
            before: pin.offset < hole,
            bytes: pin.size,
            waiting: pin.waiting,
            born: block.map(|block| block.born),
            lifetime: block.map_or("", |block| block.lifetime.name()),
        }
    });
    let ledger = &report.ledger;
    RefusalData {
        at: refusal.at,
        requested: report.requested_bytes,
        tried: report.tried_bytes,
        stream: report.stream.0,
        reserved: report.reserved_bytes,
        limit: report.limit_bytes.unwrap_or(report.total_bytes),
        parts: ledger.parts().map(|(_, bytes)| bytes).into(),
        free: ledger.ready_bytes + ledger.guarded_bytes + ledger.stranded_bytes + ledger.held_bytes,
        hole: report.largest_free.as_ref().map(range),
        usable: report.largest_usable.as_ref().map(range),
        pins: pins.collect(),
        message: refusal.message.clone(),
    }
}
