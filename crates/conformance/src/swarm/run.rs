//! One run of the swarm: a program is executed operation by operation, and everything in it is checked.

use std::mem::ManuallyDrop;

use millpond::{Checkpoint, Error, Pool, PoolId, Stream};
use millpond_backend::{Backend, StreamId};

use super::Tally;
use crate::device::DeviceUnderTest;
use crate::evidence::Evidence;
use crate::language::{FAULT_WITHIN, Noted, Operation};
use crate::session::{Session, Stop};
use crate::watched::{Tenancy, Trouble};

/// A block that the program holds.
struct Block<B: Backend> {
    number: u32,
    tenancy: Tenancy<B>,
    home: usize,
    /// The private pool that it is in, if it is in one.
    pool: Option<PoolId>,
    /// The value of every byte; `None` where the driver refused to write.
    value: Option<u8>,
}

/// The private pool that requests go to.
struct Inside<B: Backend> {
    pool: Pool<B>,
    /// The session's streams in the pool.
    streams: Vec<Stream<B>>,
    /// The last checkpoint, and the number that the next block had then.
    checkpoint: Option<(Checkpoint, u32)>,
}

struct Runner<'d, 's, D: DeviceUnderTest> {
    session: &'s Session<'d, D>,
    evidence: Option<Evidence<D::Backend>>,
    blocks: Vec<Block<D::Backend>>,
    inside: Option<Inside<D::Backend>>,
    /// The number of the next block that a request gets.
    next: u32,
    /// The number of blocks that were restored. They have the last numbers there are.
    restored: u32,
    tally: Tally,
    writes: u8,
}

/// Performs the operations that `next` returns until it returns `None`. `next` is given the numbers of the blocks that
/// exist, roughly in the order of their age. Each operation is added to `trail` before it is performed, so that the
/// last one there is the one in which a failure or a panic occurred.
///
/// After a panic, the session and the blocks are leaked: their state is inconsistent, and dropping them could panic
/// again, which would end the process.
pub(super) fn run<D: DeviceUnderTest>(
    session: Session<'_, D>,
    check_every: usize,
    next: &mut dyn FnMut(&[u32]) -> Option<Operation>,
    trail: &mut Vec<Operation>,
) -> Result<Tally, Stop> {
    let moves = session.backend().caps().transfer;
    let evidence = if moves { Some(open_evidence(&session)?) } else { None };
    let session = ManuallyDrop::new(session);
    let mut runner = ManuallyDrop::new(Runner {
        session: &session,
        evidence,
        blocks: Vec::new(),
        inside: None,
        next: 0,
        restored: 0,
        tally: Tally::default(),
        writes: 0,
    });
    let done = runner.perform_all(check_every, next, trail).and_then(|()| runner.end());
    drop(ManuallyDrop::into_inner(runner));
    let session = ManuallyDrop::into_inner(session);
    let tally = done?;
    let planned = trail.iter().any(|operation| matches!(operation, Operation::Fault { .. }));
    if tally.failures > 0 && !planned {
        return Err(Stop::Fail(format!("the driver failed {} times, and no fault was planned", tally.failures)));
    }
    session.finish()?;
    Ok(tally)
}

fn open_evidence<D: DeviceUnderTest>(session: &Session<'_, D>) -> Result<Evidence<D::Backend>, Stop> {
    let opened = Evidence::open(session, 0..session.streams.len());
    opened.map_err(|trouble| Stop::Fail(format!("no memory for evidence: {trouble}")))
}

impl<D: DeviceUnderTest> Runner<'_, '_, D> {
    fn perform_all(
        &mut self,
        check_every: usize,
        next: &mut dyn FnMut(&[u32]) -> Option<Operation>,
        trail: &mut Vec<Operation>,
    ) -> Result<(), Stop> {
        let mut held = Vec::new();
        loop {
            held.clear();
            held.extend(self.blocks.iter().map(|block| block.number));
            let Some(operation) = next(&held) else { return Ok(()) };
            trail.push(operation);
            self.perform(operation)?;
            if trail.len().is_multiple_of(check_every) {
                self.session.check()?;
            }
        }
    }

