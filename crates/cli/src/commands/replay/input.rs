//! Where traces come from: files, standard input, patterns, or the binary itself.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use millpond_import::{ImportError, Imported, Options, import_begun};
use millpond_trace::{Limits, Pattern, Trace, TraceError};

use crate::commands::import::{self, Ways};
use crate::commands::name_of;
use crate::failure::Failure;
use crate::files::{self, advised, shown};
use crate::names::{closest, suggestion};
use crate::output::{hanging, tell};
use crate::recognise::{Known, recognised};

/// How a replay has a recording read in another way.
const WAYS: Ways = Ways { limits: "--trace-limits", device: "`millpond import --device N`" };

/// The built-in trace: the training of a GPT-2, as PyTorch's allocator recorded it on an H200. The file is a copy of
/// that in `tests/corpus/traces`: a package holds no files from outside of its folder.
const BUILT_IN: (&str, &[u8]) = ("gpt2_train", include_bytes!("../../../traces/gpt2_train.trace.gz"));

/// Returns the name of the built-in trace and the trace.
///
/// # Panics
///
/// If the built-in trace is malformed.
pub(crate) fn built_in() -> (&'static str, Trace) {
    match Trace::from_reader(BUILT_IN.1) {
        Ok(trace) => (BUILT_IN.0, trace),
        Err(error) => panic!("the built-in trace is malformed: {error}"),
    }
}

/// The source of a trace.
pub(crate) enum Source {
    BuiltIn,
    Input,
    File(PathBuf),
    Pattern(Pattern, u64),
}

/// What becomes of the requests that failed as a recording was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// They are made again and freed at once, so that a replay shows why they failed, and where they would not.
    Kept,
    /// They are no part of the program that served all others.
    LeftOut,
}

/// The value of `--pattern`: one pattern or all of them, and a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PatternChoice {
    /// The pattern; `None` stands for every pattern.
    pattern: Option<Pattern>,
    seed: u64,
}

impl PatternChoice {
    /// Parses `NAME`, `all`, or either with `:seed=N` behind it.
    ///
    /// # Errors
    ///
    /// Returns a message that names what is accepted if the text is something else.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let seed = match rest {
            None => Some(0),
            Some(rest) => rest.strip_prefix("seed=").and_then(|seed| seed.parse().ok()),
        };
        let seed = seed.ok_or_else(|| format!("`{text}` has no seed behind its colon: write {name}:seed=7"))?;
        let pattern = if name == "all" { None } else { Some(Pattern::from_name(name).ok_or_else(|| unknown(name))?) };
        Ok(Self { pattern, seed })
    }

    fn sources(self) -> Vec<Source> {
        let chosen = self.pattern.map_or(Pattern::ALL.to_vec(), |pattern| vec![pattern]);
        chosen.into_iter().map(|pattern| Source::Pattern(pattern, self.seed)).collect()
    }
}

fn unknown(name: &str) -> String {
    let names = Pattern::ALL.map(Pattern::name).join(", ");
    let meant = suggestion(name, Pattern::ALL.iter().map(|pattern| pattern.name()));
    format!("no pattern is called `{name}`; there are {names}, and `all` for each of them{meant}")
}

/// Returns each pattern with what it is, for a page of help: lines that fit a width, without the last line break.
pub(crate) fn pattern_help(width: usize) -> String {
    let line = |pattern: Pattern| hanging(&format!("  {:<14}", pattern.name()), pattern.about(), width);
    Pattern::ALL.map(line).concat().trim_end().to_owned()
}

/// Returns the sources that the arguments name, traces before patterns, or the built-in trace where they name none.
pub(crate) fn sources(paths: &[PathBuf], patterns: &[PatternChoice]) -> Vec<Source> {
    if paths.is_empty() && patterns.is_empty() {
        return vec![Source::BuiltIn];
    }
    paths.iter().map(|path| Source::of(path)).chain(patterns.iter().flat_map(|choice| choice.sources())).collect()
}

impl Source {
    /// Returns the source that a path names.
    fn of(path: &Path) -> Self {
        if files::is_input(path) { Self::Input } else { Self::File(path.to_owned()) }
    }

    /// Returns the name of the trace in results.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::BuiltIn => BUILT_IN.0.into(),
            Self::Input => "-".into(),
            Self::File(path) => name_of(path, &[".gz", ".zst", ".trace"]),
            Self::Pattern(pattern, 0) => pattern.name().into(),
            Self::Pattern(pattern, seed) => format!("{pattern}:seed={seed}"),
        }
    }

    /// Reads the trace, or generates it from its pattern. A recording of another tool becomes a trace as by
    /// `millpond import`.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] that names the file and the line; also for a trace without any event.
    pub(crate) fn read(&self, limits: &Limits, refused: Refused) -> Result<Trace, Failure> {
        let options = Options { limits: *limits, refused: refused == Refused::Kept, ..Options::default() };
        match self {
            Self::BuiltIn => Ok(built_in().1),
            Self::Input => of_reader(io::stdin().lock(), "standard input", options),
            Self::File(path) => {
                let file = File::open(path).map_err(|error| unopened(path, error))?;
                of_reader(file, &shown(path), Options { name: Some(self.name()), ..options })
            }
            Self::Pattern(pattern, seed) => Ok(pattern.trace(*seed)),
        }
    }
}

