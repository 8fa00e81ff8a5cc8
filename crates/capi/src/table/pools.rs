//! Private pools, for graphs and for PyTorch's `MemPool`, under the names that the framework gives them.

use std::collections::BTreeMap;
use std::ffi::c_void;

use millpond::settings::PoolFlags;
use millpond::{Capture, Pool as Held, PoolId};
use parking_lot::Mutex;

use super::pond::{Of, on};
use super::ponds;
use super::told::Told;
use super::types::{NO_SPLIT, Pool, USE_ON_OOM};
use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::device::Device;
use crate::source::{CSource, Supplier};
use crate::streams::Streams;

/// The private pools of a device by their names.
pub(super) struct Pools<D: Device>(Mutex<BTreeMap<Pool, Known<D>>>);

/// A pool that has references, or may still have memory.
struct Known<D: Device> {
    id: PoolId,
    /// The references that the framework has. Each ends with `pool_unref`.
    held: Vec<Held<Told<D>>>,
    /// The streams that were used in the pool, while it has references.
    streams: Streams<Told<D>>,
    /// The capture of streams in the pool, while there is one.
    capture: Option<Capture<Told<D>>>,
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

    /// Returns the number of the pool of a name.
    pub(super) fn id_of(&self, name: Pool) -> Option<PoolId> {
        self.0.lock().get(&name).map(|known| known.id)
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

impl<D: Device> Of<D> {
    /// Runs a function on the stream of a handle in a private pool.
    pub(super) fn in_pool<T>(
        &self,
        name: Pool,
        native: u64,
        run: impl FnOnce(&millpond::Stream<Told<D>>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let stream = {
            let pools = self.pools.0.lock();
            let known = pools.get(&name).ok_or_else(|| unknown(name))?;
            self.stream_in(known, name, native)?.clone()
        };
        run(&stream)
    }

    /// Returns a further reference to a pool that has one.
    pub(super) fn held(&self, name: Pool) -> Result<Held<Told<D>>, Failure> {
        let pools = self.pools.0.lock();
        let held = pools.get(&name).and_then(|known| known.held.first());
        held.cloned().ok_or_else(|| unknown(name))
    }

    fn stream_in<'a>(
        &self,
        known: &'a Known<D>,
        name: Pool,
        native: u64,
    ) -> Result<&'a millpond::Stream<Told<D>>, Failure> {
        if let Some(stream) = known.streams.get(native) {
            return Ok(stream);
        }
        let held = known.held.first().ok_or_else(|| unknown(name))?;
        let id = self.stream(native)?.id();
        Ok(known.streams.add(native, held.stream(id)?))
    }

    fn pool_ref(&self, name: Pool, source: Option<Supplier>) -> Result<(), Failure> {
        let mut pools = self.pools.0.lock();
        if let Some(known) = pools.get_mut(&name) {
            let again = match known.held.first() {
                Some(held) => Some(held.clone()),
                None => self.allocator.pool(known.id).ok(),
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
            Some(source) => self.allocator.create_pool_from(source)?,
            None => self.allocator.create_pool()?,
        };
        let known = Known { id: held.id(), held: vec![held], streams: Streams::new(), capture: None };
        pools.insert(name, known);
        Ok(())
    }

    fn pool_unref(&self, name: Pool) -> Result<(), Failure> {
        let mut pools = self.pools.0.lock();
        let known = pools.get_mut(&name).ok_or_else(|| unknown(name))?;
        let last = known.held.pop().ok_or_else(|| unknown(name))?;
        // Streams bind a pool; a stream that is used again is opened again.
        let streams = known.held.is_empty().then(|| std::mem::replace(&mut known.streams, Streams::new()));
        drop(pools);
        // With them the pool's source may be over, of which the program is told with no lock held.
        drop((last, streams));
        let mut pools = self.pools.0.lock();
        pools.retain(|_, known| !known.held.is_empty() || self.allocator.pool_stats(known.id).is_some());
        Ok(())
    }

    fn pool_uses(&self, name: Pool) -> u64 {
        let pools = self.pools.0.lock();
        pools.get(&name).and_then(|known| known.held.first()).map_or(0, Held::use_count)
    }

    fn pool_flags(&self, name: Pool, which: u32, on: bool) -> Result<(), Failure> {
        if which & !(USE_ON_OOM | NO_SPLIT) != 0 {
            return Err(Failure::bad_argument(format!("{which:#x} has bits that are no property of a pool")));
        }
        let pools = self.pools.0.lock();
        let held = pools.get(&name).and_then(|known| known.held.first()).ok_or_else(|| unknown(name))?;
        let before = held.flags();
        let value = |bit, before| if which & bit != 0 { on } else { before };
        held.set_flags(PoolFlags {
            use_on_oom: value(USE_ON_OOM, before.use_on_oom),
            no_split: value(NO_SPLIT, before.no_split),
        });
        Ok(())
    }

    fn capture_begin(&self, name: Pool, native: u64) -> Result<(), Failure> {
        let mut pools = self.pools.0.lock();
        let known = pools.get_mut(&name).ok_or_else(|| unknown(name))?;
        let stream = self.stream_in(known, name, native)?.clone();
        match &known.capture {
            Some(capture) => capture.join(&stream)?,
            None => known.capture = Some(stream.begin_capture()?),
        }
        Ok(())
    }

    fn capture_end(&self, name: Pool) -> Result<(), Failure> {
        let mut pools = self.pools.0.lock();
        let known = pools.get_mut(&name).ok_or_else(|| unknown(name))?;
        known.capture = None;
        Ok(())
    }
}

pub(super) unsafe extern "C" fn pool_ref(device: i32, pool: Pool, source: *const CSource) -> i32 {
    boundary::status(|| {
        if pool == Pool::default() {
            return Err(Failure::bad_argument("(0, 0) is the default pool, which has no references"));
        }
        let (pond, number) = (ponds::get(device)?, ponds::number(device)?);
        // SAFETY: the caller promises that the pointer is null or valid, and that the functions do what the header
        // says.
        let source = unsafe { source.as_ref().map(|source| Supplier::new(source, number)).transpose()? };
        on!(pond, of => of.pool_ref(pool, source))
    })
}

pub(super) extern "C" fn pool_unref(device: i32, pool: Pool) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.pool_unref(pool)))
}

