//! Buffers: a block of Millpond's, or one of wgpu's own.
//!
//! A block is a range of a segment's buffer, and wgpu checks that buffer. What an engine may do with its own buffer is
//! checked here: a call that leaves the block, or needs a usage that was not asked for, is made on a stand-in, a buffer
//! of wgpu's just like the one that was asked for. So wgpu refuses the call, in its own words, where it raises errors.

use std::ops::Range;
use std::sync::Arc;

use millpond_wgpu::Wgpu;
use wgpu::custom::DispatchBufferMappedRange;
use wgpu::custom::{BufferInterface, BufferMapCallback, BufferMappedRangeInterface, DispatchBuffer};
use wgpu::{
    BufferAddress, BufferBinding, BufferDescriptor, BufferSize, BufferUsages, BufferView, BufferViewMut, MapMode,
    MapRangeError, WriteOnly,
};

use crate::fresh::Fresh;
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
    pub(crate) fresh: Fresh,
    block: Option<Block>,
    /// The device that counts it, if it is a storage buffer. Every block is one.
    counted: Option<Arc<Home>>,
}

/// A block, and what the engine asked for.
#[derive(Debug)]
struct Block {
    /// Gives the block back once it is dropped.
    _block: millpond::Buffer<Wgpu>,
    usage: BufferUsages,
    label: Option<String>,
}

/// Where a call that names memory is made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) offset: u64,
    /// Whether it is a stand-in, so that wgpu refuses the call.
    pub(crate) is_refused: bool,
}

impl Memory {
    /// Creates the memory of a buffer: a block, if its usages are lent and Millpond has one.
    pub(crate) fn new(home: &Arc<Home>, wanted: &BufferDescriptor<'_>) -> Memory {
        let lent = LENT.contains(wanted.usage) && wanted.usage.contains(BufferUsages::STORAGE);
        let counted = lent.then(|| Arc::clone(home));
        let bytes = wanted.size;
        if lent {
            home.counters.created(bytes);
        }
        let order = home.order.lock();
        if let (true, Some(pond)) = (lent && !wanted.mapped_at_creation && bytes > 0, &home.pond) {
            if let Some((buffer, block)) = block(pond, bytes) {
                let (base, fresh) = (block.offset(), Fresh::new(pond.clears()));
                let label = wanted.label.map(str::to_owned);
                let block = Some(Block { _block: block, usage: wanted.usage, label });
                return Memory { buffer, base, bytes, fresh, block, counted };
            }
            home.counters.refused();
        }
        let buffer = home.device.create_buffer(wanted);
        drop(order);
        Memory { buffer, base: 0, bytes, fresh: Fresh::new(false), block: None, counted }
    }

    /// Returns whether it is a block of Millpond's.
    pub(crate) fn is_block(&self) -> bool {
        self.block.is_some()
    }

    /// Returns whether these bytes are the engine's, in a buffer with these usages.
    pub(crate) fn allows(&self, offset: u64, bytes: u64, usage: BufferUsages) -> bool {
        let asked = self.block.as_ref().map_or_else(|| self.buffer.usage(), |block| block.usage);
        asked.contains(usage) && offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Returns where a call is made that reaches these bytes and needs these usages. wgpu checks its own buffers.
    pub(crate) fn place(&self, offset: u64, bytes: u64, usage: BufferUsages) -> Place {
        let is_refused = self.is_block() && !self.allows(offset, bytes, usage);
        match is_refused {
            true => Place { buffer: self.not_lent(), offset, is_refused },
            false => Place { buffer: self.buffer.clone(), offset: self.base + offset, is_refused },
        }
    }

    /// Returns the bytes from an offset to the end; 0 if it lies after that.
    pub(crate) fn rest(&self, offset: u64) -> u64 {
        self.bytes.saturating_sub(offset)
    }

    /// Returns a buffer of wgpu's own: the engine's, or a stand-in for it where the memory is a block. For calls that
    /// wgpu has to refuse on a block.
    pub(crate) fn not_lent(&self) -> wgpu::Buffer {
        let (Some(Block { usage, label, .. }), Some(home)) = (&self.block, &self.counted) else {
            return self.buffer.clone();
        };
        let (label, size, usage) = (label.as_deref(), self.bytes, *usage);
        home.device.create_buffer(&BufferDescriptor { label, size, usage, mapped_at_creation: false })
    }
}

/// Returns a block and the buffer of its segment; `None` if Millpond has no memory.
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

/// A range of memory that a bind group has. Without a size it ends where the memory ends.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) memory: Arc<Memory>,
    pub(crate) binding: u32,
    offset: u64,
    size: Option<BufferSize>,
}

