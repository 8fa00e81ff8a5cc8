//! `millpond replay`: recorded traces and patterns under one policy or several, and the results.

mod advice;
mod args;
mod columns;
mod fits;
mod input;
mod life;
mod limit;
mod picture;
mod program;
mod report;
mod row;
mod snapshot;
mod variant;
mod watch;

pub(crate) use args::{ReplayArgs, help};

use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::Usage;
use millpond::settings::Settings;
use millpond::text::with_causes;
use millpond_any::{AnyAllocator, AnyDevice, AnyStream, DriverError};
use millpond_replay::{
    AsRecorded, CheckError, Fills, Fit, Fits, Flight, HeldFor, Life, Replay, Replayed, Sharing, Timed, Until,
};
use millpond_report::Enough;

pub(crate) use self::input::{PatternChoice, Refused, Source, built_in, pattern_help, read_trace, sources};
use self::life::InFlight;
pub(crate) use self::life::LifeArgs;
pub(crate) use self::limit::Limit;
use self::picture::{Pictures, Written};
use self::program::Program;
use self::report::Report;
use self::row::{Of, Row};
pub(crate) use self::variant::policy_names;
use self::watch::Watched;
use crate::commands::one_form;
use crate::conditions;
use crate::devices::{Opened, Recorded, Target, Work};
use crate::failure::Failure;
use crate::files;
use crate::interrupt;
use crate::output::progress::Progress;
use crate::output::{Output, tell};

/// Replays the traces in the order given, each under every variant, each time on a freshly opened device.
///
/// # Errors
///
/// Returns the error of the first trace, setting or device that fails, or [`Failure::OutOfMemory`] if allocations were
/// refused and that is not allowed. What was finished before it is printed all the
/// same, and so is what there is once Ctrl-C is pressed.
pub(crate) fn run(args: &ReplayArgs, output: &mut Output) -> Result<(), Failure> {
    one_form(args.markdown, output)?;
    args.one_thread()?;
    let sources = input::sources(&args.traces, &args.patterns);
    let programs = program::programs(args, &sources);
    let mut pictures = checked(args, &programs, output)?;
    let targets = Target::list(args.device.as_deref())?;
    if targets.len() > 1 {
        several(args)?;
    }
    interrupt::catch();
    let mut refused = 0;
    for (at, target) in targets.iter().enumerate() {
        if at > 0 && !output.is_json() {
            output.text("\n");
        }
        refused += on_device(args, target, &programs, &mut pictures, output)?;
    }
    pictures.finish()?;
    self::refused(refused)
}

/// Checks that nothing is asked for that one device alone can give.
fn several(args: &ReplayArgs) -> Result<(), Failure> {
    let refused = |what: &str| Err(Failure::Input(format!("--device: several devices, and {what}; name one device")));
    match () {
        () if args.report.is_some() || args.svg.is_some() || args.png.is_some() => refused("pictures are of one"),
        () if args.snapshot.is_some() => refused("a snapshot is of one"),
        () if args.traces.iter().any(|path| files::is_input(path)) => refused("standard input can be read once"),
        () => Ok(()),
    }
}

/// Replays the programs on a device and prints what became of them. Returns how many allocations were refused.
fn on_device(
    args: &ReplayArgs,
    target: &Target,
    programs: &[&[Source]],
    pictures: &mut Pictures<'_>,
    output: &mut Output,
) -> Result<u64, Failure> {
    let variants = variant::choose(args, has_pages(target)?)?;
    let mut report = Report::new(args, &variants);
    let replays = programs.len() * variants.len();
    snapshot::expect_one(args, replays)?;
    let progress = match args.time {
        _ if args.watch => Progress::hidden(),
        Some(time) => Progress::timed(time.saturating_mul(u32::try_from(replays).unwrap_or(u32::MAX))),
        None => Progress::new(replays.saturating_mul(args.passes.saturating_add(1))),
    };
    let mut told = Told { report: &mut report, pictures, output: &mut *output };
    let result = replay_all(args, target, programs, &variants, &progress, &mut told);
    drop(progress);
    let refused = report.finish(output);
    result?;
    interrupt::check()?;
    Ok(refused)
}

