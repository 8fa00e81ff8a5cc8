//! The command, as people start it.

mod advice;
mod bench;
mod command;
mod common;
mod compare;
mod conformance;
mod cuda;
mod diff;
mod files;
mod golden;
mod import;
mod killed;
mod life;
mod real;
mod replay;
mod report;
mod terminal;
mod timed;
mod tune;
