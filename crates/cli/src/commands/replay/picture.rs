//! The page and the plots of a replay: two more runs of each program under each policy, which are looked at.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use millpond::settings::Settings;
use millpond_any::{AnyAllocator, AnyDevice, AnyStream};
use millpond_replay::{Life, Replay, Until};
use millpond_report as report;
use millpond_report::text::{bytes, count};
use millpond_report::{Agenda, Block, Headline, Holders, Sampled, Sampler, Scale, Scout, Scouted};
use millpond_trace::{Trace, printable};

use super::{Done, Program, ReplayArgs, Run, advice, explain, fits, from_check, tell_fits, tell_limits, variant};
use crate::devices::{Opened, Recorded, Target};
use crate::failure::Failure;
use crate::files;
use crate::output::progress::Progress;

/// How many moments at equal distances the map has, for few programs and for many, so that a page stays small.
const MOMENTS: [usize; 2] = [32, 12];
/// From how many programs on there are fewer moments.
const MANY: usize = 4;

/// What is said where plots are asked for that this build cannot draw.
const WITHOUT_PNG: &str = "--png: this binary was built without it: build it with `--features png`, or take --svg, \
                           which browsers show";

/// A file that was written.
#[derive(serde::Serialize)]
pub(crate) struct Written {
    pub(crate) file: PathBuf,
    pub(crate) bytes: u64,
}

/// The pictures of the programs so far.
pub(super) struct Pictures<'a> {
    args: &'a ReplayArgs,
    /// Whether no table shows refusals.
    is_alone: bool,
    device: String,
    /// What the files of each program's plots begin with.
    stems: Vec<String>,
    programs: Vec<report::Program>,
    /// How many allocations were refused.
    refused: u64,
}

impl<'a> Pictures<'a> {
    /// Creates the pictures that the arguments ask for, which may be none, of programs with these names.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] for arguments that cannot be had in a picture.
    pub(super) fn new(args: &'a ReplayArgs, names: &[String]) -> Result<Self, Failure> {
        let (device, stems) = (String::new(), stems(names));
        let pictures = Self { args, is_alone: false, device, stems, programs: Vec::new(), refused: 0 };
        let refused = |what: &str| Err(Failure::Input(format!("--report, --svg and --png: leave out {what}")));
        match () {
            () if !pictures.are_wanted() => Ok(pictures),
            () if args.png.is_some() && cfg!(not(feature = "png")) => Err(Failure::Input(WITHOUT_PNG.into())),
            () if args.threads > 1 => refused("--threads, as two runs of several threads are not the same"),
            () if args.time.is_some() => refused("--for, as two runs of a time are not the same; give --passes"),
            () => Ok(pictures),
        }
    }

