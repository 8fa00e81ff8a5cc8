//! Private pools, for graphs and for PyTorch's `MemPool`, under the names that the framework gives them.

use std::collections::BTreeMap;

use millpond::settings::PoolFlags;
use millpond::{Allocator, Capture, Pool as Held, PoolId, Stream};
use millpond_backend::StreamId;
use parking_lot::Mutex;

use super::told::Told;
use super::types::{NO_SPLIT, Pool, USE_ON_OOM};
use crate::code::Failure;
use crate::device::Device;
use crate::source::Supplier;
use crate::streams::{Streams, Tenure};

/// The private pools of a device by their names.
pub(super) struct Pools<D: Device>(Mutex<BTreeMap<Pool, Known<D>>>);

/// A pool that has references, or may still have memory.
struct Known<D: Device> {
    id: PoolId,
    /// The references that the framework has. Each ends with [`Pools::release`].
    held: Vec<Held<Told<D>>>,
    /// The streams that were used in the pool, while it has references.
    streams: Streams<Told<D>>,
    /// The capture of streams in the pool, while there is one.
    capture: Option<Capture<Told<D>>>,
}

impl<D: Device> Known<D> {
    /// Returns the stream of a handle in the pool of a name. At its first use there, `id_of` says which stream it is.
    fn stream(
        &self,
        name: Pool,
        native: u64,
        id_of: impl FnOnce() -> Result<StreamId, Failure>,
    ) -> Result<&Stream<Told<D>>, Failure> {
        if let Some(stream) = self.streams.get(native) {
            return Ok(stream);
        }
        let held = self.held.first().ok_or_else(|| unknown(name))?;
        let id = id_of()?;
        Ok(self.streams.add(native, held.stream(id)?, Tenure::Lasting))
    }
}

impl<D: Device> Pools<D> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Returns the name of a pool; that of the default pool where it has none.
    pub(super) fn name_of(&self, id: PoolId) -> Pool {
        let pools = self.0.lock();
        pools.iter().find(|(_, known)| known.id == id).map_or_else(Pool::default, |(name, _)| *name)
    }

    /// Returns the pools that have references, or still have memory, by their names.
    pub(super) fn all(&self) -> Vec<(Pool, PoolId)> {
        self.0.lock().iter().map(|(name, known)| (*name, known.id)).collect()
    }

    /// Returns the number of the pool of a name.
    pub(super) fn id_of(&self, name: Pool) -> Option<PoolId> {
        self.0.lock().get(&name).map(|known| known.id)
    }

    /// Returns the stream of a handle in a pool. At its first use there, `id_of` says which stream it is.
    pub(super) fn stream(
        &self,
        name: Pool,
        native: u64,
        id_of: impl FnOnce() -> Result<StreamId, Failure>,
    ) -> Result<Stream<Told<D>>, Failure> {
        let pools = self.0.lock();
        let known = pools.get(&name).ok_or_else(|| unknown(name))?;
        Ok(known.stream(name, native, id_of)?.clone())
    }

    /// Forgets the handle of a stream, which may come back for another one.
    pub(super) fn release_stream(&self, native: u64) {
        for known in self.0.lock().values() {
            known.streams.release(native, |_| Ok(()));
        }
    }

    /// Returns a further reference to a pool that has one.
    pub(super) fn held(&self, name: Pool) -> Result<Held<Told<D>>, Failure> {
        let pools = self.0.lock();
        let held = pools.get(&name).and_then(|known| known.held.first());
        held.cloned().ok_or_else(|| unknown(name))
    }

    /// Takes a reference for the framework. The first one makes the pool in the allocator of the device, and gives it
    /// its source.
    pub(super) fn reference(
        &self,
        name: Pool,
        allocator: &Allocator<Told<D>>,
        source: Option<Supplier>,
    ) -> Result<(), Failure> {
        let mut pools = self.0.lock();
        if let Some(known) = pools.get_mut(&name) {
            let again = match known.held.first() {
                Some(held) => Some(held.clone()),
                None => allocator.pool(known.id).ok(),
            };
            if let Some(held) = again {
                if let Some(source) = source {
                    source.leave();
                    return Err(has_begun(name));
                }
                known.held.push(held);
                return Ok(());
            }
        }
        let held = match source {
            Some(source) => allocator.create_pool_from(source)?,
            None => allocator.create_pool()?,
        };
        let known = Known { id: held.id(), held: vec![held], streams: Streams::new(), capture: None };
        pools.insert(name, known);
        Ok(())
    }

    /// Gives a reference up. A pool is forgotten once it has neither references nor memory in the allocator.
    pub(super) fn release(&self, name: Pool, allocator: &Allocator<Told<D>>) -> Result<(), Failure> {
        let mut pools = self.0.lock();
        let known = pools.get_mut(&name).ok_or_else(|| unknown(name))?;
        let last = known.held.pop().ok_or_else(|| unknown(name))?;
        // Streams bind a pool; a stream that is used again is opened again.
        let streams = known.held.is_empty().then(|| std::mem::replace(&mut known.streams, Streams::new()));
        drop(pools);
        // With them the pool's source may be over, of which the program is told with no lock held.
        drop((last, streams));
        let mut pools = self.0.lock();
        pools.retain(|_, known| !known.held.is_empty() || allocator.pool_stats(known.id).is_some());
        Ok(())
    }

    /// Returns the number of references to a pool, captures among them; 0 for a pool that there is not.
    pub(super) fn uses(&self, name: Pool) -> u64 {
        let pools = self.0.lock();
        pools.get(&name).and_then(|known| known.held.first()).map_or(0, Held::use_count)
    }

    /// Sets or clears the properties of a pool that are named.
    pub(super) fn set_flags(&self, name: Pool, which: u32, on: bool) -> Result<(), Failure> {
        if which & !(USE_ON_OOM | NO_SPLIT) != 0 {
            return Err(Failure::bad_argument(format!("{which:#x} has bits that are no property of a pool")));
        }
        let pools = self.0.lock();
        let held = pools.get(&name).and_then(|known| known.held.first()).ok_or_else(|| unknown(name))?;
        let before = held.flags();
        let value = |bit, before| if which & bit != 0 { on } else { before };
        held.set_flags(PoolFlags {
            use_on_oom: value(USE_ON_OOM, before.use_on_oom),
            no_split: value(NO_SPLIT, before.no_split),
        });
        Ok(())
    }

    /// Begins a capture of a stream in a pool, or has the stream join the one that there is. `id_of` is as in
    /// [`stream`](Pools::stream).
    pub(super) fn begin_capture(
        &self,
        name: Pool,
        native: u64,
        id_of: impl FnOnce() -> Result<StreamId, Failure>,
    ) -> Result<(), Failure> {
        let mut pools = self.0.lock();
        let known = pools.get_mut(&name).ok_or_else(|| unknown(name))?;
        let stream = known.stream(name, native, id_of)?.clone();
        match &known.capture {
            Some(capture) => capture.join(&stream)?,
            None => known.capture = Some(stream.begin_capture()?),
        }
        Ok(())
    }

    /// Ends the capture in a pool.
    pub(super) fn end_capture(&self, name: Pool) -> Result<(), Failure> {
        let mut pools = self.0.lock();
        let known = pools.get_mut(&name).ok_or_else(|| unknown(name))?;
        known.capture = None;
        Ok(())
    }
}

