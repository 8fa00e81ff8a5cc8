//! The copy of a group's contents to the host and back, through a ring of page-locked memory.
//!
//! The parts of the group are cut into pieces. A few workers share them. Each has a stream and two buffers of
//! page-locked memory: while the device copies one piece, the worker moves another between page-locked and ordinary
//! memory, which takes several threads to keep up with the device.

use std::collections::VecDeque;
use std::thread;

use millpond_backend::{Backend, Point};
use millpond_core::GroupExtent;
use parking_lot::Mutex;

use super::Group;
use crate::error::Error;
use crate::pinned::Pinned;
use crate::pinned::buffer::PinnedBuffer;
use crate::pinned::uses::Access;
use crate::raw::calls;
use crate::stream::Stream;

/// The most bytes of a piece: few enough that what the device wrote is still in the processor's cache when it is moved.
const PIECE: u64 = 4 << 20;

/// The number of pieces that a worker has under way. The ring consists of these: more would not fit that cache.
const BUFFERS: usize = 2;

/// The most workers.
const WORKERS_MOST: usize = 12;

/// A piece of a group's contents, with its place on the host.
struct Piece<H> {
    at: GroupExtent,
    host: H,
}

/// The pieces that no worker has taken yet.
type Queue<H> = Mutex<std::vec::IntoIter<Piece<H>>>;

/// Cuts parts into pieces. `cut` cuts the next bytes off the host's memory.
fn pieces<H>(parts: &[GroupExtent], mut cut: impl FnMut(usize) -> H) -> Queue<H> {
    let mut pieces = Vec::new();
    for part in parts {
        for begin in (0..part.extent.bytes).step_by(PIECE as usize) {
            let bytes = PIECE.min(part.extent.bytes - begin);
            let mut at = *part;
            (at.extent.offset, at.extent.bytes) = (part.extent.offset + begin, bytes);
            pieces.push(Piece { at, host: cut(bytes as usize) });
        }
    }
    Mutex::new(pieces.into_iter())
}

/// What copies pieces: a stream, and two buffers that it uses in turn.
struct Worker<'a, B: Backend> {
    group: &'a Group<B>,
    stream: Stream<B>,
    buffers: Vec<PinnedBuffer<B>>,
    /// Whether copies may be under way.
    is_busy: bool,
}

/// How often a worker that failed waits for its copies: the first wait may be what fails.
const WAITS_MOST: usize = 3;

impl<B: Backend> Drop for Worker<'_, B> {
    /// Waits for the copies of a worker that failed: its group goes on, or its pages go away.
    fn drop(&mut self) {
        let state = self.group.state();
        let is_over = || {
            let tick = state.backend.submit(self.stream.id()).ok()?;
            let reached = state.wait(Point { stream: self.stream.id(), tick }).ok()?.tick;
            (reached >= tick).then_some(())
        };
        // A device that cannot be waited for any more is lost, and does nothing any more.
        let _ = self.is_busy.then(|| (0..WAITS_MOST).find_map(|_| is_over()));
    }
}

impl<B: Backend + Clone> Group<B> {
    /// Copies parts of a closed group to the host, one after the other.
    pub(super) fn copy_out(&self, parts: &[GroupExtent], mut to: &mut [u8]) -> Result<(), Error<B::Error>> {
        let queue = pieces(parts, |bytes| to.split_off_mut(..bytes).unwrap_or_default());
        self.with_workers(queue, |worker, queue| worker.copy_out(queue))
    }

    /// Copies them back.
    pub(super) fn copy_back(&self, parts: &[GroupExtent], mut from: &[u8]) -> Result<(), Error<B::Error>> {
        let queue = pieces(parts, |bytes| from.split_off(..bytes).unwrap_or_default());
        self.with_workers(queue, |worker, queue| worker.copy_back(queue))
    }

