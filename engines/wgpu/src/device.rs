//! The device: every object it creates is of this crate, with wgpu's own in it.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use wgpu::custom::{
    BoxDeviceLostCallback, DeviceInterface, DispatchBindGroup, DispatchBindGroupLayout, DispatchBlas, DispatchBuffer,
    DispatchCommandEncoder, DispatchComputePipeline, DispatchExternalTexture, DispatchPipelineCache,
    DispatchPipelineLayout, DispatchQuerySet, DispatchRenderBundleEncoder, DispatchRenderPipeline, DispatchSampler,
    DispatchShaderModule, DispatchTexture, DispatchTlas, PopErrorScopeFuture,
};
use wgpu::{BindingResource, ErrorScopeGuard, PollType};

use crate::buffer::LentBuffer;
use crate::encoder::LentEncoder;
use crate::home::Home;
use crate::objects::{
    self, LentCache, LentGroup, LentLayout, LentPipeline, LentPipelineLayout, LentQueries, LentShader,
};
use crate::refused::refuse;

thread_local! {
    /// The open error scopes of this thread, each with the number that the engine knows it by. wgpu keeps them by
    /// thread as well.
    static SCOPES: RefCell<(u32, Vec<(u32, ErrorScopeGuard)>)> = const { RefCell::new((0, Vec::new())) };
}

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
        DispatchBindGroupLayout::custom(LentLayout(self.inner().create_bind_group_layout(desc)))
    }

    fn create_bind_group(&self, desc: &wgpu::BindGroupDescriptor<'_>) -> DispatchBindGroup {
        let mut names = Vec::with_capacity(desc.entries.len());
        let entries: Vec<_> = desc
            .entries
            .iter()
            .map(|entry| {
                let BindingResource::Buffer(bound) = &entry.resource else { refuse("bindings but those of buffers") };
                let memory = LentBuffer::memory(bound.buffer);
                names.push(Arc::clone(memory));
                let resource = BindingResource::Buffer(memory.binding(bound.offset, bound.size));
                wgpu::BindGroupEntry { binding: entry.binding, resource }
            })
            .collect();
        let group = self.inner().create_bind_group(&wgpu::BindGroupDescriptor {
            label: desc.label,
            layout: objects::layout(desc.layout),
            entries: &entries,
        });
        DispatchBindGroup::custom(LentGroup { group, names: names.into() })
    }

    fn create_pipeline_layout(&self, desc: &wgpu::PipelineLayoutDescriptor<'_>) -> DispatchPipelineLayout {
        let layouts: Vec<_> = desc.bind_group_layouts.iter().map(|layout| layout.map(objects::layout)).collect();
        let layout = self.inner().create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: desc.label,
            bind_group_layouts: &layouts,
            immediate_size: desc.immediate_size,
        });
        DispatchPipelineLayout::custom(LentPipelineLayout(layout))
    }

    fn create_render_pipeline(&self, _desc: &wgpu::RenderPipelineDescriptor<'_>) -> DispatchRenderPipeline {
        refuse("render pipelines")
    }

    fn create_mesh_pipeline(&self, _desc: &wgpu::MeshPipelineDescriptor<'_>) -> DispatchRenderPipeline {
        refuse("render pipelines")
    }

    fn create_compute_pipeline(&self, desc: &wgpu::ComputePipelineDescriptor<'_>) -> DispatchComputePipeline {
        let pipeline = self.inner().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: desc.label,
            layout: desc.layout.map(objects::pipeline_layout),
            module: objects::shader(desc.module),
            entry_point: desc.entry_point,
            compilation_options: desc.compilation_options.clone(),
            cache: desc.cache.map(objects::cache),
        });
        DispatchComputePipeline::custom(LentPipeline(pipeline))
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
        let scope = self.inner().push_error_scope(filter);
        SCOPES.with_borrow_mut(|(next, scopes)| {
            let number = *next;
            *next = next.wrapping_add(1);
            scopes.push((number, scope));
            number
        })
    }

    fn pop_error_scope(&self, index: u32) -> Pin<Box<dyn PopErrorScopeFuture>> {
        let scope = SCOPES.with_borrow_mut(|(_, scopes)| {
            let place = scopes.iter().rposition(|(number, _)| *number == index);
            scopes.remove(place.expect("the error scope was opened on another thread")).1
        });
        Box::pin(scope.pop())
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
