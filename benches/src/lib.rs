//! Benchmarks of the allocator beside its peers. See the crate's README.
//!
//! Reading order is dependency order: [`workload`] (the operations), [`subject`] (the allocators), [`measure`] (clocks
//! and rounds), [`case`] (the table), [`report`] (tables and records), [`options`] (the command line), and [`gpu`], the
//! comparison on a real device. [`scale`] stands apart: the cost at different numbers of streams, threads and pools.

pub mod case;
pub mod chart;
pub mod gpu;
pub mod measure;
pub mod options;
pub mod report;
pub mod scale;
pub mod subject;
pub mod workload;