#[cold]
fn unknown(name: Pool) -> Failure {
    let (first, second) = (name.first, name.second);
    Failure::bad_argument(format!("there is no private pool ({first}, {second}), or its last reference has ended"))
}

#[cold]
fn has_begun(name: Pool) -> Failure {
    let (first, second) = (name.first, name.second);
    Failure::bad_argument(format!(
        "the private pool ({first}, {second}) exists already, and a pool gets its source with its first reference"
    ))
}

#[cfg(test)]
mod tests {
    use millpond_sim::Sim;

    use super::*;
    use crate::devices::open_sim;

    fn simulated() -> (Pools<Sim>, Allocator<Told<Sim>>) {
        let device = Told::new(open_sim(0).expect("a device"), 0);
        (Pools::new(), Allocator::builder(device).conf("policy:classic").build().expect("an allocator"))
    }

    #[test]
    fn a_property_changes_alone() {
        let ((pools, allocator), pool) = (simulated(), Pool { first: 0, second: 1 });
        pools.reference(pool, &allocator, None).expect("a new pool");
        let steps = [
            (USE_ON_OOM, true, (true, false)),
            (NO_SPLIT, true, (true, true)),
            (USE_ON_OOM, false, (false, true)),
            (USE_ON_OOM | NO_SPLIT, false, (false, false)),
            (USE_ON_OOM | NO_SPLIT, true, (true, true)),
            (NO_SPLIT, false, (true, false)),
        ];
        for (which, on, (use_on_oom, no_split)) in steps {
            pools.set_flags(pool, which, on).expect("it has a reference");
            let flags = pools.held(pool).expect("it has a reference").flags();
            assert_eq!((flags.use_on_oom, flags.no_split), (use_on_oom, no_split), "{which} {on}");
        }
    }

    /// A program may make pools for as long as it runs, and what is kept of one that is over would add up.
    #[test]
    fn a_name_is_kept_while_the_pool_has_references_or_memory() {
        let (pools, allocator) = simulated();
        let known = || pools.0.lock().len();
        for name in [1, 2, 1].map(|second| Pool { first: 0, second }) {
            pools.reference(name, &allocator, None).expect("a new pool");
            assert_eq!(known(), 1);
            pools.release(name, &allocator).expect("it has a reference");
            assert_eq!(known(), 0, "it is over");
        }
        for second in 3..50 {
            let name = Pool { first: 0, second };
            pools.reference(name, &allocator, None).expect("a new pool");
            let stream = pools.stream(name, 0, || Ok(StreamId(0))).expect("the default stream");
            drop(stream.allocate(512).expect("memory"));
            drop(stream);
            pools.release(name, &allocator).expect("it has a reference");
            let id = pools.id_of(name).expect("it has memory, which is given back by its name");
            allocator.empty_cache_of(id).expect("memory goes back");
            assert!(known() <= 2, "the last one's stream serves the next");
        }
    }
}