/// Returns the failure of replays that were refused this number of allocations, unless there were none.
///
/// # Errors
///
/// Returns [`Failure::OutOfMemory`].
pub(crate) fn refused(count: u64) -> Result<(), Failure> {
    match count {
        0 => Ok(()),
        count => Err(Failure::OutOfMemory(format!(
            "allocations were refused for lack of memory: {count}; the notes explain the first ones, and say which \
             policies and limits fit; --allow-oom exits with 0"
        ))),
    }
}

/// Draws the pictures of the traces alone, without a table. Returns what was written and what was refused.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub(crate) fn draw(args: &ReplayArgs, output: &mut Output) -> Result<Drawn, Failure> {
    let sources = input::sources(&args.traces, &args.patterns);
    let programs = program::programs(args, &sources);
    let mut pictures = checked(args, &programs, output)?.alone();
    let target = Target::choose(args.device.as_deref())?;
    let variants = variant::choose(args, has_pages(&target)?)?;
    let progress = Progress::new((programs.len() * variants.len()).saturating_mul(args.passes.saturating_add(1)));
    for sources in &programs {
        progress.doing(format!("reading {}", program::name(sources)));
        let program = Program::read(args, sources)?;
        pictures.add(&target, &program, &variants, &progress)?;
    }
    drop(progress);
    let refused = pictures.refused();
    let headlines = pictures.headlines();
    Ok(Drawn { written: pictures.finish()?, headlines, refused })
}

/// The result of drawing pictures alone.
pub(crate) struct Drawn {
    pub(crate) written: Vec<Written>,
    /// What became of each program, in a sentence or two.
    pub(crate) headlines: Vec<String>,
    /// How many allocations were refused.
    pub(crate) refused: u64,
}

/// Checks the files that are read and written, before the first is read. Returns the pictures, none of which is drawn.
fn checked<'a>(args: &'a ReplayArgs, programs: &[&[Source]], output: &mut Output) -> Result<Pictures<'a>, Failure> {
    let names: Vec<String> = programs.iter().map(|sources| program::name(sources)).collect();
    let pictures = Pictures::new(args, &names)?;
    let outputs = pictures.files()?;
    files::check(&args.traces, &outputs)?;
    if outputs.iter().any(|path| files::is_output(path)) {
        output.make_room();
    }
    Ok(pictures)
}

/// Where results go.
struct Told<'a, 'p> {
    report: &'a mut Report,
    pictures: &'a mut Pictures<'p>,
    output: &'a mut Output,
}

fn replay_all(
    args: &ReplayArgs,
    target: &Target,
    programs: &[&[Source]],
    variants: &[Settings],
    progress: &Progress,
    told: &mut Told<'_, '_>,
) -> Result<(), Failure> {
    for sources in programs {
        progress.doing(format!("reading {}", program::name(sources)));
        let program = Program::read(args, sources)?;
        let Program { name, trace, kept } = &program;
        let replay = Replay::new(trace).stopped_by(interrupt::flag());
        let limit = args.limit.map(|limit| limit.bytes(replay.live_peak()));
        let digest = told.output.is_json().then(|| conditions::digest(trace));
        let mut seen = Vec::new();
        for settings in variants {
            if !told.output.is_open() || interrupt::is_pressed() {
                return Ok(());
            }
            let policy = variant::label(settings);
            progress.doing(format!("{name} under {policy}"));
            let title = format!("{name} under {policy}");
            let job = Run { name: &title, replay: &replay, kept, settings, limit, args, progress };
            let done = job.run(target).map_err(|failure| located(failure, name, &policy))?;
            let of = Of { trace: name, digest: digest.as_deref(), target, settings, limit, header: &trace.header };
            let row = Row::new(&of, args, &done);
            progress.aside(|| explain(name, &policy, &done.replayed));
            seen.push(Fit::of(settings.clone(), &done.replayed));
            told.report.add(row, &done);
        }
        progress.aside(|| told.report.end_trace(told.output));
        // Who allows refusals expects them.
        if !args.allow_oom {
            let fits = fits::which(args, target, &program, seen.clone(), progress)?;
            progress.aside(|| tell_fits(name, fits.as_ref()));
            tell_limits(args, target, &program, &seen, progress)?;
        }
        told.pictures.add(target, &program, variants, progress)?;
    }
    Ok(())
}

