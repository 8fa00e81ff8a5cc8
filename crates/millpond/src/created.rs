//! The streams that allocators of a backend have created.
//!
//! A stream ends with its last handle. The next one that is created is the same queue of the device, as PyTorch takes
//! its streams from a pool. So what the device and the allocator keep for streams is bounded by the number of those
//! that are alive at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millpond_backend::StreamId;

use crate::sync::Mutex;

/// The streams that allocators of a backend have created.
pub(crate) struct Created(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Those that have handles.
    alive: BTreeMap<StreamId, Weak<Lease>>,
    /// Those that have none, the one that ended last at the end.
    ended: Vec<StreamId>,
}

/// Keeps a created stream from being handed out again. All handles of a stream share one.
pub(crate) struct Lease {
    id: StreamId,
    of: Arc<Created>,
}

impl Created {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Table::default())))
    }

    /// Takes the stream that ended last of those that may be used. Returns `None` if there is none.
    pub(crate) fn take(self: &Arc<Self>, may_be_used: impl Fn(StreamId) -> bool) -> Option<Arc<Lease>> {
        let mut table = self.0.lock();
        let at = table.ended.iter().rposition(|&id| may_be_used(id))?;
        let id = table.ended.remove(at);
        Some(self.let_out(&mut table, id))
    }

    /// Adds a stream that the backend has just created.
    pub(crate) fn add(self: &Arc<Self>, id: StreamId) -> Arc<Lease> {
        self.let_out(&mut self.0.lock(), id)
    }

    /// Returns the lease of a stream for one more handle. Returns `None` if it was not created here.
    pub(crate) fn lease(self: &Arc<Self>, id: StreamId) -> Option<Arc<Lease>> {
        let mut table = self.0.lock();
        if let Some(lease) = table.alive.get(&id).and_then(Weak::upgrade) {
            return Some(lease);
        }
        let ended = table.ended.iter().position(|&other| other == id);
        // Without a place there, its last handle is being dropped.
        (ended.is_some() || table.alive.contains_key(&id)).then(|| {
            ended.map(|at| table.ended.remove(at));
            self.let_out(&mut table, id)
        })
    }

    /// Forgets a stream, which is handed out no more.
    pub(crate) fn forget(&self, lease: &Lease) {
        self.0.lock().alive.remove(&lease.id);
    }

    fn let_out(self: &Arc<Self>, table: &mut Table, id: StreamId) -> Arc<Lease> {
        let lease = Arc::new(Lease { id, of: Arc::clone(self) });
        table.alive.insert(id, Arc::downgrade(&lease));
        lease
    }
}

impl Lease {
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut table = self.of.0.lock();
        // It may have a new handle since this one was counted out.
        if table.alive.get(&self.id).is_some_and(|lease| lease.strong_count() == 0) {
            table.alive.remove(&self.id);
            table.ended.push(self.id);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stream_serves_again_once_its_last_handle_is_gone() {
        let created = Created::new();
        let [first, second] = [1, 2].map(|id| created.add(StreamId(id)));
        assert!(created.take(|_| true).is_none(), "both have handles");
        let clone = created.lease(StreamId(1)).expect("it was created here");
        drop((first, second));
        assert!(created.take(|id| id == StreamId(1)).is_none(), "it has another handle");
        drop(clone);
        assert_eq!(created.take(|id| id != StreamId(1)).expect("one is left").id(), StreamId(2));
        let by_number = created.lease(StreamId(1)).expect("it has ended, and begins again");
        assert!(created.take(|id| id == StreamId(1)).is_none(), "it has a handle again");
        drop(by_number);
        assert_eq!(created.take(|_| true).expect("it has ended").id(), StreamId(1));
        assert!(created.lease(StreamId(9)).is_none(), "it was created elsewhere");
    }
}
