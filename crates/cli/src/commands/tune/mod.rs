//! `millpond tune`: the search for the policy and the settings that suit a recorded program.

mod args;
mod report;
mod row;

pub(crate) use args::{HELP, TuneArgs};

use std::thread;
use std::time::{Duration, Instant};

use millpond::settings::{Policy, Settings};
use millpond::text::format_bytes;
use millpond_any::{AnyAllocator, AnyDevice};
use millpond_backend::{Backend as _, StreamId};
use millpond_replay::tune::{self, Aim, Budget, Ended, Frontier, Search, Searched, Space, Trial};
use millpond_replay::{AsRecorded, Flight, HeldFor, Vary};

use self::report::Report;
use self::row::Row;
use crate::commands::one_form;
use crate::commands::replay::{Limit, Refused, Source, sources};
use crate::devices::{Opened, Recorded, Target, Work};
use crate::failure::Failure;
use crate::files;
use crate::interrupt;
use crate::output::progress::Progress;
use crate::output::{Output, tell};

/// Tunes the traces in the order given.
///
/// # Errors
///
/// Returns the error of the first trace that cannot be read, and [`Failure::OutOfMemory`] if a trace fits under no
/// settings. What was found before it is printed all the same.
pub(crate) fn run(args: &TuneArgs, output: &mut Output) -> Result<(), Failure> {
    one_form(args.markdown, output)?;
    files::check(&args.traces, &[])?;
    let target = Target::choose_or_simulated(args.device.as_deref())?;
    let Facts { name, has_pages, has_clock } = target.run(|opened| Ok(Facts::of(&opened)))?;
    if !has_clock {
        let what = "a search replays a program many times, by a clock of the device; give `--device sim`, or no device";
        return Err(Failure::Input(format!("--device: {what}")));
    }
    let sources = sources(&args.traces, &args.patterns);
    let threads = args.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    interrupt::catch();
    let mut report = Report::new(args, format!("{} ({name})", target.name()), threads, sources.len());
    let mut unfit = Vec::new();
    let tuning = Tuning { args, target: &target, has_pages, threads };
    let tuned = sources.iter().try_for_each(|source| {
        if !output.is_open() {
            return Ok(());
        }
        let row = tuning.tune(source)?;
        if row.nothing_fits() {
            unfit.push(row.explained(args.limit.as_ref()));
        }
        report.add(row, output);
        interrupt::check()
    });
    report.finish(output);
    tuned?;
    if unfit.is_empty() { Ok(()) } else { Err(Failure::OutOfMemory(unfit.join("\n"))) }
}

/// One search.
struct Tuning<'a> {
    args: &'a TuneArgs,
    target: &'a Target,
    has_pages: bool,
    threads: usize,
}

impl Tuning<'_> {
    fn tune(&self, source: &Source) -> Result<Row, Failure> {
        let trace = source.read(&self.args.trace_limits, Refused::LeftOut)?.scaled_down(self.args.scale);
        let trial = Trial::new(&trace);
        let name = source.name();
        let has_work = self.args.in_flight.map_or(!trial.streams_told().is_empty(), |events| events > 0);
        if trial.streams() > 1 && !has_work {
            tell(&format!(
                "note: {name} has {} streams, and the device is always done, so that `growth` makes no difference; \
                 --in-flight 200 keeps work under way",
                trial.streams()
            ));
        }
        let space = Space {
            has_pages: self.has_pages,
            is_limited: self.args.limit.is_some(),
            grows_apart: has_work && trial.streams() > 1,
            largest: trial.largest(),
        };
        let begin = Instant::now();
        let searched = self.search(&trial, space, &name)?;
        let recommended = self.recommend(&trial, space, &searched, &name)?;
        let took = begin.elapsed();
        let floor = if searched.frontier.all().is_empty() { self.floor(&trial)? } else { None };
        let limit = self.args.limit.map(|limit| limit.bytes(trial.live_peak()));
        Ok(Row {
            name,
            events: trial.events(),
            streams: trial.streams(),
            live_peak: trial.live_peak(),
            limit,
            space,
            aim: self.aim(),
            searched,
            recommended,
            is_in_flight: has_work,
            floor,
            took,
        })
    }

    fn aim(&self) -> Aim {
        if self.args.limit.is_some() { Aim::Time } else { Aim::Both }
    }

    fn search(&self, trial: &Trial, space: Space, name: &str) -> Result<Searched, Failure> {
        let &TuneArgs { budget, seed, .. } = self.args;
        let progress = match budget {
            Budget::Settings(count) => Progress::new(count),
            Budget::Time(time) => Progress::timed(time),
        };
        progress.doing(name.to_owned());
        let search = Search { space, budget, seed, threads: self.threads };
        let measure = |settings: &Settings, frontier: &Frontier| {
            let beats = |bytes, nanos| interrupt::is_pressed() || frontier.beats(bytes, Duration::from_nanos(nanos));
            self.measure(trial, settings, self.args.limit, &beats)
        };
        search.run(measure, interrupt::is_pressed, || progress.step())
    }

    fn recommend(
        &self,
        trial: &Trial,
        space: Space,
        searched: &Searched,
        name: &str,
    ) -> Result<Option<tune::Recommended>, Failure> {
        let progress = Progress::unbounded();
        progress.doing(format!("{name}: variations"));
        let vary = Vary::new(tune::VARY_PERCENT, self.args.seed);
        let varied: Vec<Trial> = (1..=tune::VARIATIONS).map(|pass| trial.varied(vary, pass)).collect();
        let measure = |settings: &Settings, variation: usize| {
            let ended = self.measure(&varied[variation - 1], settings, self.args.limit, &|_, _| false);
            progress.step();
            ended
        };
        tune::recommend(searched, &space, self.aim(), self.threads, measure, interrupt::is_pressed)
    }

    /// Returns what the program reserves without a limit where nothing is cached and no work is in flight, which could
    /// be waited for: the least that it fits in.
    fn floor(&self, trial: &Trial) -> Result<Option<u64>, Failure> {
        let direct = Settings { policy: Policy::Direct, ..Settings::default() };
        let is_beaten = &|_, _| interrupt::is_pressed();
        let &TuneArgs { passes, .. } = self.args;
        let alone = Measure { trial, settings: &direct, limit: None, passes, told: &[], in_flight: None, is_beaten };
        let ended = self.target.run(|opened| alone.on(opened))?;
        Ok(ended.measured().map(|measured| measured.reserved_bytes))
    }

    fn measure(
        &self,
        trial: &Trial,
        settings: &Settings,
        limit: Option<Limit>,
        is_beaten: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Ended, Failure> {
        let limit = limit.map(|limit| limit.bytes(trial.live_peak()));
        let &TuneArgs { passes, in_flight, .. } = self.args;
        let measure = Measure { trial, settings, limit, passes, told: trial.streams_told(), in_flight, is_beaten };
        self.target.run_as_recorded(&Recorded::of_trial(trial), |opened| measure.on(opened))
    }
}

