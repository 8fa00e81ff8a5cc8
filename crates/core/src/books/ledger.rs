//! The waste ledger: where every reserved byte is.

use core::ops::AddAssign;

/// The reserved bytes by their use. [`total`](WasteLedger::total) is exactly what was taken from the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WasteLedger {
    /// Bytes that the program asked for and holds.
    pub live_bytes: u64,
    /// Bytes handed out beyond what was asked for, by rounding and by blocks left whole.
    pub rounding_bytes: u64,
    /// Bytes cached in segments (or whole pages) that nothing pins: they can be reused, and `empty_cache` would give
    /// them back.
    pub ready_bytes: u64,
    /// Bytes in blocks that the program has freed and that wait for a point.
    pub waiting_bytes: u64,
    /// Free bytes that several streams may still use: whoever gets them comes after that, by a device-side wait where
    /// the device has those.
    pub guarded_bytes: u64,
    /// Free bytes inside a segment (or page) that live or waiting blocks pin.
    pub stranded_bytes: u64,
    /// Free bytes of private pools that are held, in segments (or whole pages) that no block pins: requests in the same
    /// pool can reuse them, and they stay reserved as long as the pool has references.
    pub held_bytes: u64,
}

impl WasteLedger {
    /// Returns the sum of the parts: all reserved bytes.
    pub fn total(&self) -> u64 {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the parts with their names, in the order of the fields.
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("live", self.live_bytes),
            ("rounding", self.rounding_bytes),
            ("ready", self.ready_bytes),
            ("waiting", self.waiting_bytes),
            ("guarded", self.guarded_bytes),
            ("stranded", self.stranded_bytes),
            ("held", self.held_bytes),
        ]
    }

    /// Returns the same bytes, of a pool that is held: what would be ready to go back is not.
    pub(crate) fn of_held_pool(self) -> WasteLedger {
        WasteLedger { ready_bytes: 0, held_bytes: self.held_bytes + self.ready_bytes, ..self }
    }
}

impl AddAssign for WasteLedger {
    fn add_assign(&mut self, other: WasteLedger) {
        self.live_bytes += other.live_bytes;
        self.rounding_bytes += other.rounding_bytes;
        self.ready_bytes += other.ready_bytes;
        self.waiting_bytes += other.waiting_bytes;
        self.guarded_bytes += other.guarded_bytes;
        self.stranded_bytes += other.stranded_bytes;
        self.held_bytes += other.held_bytes;
    }
}
