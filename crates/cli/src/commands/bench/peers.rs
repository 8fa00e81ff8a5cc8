//! The time that other allocators take for the same allocations, in the same run.

use super::measure::{Effort, each, rounds};
use super::row::Row;
use crate::devices::{Peer, Target};
use crate::failure::Failure;

/// Measures every peer that the backend offers, at the sizes at which the cache was measured, and divides its times by
/// the cache's.
///
/// # Errors
///
/// Returns the error of the peer.
pub(super) fn measure(target: &Target, effort: &Effort, measured: &[Row]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for mut peer in target.peers()? {
        let Peer { name, max_per_round, ref mut pair } = peer;
        for ours in measured.iter().filter(|row| row.group == "cached") {
            let Some(bytes) = ours.bytes else { continue };
            let count = effort.operations.min(max_per_round);
            pair(bytes)?;
            let ns = rounds(effort, || each(count, || pair(bytes)))?;
            let row = Row::new("peer", format!("free and allocate, {name}"), ns).of_bytes(bytes);
            rows.push(Row { times_millpond: Some(ns.median / ours.ns), ..row });
        }
    }
    Ok(rows)
}
