#![doc = include_str!("../README.md")]

mod acts;
mod building;
mod check;
mod evidence;
mod fills;
mod fitting;
mod flight;
mod history;
mod life;
mod marks;
mod observer;
mod outcome;
mod own;
mod record;
mod replay;
mod submits;
mod threads;
mod timed;
pub mod tune;
mod until;
mod used;
mod vary;
mod watch;

pub use check::{CheckError, WrongByte};
pub use fills::Fills;
pub use fitting::{Fit, Fits, FittingError, Recorded, fits_of, under_each_policy, which_policies_fit};
pub use flight::{Flight, HeldFor, Hold};
pub use history::{trace_of, trace_of_snapshot};
pub use life::Life;
pub use observer::Observer;
pub use outcome::{Pass, Replayed};
pub use record::{DecisionLog, Recorder};
pub use replay::Replay;
pub use timed::{Sharing, Timed};
pub use until::Until;
pub use vary::Vary;