impl Bound {
    /// Returns what a bind group has at a number.
    pub(crate) fn new(binding: u32, bound: &BufferBinding<'_>) -> Bound {
        let memory = Arc::clone(LentBuffer::memory(bound.buffer));
        Bound { memory, binding, offset: bound.offset, size: bound.size }
    }

    fn bytes(&self) -> u64 {
        self.size.map_or_else(|| self.memory.rest(self.offset), BufferSize::get)
    }

    /// Returns whether the range stays within the memory where it begins this much later.
    pub(crate) fn is_inside(&self, later: u64) -> bool {
        let end = self.offset.checked_add(self.bytes()).and_then(|end| end.checked_add(later));
        !self.memory.is_block() || end.is_some_and(|end| end <= self.memory.bytes)
    }

    /// Returns where the range is.
    pub(crate) fn place(&self) -> Place {
        // A range without bytes is refused wherever it lies: without a size it would end where the segment does.
        self.memory.place(self.offset, self.bytes().max(1), BufferUsages::STORAGE)
    }

    /// Returns where the range is in a buffer of wgpu's own.
    pub(crate) fn not_lent(&self) -> Place {
        Place { buffer: self.memory.not_lent(), offset: self.offset, is_refused: true }
    }

    /// Returns the range at its place, for wgpu's bind group.
    pub(crate) fn entry<'a>(&self, at: &'a Place) -> wgpu::BindGroupEntry<'a> {
        let is_lent = self.memory.is_block() && !at.is_refused;
        let size = if is_lent { BufferSize::new(self.bytes()) } else { self.size };
        let resource = wgpu::BindingResource::Buffer(BufferBinding { buffer: &at.buffer, offset: at.offset, size });
        wgpu::BindGroupEntry { binding: self.binding, resource }
    }
}

/// A buffer of an engine.
#[derive(Debug)]
pub(crate) struct LentBuffer {
    memory: Arc<Memory>,
}

impl LentBuffer {
    pub(crate) fn new(home: &Arc<Home>, wanted: &BufferDescriptor<'_>) -> LentBuffer {
        LentBuffer { memory: Arc::new(Memory::new(home, wanted)) }
    }

    /// Returns the memory of a buffer.
    ///
    /// # Panics
    ///
    /// If the buffer was not made by a lent device.
    pub(crate) fn memory(buffer: &wgpu::Buffer) -> &Arc<Memory> {
        &buffer.as_custom::<LentBuffer>().expect("the buffer is of another device").memory
    }

    /// Returns the memory of a buffer that wgpu passes on.
    ///
    /// # Panics
    ///
    /// If the buffer was not made by a lent device.
    pub(crate) fn behind(buffer: &DispatchBuffer) -> &Arc<Memory> {
        &buffer.as_custom::<LentBuffer>().expect("the buffer is of another device").memory
    }
}

impl BufferInterface for LentBuffer {
    fn map_async(&self, mode: MapMode, range: Range<BufferAddress>, callback: BufferMapCallback) {
        self.memory.not_lent().slice(range).map_async(mode, callback);
    }

    fn get_mapped_range(&self, range: Range<BufferAddress>) -> Result<DispatchBufferMappedRange, MapRangeError> {
        let buffer = self.memory.not_lent();
        let read = Some(buffer.slice(range.clone()).get_mapped_range()?);
        Ok(DispatchBufferMappedRange::custom(Mapped { buffer, range, read, write: None }))
    }

    fn unmap(&self) {
        self.memory.not_lent().unmap();
    }

    fn destroy(&self) {
        if !self.memory.is_block() {
            self.memory.buffer.destroy();
        }
    }
}

/// A mapped range of one of wgpu's own buffers, for reads until the first write.
#[derive(Debug)]
struct Mapped {
    buffer: wgpu::Buffer,
    range: Range<BufferAddress>,
    read: Option<BufferView>,
    write: Option<BufferViewMut>,
}

impl BufferMappedRangeInterface for Mapped {
    fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    unsafe fn read_slice(&self) -> &[u8] {
        self.read.as_deref().expect("wgpu reads no range that it writes")
    }

    unsafe fn write_slice(&mut self) -> WriteOnly<'_, [u8]> {
        // wgpu has the range only once, for either.
        self.read = None;
        let (buffer, range) = (&self.buffer, self.range.clone());
        let write = || buffer.slice(range).get_mapped_range_mut().expect("the range was mapped for reads");
        self.write.get_or_insert_with(write).slice(..)
    }
}
