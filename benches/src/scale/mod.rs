//! What grows with streams, threads, pools and age: tables of the cost at different numbers of them.
//!
//! Times are of the host and of the simulated device, whose calls cost nothing but what they take on the host. As
//! machines are noisy, each time stands next to its multiple of another one of the same run.

pub mod age;
pub mod churn;
mod page;
pub mod streams;
pub mod threads;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use millpond::settings::Policy;
use millpond_backend::Backend;
use millpond_sim::{CostModel, Sim};

use crate::subject::{CLASSIC, PAGED};
use age::Load;
use churn::What;

/// How much is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effort {
    /// The operations of the stream that grows old.
    pub operations: u64,
    /// The number of pools, and of streams, that come and go.
    pub churn: usize,
    /// The time after which a row of pools, or of streams that come and go, is cut short. Threads have four times as
    /// long under each policy, and a stream that grows old has six times as long.
    pub bound: Duration,
    /// The folder of the recorded programs.
    pub traces: PathBuf,
}

/// The number of pools, and of streams, that are alive at once, at most.
const ALIVE: usize = 1000;

/// One table of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// One thread that uses many streams.
    Streams,
    /// One stream for a long time.
    Age,
    /// Pools and streams that come and go.
    Churn,
    /// Recorded programs by several threads.
    Threads,
}

/// Rows of one table, which are measured together, in a process of their own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Case {
    /// One thread that uses many streams, under a policy.
    Streams(Policy),
    /// One stream for a long time, under a policy.
    Age(Policy, Load),
    /// Pools or streams under a policy, one after the other or all alive at once.
    Churn(What, Policy, bool),
    /// Streams of a device without an allocator, one after the other.
    Device,
    /// A recorded program, by its name, by a number of threads.
    Threads(&'static str, usize),
}

impl Table {
    /// The page's order.
    pub const ALL: [Table; 4] = [Table::Streams, Table::Age, Table::Churn, Table::Threads];

    /// Returns the title, what the columns mean, and the head.
    pub fn head(self) -> String {
        match self {
            Table::Streams => page::STREAMS.text(),
            Table::Age => page::AGE.text(),
            Table::Churn => page::CHURN.text(),
            Table::Threads => page::THREADS.text(),
        }
    }

    /// Returns the cases of the table, in order.
    pub fn cases(self) -> Vec<Case> {
        let both = [CLASSIC, PAGED];
        match self {
            Table::Streams => both.map(Case::Streams).to_vec(),
            Table::Age => age::LOADS.map(|load| Case::Age(PAGED, load)).to_vec(),
            Table::Churn => {
                let whats = [What::Pools, What::Streams].into_iter();
                let hows = whats.flat_map(|what| [(what, false), (what, true)]);
                let cases = hows.flat_map(|(what, alive)| both.map(|policy| Case::Churn(what, policy, alive)));
                cases.chain([Case::Device]).collect()
            }
            Table::Threads => {
                let by_trace = |trace| threads::THREADS.map(|threads| Case::Threads(trace, threads));
                threads::TRACES.into_iter().flat_map(by_trace).collect()
            }
        }
    }
}

impl Case {
    /// Returns its name: words between slashes, from the general to the particular.
    pub fn name(self) -> String {
        match self {
            Case::Streams(policy) => format!("streams/{}", policy.variant_name()),
            Case::Age(policy, load) => format!("age/{}/{}", load.name, policy.variant_name()),
            Case::Churn(what, policy, alive) => {
                let how = if alive { "at-once" } else { "in-turn" };
                format!("churn/{}/{how}/{}", what.name(), policy.variant_name())
            }
            Case::Device => "churn/streams/in-turn/device".to_owned(),
            Case::Threads(trace, threads) => format!("threads/{trace}/{threads}"),
        }
    }

    /// Measures it on the simulated device and returns the rows.
    ///
    /// # Errors
    ///
    /// Returns what the allocator or the device refuses where nothing may be refused.
    pub fn rows(self, effort: &Effort) -> Result<Vec<String>, Box<dyn Error>> {
        let churn = |alive| churn::Work {
            count: if alive { effort.churn.min(ALIVE) } else { effort.churn },
            alive,
            bound: effort.bound,
        };
        match self {
            Case::Age(policy, load) => {
                let work = age::Work { operations: effort.operations, span: 100_000, bound: 6 * effort.bound };
                age::rows(policy, load, work)
            }
            Case::Churn(what, policy, alive) => churn::rows(what, policy, churn(alive)),
            Case::Device => churn::device_rows(churn(false)),
            Case::Streams(_) | Case::Threads(..) => {
                self.rows_on(|| Ok(Sim::builder().cost(CostModel::free()).build()), effort)
            }
        }
    }

    /// Returns whether the case can be measured on other devices than the simulated one.
    pub fn is_for_devices(self) -> bool {
        matches!(self, Case::Streams(_) | Case::Threads(..))
    }

    /// Measures it on devices that `open` opens, each for one allocator, and returns the rows.
    ///
    /// # Errors
    ///
    /// As [`rows`](Self::rows), and that the case is for the simulated device alone.
    pub fn rows_on<B: Backend>(
        self,
        open: impl Fn() -> Result<B, Box<dyn Error>>,
        effort: &Effort,
    ) -> Result<Vec<String>, Box<dyn Error>> {
        match self {
            Case::Streams(policy) => streams::rows(open, policy, streams::STREAMS, streams::Timing::USUAL),
            Case::Threads(trace, count) => {
                let turn = Duration::from_millis(50);
                let timing = threads::Timing { rounds: 5, turn, bound: 4 * effort.bound };
                threads::rows(open, (&effort.traces, trace), count, timing)
            }
            other => Err(format!("{} is for the simulated device alone", other.name()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::streams::STREAMS;
    use super::{Case, Effort, Table};
    use crate::workload::trace_path;

    #[test]
    fn cases_have_names_of_their_own_and_rows_as_many_cells_as_their_head() {
        let cases: Vec<_> = Table::ALL.into_iter().flat_map(Table::cases).collect();
        let names: BTreeSet<_> = cases.iter().map(|case| case.name()).collect();
        assert_eq!(names.len(), cases.len(), "{names:?}");
        let columns = |table: Table| table.head().lines().last().map_or(0, |rule| rule.matches('|').count());
        assert_eq!(columns(Table::Streams), 6 + STREAMS.len());
        let traces = trace_path("gnn").parent().expect("it lies in a folder").to_owned();
        let effort = Effort { operations: 100, churn: 3, bound: Duration::ZERO, traces };
        for table in [Table::Age, Table::Churn, Table::Threads] {
            let few = |case: &Case| !matches!(case, Case::Threads(_, threads) if *threads > 1);
            for case in table.cases().into_iter().filter(few) {
                for row in case.rows(&effort).expect("there is a device") {
                    assert_eq!(row.matches('|').count(), columns(table), "{row}");
                }
            }
        }
    }
}
