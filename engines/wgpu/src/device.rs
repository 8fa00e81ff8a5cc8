//! The device: every object it creates is of this crate, with wgpu's own in it.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use wgpu::PollType;
use wgpu::custom::{
    BoxDeviceLostCallback, DeviceInterface, DispatchBindGroup, DispatchBindGroupLayout, DispatchBlas, DispatchBuffer,
    DispatchCommandEncoder, DispatchComputePipeline, DispatchExternalTexture, DispatchPipelineCache,
    DispatchPipelineLayout, DispatchQuerySet, DispatchRenderBundleEncoder, DispatchRenderPipeline, DispatchSampler,
    DispatchShaderModule, DispatchTexture, DispatchTlas, PopErrorScopeFuture,
};

use crate::buffer::LentBuffer;
use crate::encoder::LentEncoder;
use crate::home::Home;
use crate::objects::{
    self, LentCache, LentGroup, LentLayout, LentPipeline, LentPipelineLayout, LentQueries, LentShader, foreign,
};
use crate::refused::refuse;
use crate::scopes;

#[derive(Debug)]
pub(crate) struct LentDevice {
    home: Arc<Home>,
}

impl LentDevice {
    pub(crate) fn new(home: Arc<Home>) -> LentDevice {
        LentDevice { home }
    }

    fn inner(&self) -> &wgpu::Device {
        &self.home.device
    }
}

impl DeviceInterface for LentDevice {
    fn features(&self) -> wgpu::Features {
        self.inner().features()
    }

    fn limits(&self) -> wgpu::Limits {
        self.inner().limits()
    }

    fn adapter_info(&self) -> wgpu::AdapterInfo {
        self.inner().adapter_info()
    }

    fn create_shader_module(
        &self,
        desc: wgpu::ShaderModuleDescriptor<'_>,
        shader_bound_checks: wgpu::ShaderRuntimeChecks,
    ) -> DispatchShaderModule {
        // SAFETY: the engine has chosen the checks. Where it leaves some out it has done so in an unsafe call of its
        // own, and guarantees what that asks for; wgpu makes this call with all of them otherwise.
        let module = unsafe { self.inner().create_shader_module_trusted(desc, shader_bound_checks) };
        DispatchShaderModule::custom(LentShader(module))
    }

    unsafe fn create_shader_module_passthrough(
        &self,
        desc: &wgpu::ShaderModuleDescriptorPassthrough<'_>,
    ) -> DispatchShaderModule {
        // SAFETY: the caller guarantees what wgpu's function of this name asks for.
        let module = unsafe { self.inner().create_shader_module_passthrough(desc.clone()) };
        DispatchShaderModule::custom(LentShader(module))
    }

    fn create_bind_group_layout(&self, desc: &wgpu::BindGroupLayoutDescriptor<'_>) -> DispatchBindGroupLayout {
        let layout = self.inner().create_bind_group_layout(desc);
        DispatchBindGroupLayout::custom(LentLayout::new(layout, desc.entries))
    }

    fn create_bind_group(&self, desc: &wgpu::BindGroupDescriptor<'_>) -> DispatchBindGroup {
        DispatchBindGroup::custom(LentGroup::new(self.inner(), desc))
    }

