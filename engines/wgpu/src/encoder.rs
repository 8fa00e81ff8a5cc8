//! Encoders: commands outside of passes, and the memory that they name.

use std::sync::Arc;

use parking_lot::Mutex;
use wgpu::custom::{
    CommandEncoderInterface, DispatchBuffer, DispatchCommandBuffer, DispatchComputePass, DispatchQuerySet,
    DispatchRenderPass, DispatchTexture,
};
use wgpu::{BufferAddress, BufferDescriptor, BufferUsages, COPY_BUFFER_ALIGNMENT};

use crate::buffer::{Bound, LentBuffer, Memory};
use crate::home::Home;
use crate::objects;
use crate::pass::LentPass;
use crate::queue::LentCommands;
use crate::refused::refuse;

/// The memory that recorded commands name: that of single buffers, and that of bind groups.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    pub(crate) buffers: Vec<Arc<Memory>>,
    pub(crate) groups: Vec<Arc<[Bound]>>,
}

/// An encoder, which its passes share.
#[derive(Debug)]
pub(crate) struct LentEncoder {
    home: Arc<Home>,
    /// `None` once it is finished.
    encoder: Mutex<Option<wgpu::CommandEncoder>>,
    /// `None` where recorded commands keep nothing: in order, and where wgpu keeps its own buffers.
    holds: Option<Arc<Mutex<Holds>>>,
}

impl LentEncoder {
    pub(crate) fn new(home: Arc<Home>, encoder: wgpu::CommandEncoder) -> LentEncoder {
        let holds = home.pond.as_ref().is_some_and(|pond| pond.holds).then(Arc::default);
        LentEncoder { home, encoder: Mutex::new(Some(encoder)), holds }
    }

    fn with<R>(&self, record: impl FnOnce(&mut wgpu::CommandEncoder) -> R) -> R {
        record(self.encoder.lock().as_mut().expect("the encoder is finished"))
    }

    /// Notes that commands name memory: it keeps its bytes until they are submitted, and has some.
    fn name(&self, memory: &Arc<Memory>) {
        memory.define(&self.home);
        if let Some(holds) = &self.holds {
            holds.lock().buffers.push(Arc::clone(memory));
        }
    }
}

