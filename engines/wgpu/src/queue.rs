//! The queue: writes, and submits through Millpond's stream.

use std::sync::Arc;

use parking_lot::Mutex;
use wgpu::custom::{
    BoxSubmittedWorkDoneCallback, CommandBufferInterface, DispatchBlas, DispatchBuffer, DispatchCommandBuffer,
    DispatchQueueWriteBuffer, DispatchSurfaceOutputDetail, QueueInterface, QueueWriteBufferInterface,
};
use wgpu::{BufferAddress, BufferSize, BufferUsages, COPY_BUFFER_ALIGNMENT, WriteOnly};

use crate::buffer::LentBuffer;
use crate::encoder::Holds;
use crate::home::Home;
use crate::objects::foreign;
use crate::refused::refuse;

#[derive(Debug)]
pub(crate) struct LentQueue {
    home: Arc<Home>,
}

impl LentQueue {
    pub(crate) fn new(home: Arc<Home>) -> LentQueue {
        LentQueue { home }
    }
}

/// Recorded commands, and the memory that they name.
#[derive(Debug)]
pub(crate) struct LentCommands {
    commands: Mutex<Option<(wgpu::CommandBuffer, Holds)>>,
}

impl LentCommands {
    pub(crate) fn new(commands: wgpu::CommandBuffer, holds: Holds) -> LentCommands {
        LentCommands { commands: Mutex::new(Some((commands, holds))) }
    }
}

impl CommandBufferInterface for LentCommands {}

/// Bytes that are written to a buffer later.
#[derive(Debug)]
struct Staged(Vec<u8>);

impl QueueWriteBufferInterface for Staged {
    fn len(&self) -> usize {
        self.0.len()
    }

    unsafe fn write_slice(&mut self) -> WriteOnly<'_, [u8]> {
        WriteOnly::from_mut(&mut self.0)
    }
}

impl QueueInterface for LentQueue {
    fn write_buffer(&self, buffer: &DispatchBuffer, offset: BufferAddress, data: &[u8]) {
        let memory = LentBuffer::behind(buffer);
        let order = self.home.order.lock();
        let bytes = data.len() as u64;
        let place = memory.place(offset, bytes, BufferUsages::COPY_DST);
        if !place.is_refused {
            memory.define_for_write(&self.home, &order, offset, bytes);
        }
        self.home.queue.write_buffer(&place.buffer, place.offset, data);
    }

    fn create_staging_buffer(&self, size: BufferSize) -> Option<DispatchQueueWriteBuffer> {
        let bytes = usize::try_from(size.get()).ok()?;
        Some(DispatchQueueWriteBuffer::custom(Staged(vec![0; bytes])))
    }

    fn validate_write_buffer(&self, buffer: &DispatchBuffer, offset: BufferAddress, size: BufferSize) -> Option<()> {
        let memory = LentBuffer::behind(buffer);
        let is_aligned = [offset, size.get()].iter().all(|value| value.is_multiple_of(COPY_BUFFER_ALIGNMENT));
        if is_aligned && memory.allows(offset, size.get(), BufferUsages::COPY_DST) {
            return Some(());
        }
        // wgpu refuses it, and makes no view.
        self.home.queue.write_buffer_with(&memory.not_lent(), offset, size).map(drop)
    }

    fn write_staging_buffer(
        &self,
        buffer: &DispatchBuffer,
        offset: BufferAddress,
        staging_buffer: &DispatchQueueWriteBuffer,
    ) {
        let Some(staged) = staging_buffer.as_custom::<Staged>() else { foreign("staging buffer") };
        self.write_buffer(buffer, offset, &staged.0);
    }

    fn write_texture(
        &self,
        _texture: wgpu::TexelCopyTextureInfo<'_>,
        _data: &[u8],
        _data_layout: wgpu::TexelCopyBufferLayout,
        _size: wgpu::Extent3d,
    ) {
        refuse("textures")
    }

    /// Submits all of them at once. The memory that they name is freed first, so that the tick which this submit closes
    /// covers its last use; nothing is allocated in between, because the order is held.
    fn submit(&self, command_buffers: &mut dyn Iterator<Item = DispatchCommandBuffer>) -> u64 {
        let home = &self.home;
        let (commands, holds): (Vec<_>, Vec<_>) = command_buffers
            .filter_map(|buffer| match buffer.as_custom::<LentCommands>() {
                Some(lent) => lent.commands.lock().take(),
                None => foreign("command buffer"),
            })
            .unzip();
        let order = home.order.lock();
        home.submit_clears(&order);
        drop(holds);
        match &home.pond {
            Some(pond) => {
                if let Err(error) = pond.wgpu.submit_with(pond.stream.id(), commands) {
                    home.report(error);
                }
            }
            None => drop(home.queue.submit(commands)),
        }
        drop(order);
        home.counters.submitted(home.device.generate_allocator_report().map(|report| report.total_reserved_bytes));
        home.counters.read().submits
    }

    fn get_timestamp_period(&self) -> f32 {
        self.home.queue.get_timestamp_period()
    }

    fn on_submitted_work_done(&self, callback: BoxSubmittedWorkDoneCallback) {
        self.home.queue.on_submitted_work_done(callback);
    }

    fn compact_blas(&self, _blas: &DispatchBlas) -> (Option<u64>, DispatchBlas) {
        refuse("acceleration structures")
    }

    fn present(&self, _detail: &DispatchSurfaceOutputDetail) {
        refuse("surfaces")
    }
}