    fn create_pipeline_layout(&self, desc: &wgpu::PipelineLayoutDescriptor<'_>) -> DispatchPipelineLayout {
        let own = |layout: &wgpu::BindGroupLayout| match layout.as_custom::<LentLayout>() {
            Some(LentLayout(layout, dynamic)) => (layout.clone(), Arc::clone(dynamic)),
            None => foreign("bind group layout"),
        };
        let own: Vec<_> = desc.bind_group_layouts.iter().map(|layout| layout.map(own)).collect();
        let layouts: Vec<_> = own.iter().map(|own| own.as_ref().map(|(layout, _)| layout)).collect();
        let layout = self.inner().create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: desc.label,
            bind_group_layouts: &layouts,
            immediate_size: desc.immediate_size,
        });
        let groups = own.into_iter().map(|own| own.map(|(_, dynamic)| dynamic).unwrap_or_default()).collect();
        DispatchPipelineLayout::custom(LentPipelineLayout(layout, Arc::new(groups)))
    }

    fn create_render_pipeline(&self, _desc: &wgpu::RenderPipelineDescriptor<'_>) -> DispatchRenderPipeline {
        refuse("render pipelines")
    }

    fn create_mesh_pipeline(&self, _desc: &wgpu::MeshPipelineDescriptor<'_>) -> DispatchRenderPipeline {
        refuse("render pipelines")
    }

    fn create_compute_pipeline(&self, desc: &wgpu::ComputePipelineDescriptor<'_>) -> DispatchComputePipeline {
        let layout = desc.layout.map(|layout| match layout.as_custom::<LentPipelineLayout>() {
            Some(layout) => layout,
            None => foreign("pipeline layout"),
        });
        let pipeline = self.inner().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: desc.label,
            layout: layout.map(|layout| &layout.0),
            module: objects::shader(desc.module),
            entry_point: desc.entry_point,
            compilation_options: desc.compilation_options.clone(),
            cache: desc.cache.map(objects::cache),
        });
        let groups = layout.map(|layout| Arc::clone(&layout.1)).unwrap_or_default();
        DispatchComputePipeline::custom(LentPipeline(pipeline, groups))
    }

    unsafe fn create_pipeline_cache(&self, desc: &wgpu::PipelineCacheDescriptor<'_>) -> DispatchPipelineCache {
        // SAFETY: the caller guarantees what wgpu's function of this name asks for.
        let cache = unsafe { self.inner().create_pipeline_cache(desc) };
        DispatchPipelineCache::custom(LentCache(cache))
    }

    fn create_buffer(&self, desc: &wgpu::BufferDescriptor<'_>) -> DispatchBuffer {
        DispatchBuffer::custom(LentBuffer::new(&self.home, desc))
    }

    fn create_texture(&self, _desc: &wgpu::TextureDescriptor<'_>) -> DispatchTexture {
        refuse("textures")
    }

    fn create_external_texture(
        &self,
        _desc: &wgpu::ExternalTextureDescriptor<'_>,
        _planes: &[&wgpu::TextureView],
    ) -> DispatchExternalTexture {
        refuse("textures")
    }

    fn create_blas(
        &self,
        _desc: &wgpu::CreateBlasDescriptor<'_>,
        _sizes: wgpu::BlasGeometrySizeDescriptors,
    ) -> (Option<u64>, DispatchBlas) {
        refuse("acceleration structures")
    }

    fn create_tlas(&self, _desc: &wgpu::CreateTlasDescriptor<'_>) -> DispatchTlas {
        refuse("acceleration structures")
    }

    fn create_sampler(&self, _desc: &wgpu::SamplerDescriptor<'_>) -> DispatchSampler {
        refuse("samplers")
    }

    fn create_query_set(&self, desc: &wgpu::QuerySetDescriptor<'_>) -> DispatchQuerySet {
        DispatchQuerySet::custom(LentQueries(self.inner().create_query_set(desc)))
    }

    fn create_command_encoder(&self, desc: &wgpu::CommandEncoderDescriptor<'_>) -> DispatchCommandEncoder {
        let encoder = self.inner().create_command_encoder(desc);
        DispatchCommandEncoder::custom(LentEncoder::new(Arc::clone(&self.home), encoder))
    }

    fn create_render_bundle_encoder(
        &self,
        _desc: &wgpu::RenderBundleEncoderDescriptor<'_>,
    ) -> DispatchRenderBundleEncoder {
        refuse("render bundles")
    }

    fn set_device_lost_callback(&self, device_lost_callback: BoxDeviceLostCallback) {
        let home = Arc::downgrade(&self.home);
        let once = Mutex::new(Some(device_lost_callback));
        self.inner().set_device_lost_callback(move |reason, message| {
            if let Some(pond) = home.upgrade().as_ref().and_then(|home| home.pond.as_ref()) {
                pond.wgpu.report_lost(&message);
            }
            if let Some(callback) = once.lock().take() {
                callback(reason, message);
            }
        });
    }

    fn on_uncaptured_error(&self, handler: Arc<dyn wgpu::UncapturedErrorHandler>) {
        *self.home.uncaptured.lock() = Some(Arc::clone(&handler));
        self.inner().on_uncaptured_error(handler);
    }

    fn push_error_scope(&self, filter: wgpu::ErrorFilter) -> u32 {
        scopes::open(self.home.number(), filter, self.inner().push_error_scope(filter))
    }

    fn pop_error_scope(&self, index: u32) -> Pin<Box<dyn PopErrorScopeFuture>> {
        scopes::close(index)
    }

    unsafe fn start_graphics_debugger_capture(&self) {
        // SAFETY: the caller guarantees what wgpu's function of this name asks for.
        unsafe { self.inner().start_graphics_debugger_capture() };
    }

    unsafe fn stop_graphics_debugger_capture(&self) {
        // SAFETY: the caller guarantees what wgpu's function of this name asks for.
        unsafe { self.inner().stop_graphics_debugger_capture() };
    }

    fn poll(&self, poll_type: wgpu::wgt::PollType<u64>) -> Result<wgpu::PollStatus, wgpu::PollError> {
        self.inner().poll(match poll_type {
            wgpu::wgt::PollType::Wait { timeout, .. } => PollType::Wait { submission_index: None, timeout },
            wgpu::wgt::PollType::Poll => PollType::Poll,
        })
    }

    fn get_internal_counters(&self) -> wgpu::InternalCounters {
        self.inner().get_internal_counters()
    }

    fn generate_allocator_report(&self) -> Option<wgpu::AllocatorReport> {
        self.inner().generate_allocator_report()
    }

    fn destroy(&self) {
        self.inner().destroy();
    }
}
