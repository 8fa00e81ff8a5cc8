//! Segments that came from sources of pools, until they go back there.

use std::collections::BTreeMap;

use millpond_backend::Backend;
use millpond_core::{PoolId, ShardId, Slot};

use crate::raw::source::SharedSource;
use crate::sync::Mutex;

/// For each segment that came from a source: its pool, and the source. A source therefore lives at least as long as its
/// segments. The lock is held only while the table is accessed, and never together with another lock.
pub(crate) struct Sources<B: Backend>(Mutex<BTreeMap<(ShardId, Slot), Origin<B>>>);

/// The pool of a segment, and the source that it came from.
type Origin<B> = (PoolId, SharedSource<B>);

impl<B: Backend> Sources<B> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Notes where a segment came from.
    pub(crate) fn note(&self, at: (ShardId, Slot), pool: PoolId, source: SharedSource<B>) {
        let before = self.0.lock().insert(at, (pool, source));
        assert!(before.is_none(), "a source has supplied the segment of {at:?} already");
    }

    /// Returns where a segment came from, if that is a source, and forgets it.
    pub(crate) fn take(&self, at: (ShardId, Slot)) -> Option<SharedSource<B>> {
        self.0.lock().remove(&at).map(|(_, source)| source)
    }

    /// Returns the source of a pool, if a segment of it has come from one.
    pub(crate) fn of(&self, pool: PoolId) -> Option<SharedSource<B>> {
        self.0.lock().values().find(|(of, _)| *of == pool).map(|(_, source)| source.clone())
    }
}
