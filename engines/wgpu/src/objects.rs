//! Objects that hold no memory: each is wgpu's own in a wrapper, so that a lent device gives nothing but its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use wgpu::custom::{
    BindGroupInterface, BindGroupLayoutInterface, ComputePipelineInterface, DispatchBindGroupLayout,
    PipelineCacheInterface, PipelineLayoutInterface, QuerySetInterface, ShaderCompilationInfoFuture,
    ShaderModuleInterface,
};

use crate::buffer::Memory;

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

#[derive(Debug)]
pub(crate) struct LentLayout(pub(crate) wgpu::BindGroupLayout);

impl BindGroupLayoutInterface for LentLayout {}

#[derive(Debug)]
pub(crate) struct LentPipelineLayout(pub(crate) wgpu::PipelineLayout);

impl PipelineLayoutInterface for LentPipelineLayout {}

#[derive(Debug)]
pub(crate) struct LentCache(pub(crate) wgpu::PipelineCache);

impl PipelineCacheInterface for LentCache {
    fn get_data(&self) -> Option<Vec<u8>> {
        self.0.get_data()
    }
}

#[derive(Debug)]
pub(crate) struct LentPipeline(pub(crate) wgpu::ComputePipeline);

impl ComputePipelineInterface for LentPipeline {
    fn get_bind_group_layout(&self, index: u32) -> DispatchBindGroupLayout {
        DispatchBindGroupLayout::custom(LentLayout(self.0.get_bind_group_layout(index)))
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
    pub(crate) names: Arc<[Arc<Memory>]>,
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

own!(layout, wgpu::BindGroupLayout, LentLayout, wgpu::BindGroupLayout, "bind group layout");
own!(pipeline_layout, wgpu::PipelineLayout, LentPipelineLayout, wgpu::PipelineLayout, "pipeline layout");
own!(shader, wgpu::ShaderModule, LentShader, wgpu::ShaderModule, "shader module");
own!(cache, wgpu::PipelineCache, LentCache, wgpu::PipelineCache, "pipeline cache");
own!(queries, wgpu::QuerySet, LentQueries, wgpu::QuerySet, "query set");
own!(queries_behind, wgpu::custom::DispatchQuerySet, LentQueries, wgpu::QuerySet, "query set");
own!(pipeline_behind, wgpu::custom::DispatchComputePipeline, LentPipeline, wgpu::ComputePipeline, "compute pipeline");
