//! The device's peaks of what the shards count.

use crate::meter::{COUNTERS, ROWS, Row, each, has_shortage};

/// For every counter, the highest that the sum over all shards has been. See [`crate::meter`] for how the shards' rooms
/// keep it exact.
#[derive(Default)]
pub(crate) struct Peaks([Row; ROWS]);

impl Peaks {
    /// Covers what `rooms` lack by raising the peaks, after which no room is below zero.
    pub(crate) fn cover(&mut self, rooms: &mut [Row; ROWS]) {
        each(|row, counter| {
            self.0[row][counter] += (-rooms[row][counter]).max(0);
            rooms[row][counter] = rooms[row][counter].max(0);
        });
    }

    /// Adds a shard's counters to peaks that begin anew.
    pub(crate) fn add(&mut self, current: &[Row; ROWS]) {
        add(&mut self.0, current);
    }

    /// Returns the peaks of a counter: of both sides together, of the small side and of the large one.
    pub(crate) fn of(&self, counter: usize) -> [u64; ROWS] {
        self.0.map(|row| row[counter] as u64)
    }

    /// Verifies that each peak is the sum of what is there and of what room is left.
    ///
    /// # Panics
    ///
    /// If one is not, or if some room is below zero.
    pub(crate) fn check(&self, shards: &[([Row; ROWS], [Row; ROWS])]) {
        let mut sums = [[0; COUNTERS]; ROWS];
        for (at, (current, rooms)) in shards.iter().enumerate() {
            assert!(!has_shortage(rooms), "shard {at} has room below zero: {rooms:?}");
            add(&mut sums, current);
            add(&mut sums, rooms);
        }
        assert_eq!(sums, self.0, "what is there plus room, against the peaks (all, small, large)");
    }
}

fn add(rows: &mut [Row; ROWS], more: &[Row; ROWS]) {
    each(|row, counter| rows[row][counter] += more[row][counter]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_rises_by_what_is_missing_alone() {
        let mut peaks = Peaks::default();
        let mut rooms = [[0; COUNTERS]; ROWS];
        (rooms[0][1], rooms[0][2]) = (-5, 7);
        peaks.cover(&mut rooms);
        assert_eq!((peaks.of(1)[0], peaks.of(2)[0]), (5, 0));
        assert_eq!((rooms[0][1], rooms[0][2]), (0, 7));
    }
}