/// Adds to a wrong byte in which trace and under which policy it was found.
fn located(failure: Failure, name: &str, policy: &str) -> Failure {
    match failure {
        Failure::Check(wrong) => Failure::Check(format!("{name} under {policy}: {wrong}")),
        other => other,
    }
}

/// Reports why the first refused allocation was refused.
fn explain(name: &str, policy: &str, replayed: &Replayed) {
    let passes = || replayed.passes();
    if let Some(first) = passes().find_map(|pass| pass.first_oom.as_deref()) {
        let refused: u64 = passes().map(|pass| pass.ooms).sum();
        let passes = match passes().count() {
            1 => "one pass".to_string(),
            count => format!("{count} passes"),
        };
        let first = advice::without_advice(first);
        tell(&format!("note: {name} under {policy}: allocations refused in {passes}: {refused}; the first:\n{first}"));
    }
}

/// Reports which policies would have fitted, if one refused a request.
fn tell_fits(name: &str, fits: Option<&Fits>) {
    if let Some(fits) = fits {
        tell(&format!("note: {name}: {fits}"));
    }
}

/// Reports a limit that fits, for each of the settings under which a request was refused. Returns those limits.
fn tell_limits(
    args: &ReplayArgs,
    target: &Target,
    program: &Program,
    seen: &[Fit],
    progress: &Progress,
) -> Result<Vec<Enough>, Failure> {
    let mut limits = Vec::new();
    for refusing in seen.iter().filter(|fit| !fit.fits()) {
        if let Some(limit) = advice::larger_limit(args, target, program, &refusing.settings, progress)? {
            progress.aside(|| tell(&format!("note: {}", advice::told(&program.name, &limit))));
            limits.push(limit);
        }
    }
    Ok(limits)
}

/// Returns whether the device has virtual memory.
fn has_pages(target: &Target) -> Result<bool, Failure> {
    target.run(|opened| Ok(opened.device.caps().pages.is_some()))
}

/// The replay of one trace under one variant.
struct Run<'a> {
    /// The trace and the policy, for readers.
    name: &'a str,
    replay: &'a Replay,
    kept: &'a [bool],
    settings: &'a Settings,
    limit: Option<u64>,
    args: &'a ReplayArgs,
    progress: &'a Progress,
}

/// The result of a replay.
struct Done {
    replayed: Replayed,
    /// The name of the device, for readers.
    device: String,
    /// Where the device's memory was in the end, if that was asked for and the device reports it.
    usage: Option<Usage>,
    /// Whether the work in flight was that of the recorded run.
    as_recorded: bool,
}

