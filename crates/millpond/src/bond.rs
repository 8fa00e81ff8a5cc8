//! Bonds: what says whether a program still has a handle of a pool, by which it could ask for memory there.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millpond_backend::Backend;
use millpond_core::PoolId;

use crate::raw::source::SharedSource;
use crate::sync::Mutex;

/// A handle's bond to its pool. It is no reference: it keeps the pool's shards from being given to another pool, and
/// none of its memory. It keeps the pool's source, if it has one.
pub(crate) struct Bond<B: Backend>(Arc<Bound<B>>);

struct Bound<B: Backend> {
    pool: PoolId,
    source: Option<SharedSource<B>>,
}

impl<B: Backend> Clone for Bond<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Backend> Bond<B> {
    pub(crate) fn pool(&self) -> PoolId {
        self.0.pool
    }
}

/// The bonds of all private pools. They are made, and looked for, under the coordinator's lock, so that no bond is made
/// while a shard is given to another pool.
pub(crate) struct Bonds<B: Backend>(Mutex<BTreeMap<PoolId, Weak<Bound<B>>>>);

impl<B: Backend> Bonds<B> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Returns a bond to a pool, if a handle has one.
    pub(crate) fn existing(&self, pool: PoolId) -> Option<Bond<B>> {
        self.0.lock().get(&pool).and_then(Weak::upgrade).map(Bond)
    }

    /// Returns a bond to a pool to which no handle has one.
    pub(crate) fn bind(&self, pool: PoolId, source: Option<SharedSource<B>>) -> Bond<B> {
        let bound = Arc::new(Bound { pool, source });
        let mut bonds = self.0.lock();
        bonds.retain(|_, bond| bond.strong_count() > 0);
        bonds.insert(pool, Arc::downgrade(&bound));
        Bond(bound)
    }

    /// Returns whether no handle has a bond to a pool.
    pub(crate) fn are_over(&self, pool: PoolId) -> bool {
        self.0.lock().get(&pool).is_none_or(|bond| bond.strong_count() == 0)
    }

    /// Returns the source of a pool, if it has one. A request in a pool comes from a handle of it.
    pub(crate) fn source_of(&self, pool: PoolId) -> Option<SharedSource<B>> {
        self.existing(pool)?.0.source.clone()
    }
}