impl Row {
    /// Returns why a program fits under no settings, and what to do.
    fn explained(&self, limit: Option<&Limit>) -> String {
        let tried = self.searched.tried;
        let within = limit.map_or("the device's memory".into(), |limit| format!("the limit of {limit}"));
        let remedy = match self.floor {
            Some(bytes) if self.is_in_flight => format!(
                "without a cache, and without the work in flight, it reserves {}; raise the limit, or have the program \
                 submit or wait more often",
                format_bytes(bytes)
            ),
            Some(bytes) => {
                format!("without a cache it reserves {}, and no limit below that can do", format_bytes(bytes))
            }
            // No other device was tried.
            None => format!("{} must be live at once", format_bytes(self.live_peak)),
        };
        format!("{}: nothing fits {within}: it ran out of memory under all of {tried} settings; {remedy}", self.name)
    }
}

/// What a search has to know of a device.
struct Facts {
    name: String,
    has_pages: bool,
    has_clock: bool,
}

impl Facts {
    fn of(opened: &Opened) -> Self {
        let caps = opened.device.caps();
        let has_clock = opened.device.driver_clock().is_some();
        Self { name: caps.name.clone(), has_pages: caps.pages.is_some(), has_clock }
    }
}

/// What one trial is made with.
struct Measure<'a> {
    trial: &'a Trial,
    settings: &'a Settings,
    limit: Option<u64>,
    passes: usize,
    /// The streams whose work is in flight as long as it was in the recorded run.
    told: &'a [u32],
    in_flight: Option<u64>,
    is_beaten: &'a dyn Fn(u64, u64) -> bool,
}

impl Measure<'_> {
    fn on(self, opened: Opened) -> Result<Ended, Failure> {
        let flight = match (opened.work, self.in_flight) {
            (_, Some(0)) => None,
            (Some(Work::Held(hold)), Some(events)) => {
                Some(Box::new(HeldFor::new(hold, events)) as Box<dyn Flight<AnyDevice>>)
            }
            // Each trial has a new device, whose streams are numbered from 0.
            (Some(Work::Held(hold)), None) if !self.told.is_empty() => {
                let told = self.told.iter().map(|&at| StreamId(at)).collect();
                Some(Box::new(AsRecorded::new(hold, told)) as Box<dyn Flight<AnyDevice>>)
            }
            _ => None,
        };
        let mut builder = AnyAllocator::builder(opened.device).settings(self.settings.clone());
        if let Some(limit) = self.limit {
            builder = builder.limit(limit);
        }
        let allocator = builder.build().map_err(|error| Failure::Input(error.to_string()))?;
        let ended = self.trial.run(&allocator, self.passes, flight, self.is_beaten);
        ended.map_err(|error| Failure::from_allocator(&error))
    }
}
