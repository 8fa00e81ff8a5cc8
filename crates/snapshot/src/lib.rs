#![doc = include_str!("../README.md")]

mod diff;
mod error;
mod limits;
mod model;
mod own;
mod read;
mod vma;
mod write;

pub use diff::{Amount, Change, Diff, Row, Sums};
pub use error::{Place, Problem, SnapshotError};
pub use limits::{DEPTH_MAX, Limit, Limits};
pub use model::{Action, Annotation, Block, Frame, Other, Segment, Snapshot, Stack, State, TraceEntry};
pub use read::{End, content, whole, whole_or_cut};
pub use vma::VmaDevice;