    /// Has workers copy the pieces, as many as there are cores to move bytes with.
    fn with_workers<H: Send>(
        &self,
        queue: Queue<H>,
        work: impl Fn(&mut Worker<'_, B>, &Queue<H>) -> Result<(), Error<B::Error>> + Sync,
    ) -> Result<(), Error<B::Error>> {
        let (largest, count) = {
            let queue = queue.lock();
            let bytes = queue.as_slice().iter().map(|piece| piece.at.extent.bytes);
            (bytes.max().unwrap_or(0), queue.len())
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let ring = self.ring()?;
        let mut workers = Vec::new();
        for _ in 0..count.min(cores).min(WORKERS_MOST) {
            workers.push(self.worker(&ring, largest)?);
        }
        let run = |mut worker: Worker<'_, B>| {
            // What one of them cannot do, the others need not go on with.
            work(&mut worker, &queue).inspect_err(|_| queue.lock().by_ref().for_each(drop))
        };
        if workers.len() <= 1 {
            return workers.into_iter().try_for_each(run);
        }
        let run = &run;
        thread::scope(|scope| {
            let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || run(worker))).collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            // All of them come to an end before the first error, or panic, is passed on.
            let ends: Vec<_> = ends.collect();
            ends.into_iter().try_for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn worker(&self, ring: &Pinned<B>, bytes: u64) -> Result<Worker<'_, B>, Error<B::Error>> {
        let stream = self.allocator.create_stream()?;
        let buffers: Result<_, _> = (0..BUFFERS).map(|_| ring.allocate(bytes)).collect();
        Ok(Worker { group: self, stream, buffers: buffers?, is_busy: false })
    }

    /// Returns the cache that the ring's memory comes from, which the first copy creates.
    fn ring(&self) -> Result<Pinned<B>, Error<B::Error>> {
        Pinned::kept_in(&self.state().ring, || self.allocator.pinned())
    }
}

impl<B: Backend> Worker<'_, B> {
    fn copy_out(&mut self, queue: &Queue<&mut [u8]>) -> Result<(), Error<B::Error>> {
        let mut under_way: VecDeque<(usize, &mut [u8])> = VecDeque::new();
        for turn in 0.. {
            // The lock is open again before the piece is copied.
            let next = queue.lock().next();
            let is_last = next.is_none();
            if let Some(Piece { at, host }) = next {
                self.begin_copy(turn, &at, Access::Write)?;
                under_way.push_back((turn, host));
            }
            while under_way.len() >= BUFFERS || (is_last && !under_way.is_empty()) {
                let Some((turn, to)) = under_way.pop_front() else { break };
                let buffer = self.buffer(turn);
                buffer.wait()?;
                to.copy_from_slice(&buffer.bytes()?[..to.len()]);
            }
            if is_last {
                break;
            }
        }
        self.is_busy = false;
        Ok(())
    }

    fn copy_back(&mut self, queue: &Queue<&[u8]>) -> Result<(), Error<B::Error>> {
        for turn in 0.. {
            let next = queue.lock().next();
            let Some(Piece { at, host }) = next else { break };
            let buffer = self.buffer(turn);
            buffer.wait()?;
            buffer.bytes_mut()?[..host.len()].copy_from_slice(host);
            self.begin_copy(turn, &at, Access::Read)?;
        }
        self.buffers.iter().try_for_each(PinnedBuffer::wait)?;
        self.is_busy = false;
        Ok(())
    }

    fn buffer(&mut self, turn: usize) -> &mut PinnedBuffer<B> {
        &mut self.buffers[turn % BUFFERS]
    }

    /// Queues the copy between a piece and the buffer whose turn it is, which it reads or writes, and submits it.
    fn begin_copy(&mut self, turn: usize, at: &GroupExtent, access: Access) -> Result<(), Error<B::Error>> {
        self.is_busy = true;
        let pinned = &self.buffers[turn % BUFFERS];
        let range = calls::range_of_group(self.group.state().lane(at.shard), at.extent.slot);
        let Some(segment) = pinned.buffer().segment() else { return Ok(()) };
        let (piece, host) = ((range, at.extent.offset), (segment, pinned.buffer().offset()));
        let (from, to) = if access == Access::Write { (piece, host) } else { (host, piece) };
        {
            let _use = pinned.in_use(access, &self.stream);
            let copied = self.stream.mover()?.copy(self.stream.id(), from, to, at.extent.bytes);
            copied.map_err(|e| Error::of_driver("copy", e))?;
        }
        self.stream.submit().map(drop)
    }
}