    /// Has the pictures tell of refusals, as nothing else does.
    pub(super) fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// Returns all files that will be written, those of pictures only in folders that are there already.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] for a folder that is not there and cannot be made.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut files: Vec<PathBuf> = self.args.report.iter().chain(&self.args.snapshot).cloned().collect();
        let single = files.clone();
        for (folder, ending) in [(&self.args.svg, "svg"), (&self.args.png, "png")] {
            let Some(folder) = folder else { continue };
            if files::check_folder(folder, &single)? {
                let of =
                    |stem| plot_names(stem, self.args.passes > 0).map(|name| folder.join(format!("{name}.{ending}")));
                files.extend(self.stems.iter().flat_map(of));
            }
        }
        Ok(files)
    }

    fn are_wanted(&self) -> bool {
        self.args.report.is_some() || self.args.svg.is_some() || self.args.png.is_some()
    }

    /// Adds a program, if there are pictures to make.
    ///
    /// # Errors
    ///
    /// Returns the errors of the replays.
    pub(super) fn add(
        &mut self,
        target: &Target,
        program: &Program,
        variants: &[Settings],
        progress: &Progress,
    ) -> Result<(), Failure> {
        if !self.are_wanted() {
            return Ok(());
        }
        let Program { name, trace, kept } = program;
        let (replay, blocks) = (Replay::new(trace), report::blocks(trace));
        let limit = self.args.limit.map(|limit| limit.bytes(replay.live_peak()));
        let run = |settings| Run { name, replay: &replay, kept, settings, limit, args: self.args, progress };
        let mut scouted = Vec::new();
        for settings in variants {
            progress.doing(format!("{name} under {}, watched", variant::label(settings)));
            let (done, seen) =
                target.run_as_recorded(&Recorded::of(&replay), |opened| Scouting(run(settings)).on(opened))?;
            if self.is_alone {
                progress.aside(|| explain(name, &variant::label(settings), &done.replayed));
            }
            self.device = format!("{} ({})", target.name(), done.device);
            self.refused += done.replayed.passes().map(|pass| pass.ooms).sum::<u64>();
            scouted.push((done.replayed, seen));
        }
        let seen = fits::seen(variants.iter().zip(scouted.iter().map(|(replayed, _)| replayed)));
        let fits = fits::which(self.args, target, program, seen.clone(), progress)?;
        let mut enough = Vec::new();
        if self.is_alone {
            progress.aside(|| tell_fits(name, fits.as_ref()));
            if !self.args.allow_oom {
                enough = tell_limits(self.args, target, program, &seen, progress)?;
            }
        }
        let scale = Scale::new(scouted.iter().map(|(_, seen)| seen.most_reserved.bytes).max().unwrap_or(0));
        let regular = MOMENTS[usize::from(self.args.traces.len() + self.args.patterns.len() >= MANY)];
        let labels: Vec<String> = variants.iter().map(variant::label).collect();
        let named: Vec<_> = labels.iter().map(String::as_str).zip(scouted.iter().map(|(_, seen)| seen)).collect();
        let moments = report::moments(&named, regular);
        let mut runs = Vec::new();
        for (settings, (replayed, seen)) in variants.iter().zip(&scouted) {
            let agenda = Agenda::new(seen, &moments, scale);
            let sampled = target.run_as_recorded(&Recorded::of(&replay), |opened| {
                let sampling = Sampling { run: run(settings), agenda: &agenda, blocks: &blocks };
                sampling.on(opened)
            })?;
            let mut run = report::Run::new(variant::label(settings), replayed, seen, &sampled, &blocks);
            if let Some(refusal) = &mut run.refusal {
                refusal.message = advice::without_advice(&refusal.message);
            }
            runs.push(run);
        }
        let (holders, named) = (
            Holders::of(&blocks, replay.events(), &trace.details),
            report::Named::of(runs.iter().flat_map(report::Run::rows), &blocks),
        );
        let recorded = report::Recorded::of(trace, &blocks);
        let headline = Headline {
            settings: variants,
            runs: &runs,
            fits: fits.as_ref(),
            enough: &enough,
            recorded: recorded.as_ref(),
            limit,
            is_of_torch: trace.header.is_of_pytorch(),
        };
        let headline = headline.text();
        self.programs.push(report::Program {
            name: name.clone(),
            facts: facts(trace, &replay),
            events: replay.events(),
            columns: scouted.first().map_or(0, |(_, seen)| seen.spans.columns()),
            micros: scouted.first().and_then(|(_, seen)| report::micros(trace, seen.spans)),
            cell: scale.cell_bytes,
            moments,
            who: report::Who::of(&blocks, holders.at, &trace.details, &named),
            blocks: named,
            holders,
            runs,
            fits: fits.as_ref().map(report::FitsData::from),
            headline,
        });
        Ok(())
    }

    /// Returns how many allocations were refused so far.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns what became of each program so far, with its name where there are several.
    pub(super) fn headlines(&self) -> Vec<String> {
        let told = |program: &report::Program| match self.programs.len() {
            1 => program.headline.clone(),
            _ => format!("{}: {}", printable(&program.name), program.headline),
        };
        self.programs.iter().map(told).collect()
    }

    /// Writes the files. Returns what was written.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] for a file that cannot be written.
    pub(super) fn finish(self) -> Result<Vec<Written>, Failure> {
        let mut written = Vec::new();
        if self.programs.is_empty() {
            return Ok(written);
        }
        for folder in [&self.args.svg, &self.args.png].into_iter().flatten() {
            fs::create_dir_all(folder).map_err(|error| files::cannot(folder, &error))?;
        }
        if let Some(path) = &self.args.report {
            written.push(write(path, &report::page(&self.programs, &self.conditions()))?);
        }
        for (program, stem) in self.programs.iter().zip(&self.stems) {
            for (name, svg) in plots(program, stem, self.args.passes > 0)? {
                if let Some(folder) = &self.args.svg {
                    written.push(write(&folder.join(format!("{name}.svg")), &svg)?);
                }
                if let Some(folder) = &self.args.png {
                    written.push(write(&folder.join(format!("{name}.png")), &png(&svg)?)?);
                }
            }
        }
        Ok(written)
    }

    fn conditions(&self) -> String {
        let passes = match self.args.passes {
            0 => "one pass".to_owned(),
            warm => format!("{} passes", warm + 1),
        };
        let limit = self.args.limit.map_or(String::new(), |limit| format!(", limited to {limit}"));
        let scale = if self.args.scale > 1 { format!(", sizes divided by {}", self.args.scale) } else { String::new() };
        format!("On {}, {passes}{scale}{limit}{}", self.device, self.args.life.title())
    }
}