    fn perform(&mut self, operation: Operation) -> Result<(), Stop> {
        let session = self.session;
        let allocator = session.watched.allocator();
        match operation {
            Operation::Allocate { block, bytes, stream } => self.allocate(block, bytes, stream)?,
            Operation::AllocateGrowable { block, bytes, capacity, stream } => {
                self.allocate_growable(block, bytes, capacity, stream)?;
            }
            Operation::AllocateAligned { block, bytes, alignment, stream } => {
                self.allocate_aligned(block, bytes, alignment, stream)?;
            }
            Operation::Grow { block, bytes } => self.grow(block, bytes)?,
            Operation::Free { block } => self.take(block).map_or(Ok(()), |block| self.give_back(block))?,
            Operation::Write { block } => {
                if let Some(at) = self.position(block) {
                    self.write(at);
                }
            }
            Operation::Use { block, stream, noted, keep } => self.use_elsewhere(block, stream, noted, keep)?,
            Operation::Order { later, earlier } => self.tolerate(session.order(later, earlier).is_ok()),
            Operation::Submit { stream } => session.device.submit(session.backend(), self.id(stream)),
            Operation::Advance { stream } => session.device.advance(session.backend(), self.id(stream)),
            Operation::HostWait { stream } => {
                let point = session.streams[stream].point();
                self.tolerate(session.backend().wait(point).is_ok());
            }
            Operation::Poll => self.expect_typed(allocator.poll().map(drop))?,
            Operation::Trim { bytes } => self.expect_typed(allocator.trim(bytes).map(drop))?,
            Operation::EmptyCache => self.expect_typed(allocator.empty_cache())?,
            Operation::Limit { bytes } => allocator.set_limit(Some(bytes)),
            Operation::Retreat { stream } => self.retreat(stream)?,
            Operation::SwitchPool => self.switch_pool()?,
            Operation::Checkpoint => {
                if let Some(inside) = &mut self.inside {
                    inside.checkpoint = Some((inside.pool.checkpoint(), self.next));
                }
            }
            Operation::Restore { all } => self.restore(all)?,
            Operation::Fault { nth, fault } => drop(session.device.fail_nth(session.backend(), nth, fault)),
            Operation::Point { .. }
            | Operation::Until { .. }
            | Operation::Hold { .. }
            | Operation::Unhold { .. }
            | Operation::Sync
            | Operation::ResetPeaks
            | Operation::ResetTotals => return Err(Stop::Fail(format!("a swarm does not perform {operation:?}"))),
        }
        Ok(())
    }

    fn position(&self, number: u32) -> Option<usize> {
        self.blocks.iter().position(|block| block.number == number)
    }

    fn take(&mut self, number: u32) -> Option<Block<D::Backend>> {
        self.position(number).map(|at| self.blocks.swap_remove(at))
    }

    fn allocate(&mut self, number: u32, bytes: u64, stream: usize) -> Result<(), Stop> {
        self.next = number + 1;
        let streams = self.inside.as_ref().map_or(&self.session.streams, |inside| &inside.streams);
        match self.session.watched.allocate(&streams[stream], bytes) {
            Ok(tenancy) => {
                self.enter(number, tenancy, stream);
                Ok(())
            }
            Err(Trouble::Refused(error)) => self.expect_typed(Err(error)),
            Err(objection) => Err(Stop::Fail(format!("{bytes} bytes on {stream}: {objection}"))),
        }
    }

    fn allocate_growable(&mut self, number: u32, bytes: u64, capacity: u64, stream: usize) -> Result<(), Stop> {
        self.next = number + 1;
        let streams = self.inside.as_ref().map_or(&self.session.streams, |inside| &inside.streams);
        match self.session.watched.allocate_growable(&streams[stream], bytes, capacity) {
            Ok(tenancy) => {
                self.enter(number, tenancy, stream);
                Ok(())
            }
            Err(Trouble::Refused(Error::Unsupported { .. })) => Ok(()),
            Err(Trouble::Refused(error)) => self.expect_typed(Err(error)),
            Err(objection) => Err(Stop::Fail(format!("{bytes} bytes that grow on {stream}: {objection}"))),
        }
    }

    fn allocate_aligned(&mut self, number: u32, bytes: u64, alignment: u64, stream: usize) -> Result<(), Stop> {
        self.next = number + 1;
        let streams = self.inside.as_ref().map_or(&self.session.streams, |inside| &inside.streams);
        match self.session.watched.allocate_aligned(&streams[stream], bytes, alignment) {
            Ok(tenancy) => {
                self.tally.aligned += 1;
                self.enter(number, tenancy, stream);
                Ok(())
            }
            Err(Trouble::Refused(error)) => self.expect_typed(Err(error)),
            Err(objection) => Err(Stop::Fail(format!("{bytes} bytes at a multiple of {alignment}: {objection}"))),
        }
    }

