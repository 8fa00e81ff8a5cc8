//! What the script of a page reads: the programs, with each series written once.

use std::collections::HashMap;

use serde::Serialize;

use crate::data::{Program, Run};
use crate::series::Series;

/// What the script reads.
#[derive(Serialize)]
pub(crate) struct Data<'a> {
    programs: Vec<ProgramData<'a>>,
}

/// A program whose runs name their series by number. What is live is the same under each policy, and is written once.
#[derive(Serialize)]
struct ProgramData<'a> {
    #[serde(flatten)]
    program: &'a Program,
    runs: Vec<RunData<'a>>,
    series: Vec<&'a Series>,
}

/// A run, and the numbers of its series.
#[derive(Serialize)]
struct RunData<'a> {
    #[serde(flatten)]
    run: &'a Run,
    columns: ColumnNumbers,
    parts: Vec<(&'static str, usize)>,
    at: usize,
    mapped: usize,
}

/// The numbers of the series of the columns. What is not in it is not drawn.
#[derive(Serialize)]
struct ColumnNumbers {
    live_min: usize,
    live_max: usize,
    reserved_max: usize,
    calls: usize,
    waits: usize,
    refused: usize,
}

/// The series so far, and their numbers.
#[derive(Default)]
struct Shared<'a> {
    series: Vec<&'a Series>,
    numbers: HashMap<&'a Series, usize>,
}

impl<'a> Shared<'a> {
    fn number(&mut self, series: &'a Series) -> usize {
        *self.numbers.entry(series).or_insert_with(|| {
            self.series.push(series);
            self.series.len() - 1
        })
    }

    fn run(&mut self, run: &'a Run) -> RunData<'a> {
        let columns = ColumnNumbers {
            live_min: self.number(&run.columns.live_min),
            live_max: self.number(&run.columns.live_max),
            reserved_max: self.number(&run.columns.reserved_max),
            calls: self.number(&run.columns.calls),
            waits: self.number(&run.columns.waits),
            refused: self.number(&run.columns.refused),
        };
        let parts = run.parts.iter().map(|(name, series)| (*name, self.number(series))).collect();
        RunData { run, columns, parts, at: self.number(&run.at), mapped: self.number(&run.mapped) }
    }
}

impl<'a> Data<'a> {
    /// Returns what the script reads of these programs.
    pub(crate) fn new(programs: &'a [Program]) -> Self {
        let program = |program: &'a Program| {
            let mut shared = Shared::default();
            let runs = program.runs.iter().map(|run| shared.run(run)).collect();
            ProgramData { program, runs, series: shared.series }
        };
        Self { programs: programs.iter().map(program).collect() }
    }
}