/// Returns what is known about a trace, for readers.
fn facts(trace: &Trace, replay: &Replay) -> Vec<(String, String)> {
    let header = &trace.header;
    let mut facts = vec![
        ("events".to_owned(), count(replay.events() as u64)),
        ("blocks".to_owned(), count(trace.allocations() as u64)),
        ("streams".to_owned(), count(replay.streams().into())),
    ];
    let mut add = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| (name.to_owned(), printable(&value).into_owned())));
    };
    add("program", header.workload().map(str::to_owned));
    add("recorded on", header.gpu().map(str::to_owned));
    add("PyTorch", header.torch().map(str::to_owned));
    add("its configuration", header.conf().filter(|conf| !conf.is_empty()).map(str::to_owned));
    add("recorded for", header.seconds().map(|seconds| format!("{seconds:.1} s")));
    add("PyTorch reserved", header.peak_reserved().map(bytes));
    facts
}

/// Returns for each program what the files of its plots begin with: its name in letters and digits, with a number from
/// the second program of a name on. No name has the hyphen before the number.
fn stems(names: &[String]) -> Vec<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let plain = |name: &String| name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect::<String>();
    let mut stem = |name: String| {
        let time = times.entry(name.clone()).or_default();
        *time += 1;
        if *time == 1 { name } else { format!("{name}-{time}") }
    };
    names.iter().map(plain).map(&mut stem).collect()
}

/// Returns the names of the plots of a program.
fn plot_names(stem: &String, has_passes: bool) -> impl Iterator<Item = String> {
    ["timeline", "life"].into_iter().take(1 + usize::from(has_passes)).map(move |plot| format!("{stem}-{plot}"))
}

/// Draws the plots of a program. Returns the name of each and its SVG.
fn plots(program: &report::Program, stem: &String, has_passes: bool) -> Result<Vec<(String, String)>, Failure> {
    let draw = [report::timeline_plot, report::life_plot];
    let drawn = plot_names(stem, has_passes).zip(draw).map(|(name, draw)| Ok((name, draw(program)?)));
    let drawn: Result<_, report::PlotError> = drawn.collect();
    drawn.map_err(|error| Failure::Input(format!("{}: {error}", program.name)))
}

#[cfg(feature = "png")]
fn png(svg: &str) -> Result<Vec<u8>, Failure> {
    report::png(svg).map_err(|error| Failure::Input(format!("--png: {error}; --svg needs no fonts")))
}

#[cfg(not(feature = "png"))]
fn png(_: &str) -> Result<Vec<u8>, Failure> {
    Err(Failure::Input(WITHOUT_PNG.into()))
}

fn write(path: &Path, content: &(impl AsRef<[u8]> + ?Sized)) -> Result<Written, Failure> {
    let content = content.as_ref();
    files::write(path, content)?;
    Ok(Written { file: path.to_owned(), bytes: content.len() as u64 })
}

/// Opens what a run is on.
fn open(run: &Run<'_>, device: AnyDevice) -> Result<(AnyAllocator, Vec<AnyStream>), Failure> {
    let allocator = run.allocator(device)?;
    let stream = |_| allocator.create_stream().map_err(|error| Failure::from_allocator(&error));
    let streams = (0..run.replay.streams()).map(stream).collect::<Result<Vec<_>, _>>()?;
    Ok((allocator, streams))
}

/// The replay of one trace under one variant, which looks at every event, cheaply.
struct Scouting<'a>(Run<'a>);

impl Scouting<'_> {
    fn on(self, opened: Opened) -> Result<(Done, Scouted), Failure> {
        let Run { replay, args, progress, .. } = self.0;
        let device = opened.device.caps().name.clone();
        let (allocator, streams) = open(&self.0, opened.device)?;
        let mut scout = Scout::new(&allocator, replay, args.life.in_flight.is_some());
        let as_recorded = self.0.is_timed(opened.work.as_ref());
        let life = self.0.life(&allocator, &streams, opened.work)?;
        let life = Life { checked: false, observer: Some(&mut scout), ..life };
        let until = Until::Passes(args.passes);
        let replayed = replay.run_life(&allocator, &streams, until, life, |_| progress.step()).map_err(from_check)?;
        Ok((Done { replayed, device, usage: None, as_recorded }, scout.finish()))
    }
}

/// One pass of a trace under one variant, which looks at chosen events, thoroughly.
struct Sampling<'a> {
    run: Run<'a>,
    agenda: &'a Agenda,
    blocks: &'a [Block],
}

impl Sampling<'_> {
    fn on(self, opened: Opened) -> Result<Sampled, Failure> {
        let (allocator, streams) = open(&self.run, opened.device)?;
        let mut sampler = Sampler::new(&allocator, self.agenda, self.blocks);
        let life = self.run.life(&allocator, &streams, opened.work)?;
        let life = Life { checked: false, observer: Some(&mut sampler), ..life };
        let replayed = self.run.replay.run_life(&allocator, &streams, Until::Passes(0), life, |_| ());
        replayed.map_err(from_check)?;
        Ok(sampler.finish())
    }
}
