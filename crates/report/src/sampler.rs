//! The second look at a replay: the waste ledger in every column, and the layout at some moments.

use std::collections::BTreeMap;

use millpond::{Allocator, Buffer, Error, PageStats, Report, WasteLedger};
use millpond_backend::Backend;
use millpond_replay::Observer;

use crate::map::{Map, Scale};
use crate::owners::{Block, Owners};
use crate::scout::Scouted;

/// How many blocks the maps of a replay name in all. Only those at the peaks name any, so that a page stays small.
const NAMED: usize = 3000;

/// A moment of the map: the event behind which it is, and why it was chosen, for readers. Moments at equal distances
/// have no reason.
pub type Chosen = (usize, String);

/// Finds a moment in what was seen.
type Find = fn(&Scouted) -> Option<usize>;

/// Chooses the moments of the map for replays of one program, in order: the peaks of each, and `regular` moments at
/// equal distances. Each replay has its name.
///
/// # Panics
///
/// If there is no replay.
pub fn moments(replays: &[(&str, &Scouted)], regular: usize) -> Vec<Chosen> {
    let Some((_, first)) = replays.first() else { panic!("there is a replay") };
    let events = first.spans.events();
    let regular = regular.min(events);
    let at = |step: usize| ((step + 1) as u64 * events as u64 / regular as u64) as usize - 1;
    let mut chosen: BTreeMap<usize, Vec<String>> = (0..regular).map(|step| (at(step), Vec::new())).collect();
    let kinds: [(&str, Find); 4] = [
        ("first refusal", |seen| seen.first_refused),
        ("most live", |seen| Some(seen.most_live.at)),
        ("most reserved", |seen| Some(seen.most_reserved.at)),
        ("most unused", |seen| Some(seen.most_unused.at)),
    ];
    for (kind, of) in kinds {
        let mut names: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (name, seen) in replays {
            names.entry(of(seen).unwrap_or(usize::MAX)).or_default().push(name);
        }
        names.remove(&usize::MAX);
        for (at, names) in names {
            let of = if names.len() == replays.len() { String::new() } else { format!(" ({})", names.join(", ")) };
            chosen.entry(at).or_default().push(format!("{kind}{of}"));
        }
    }
    chosen.into_iter().map(|(at, why)| (at, why.join(", "))).collect()
}

/// The events behind which a second run looks at the allocator, each list in order.
#[derive(Clone, Debug)]
pub struct Agenda {
    columns: Vec<usize>,
    /// The moments, each with how many blocks its map names.
    moments: Vec<(usize, usize)>,
    scale: Scale,
}

impl Agenda {
    /// Takes the events from what a first run saw: in each column that at which the most was live, and the moments of
    /// the map. `scale` is that of the map.
    pub fn new(scouted: &Scouted, moments: &[Chosen], scale: Scale) -> Self {
        let columns = scouted.columns.iter().map(|column| column.at).collect();
        let is_peak = |(_, why): &&Chosen| !why.is_empty();
        let named = NAMED / moments.iter().filter(is_peak).count().max(1);
        let moment = |moment: &Chosen| (moment.0, if is_peak(&moment) { named } else { 0 });
        Self { columns, moments: moments.iter().map(moment).collect(), scale }
    }

    /// Returns the scale of the map.
    pub fn scale(&self) -> Scale {
        self.scale
    }
}

/// What there was behind the event of a column at which the most was live.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The event.
    pub at: usize,
    /// Where the reserved bytes were.
    pub ledger: WasteLedger,
    /// What was reserved, as counted beside the ledger.
    pub reserved: u64,
    /// What `paged` had done with pages so far.
    pub pages: PageStats,
}

/// The layout behind an event.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The event.
    pub at: usize,
    /// Where the reserved bytes were.
    pub ledger: WasteLedger,
    /// The layout.
    pub map: Map,
}

/// The first refusal, with the blocks beside the largest free range.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The event.
    pub at: usize,
    /// The numbers of the error.
    pub report: Report,
    /// Its message.
    pub message: String,
    /// The numbers of the blocks beside the largest free range, in the order of the report; `None` where a block is not
    /// known.
    pub beside: Vec<Option<u32>>,
}

/// What a second run saw.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// One sample for each column.
    pub samples: Vec<Sample>,
    /// The moments of the map.
    pub moments: Vec<Moment>,
    /// The first refusal of the pass.
    pub refusal: Option<Refusal>,
}

/// An observer that looks at the allocator behind chosen events of the first pass.
pub struct Sampler<'a, B: Backend> {
    allocator: &'a Allocator<B>,
    agenda: &'a Agenda,
    blocks: &'a [Block],
    owners: Owners,
    refused: Option<Refusal>,
    is_over: bool,
    sampled: Sampled,
}

impl<'a, B: Backend> Sampler<'a, B> {
    /// Creates an observer of a replay on an allocator that has served nothing yet. `blocks` are those of the trace.
    pub fn new(allocator: &'a Allocator<B>, agenda: &'a Agenda, blocks: &'a [Block]) -> Self {
        let (owners, sampled) = (Owners::default(), Sampled::default());
        Self { allocator, agenda, blocks, owners, refused: None, is_over: false, sampled }
    }

    /// Returns what was seen.
    pub fn finish(self) -> Sampled {
        self.sampled
    }

    fn sample(&mut self, at: usize) {
        let (allocator, agenda) = (self.allocator, self.agenda);
        if agenda.columns.get(self.sampled.samples.len()) == Some(&at) {
            let (ledger, reserved) = (allocator.ledger(), allocator.memory_reserved());
            self.sampled.samples.push(Sample { at, ledger, reserved, pages: allocator.page_stats() });
        }
        if let Some(&(_, named)) = agenda.moments.get(self.sampled.moments.len()).filter(|(moment, _)| *moment == at) {
            let map = Map::of(&allocator.layout(), agenda.scale, self.blocks, &self.owners, named);
            self.sampled.moments.push(Moment { at, ledger: allocator.ledger(), map });
        }
    }
}

impl<B: Backend> Observer<B> for Sampler<'_, B> {
    fn granted(&mut self, id: u32, buffer: &Buffer<B>) {
        self.owners.granted(id, buffer);
    }

    fn refused(&mut self, _: u32, error: &Error<B::Error>) {
        if let (Error::OutOfMemory(refused), None, None) = (error, &self.refused, &self.sampled.refusal) {
            let report = refused.report().clone();
            let range = report.largest_free.as_ref();
            let pins = range.map(|range| range.pinned_by.iter().map(|pin| (range.segment, pin.offset)));
            let beside = pins.into_iter().flatten().map(|(segment, offset)| self.owners.at(segment, offset));
            let (beside, message) = (beside.collect(), error.to_string());
            self.refused = Some(Refusal { at: 0, report, message, beside });
        }
    }

    fn done(&mut self, at: usize) {
        if self.is_over {
            return;
        }
        if let Some(refusal) = self.refused.take() {
            self.sampled.refusal = Some(Refusal { at, ..refusal });
        }
        self.sample(at);
    }

    fn over(&mut self) {
        self.is_over = true;
    }
}
