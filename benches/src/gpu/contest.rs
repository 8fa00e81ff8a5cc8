//! The work of a subject in its turn, and the time that it may take.

use std::error::Error;
use std::time::Duration;

use super::task::Task;
use crate::measure::{Latency, Race, Timing};

/// The error that kept a subject from its turn.
pub type Trouble = Box<dyn Error>;

/// The number of passes and the time for them, whichever ends first. There is at least one pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The most passes.
    pub passes: usize,
    /// The time after which no further pass begins.
    pub budget: Duration,
}

/// The effort of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Rounds per case, at least 1.
    pub rounds: usize,
    /// The passes after the first that do not count.
    pub warm: Share,
    /// The passes that count.
    pub timed: Share,
    /// The operations that are timed one by one, in whole passes.
    pub singles: Share,
    /// The time in a case after which a subject skips the remaining rounds.
    pub budget: Duration,
    /// The timing of a race.
    pub timing: Timing,
}

impl Effort {
    /// The effort of a record: about 5 minutes for everything.
    pub const FULL: Effort = Effort {
        rounds: 5,
        warm: Share { passes: 8, budget: Duration::from_millis(500) },
        timed: Share { passes: 16, budget: Duration::from_millis(150) },
        singles: Share { passes: 200_000, budget: Duration::from_millis(500) },
        budget: Duration::from_millis(2000),
        timing: Timing::USUAL,
    };

    /// The effort of a check that everything works: seconds.
    pub const QUICK: Effort = Effort {
        rounds: 1,
        warm: Share { passes: 1, budget: Duration::from_millis(50) },
        timed: Share { passes: 2, budget: Duration::from_millis(20) },
        singles: Share { passes: 1000, budget: Duration::from_millis(20) },
        budget: Duration::from_millis(200),
        timing: Timing { warm: Duration::from_millis(2), window: Duration::from_millis(5) },
    };
}

/// The result of one turn on one thread. Times are in nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Turn {
    /// The time from an empty cache through the first pass, with its preparation and the driver's time.
    pub cold_ns: f64,
    /// The time of a pass that counts, the median.
    pub pass_ns: f64,
    /// The number of passes that count.
    pub passes: usize,
    /// The most bytes held by the end of the first pass, where the subject counts them.
    pub reserved: Option<u64>,
    /// The measurements that only the first turn of a case has.
    pub closer: Option<Closer>,
}

/// Further measurements of a turn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Closer {
    /// The times of single operations.
    pub latency: Latency,
    /// The same of operations in front of each of which [`USUAL`](crate::measure::Evictor::USUAL) bytes were written.
    pub evicted: Latency,
    /// The number of blocks that one pass from an empty state allocated, all of which were checked to exist and to be
    /// apart from all other live blocks.
    pub blocks: u64,
}

/// A subject that is measured. Its turns and races begin and end without blocks and with an empty cache.
pub trait Contestant {
    /// Returns its name in the record.
    fn name(&self) -> &str;

    /// Returns its description of its version, if it has one.
    fn about(&self) -> Option<&str> {
        None
    }

    /// Returns whether its operations take so long that it gets a shorter list.
    fn is_slow(&self) -> bool {
        false
    }

    /// Runs the only list of the task. `closer` asks for the measurements of [`Closer`], too.
    ///
    /// # Errors
    ///
    /// Returns any error; the subject then has no further turn in the case.
    fn turn(&mut self, task: &Task, effort: &Effort, closer: bool) -> Result<Turn, Trouble>;

    /// Runs a race of the task's threads for each of these numbers of threads.
    ///
    /// # Errors
    ///
    /// As [`turn`](Contestant::turn).
    fn race(&mut self, task: &Task, threads: &[usize], timing: Timing) -> Result<Vec<Race>, Trouble>;
}

/// Returns the median of some times in nanoseconds.
///
/// # Panics
///
/// If there are none.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
