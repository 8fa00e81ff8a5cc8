//! Objects that hold no memory: each is wgpu's own in a wrapper, so that a lent device gives nothing but its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use wgpu::BindingResource;
use wgpu::custom::{
    BindGroupInterface, BindGroupLayoutInterface, ComputePipelineInterface, DispatchBindGroupLayout,
    PipelineCacheInterface, PipelineLayoutInterface, QuerySetInterface, ShaderCompilationInfoFuture,
    ShaderModuleInterface,
};

use crate::buffer::{Bound, Place};
use crate::refused::refuse;

/// Panics over an object that another device has made.
pub(crate) fn foreign(what: &str) -> ! {
    panic!("the {what} is of another device")
}

#[derive(Debug)]
pub(crate) struct LentShader(pub(crate) wgpu::ShaderModule);

impl ShaderModuleInterface for LentShader {
    fn get_compilation_info(&self) -> Pin<Box<dyn ShaderCompilationInfoFuture>> {
        let info: Pin<Box<dyn Future<Output = wgpu::CompilationInfo> + Send>> = Box::pin(self.0.get_compilation_info());
        Box::pin(info)
    }
}

/// The numbers of the bindings that take dynamic offsets, in their order.
pub(crate) type Dynamic = Arc<[u32]>;

/// The layout of a bind group.
#[derive(Debug)]
pub(crate) struct LentLayout(pub(crate) wgpu::BindGroupLayout, pub(crate) Dynamic);

impl LentLayout {
    pub(crate) fn new(layout: wgpu::BindGroupLayout, entries: &[wgpu::BindGroupLayoutEntry]) -> LentLayout {
        let is_dynamic = |entry: &&wgpu::BindGroupLayoutEntry| {
            matches!(entry.ty, wgpu::BindingType::Buffer { has_dynamic_offset: true, .. })
        };
        let mut dynamic: Vec<_> = entries.iter().filter(is_dynamic).map(|entry| entry.binding).collect();
        dynamic.sort_unstable();
        LentLayout(layout, dynamic.into())
    }
}

impl BindGroupLayoutInterface for LentLayout {}

/// What a pipeline layout says of each bind group; nothing, if wgpu has made the layout. Two layouts are the same if
/// this is the same value.
pub(crate) type Groups = Arc<Vec<Dynamic>>;

#[derive(Debug)]
pub(crate) struct LentPipelineLayout(pub(crate) wgpu::PipelineLayout, pub(crate) Groups);

impl PipelineLayoutInterface for LentPipelineLayout {}

#[derive(Debug)]
pub(crate) struct LentCache(pub(crate) wgpu::PipelineCache);

impl PipelineCacheInterface for LentCache {
    fn get_data(&self) -> Option<Vec<u8>> {
        self.0.get_data()
    }
}

/// A pipeline, and what its layout says of bind groups.
#[derive(Clone, Debug)]
pub(crate) struct LentPipeline(pub(crate) wgpu::ComputePipeline, pub(crate) Groups);

impl ComputePipelineInterface for LentPipeline {
    fn get_bind_group_layout(&self, index: u32) -> DispatchBindGroupLayout {
        let dynamic = self.1.get(index as usize).cloned().unwrap_or_default();
        DispatchBindGroupLayout::custom(LentLayout(self.0.get_bind_group_layout(index), dynamic))
    }
}

#[derive(Debug)]
pub(crate) struct LentQueries(pub(crate) wgpu::QuerySet);

impl QuerySetInterface for LentQueries {
    fn destroy(&self) {
        self.0.destroy();
    }
}

/// A bind group, and the memory that it names.
#[derive(Debug)]
pub(crate) struct LentGroup {
    pub(crate) group: wgpu::BindGroup,
    pub(crate) names: Arc<[Bound]>,
    layout: wgpu::BindGroupLayout,
    dynamic: Dynamic,
}

impl LentGroup {
    /// Creates a bind group of ranges.
    ///
    /// # Panics
    ///
    /// If one of the bindings is not a buffer, or an object is of another device.
    pub(crate) fn new(device: &wgpu::Device, desc: &wgpu::BindGroupDescriptor<'_>) -> LentGroup {
        let bound = |entry: &wgpu::BindGroupEntry<'_>| match &entry.resource {
            BindingResource::Buffer(bound) => Bound::new(entry.binding, bound),
            _ => refuse("bindings but those of buffers"),
        };
        let names: Arc<[_]> = desc.entries.iter().map(bound).collect();
        let Some(LentLayout(layout, dynamic)) = desc.layout.as_custom() else { foreign("bind group layout") };
        let group = group(device, desc.label, layout, &names, Bound::place);
        LentGroup { group, names, layout: layout.clone(), dynamic: Arc::clone(dynamic) }
    }

    /// Returns wgpu's bind group for these dynamic offsets: one of stand-ins if they leave the memory.
    pub(crate) fn with_offsets(&self, device: &wgpu::Device, offsets: &[wgpu::DynamicOffset]) -> wgpu::BindGroup {
        let bound = |binding: &u32| self.names.iter().find(|bound| bound.binding == *binding);
        let is_inside = |(binding, offset): (&u32, &u32)| bound(binding).is_none_or(|b| b.is_inside((*offset).into()));
        match self.dynamic.iter().zip(offsets).all(is_inside) {
            true => self.group.clone(),
            false => group(device, None, &self.layout, &self.names, Bound::not_lent),
        }
    }
}

/// Creates wgpu's bind group of ranges at their places.
fn group(
    device: &wgpu::Device,
    label: Option<&str>,
    layout: &wgpu::BindGroupLayout,
    bound: &[Bound],
    place: impl Fn(&Bound) -> Place,
) -> wgpu::BindGroup {
    let places: Vec<_> = bound.iter().map(place).collect();
    let entries: Vec<_> = bound.iter().zip(&places).map(|(bound, place)| bound.entry(place)).collect();
    device.create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries: &entries })
}

impl BindGroupInterface for LentGroup {}

/// Returns wgpu's own object in a wrapper.
macro_rules! own {
    ($name:ident, $outer:ty, $wrapper:ty, $inner:ty, $what:literal) => {
        pub(crate) fn $name(object: &$outer) -> &$inner {
            match object.as_custom::<$wrapper>() {
                Some(wrapper) => &wrapper.0,
                None => foreign($what),
            }
        }
    };
}

own!(shader, wgpu::ShaderModule, LentShader, wgpu::ShaderModule, "shader module");
own!(cache, wgpu::PipelineCache, LentCache, wgpu::PipelineCache, "pipeline cache");
own!(queries, wgpu::QuerySet, LentQueries, wgpu::QuerySet, "query set");
own!(queries_behind, wgpu::custom::DispatchQuerySet, LentQueries, wgpu::QuerySet, "query set");