pub(super) unsafe extern "C" fn pool_uses(device: i32, pool: Pool, out: *mut i64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let uses = ponds::opened(device)?.map_or(0, |pond| on!(pond, of => of.pool_uses(pool)));
        out.put(i64::try_from(uses).unwrap_or(i64::MAX));
        Ok(())
    })
}

pub(super) extern "C" fn pool_flags(device: i32, pool: Pool, which: u32, on: i32) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.pool_flags(pool, which, on != 0)))
}

pub(super) extern "C" fn capture_begin(device: i32, pool: Pool, stream: *mut c_void) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.capture_begin(pool, stream.addr() as u64)))
}

pub(super) extern "C" fn capture_end(device: i32, pool: Pool) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.capture_end(pool)))
}

#[cfg(test)]
mod tests {
    use super::super::live;
    use super::super::pond::Pond;
    use super::*;

    fn simulated() -> Of<millpond_sim::Sim> {
        match Pond::open(0, Some("policy:classic"), true) {
            Ok(Pond::Sim(of)) => of,
            _ => panic!("a simulated device opens"),
        }
    }

    #[test]
    fn a_property_changes_alone() {
        let (of, pool) = (simulated(), Pool { first: 0, second: 1 });
        of.pool_ref(pool, None).expect("a new pool");
        let steps = [
            (USE_ON_OOM, true, (true, false)),
            (NO_SPLIT, true, (true, true)),
            (USE_ON_OOM, false, (false, true)),
            (USE_ON_OOM | NO_SPLIT, false, (false, false)),
            (USE_ON_OOM | NO_SPLIT, true, (true, true)),
            (NO_SPLIT, false, (true, false)),
        ];
        for (which, on, (use_on_oom, no_split)) in steps {
            of.pool_flags(pool, which, on).expect("it has a reference");
            let flags = of.held(pool).expect("it has a reference").flags();
            assert_eq!((flags.use_on_oom, flags.no_split), (use_on_oom, no_split), "{which} {on}");
        }
    }

    /// A program may make pools for as long as it runs, and what is kept of one that is over would add up.
    #[test]
    fn a_name_is_kept_while_the_pool_has_references_or_memory() {
        let of = simulated();
        let known = || of.pools.0.lock().len();
        for name in [1, 2, 1].map(|second| Pool { first: 0, second }) {
            of.pool_ref(name, None).expect("a new pool");
            assert_eq!(known(), 1);
            of.pool_unref(name).expect("it has a reference");
            assert_eq!(known(), 0, "it is over");
        }
        for second in 3..50 {
            let name = Pool { first: 0, second };
            of.pool_ref(name, None).expect("a new pool");
            let block = of.allocate_in(name, 512, 0).expect("memory");
            of.free(live::take_out(block.address.addr() as u64).expect("it is live").raw());
            of.pool_unref(name).expect("it has a reference");
            let id = of.pools.id_of(name).expect("it has memory, which is given back by its name");
            of.allocator.empty_cache_of(id).expect("memory goes back");
            assert!(known() <= 2, "the last one's stream serves the next");
        }
    }
}
