//! Where traces come from: files, standard input, patterns, or the binary itself.

use std::io;
use std::path::{Path, PathBuf};

use millpond::trace::{Event, Header, Pattern, Trace, TraceError};

use crate::commands::name_of;
use crate::failure::Failure;

/// The built-in trace: the training of a GPT-2, as PyTorch's allocator was asked on an H200.
const BUILT_IN: (&str, &[u8]) =
    ("gpt2_train", include_bytes!("../../../../../tests/corpus/traces/gpt2_train.trace.gz"));

/// The built-in trace and its name.
pub(crate) fn built_in() -> (&'static str, Trace) {
    match Trace::from_reader(BUILT_IN.1) {
        Ok(trace) => (BUILT_IN.0, trace),
        Err(error) => panic!("the built-in trace is malformed: {error}"),
    }
}

/// A trace to be read.
pub(super) enum Source {
    BuiltIn,
    Input,
    File(PathBuf),
    Pattern(Pattern, u64),
}

/// What `--pattern` asks for: one pattern or all of them, from a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PatternChoice {
    /// `None` stands for every pattern.
    pattern: Option<Pattern>,
    seed: u64,
}

impl PatternChoice {
    /// Reads `NAME`, `all`, or either with `:seed=N` behind it.
    ///
    /// # Errors
    ///
    /// What is accepted, where the text is something else.
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
    format!("no pattern is called `{name}`; there are {names}, and `all` for each of them")
}

/// One line for each pattern, for the page of help.
pub(crate) fn pattern_help() -> String {
    Pattern::ALL.map(|pattern| format!("  {:<14}{}", pattern.name(), pattern.about())).join("\n")
}

/// What the arguments name, traces before patterns; the built-in trace where they name nothing.
pub(super) fn sources(paths: &[PathBuf], patterns: &[PatternChoice]) -> Vec<Source> {
    if paths.is_empty() && patterns.is_empty() {
        return vec![Source::BuiltIn];
    }
    let source = |path: &PathBuf| if path == Path::new("-") { Source::Input } else { Source::File(path.clone()) };
    paths.iter().map(source).chain(patterns.iter().flat_map(|choice| choice.sources())).collect()
}

impl Source {
    /// What results call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::BuiltIn => BUILT_IN.0.into(),
            Self::Input => "-".into(),
            Self::File(path) => name_of(path, &[".gz", ".zst", ".trace"]),
            Self::Pattern(pattern, 0) => pattern.name().into(),
            Self::Pattern(pattern, seed) => format!("{pattern}:seed={seed}"),
        }
    }

    /// Reads it, or makes it up.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] that names the file and the line.
    pub(super) fn read(&self) -> Result<Trace, Failure> {
        match self {
            Self::BuiltIn => Ok(built_in().1),
            Self::Input => Trace::from_reader(io::stdin().lock())
                .map_err(|error| Failure::Input(format!("standard input: {error}; give a trace"))),
            Self::File(path) => Trace::read(path).map_err(|error| Failure::Input(explain(path, &error))),
            Self::Pattern(pattern, seed) => Ok(pattern.trace(*seed)),
        }
    }
}

/// What sizes are rounded up to when they are divided: what allocators round to anyhow.
const SCALED_UNIT: u64 = 512;

/// The same program with every size divided. It never ran on PyTorch's allocator, so it has no header.
pub(crate) fn scaled(mut trace: Trace, by: u64) -> Trace {
    if by == 1 {
        return trace;
    }
    for event in &mut trace.events {
        if let Event::Allocate { bytes, .. } | Event::Trim { bytes } = event {
            *bytes = bytes.div_ceil(by).next_multiple_of(SCALED_UNIT);
        }
    }
    Trace { header: Header::default(), ..trace }
}

fn explain(path: &Path, error: &TraceError) -> String {
    match error {
        TraceError::Open { .. } => format!("{error}; give the path of a trace, or none for the built-in one"),
        error => format!("{}: {error}; docs/trace-format.md describes the format", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let seeded = PatternChoice::parse("random:seed=3").expect("a choice").sources()[0].read();
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
    fn a_scaled_trace_has_smaller_sizes_and_nothing_else_in_it() {
        let text = "a 0 1000000 0\na 1 513 1\nu 0 1\nt 4096\nf 0\na 2 1 0\n";
        let trace = Trace::parse(text.as_bytes()).expect("a trace");
        assert_eq!(scaled(trace.clone(), 1), trace);
        let tenth = scaled(trace.clone(), 10);
        let sizes = |trace: &Trace| -> Vec<u64> {
            let size = |event: &Event| match *event {
                Event::Allocate { bytes, .. } | Event::Trim { bytes } => Some(bytes),
                _ => None,
            };
            trace.events.iter().filter_map(size).collect()
        };
        assert_eq!(sizes(&tenth), [100_352, 512, 512, 512]);
        assert_eq!((tenth.events.len(), tenth.streams), (trace.events.len(), trace.streams));
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
