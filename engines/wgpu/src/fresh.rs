//! Fresh blocks: a block reads as zero until it is written, as WebGPU promises of a buffer.
//!
//! A block is to be cleared once commands name it, and all such clears are submitted before the next commands are. A
//! former owner's commands were submitted before the block was handed out, so the clear runs between the two. A write
//! by the queue goes ahead of everything that is submitted later. So the clears are submitted before it, unless it
//! writes the whole block, which needs none.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use wgpu::{COPY_BUFFER_ALIGNMENT, CommandEncoderDescriptor};

use crate::buffer::Memory;
use crate::home::Home;

/// Nothing has named the block.
const UNTOUCHED: u64 = u64::MAX;
/// The block needs no clear.
const DEFINED: u64 = 0;

/// The order of everything that is written, submitted or allocated. A bind of pages is a submit of its own where the
/// device has a single queue.
///
/// It is reentrant, because wgpu runs callbacks within submits.
pub(crate) struct Order(ReentrantMutex<Round>);

/// The clears that are not submitted yet.
pub(crate) struct Round {
    /// Counts the submits of clears, from 1.
    number: Cell<u64>,
    /// What is to be cleared. It is kept: in the hands of a later owner it would be cleared after its first write.
    clears: RefCell<Vec<Arc<Memory>>>,
}

/// Held while something is written, submitted or allocated.
pub(crate) type InOrder<'a> = ReentrantMutexGuard<'a, Round>;

impl Order {
    pub(crate) fn new() -> Order {
        Order(ReentrantMutex::new(Round { number: Cell::new(1), clears: RefCell::default() }))
    }

    pub(crate) fn lock(&self) -> InOrder<'_> {
        self.0.lock()
    }
}

/// Whether a block reads as zero where it was not written: the number of the round that clears it, `UNTOUCHED` or
/// `DEFINED`. Changed with the order held.
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
    /// Has the memory cleared, if it is a block that nothing has named. To be called before commands that name it are
    /// recorded. Costs a load from then on.
    pub(crate) fn define(self: &Arc<Memory>, home: &Home) {
        if self.fresh.is_untouched() {
            let order = home.order.lock();
            if self.fresh.is_untouched() {
                self.clear(&order);
            }
        }
    }

    /// Prepares a write of the queue: unless it is one of the whole memory, a clear of it is submitted first.
    pub(crate) fn define_for_write(self: &Arc<Memory>, home: &Home, order: &InOrder<'_>, offset: u64, bytes: u64) {
        if self.fresh.is_untouched() {
            // The bytes after the last whole word cannot be reached.
            if offset == 0 && bytes == self.bytes / COPY_BUFFER_ALIGNMENT * COPY_BUFFER_ALIGNMENT {
                return self.fresh.0.store(DEFINED, Ordering::Release);
            }
            self.clear(order);
        }
        if self.fresh.0.load(Ordering::Acquire) == order.number.get() {
            home.submit_clears(order);
        }
    }

    fn clear(self: &Arc<Memory>, order: &InOrder<'_>) {
        self.fresh.0.store(order.number.get(), Ordering::Release);
        order.clears.borrow_mut().push(Arc::clone(self));
    }
}

impl Home {
    /// Submits the clears. They are a submit of their own: wgpu may refuse the engine's next one, and would drop them
    /// with it.
    pub(crate) fn submit_clears(&self, order: &InOrder<'_>) {
        let clears = order.clears.take();
        let Some(pond) = self.pond.as_ref().filter(|_| !clears.is_empty()) else { return };
        order.number.set(order.number.get() + 1);
        let label = Some("millpond clears");
        let mut encoder = self.device.create_command_encoder(&CommandEncoderDescriptor { label });
        for Memory { buffer, base, bytes, .. } in clears.iter().map(Arc::as_ref) {
            encoder.clear_buffer(buffer, *base, Some(bytes.next_multiple_of(COPY_BUFFER_ALIGNMENT)));
        }
        if let Err(error) = pond.wgpu.submit_with(pond.stream.id(), [encoder.finish()]) {
            self.report(error);
        }
    }
}
