#![doc = include_str!("../README.md")]

mod check;
mod evidence;
mod marks;
mod outcome;
mod own;
mod record;
mod replay;
mod submits;
mod threads;
mod until;
mod used;
mod watch;

pub use check::{CheckError, WrongByte};
pub use outcome::{Pass, Replayed};
pub use record::{DecisionLog, Recorder};
pub use replay::Replay;
pub use until::Until;
