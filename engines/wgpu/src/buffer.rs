//! Buffers: a block of Millpond's, or one of wgpu's own.

use std::ops::Range;
use std::sync::Arc;

use millpond_wgpu::Wgpu;
use parking_lot::Mutex;
use wgpu::custom::DispatchBufferMappedRange;
use wgpu::custom::{BufferInterface, BufferMapCallback, BufferMappedRangeInterface, DispatchBuffer};
use wgpu::{BufferAddress, BufferDescriptor, MapMode, MapRangeError, WriteOnly};

use crate::home::{Home, LENT, Pond};

/// The memory of one buffer, which everything that names it keeps.
#[derive(Debug)]
pub(crate) struct Memory {
    /// wgpu's buffer: the whole segment, if the memory is a block.
    pub(crate) buffer: wgpu::Buffer,
    /// Where the memory begins in it.
    pub(crate) base: u64,
    /// Its bytes.
    pub(crate) bytes: u64,
    block: Option<millpond::Buffer<Wgpu>>,
    /// The device that counts it, if it is a storage buffer.
    counted: Option<Arc<Home>>,
}

impl Memory {
    /// Creates the memory of a buffer: a block, if its usages are lent and Millpond has one.
    pub(crate) fn new(home: &Arc<Home>, wanted: &BufferDescriptor<'_>) -> Memory {
        let lent = LENT.contains(wanted.usage) && wanted.usage.contains(wgpu::BufferUsages::STORAGE);
        let counted = lent.then(|| Arc::clone(home));
        let bytes = wanted.size;
        if lent {
            home.counters.created(bytes);
        }
        let order = home.order.lock();
        if let (true, false, Some(pond)) = (lent, wanted.mapped_at_creation, &home.pond) {
            if let Some((buffer, block)) = block(pond, bytes) {
                return Memory { buffer, base: block.offset(), bytes, block: Some(block), counted };
            }
            home.counters.refused();
        }
        let buffer = home.device.create_buffer(wanted);
        drop(order);
        Memory { buffer, base: 0, bytes, block: None, counted }
    }

    /// Returns whether it is a block of Millpond's.
    pub(crate) fn is_block(&self) -> bool {
        self.block.is_some()
    }

    /// Returns a range of it as a binding of wgpu's buffer. Without a size it ends where the memory ends.
    pub(crate) fn binding(&self, offset: u64, size: Option<wgpu::BufferSize>) -> wgpu::BufferBinding<'_> {
        let rest = || wgpu::BufferSize::new(self.bytes.saturating_sub(offset).next_multiple_of(4));
        let size = if self.is_block() { size.or_else(rest) } else { size };
        wgpu::BufferBinding { buffer: &self.buffer, offset: self.base + offset, size }
    }
}

/// Returns a block and the buffer of its segment; `None` if Millpond has no memory, or nothing was asked for.
fn block(pond: &Pond, bytes: u64) -> Option<(wgpu::Buffer, millpond::Buffer<Wgpu>)> {
    let block = pond.stream.allocate(bytes).ok()?;
    let buffer = block.segment()?.buffer().clone();
    Some((buffer, block))
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(home) = &self.counted {
            home.counters.gone(self.bytes);
        }
    }
}

/// A buffer of an engine.
#[derive(Debug)]
pub(crate) struct LentBuffer {
    memory: Arc<Memory>,
    /// Whether it is mapped for writes rather than for reads.
    writes: Mutex<bool>,
}

impl LentBuffer {
    pub(crate) fn new(home: &Arc<Home>, wanted: &BufferDescriptor<'_>) -> LentBuffer {
        let memory = Arc::new(Memory::new(home, wanted));
        LentBuffer { memory, writes: Mutex::new(wanted.mapped_at_creation) }
    }

    /// Returns the memory of a buffer.
    ///
    /// # Panics
    ///
    /// If the buffer was not made by a lent device.
    pub(crate) fn memory(buffer: &wgpu::Buffer) -> &Arc<Memory> {
        &buffer.as_custom::<LentBuffer>().expect("the buffer is of another device").memory
    }

    /// Does the same for what wgpu passes on.
    pub(crate) fn behind(buffer: &DispatchBuffer) -> &Arc<Memory> {
        &buffer.as_custom::<LentBuffer>().expect("the buffer is of another device").memory
    }
}

impl BufferInterface for LentBuffer {
    fn map_async(&self, mode: MapMode, range: Range<BufferAddress>, callback: BufferMapCallback) {
        *self.writes.lock() = matches!(mode, MapMode::Write);
        self.memory.buffer.slice(range).map_async(mode, callback);
    }

    fn get_mapped_range(&self, range: Range<BufferAddress>) -> Result<DispatchBufferMappedRange, MapRangeError> {
        let slice = self.memory.buffer.slice(range);
        let mapped = if *self.writes.lock() {
            Mapped::Write(slice.get_mapped_range_mut()?)
        } else {
            Mapped::Read(slice.get_mapped_range()?)
        };
        Ok(DispatchBufferMappedRange::custom(mapped))
    }

    fn unmap(&self) {
        self.memory.buffer.unmap();
    }

    fn destroy(&self) {
        if !self.memory.is_block() {
            self.memory.buffer.destroy();
        }
    }
}

/// A mapped range of one of wgpu's own buffers.
#[derive(Debug)]
enum Mapped {
    Read(wgpu::BufferView),
    Write(wgpu::BufferViewMut),
}

impl BufferMappedRangeInterface for Mapped {
    fn len(&self) -> usize {
        match self {
            Mapped::Read(view) => view.len(),
            Mapped::Write(view) => view.len(),
        }
    }

    unsafe fn read_slice(&self) -> &[u8] {
        match self {
            Mapped::Read(view) => view,
            Mapped::Write(_) => panic!("the range is mapped for writes"),
        }
    }

    unsafe fn write_slice(&mut self) -> WriteOnly<'_, [u8]> {
        match self {
            Mapped::Read(_) => panic!("the range is mapped for reads"),
            Mapped::Write(view) => view.slice(..),
        }
    }
}