impl Run<'_> {
    /// Opens the device and replays there.
    fn run(self, target: &Target) -> Result<Done, Failure> {
        target.run_as_recorded(&Recorded::of(self.replay), |opened| self.on(opened))
    }

    fn on(self, opened: Opened) -> Result<Done, Failure> {
        let Opened { device, work, .. } = opened;
        let name = device.caps().name.clone();
        let allocator = self.allocator(device)?;
        snapshot::begin(self.args, &allocator);
        let failed = |error| Failure::from_allocator(&error);
        let open = |_| (0..self.replay.streams()).map(|_| allocator.create_stream()).collect::<Result<Vec<_>, _>>();
        let streams = (0..self.args.threads).map(open).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let &ReplayArgs { passes, time, watch, .. } = self.args;
        let passes = if time.is_some() { None } else { Some(passes.saturating_add(1)) };
        let watched = Watched { name: self.name.to_owned(), passes, done: AtomicUsize::new(0) };
        let step = |done| {
            watched.done.store(done, Ordering::Relaxed);
            self.progress.step();
        };
        let as_recorded = self.is_timed(work.as_ref());
        let replay = || self.replay_on(&allocator, &streams, work, step);
        let replayed = if watch { watched.during(&allocator, replay) } else { replay() }?;
        snapshot::end(self.args, &allocator)?;
        if let Some(beyond) = allocator.beyond_device() {
            self.progress.aside(|| tell(&format!("note: {beyond}")));
        }
        let usage = if self.args.summary { allocator.memory_usage().map_err(failed)? } else { None };
        Ok(Done { replayed, device: name, usage, as_recorded })
    }

    fn replay_on(
        &self,
        allocator: &AnyAllocator,
        streams: &[Vec<AnyStream>],
        work: Option<Work>,
        step: impl FnMut(usize),
    ) -> Result<Replayed, Failure> {
        let &ReplayArgs { passes, time, touch, .. } = self.args;
        let until = time.map_or(Until::Passes(passes), Until::Elapsed);
        let replayed = match streams {
            [streams] if self.args.is_life() || self.is_timed(work.as_ref()) => {
                let life = self.life(allocator, streams, work)?;
                self.replay.run_life(allocator, streams, until, life, step)
            }
            [streams] if touch => self.replay.run_checked(allocator, streams, until, step),
            [streams] => self.replay.run_on(allocator, streams, until, step).map_err(CheckError::Allocator),
            threads => self.replay.run_threads(allocator, threads, until, touch, step),
        };
        replayed.map_err(from_check)
    }

    /// Returns whether the work in flight is that of the recorded run, with this work of the device.
    fn is_timed(&self, work: Option<&Work>) -> bool {
        let &ReplayArgs { touch, threads, .. } = self.args;
        let is_free = self.args.life.in_flight.is_none() && !touch && threads <= 1;
        is_free && matches!(work, Some(Work::Held(_))) && !self.replay.streams_told().is_empty()
    }

    /// Creates the allocator of the run.
    fn allocator(&self, device: AnyDevice) -> Result<AnyAllocator, Failure> {
        let mut builder = AnyAllocator::builder(device).settings(self.settings.clone());
        if let Some(limit) = self.limit {
            builder = builder.limit(limit);
        }
        builder.build().map_err(|error| Failure::Input(error.to_string()))
    }

    /// Returns what makes the passes one life.
    fn life<'a>(
        &self,
        allocator: &'a AnyAllocator,
        streams: &[AnyStream],
        work: Option<Work>,
    ) -> Result<Life<'a, AnyDevice>, Failure> {
        let refused = |what: &str| Err(Failure::Input(format!("--in-flight: {what}")));
        let is_timed = self.is_timed(work.as_ref());
        let in_flight: Option<Box<dyn Flight<AnyDevice> + 'a>> = match (self.args.life.in_flight, work) {
            (None, Some(Work::Held(hold))) if is_timed => {
                let told = self.replay.streams_told();
                let told = told.iter().filter_map(|&at| streams.get(at as usize)).map(AnyStream::id).collect();
                Some(Box::new(AsRecorded::new(hold, told)))
            }
            (None | Some(InFlight::Nothing), _) => None,
            (Some(InFlight::Events(events)), Some(Work::Held(hold))) => Some(Box::new(HeldFor::new(hold, events))),
            (Some(InFlight::Events(_)), _) => {
                return refused("only a simulated device holds work for a number of events; give a time, such as 50us");
            }
            (Some(InFlight::Time(time)), Some(Work::Held(hold))) => {
                Some(Box::new(Timed::new(hold, time, Sharing::OneAtATime)))
            }
            (Some(InFlight::Small(time)), Some(Work::Held(hold))) => {
                Some(Box::new(Timed::new(hold, time, Sharing::SideBySide)))
            }
            (Some(InFlight::Time(time)), _) => {
                Some(Box::new(Fills::new(allocator, streams, time).map_err(from_check)?))
            }
            (Some(InFlight::Small(time)), Some(Work::Small(make))) => Some(make(time)?),
            (Some(InFlight::Small(_)), None) => {
                return refused("only CUDA devices and the simulated one have small kernels; leave out `:small`");
            }
        };
        let (checked, vary) = (self.args.touch, self.args.life.vary);
        Ok(Life { checked, kept: self.kept.to_vec(), vary, in_flight, observer: None })
    }
}

fn from_check(error: CheckError<DriverError>) -> Failure {
    match error {
        CheckError::Allocator(error) => Failure::from_allocator(&error),
        CheckError::WrongByte(wrong) => Failure::Check(wrong.to_string()),
        error => Failure::Device(with_causes(&error)),
    }
}