    /// Makes a block longer. What was written to it must be there still, so what is added gets the same value.
    fn grow(&mut self, number: u32, bytes: u64) -> Result<(), Stop> {
        let Some(at) = self.position(number) else { return Ok(()) };
        let block = &mut self.blocks[at];
        let (had, address) = (block.tenancy.capacity(), block.tenancy.address());
        match self.session.watched.grow(&mut block.tenancy, bytes) {
            Ok(()) => {}
            Err(Trouble::Refused(Error::NoRoom { .. })) => return Ok(()),
            Err(Trouble::Refused(error)) => return self.expect_typed(Err(error)),
            Err(objection) => return Err(Stop::Fail(format!("{bytes} bytes more of {number}: {objection}"))),
        }
        if block.tenancy.address() != address {
            return Err(Stop::Fail(format!("{number} was at {address:?} and grew to {:?}", *block.tenancy)));
        }
        self.tally.grown += 1;
        if let Some(value) = block.value.filter(|_| self.evidence.is_some()) {
            let written = self.session.fill_from(block.home, &block.tenancy, had, value).is_ok();
            block.value = written.then_some(value);
            self.tolerate(written);
        }
        Ok(())
    }

    fn enter(&mut self, number: u32, tenancy: Tenancy<D::Backend>, home: usize) {
        let pool = self.inside.as_ref().map(|inside| inside.pool.id());
        self.blocks.push(Block { number, tenancy, home, pool, value: None });
        self.write(self.blocks.len() - 1);
    }

    fn switch_pool(&mut self) -> Result<(), Stop> {
        if self.inside.take().is_some() {
            return Ok(());
        }
        let pool = match self.session.watched.allocator().create_pool() {
            Ok(pool) => pool,
            Err(error) => return self.expect_typed(Err(error)),
        };
        let streams = self.session.streams.iter().map(|stream| pool.stream(stream.id()));
        let streams = streams.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        self.inside = Some(Inside { pool, streams, checkpoint: None });
        Ok(())
    }

    /// Frees the blocks of the private pool, or those from before its checkpoint, and goes back to that. A block that
    /// stays may lie in the way.
    fn restore(&mut self, all: bool) -> Result<(), Stop> {
        let Some((pool, (_, first_after))) = self.inside.as_ref().and_then(|inside| {
            let checkpoint = inside.checkpoint.as_ref()?;
            Some((inside.pool.id(), checkpoint))
        }) else {
            return Ok(());
        };
        let first_after = *first_after;
        // A restored block may be one of the checkpoint.
        let goes = |block: &Block<_>| {
            let is_later = first_after <= block.number && block.number < u32::MAX - self.restored;
            block.pool == Some(pool) && (all || !is_later)
        };
        let (going, staying) = std::mem::take(&mut self.blocks).into_iter().partition(goes);
        self.blocks = staying;
        let going: Vec<_> = going;
        going.into_iter().try_for_each(|block| self.give_back(block))?;
        let Some(Inside { pool, checkpoint: Some((to, _)), .. }) = &self.inside else { return Ok(()) };
        let tenancies = match self.session.watched.restore(pool, to) {
            Ok(tenancies) => tenancies,
            Err(Trouble::Refused(Error::NotRestorable { .. } | Error::NotReached { .. })) => return Ok(()),
            Err(Trouble::Refused(error)) => return self.expect_typed(Err(error)),
            Err(objection) => return Err(Stop::Fail(format!("a checkpoint is restored: {objection}"))),
        };
        self.tally.restored += tenancies.len() as u64;
        for tenancy in tenancies {
            self.restored += 1;
            let home = self.session.streams.iter().position(|stream| stream.id() == tenancy.stream());
            let Some(home) = home else { return Err(Stop::Fail(format!("{:?} is of no stream", *tenancy))) };
            self.enter(u32::MAX - self.restored, tenancy, home);
        }
        Ok(())
    }

    /// Reads a block a last time on its home stream, and frees it.
    fn give_back(&mut self, block: Block<D::Backend>) -> Result<(), Stop> {
        self.look(block.home, &block)?;
        self.session.watched.free(block.tenancy);
        Ok(())
    }

    /// Frees every block of a stream, newest first, with its work in flight.
    fn retreat(&mut self, stream: usize) -> Result<(), Stop> {
        let (own, others) = std::mem::take(&mut self.blocks).into_iter().partition(|block| block.home == stream);
        self.blocks = others;
        let own: Vec<_> = own;
        own.into_iter().rev().try_for_each(|block| self.give_back(block))
    }

