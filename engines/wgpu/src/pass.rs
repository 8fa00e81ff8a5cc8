//! Compute passes.

use std::sync::Arc;

use parking_lot::Mutex;
use wgpu::custom::{
    ComputePassInterface, DispatchBindGroup, DispatchBuffer, DispatchComputePipeline, DispatchQuerySet,
    DispatchTextureView,
};
use wgpu::{BufferAddress, BufferUsages, COPY_BUFFER_ALIGNMENT, DynamicOffset};

use crate::arguments::{ARGUMENT_BYTES, Fetch};
use crate::buffer::{LentBuffer, Place};
use crate::encoder::Holds;
use crate::home::Home;
use crate::objects::{self, LentGroup, LentPipeline, foreign};

#[derive(Debug)]
pub(crate) struct LentPass {
    home: Arc<Home>,
    pass: wgpu::ComputePass<'static>,
    holds: Option<Arc<Mutex<Holds>>>,
    state: State,
}

/// What the engine has set in a pass, as far as fetching the arguments of a dispatch changes it. Where the engine has
/// set no bind group 0, that of the arguments stays: no pipeline of an engine has its layout.
#[derive(Debug, Default)]
struct State {
    pipeline: Option<LentPipeline>,
    /// Bind group 0 with its offsets.
    group: Option<(wgpu::BindGroup, Vec<DynamicOffset>)>,
    /// Immediates, from their first byte. wgpu sets them to zero for a pipeline of another layout.
    immediates: Vec<u8>,
}

impl State {
    fn restore(&self, pass: &mut wgpu::ComputePass<'_>) {
        if let Some(LentPipeline(pipeline, _)) = &self.pipeline {
            pass.set_pipeline(pipeline);
        }
        if let Some((group, offsets)) = &self.group {
            pass.set_bind_group(0, group, offsets);
        }
        if !self.immediates.is_empty() {
            pass.set_immediates(0, &self.immediates);
        }
    }
}

impl LentPass {
    pub(crate) fn new(home: Arc<Home>, pass: wgpu::ComputePass<'static>, holds: Option<Arc<Mutex<Holds>>>) -> LentPass {
        LentPass { home, pass, holds, state: State::default() }
    }

    /// Fetches the arguments of a dispatch from a block, and returns the place that they are at then.
    fn fetch(&mut self, arguments: &Place) -> Place {
        let device = &self.home.device;
        let fetch = self.home.fetch.get_or_init(|| Fetch::new(device));
        let buffer = fetch.record(device, &mut self.pass, arguments);
        self.state.restore(&mut self.pass);
        Place { buffer, offset: 0, is_refused: false }
    }
}

/// wgpu asks for it; dropping the pass within ends it.
impl Drop for LentPass {
    fn drop(&mut self) {}
}

impl ComputePassInterface for LentPass {
    fn set_pipeline(&mut self, pipeline: &DispatchComputePipeline) {
        let Some(lent) = pipeline.as_custom::<LentPipeline>() else { foreign("compute pipeline") };
        let before = self.state.pipeline.replace(lent.clone());
        if before.is_none_or(|before| !Arc::ptr_eq(&before.1, &lent.1)) {
            self.state.immediates.clear();
        }
        self.pass.set_pipeline(&lent.0);
    }

    fn set_bind_group(&mut self, index: u32, bind_group: Option<&DispatchBindGroup>, offsets: &[DynamicOffset]) {
        let lent = bind_group.map(|group| match group.as_custom::<LentGroup>() {
            Some(lent) => lent,
            None => foreign("bind group"),
        });
        for bound in lent.iter().flat_map(|lent| lent.names.iter()) {
            bound.memory.define(&self.home);
        }
        if let (Some(lent), Some(holds)) = (lent, &self.holds) {
            holds.lock().groups.push(Arc::clone(&lent.names));
        }
        let group = lent.map(|lent| lent.with_offsets(&self.home.device, offsets));
        self.pass.set_bind_group(index, group.as_ref(), offsets);
        if index == 0 {
            self.state.group = group.map(|group| (group, offsets.to_vec()));
        }
    }

    fn set_immediates(&mut self, offset: u32, data: &[u8]) {
        let begin = offset as usize;
        let end = begin.saturating_add(data.len());
        // wgpu refuses what is longer.
        if end <= self.home.device.limits().max_immediate_size as usize {
            let immediates = &mut self.state.immediates;
            immediates.resize(immediates.len().max(end), 0);
            immediates[begin..end].copy_from_slice(data);
        }
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
        memory.define(&self.home);
        if let Some(holds) = &self.holds {
            holds.lock().buffers.push(Arc::clone(memory));
        }
        let mut place = memory.place(indirect_offset, ARGUMENT_BYTES, BufferUsages::INDIRECT);
        if memory.is_block() && !place.is_refused {
            // Without a pipeline wgpu refuses the dispatch, and an offset within a word.
            let is_refused = self.state.pipeline.is_none() || !indirect_offset.is_multiple_of(COPY_BUFFER_ALIGNMENT);
            place = match is_refused {
                true => Place { buffer: memory.not_lent(), offset: indirect_offset, is_refused },
                false => self.fetch(&place),
            };
        }
        self.pass.dispatch_workgroups_indirect(&place.buffer, place.offset);
    }

    /// Does nothing, for the reasons of the encoder's.
    fn transition_resources<'a>(
        &mut self,
        _buffers: &mut dyn Iterator<Item = wgpu::wgt::BufferTransition<&'a DispatchBuffer>>,
        _textures: &mut dyn Iterator<Item = wgpu::wgt::TextureTransition<&'a DispatchTextureView>>,
    ) {
    }
}
