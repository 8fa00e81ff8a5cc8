//! Fresh blocks: a block reads as zero until it is written, as WebGPU promises of a buffer.
//!
//! The clear of a block is recorded on Millpond's stream when the block is first named: before the commands that name
//! it are submitted, the stream is. A former owner's commands were submitted before the block was handed out, so the
//! clear runs between the two. A write by the queue goes ahead of everything that is submitted later. So clears are
//! submitted before it, unless it writes the whole block, which needs none.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_wgpu::WgpuError;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use wgpu::COPY_BUFFER_ALIGNMENT;

use crate::buffer::Memory;
use crate::home::{Home, Pond};

/// Nothing has named the block.
const UNTOUCHED: u64 = u64::MAX;
/// The block needs no clear.
const DEFINED: u64 = 0;

/// The order of everything that is written, submitted or allocated. A bind of pages is a submit of its own where the
/// device has a single queue.
///
/// It is reentrant, because wgpu runs callbacks within submits.
pub(crate) struct Order(ReentrantMutex<Round>);

/// The clears that are recorded and not submitted.
pub(crate) struct Round {
    /// Counts the submits of clears, from 1.
    number: Cell<u64>,
    has_clears: Cell<bool>,
}

/// Held while something is written, submitted or allocated.
pub(crate) type InOrder<'a> = ReentrantMutexGuard<'a, Round>;

impl Order {
    pub(crate) fn new() -> Order {
        Order(ReentrantMutex::new(Round { number: Cell::new(1), has_clears: Cell::new(false) }))
    }

    pub(crate) fn lock(&self) -> InOrder<'_> {
        self.0.lock()
    }
}

/// Whether a block reads as zero where it was not written: the number of the round in which its clear is recorded,
/// `UNTOUCHED` or `DEFINED`. Changed with the order held.
#[derive(Debug)]
pub(crate) struct Fresh(AtomicU64);

impl Fresh {
    /// Returns the state of a block that nothing has named.
    pub(crate) fn new(is_cleared: bool) -> Fresh {
        Fresh(AtomicU64::new(if is_cleared { UNTOUCHED } else { DEFINED }))
    }

    fn is_untouched(&self) -> bool {
        self.0.load(Ordering::Acquire) == UNTOUCHED
    }
}

impl Memory {
    /// Records that the memory is cleared, if it is a block that nothing has named. To be called before commands that
    /// name it are recorded. Costs a load from then on.
    pub(crate) fn define(&self, home: &Home) {
        if self.fresh.is_untouched() {
            let order = home.order.lock();
            if self.fresh.is_untouched() {
                self.clear(home, &order);
            }
        }
    }

    /// Prepares a write of the queue to a part of the memory: a clear of it is submitted first.
    pub(crate) fn define_for_write(&self, home: &Home, order: &InOrder<'_>, offset: u64, bytes: u64) {
        if self.fresh.is_untouched() {
            // The bytes after the last whole word cannot be reached.
            if offset == 0 && bytes == self.bytes / COPY_BUFFER_ALIGNMENT * COPY_BUFFER_ALIGNMENT {
                return self.fresh.0.store(DEFINED, Ordering::Release);
            }
            self.clear(home, order);
        }
        if self.fresh.0.load(Ordering::Acquire) == order.number.get() {
            home.submit_clears(order);
        }
    }

    fn clear(&self, home: &Home, order: &InOrder<'_>) {
        let Some(pond) = &home.pond else { return };
        let bytes = self.bytes.next_multiple_of(COPY_BUFFER_ALIGNMENT);
        let clear = |encoder: &mut wgpu::CommandEncoder| encoder.clear_buffer(&self.buffer, self.base, Some(bytes));
        match pond.wgpu.record(pond.stream.id(), clear) {
            Ok(_) => {
                order.has_clears.set(true);
                self.fresh.0.store(order.number.get(), Ordering::Release);
            }
            Err(error) => home.report(error),
        }
    }
}

impl Home {
    /// Submits the clears that are recorded. They are a submit of their own: wgpu may refuse the engine's next one,
    /// and would drop them with it.
    pub(crate) fn submit_clears(&self, order: &InOrder<'_>) {
        let Some(pond) = self.pond.as_ref().filter(|_| order.has_clears.get()) else { return };
        order.has_clears.set(false);
        order.number.set(order.number.get() + 1);
        if let Err(error) = submit(pond) {
            self.report(error);
        }
    }
}

fn submit(pond: &Pond) -> Result<(), WgpuError> {
    pond.wgpu.submit_with(pond.stream.id(), []).map(drop)
}
