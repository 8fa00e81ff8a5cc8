//! Bonds: what says whether a program still has a handle of a pool, by which it could ask for memory there.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millpond_core::PoolId;

use crate::sync::Mutex;

/// A handle's bond to its pool. It is no reference: it keeps the pool's shards from being given to another pool, and
/// none of its memory.
#[derive(Clone)]
pub(crate) struct Bond(Arc<PoolId>);

impl Bond {
    pub(crate) fn pool(&self) -> PoolId {
        *self.0
    }
}

/// The bonds of all private pools. They are made, and looked for, under the coordinator's lock, so that no bond is made
/// while a shard is given to another pool.
pub(crate) struct Bonds(Mutex<BTreeMap<PoolId, Weak<PoolId>>>);

impl Bonds {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Returns a bond to a pool.
    pub(crate) fn bond(&self, pool: PoolId) -> Bond {
        let mut bonds = self.0.lock();
        if let Some(bond) = bonds.get(&pool).and_then(Weak::upgrade) {
            return Bond(bond);
        }
        bonds.retain(|_, bond| bond.strong_count() > 0);
        let bond = Arc::new(pool);
        bonds.insert(pool, Arc::downgrade(&bond));
        Bond(bond)
    }

    /// Returns whether no handle has a bond to a pool.
    pub(crate) fn are_over(&self, pool: PoolId) -> bool {
        self.0.lock().get(&pool).is_none_or(|bond| bond.strong_count() == 0)
    }
}