impl CommandEncoderInterface for LentEncoder {
    /// Copies. wgpu refuses to copy within a buffer, and two blocks may lie in one segment: such bytes take a way
    /// through a buffer of their own.
    fn copy_buffer_to_buffer(
        &self,
        source: &DispatchBuffer,
        source_offset: BufferAddress,
        destination: &DispatchBuffer,
        destination_offset: BufferAddress,
        copy_size: Option<BufferAddress>,
    ) {
        let (from, to) = (LentBuffer::behind(source), LentBuffer::behind(destination));
        let bytes = copy_size.unwrap_or_else(|| from.rest(source_offset));
        if Arc::ptr_eq(from, to) {
            // wgpu refuses this as well, also where it is no block.
            let buffer = from.not_lent();
            let (source, target) = (source_offset, destination_offset);
            return self.with(|encoder| encoder.copy_buffer_to_buffer(&buffer, source, &buffer, target, copy_size));
        }
        let source = from.place(source_offset, bytes, BufferUsages::COPY_SRC);
        let target = to.place(destination_offset, bytes, BufferUsages::COPY_DST);
        self.name(from);
        self.name(to);
        if source.buffer != target.buffer {
            return self.with(|encoder| {
                encoder.copy_buffer_to_buffer(&source.buffer, source.offset, &target.buffer, target.offset, bytes);
            });
        }
        let between = self.home.device.create_buffer(&BufferDescriptor {
            label: Some("copy within a segment"),
            size: bytes.next_multiple_of(COPY_BUFFER_ALIGNMENT),
            usage: BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.with(|encoder| {
            encoder.copy_buffer_to_buffer(&source.buffer, source.offset, &between, 0, bytes);
            encoder.copy_buffer_to_buffer(&between, 0, &target.buffer, target.offset, bytes);
        });
    }

    fn copy_buffer_to_texture(
        &self,
        _source: wgpu::TexelCopyBufferInfo<'_>,
        _destination: wgpu::TexelCopyTextureInfo<'_>,
        _copy_size: wgpu::Extent3d,
    ) {
        refuse("textures")
    }

    fn copy_texture_to_buffer(
        &self,
        _source: wgpu::TexelCopyTextureInfo<'_>,
        _destination: wgpu::TexelCopyBufferInfo<'_>,
        _copy_size: wgpu::Extent3d,
    ) {
        refuse("textures")
    }

    fn copy_texture_to_texture(
        &self,
        _source: wgpu::TexelCopyTextureInfo<'_>,
        _destination: wgpu::TexelCopyTextureInfo<'_>,
        _copy_size: wgpu::Extent3d,
    ) {
        refuse("textures")
    }

    fn begin_compute_pass(&self, desc: &wgpu::ComputePassDescriptor<'_>) -> DispatchComputePass {
        let timestamp_writes = desc.timestamp_writes.as_ref().map(|writes| wgpu::ComputePassTimestampWrites {
            query_set: objects::queries(writes.query_set),
            beginning_of_pass_write_index: writes.beginning_of_pass_write_index,
            end_of_pass_write_index: writes.end_of_pass_write_index,
        });
        let desc = wgpu::ComputePassDescriptor { label: desc.label, timestamp_writes };
        let pass = self.with(|encoder| encoder.begin_compute_pass(&desc).forget_lifetime());
        DispatchComputePass::custom(LentPass::new(Arc::clone(&self.home), pass, self.holds.clone()))
    }

    fn begin_render_pass(&self, _desc: &wgpu::RenderPassDescriptor<'_>) -> DispatchRenderPass {
        refuse("render passes")
    }

    fn finish(&mut self) -> DispatchCommandBuffer {
        let encoder = self.encoder.lock().take().expect("the encoder is finished");
        let holds = self.holds.as_ref().map(|holds| std::mem::take(&mut *holds.lock())).unwrap_or_default();
        DispatchCommandBuffer::custom(LentCommands::new(encoder.finish(), holds))
    }

    fn clear_texture(&self, _texture: &DispatchTexture, _subresource_range: &wgpu::ImageSubresourceRange) {
        refuse("textures")
    }

    fn clear_buffer(&self, buffer: &DispatchBuffer, offset: BufferAddress, size: Option<BufferAddress>) {
        let memory = LentBuffer::behind(buffer);
        let bytes = size.unwrap_or_else(|| memory.rest(offset));
        let place = memory.place(offset, bytes, BufferUsages::COPY_DST);
        self.name(memory);
        let size = if place.is_refused { size } else { Some(bytes) };
        self.with(|encoder| encoder.clear_buffer(&place.buffer, place.offset, size));
    }

    fn insert_debug_marker(&self, label: &str) {
        self.with(|encoder| encoder.insert_debug_marker(label));
    }

    fn push_debug_group(&self, label: &str) {
        self.with(|encoder| encoder.push_debug_group(label));
    }

    fn pop_debug_group(&self) {
        self.with(wgpu::CommandEncoder::pop_debug_group);
    }

    fn write_timestamp(&self, query_set: &DispatchQuerySet, query_index: u32) {
        self.with(|encoder| encoder.write_timestamp(objects::queries_behind(query_set), query_index));
    }

    fn resolve_query_set(
        &self,
        query_set: &DispatchQuerySet,
        first_query: u32,
        query_count: u32,
        destination: &DispatchBuffer,
        destination_offset: BufferAddress,
    ) {
        // No block has the usage that this needs.
        let (queries, buffer) = (objects::queries_behind(query_set), LentBuffer::behind(destination).not_lent());
        let range = first_query..first_query + query_count;
        self.with(|encoder| encoder.resolve_query_set(queries, range, &buffer, destination_offset));
    }

    fn mark_acceleration_structures_built<'a>(
        &self,
        _blas: &mut dyn Iterator<Item = &'a wgpu::Blas>,
        _tlas: &mut dyn Iterator<Item = &'a wgpu::Tlas>,
    ) {
        refuse("acceleration structures")
    }

    fn build_acceleration_structures<'a>(
        &self,
        _blas: &mut dyn Iterator<Item = &'a wgpu::BlasBuildEntry<'a>>,
        _tlas: &mut dyn Iterator<Item = &'a wgpu::Tlas>,
    ) {
        refuse("acceleration structures")
    }

    /// Does nothing: wgpu places the barriers itself, and a transition of a block would be one of its whole segment.
    fn transition_resources<'a>(
        &mut self,
        _buffers: &mut dyn Iterator<Item = wgpu::wgt::BufferTransition<&'a DispatchBuffer>>,
        _textures: &mut dyn Iterator<Item = wgpu::wgt::TextureTransition<&'a DispatchTexture>>,
    ) {
    }
}
