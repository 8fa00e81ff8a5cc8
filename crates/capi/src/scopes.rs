//! Peak scopes of an allocator, by their numbers.

use std::collections::BTreeMap;

use millpond::{Allocator, MemoryStats, PeakScope};
use millpond_backend::Backend;
use parking_lot::Mutex;

use crate::code::Failure;

/// The scopes that the program has open. Numbers begin with 1, and none is given out twice.
pub(crate) struct Scopes<B: Backend>(Mutex<Opened<B>>);

struct Opened<B: Backend> {
    last: u64,
    open: BTreeMap<u64, PeakScope<B>>,
}

impl<B: Backend> Scopes<B> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Opened { last: 0, open: BTreeMap::new() }))
    }

    /// Opens a scope, and returns its number.
    pub(crate) fn open(&self, allocator: &Allocator<B>) -> u64 {
        let mut scopes = self.0.lock();
        scopes.last += 1;
        let number = scopes.last;
        scopes.open.insert(number, allocator.peak_scope());
        number
    }

    /// Returns the statistics with the peaks of a scope.
    pub(crate) fn stats(&self, number: u64) -> Result<MemoryStats, Failure> {
        self.0.lock().open.get(&number).map(PeakScope::stats).ok_or_else(|| unknown(number))
    }

    /// Ends a scope.
    pub(crate) fn close(&self, number: u64) -> Result<(), Failure> {
        let scope = self.0.lock().open.remove(&number);
        scope.map(drop).ok_or_else(|| unknown(number))
    }
}

fn unknown(number: u64) -> Failure {
    Failure::bad_argument(format!("the peak scope {number} is not open: it was closed, or is another allocator's"))
}

#[cfg(test)]
mod tests {
    use millpond_sim::Sim;

    use super::*;

    #[test]
    fn a_scope_is_known_by_its_number_until_it_is_closed() {
        let allocator = Allocator::new(Sim::new());
        let scopes = Scopes::new();
        let [first, second] = [(); 2].map(|()| scopes.open(&allocator));
        assert_eq!([first, second], [1, 2]);
        drop(allocator.create_stream().unwrap().allocate(1 << 20).unwrap());
        scopes.close(first).unwrap();
        assert!(scopes.close(first).is_err() && scopes.stats(first).is_err());
        assert_eq!(scopes.stats(second).unwrap().allocated_bytes.all.peak, 1 << 20);
        assert_eq!(scopes.open(&allocator), 3, "a number is given out once");
    }
}