/// Reads a file, or standard input, within the default limits.
///
/// # Errors
///
/// Returns the errors of [`Source::read`].
pub(crate) fn read_trace(path: &Path) -> Result<Trace, Failure> {
    Source::of(path).read(&Limits::default(), Refused::LeftOut)
}

/// Reads a trace, or a recording that is known by its content.
fn of_reader(reader: impl Read, shown: &str, options: Options) -> Result<Trace, Failure> {
    let (content, known) = recognised(reader, shown)?;
    let trace = match known {
        Known::Recording(format) => {
            let options = Options { format: Some(format), ..options };
            of_recording(import_begun(content, &options), shown)?
        }
        Known::Trace => Trace::from_content(content, &options.limits)
            .map_err(|error| Failure::Input(format!("{shown}: {}", advised(&error, "--trace-limits"))))?,
    };
    if trace.events.is_empty() {
        let text = format!("{shown}: there is no event in it, so there is nothing to replay");
        return Err(Failure::Input(text));
    }
    Ok(trace)
}

/// Returns the trace of a recording, and says that it is one.
fn of_recording(imported: Result<Imported, ImportError>, shown: &str) -> Result<Trace, Failure> {
    let imported = imported.map_err(|error| Failure::Input(import::explain(shown, &error, &WAYS)))?;
    if imported.trace.events.is_empty() {
        return Err(Failure::Input(format!("{shown}: {}, so there is nothing to replay", import::nothing(&imported))));
    }
    tell(&format!(
        "note: {shown} is {}; run `millpond import` to see what the trace leaves out",
        imported.format.about()
    ));
    for note in &imported.notes {
        tell(&format!("note: {shown}: {note}"));
    }
    if imported.refused > 0 {
        let requests = match imported.refused {
            1 => "a request that failed there is".into(),
            more => format!("{more} requests that failed there are"),
        };
        tell(&format!("note: {shown}: {requests} made here too, and freed at once"));
    }
    Ok(imported.trace)
}

/// Returns why a file could not be opened, with the name that was probably meant.
fn unopened(path: &Path, error: io::Error) -> Failure {
    let meant = beside(path).map_or(String::new(), |meant| format!("; did you mean `{}`?", shown(&meant)));
    let error = TraceError::Open { path: path.into(), error };
    Failure::Input(format!("{error}; give the path of a trace, or none for the built-in one{meant}"))
}

/// Returns the file in the folder of a path whose name is closest to the path's, if one is close.
fn beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).ok()?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let meant = closest(name, names.iter().map(String::as_str).filter(|known| *known != name))?;
    Some(path.with_file_name(meant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::parse_limits;

    fn names(text: &str) -> Vec<String> {
        let choice = PatternChoice::parse(text).expect(text);
        sources(&[], &[choice]).iter().map(Source::name).collect()
    }

    #[test]
    fn patterns_are_chosen_by_name_and_seed() {
        assert_eq!(names("growing"), ["growing"]);
        assert_eq!(names("many_streams:seed=7"), ["many_streams:seed=7"]);
        assert_eq!(names("random:seed=0"), ["random"]);
        assert_eq!(names("all"), Pattern::ALL.map(Pattern::name));
        assert!(names("all:seed=3").iter().all(|name| name.ends_with(":seed=3")));
        let seeded = PatternChoice::parse("random:seed=3").expect("a choice").sources();
        let seeded = seeded[0].read(&Limits::default(), Refused::LeftOut);
        assert_eq!(seeded, Ok(Pattern::Random.trace(3)));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_what_there_is() {
        for text in ["", "Growing", "growing ", "most"] {
            let error = PatternChoice::parse(text).expect_err(text);
            assert!(error.contains("growing, phases") && error.contains("`all`"), "{error}");
        }
        for text in ["random:", "random:7", "random:seed=", "random:seed=-1", "all:seed=x"] {
            let error = PatternChoice::parse(text).expect_err(text);
            assert!(error.contains("has no seed") && error.contains(":seed=7"), "{error}");
        }
    }

    #[test]
    fn limits_are_read_by_name() {
        assert_eq!(parse_limits(""), Ok(Limits::default()));
        assert_eq!(parse_limits("none"), Ok(Limits::NONE));
        let wanted = Limits { text_bytes: 2 << 30, streams: 70_000, ..Limits::default() };
        assert_eq!(parse_limits("streams=70000,text_bytes=2GiB"), Ok(wanted));
        for (text, expected) in [
            ("lines=5", "`lines` is no limit; the limits are text_bytes, expansion, events, streams and details"),
            ("events", "`events` is ``, must be a whole number: events=5000"),
            ("streams=-1", "`streams` is `-1`, must be a whole number"),
            ("text_bytes=much", "`text_bytes`: `much` is no size"),
            ("none,events=5", "`none` is no limit"),
        ] {
            let error = parse_limits(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn traces_come_before_patterns_and_the_built_in_one_only_alone() {
        let paths = [PathBuf::from("-"), PathBuf::from("a/gnn.trace.gz")];
        let growing = PatternChoice::parse("growing").expect("a pattern");
        let names = |paths: &[PathBuf], patterns: &[PatternChoice]| -> Vec<String> {
            sources(paths, patterns).iter().map(Source::name).collect()
        };
        assert_eq!(names(&paths, &[growing, growing]), ["-", "gnn", "growing", "growing"]);
        assert_eq!(names(&[], &[]), ["gpt2_train"]);
    }
}