    /// Queues a write of the whole block on its home stream.
    fn write(&mut self, at: usize) {
        if self.evidence.is_none() {
            return;
        }
        self.writes = self.writes % 200 + 1;
        let block = &self.blocks[at];
        let written = self.session.fill(block.home, &block.tenancy, self.writes).is_ok();
        self.blocks[at].value = written.then_some(self.writes);
        self.tolerate(written);
    }

    /// Reads a block on another stream, ordered after what was written on its home stream. The use is recorded, and the
    /// block is freed at once unless it is to be kept.
    fn use_elsewhere(&mut self, number: u32, stream: usize, noted: Noted, keep: bool) -> Result<(), Stop> {
        let Some(at) = self.position(number) else { return Ok(()) };
        let session = self.session;
        let home = self.blocks[at].home;
        if session.order(stream, home).is_err() {
            self.tolerate(false);
            return Ok(());
        }
        let block = self.blocks.swap_remove(at);
        let user = &session.streams[stream];
        if noted == Noted::Before {
            session.watched.record_stream(&block.tenancy, user).map_err(|error| error.to_string())?;
        }
        self.look(stream, &block)?;
        let done = match noted {
            Noted::Before => Ok(()),
            Noted::After => session.watched.record_stream(&block.tenancy, user),
            Noted::Until => session.watched.used_until(&block.tenancy, user.point()),
        };
        done.map_err(|error| error.to_string())?;
        // The home stream must not write the block while the other stream reads it: the block is freed, or the home
        // stream waits.
        if keep {
            if session.order(home, stream).is_ok() {
                self.blocks.push(block);
                return Ok(());
            }
            self.tolerate(false);
        }
        session.watched.free(block.tenancy);
        Ok(())
    }

    fn look(&mut self, stream: usize, block: &Block<D::Backend>) -> Result<(), Stop> {
        match (&mut self.evidence, block.value) {
            (Some(evidence), Some(value)) => evidence.take(self.session, stream, &block.tenancy, value),
            _ => Ok(()),
        }
    }

    fn id(&self, stream: usize) -> StreamId {
        self.session.streams[stream].id()
    }

    /// Counts a failed driver call. Only a planned fault may cause one, which [`run`] checks at the end.
    fn tolerate(&mut self, went_well: bool) {
        self.tally.failures += u64::from(!went_well);
    }

    /// Counts an error of an allocator's operation, which may fail for lack of memory or with the driver's own error.
    fn expect_typed(&mut self, result: Result<(), Error<<D::Backend as Backend>::Error>>) -> Result<(), Stop> {
        match result {
            Ok(()) => {}
            Err(Error::OutOfMemory(_)) => self.tally.refusals += 1,
            Err(Error::Driver { lost: false, .. }) => self.tally.failures += 1,
            Err(other) => return Err(Stop::Fail(format!("an error that nothing accounts for: {other}"))),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<Tally, Stop> {
        self.burn_faults();
        while let Some(block) = self.blocks.pop() {
            self.give_back(block)?;
        }
        self.session.sync()?;
        self.tally.evidence = match self.evidence.take() {
            Some(evidence) => evidence.close(self.session)?,
            None => 0,
        };
        self.tally.grants = self.session.watched.grants();
        let pages = self.session.watched.allocator().page_stats();
        self.tally.moved = pages.moved + pages.moved_behind_wait;
        self.tally.moved_behind_wait = pages.moved_behind_wait;
        self.session.check()?;
        // The last frees count from the next submit on.
        self.session.sync()?;
        self.expect_all_given_back()?;
        Ok(self.tally)
    }

    /// Fails if something is still reserved once nothing is in use, no pool is held and the cache is emptied.
    fn expect_all_given_back(&mut self) -> Result<(), Stop> {
        self.inside = None;
        let allocator = self.session.watched.allocator();
        allocator.empty_cache().map_err(|error| format!("the cache cannot be emptied: {error}"))?;
        match allocator.memory_reserved() {
            0 => Ok(()),
            bytes => Err(Stop::Fail(format!("nothing is in use, the cache is empty, and {bytes} bytes are reserved"))),
        }
    }

    /// Triggers the faults that have not occurred yet with calls that may fail here.
    fn burn_faults(&self) {
        let backend = self.session.backend();
        for _ in 0..self.session.device.fallible_calls(backend).map_or(0, |_| FAULT_WITHIN) {
            let _ = backend.create_stream();
        }
    }
}
