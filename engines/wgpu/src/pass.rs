//! Compute passes.

use std::sync::Arc;

use parking_lot::Mutex;
use wgpu::custom::{
    ComputePassInterface, DispatchBindGroup, DispatchBuffer, DispatchComputePipeline, DispatchQuerySet,
    DispatchTextureView,
};
use wgpu::{BufferAddress, DynamicOffset};

use crate::buffer::LentBuffer;
use crate::encoder::Holds;
use crate::objects::{self, LentGroup, foreign};

#[derive(Debug)]
pub(crate) struct LentPass {
    pass: wgpu::ComputePass<'static>,
    holds: Option<Arc<Mutex<Holds>>>,
}

impl LentPass {
    pub(crate) fn new(pass: wgpu::ComputePass<'static>, holds: Option<Arc<Mutex<Holds>>>) -> LentPass {
        LentPass { pass, holds }
    }
}

/// wgpu asks for it; dropping the pass within ends it.
impl Drop for LentPass {
    fn drop(&mut self) {}
}

impl ComputePassInterface for LentPass {
    fn set_pipeline(&mut self, pipeline: &DispatchComputePipeline) {
        self.pass.set_pipeline(objects::pipeline_behind(pipeline));
    }

    fn set_bind_group(&mut self, index: u32, bind_group: Option<&DispatchBindGroup>, offsets: &[DynamicOffset]) {
        let lent = bind_group.map(|group| match group.as_custom::<LentGroup>() {
            Some(lent) => lent,
            None => foreign("bind group"),
        });
        if let (Some(lent), Some(holds)) = (lent, &self.holds) {
            holds.lock().groups.push(Arc::clone(&lent.names));
        }
        self.pass.set_bind_group(index, lent.map(|lent| &lent.group), offsets);
    }

    fn set_immediates(&mut self, offset: u32, data: &[u8]) {
        self.pass.set_immediates(offset, data);
    }

    fn insert_debug_marker(&mut self, label: &str) {
        self.pass.insert_debug_marker(label);
    }

    fn push_debug_group(&mut self, group_label: &str) {
        self.pass.push_debug_group(group_label);
    }

    fn pop_debug_group(&mut self) {
        self.pass.pop_debug_group();
    }

    fn write_timestamp(&mut self, query_set: &DispatchQuerySet, query_index: u32) {
        self.pass.write_timestamp(objects::queries_behind(query_set), query_index);
    }

    fn begin_pipeline_statistics_query(&mut self, query_set: &DispatchQuerySet, query_index: u32) {
        self.pass.begin_pipeline_statistics_query(objects::queries_behind(query_set), query_index);
    }

    fn end_pipeline_statistics_query(&mut self) {
        self.pass.end_pipeline_statistics_query();
    }

    fn dispatch_workgroups(&mut self, x: u32, y: u32, z: u32) {
        self.pass.dispatch_workgroups(x, y, z);
    }

    fn dispatch_workgroups_indirect(&mut self, indirect_buffer: &DispatchBuffer, indirect_offset: BufferAddress) {
        let memory = LentBuffer::behind(indirect_buffer);
        if let Some(holds) = &self.holds {
            holds.lock().buffers.push(Arc::clone(memory));
        }
        self.pass.dispatch_workgroups_indirect(&memory.buffer, memory.base + indirect_offset);
    }

    /// Does nothing, for the reasons of the encoder's.
    fn transition_resources<'a>(
        &mut self,
        _buffers: &mut dyn Iterator<Item = wgpu::wgt::BufferTransition<&'a DispatchBuffer>>,
        _textures: &mut dyn Iterator<Item = wgpu::wgt::TextureTransition<&'a DispatchTextureView>>,
    ) {
    }
}
