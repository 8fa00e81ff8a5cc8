//! The replacement of `under.rs` where all segments are wgpu's own: none of its types has a value.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use millpond_backend::Caps;

use crate::error::WgpuError;

/// The page type, unused because wgpu has no virtual memory.
pub type Page = ();

/// A type without values: there is no Vulkan backend.
pub(crate) enum Under {}

/// A type without values: there is no Vulkan segment.
pub(crate) enum Backing {}

/// A type without values: no submit is announced.
pub(crate) struct Announced<'a>(Infallible, PhantomData<&'a ()>);

impl Under {
    pub(crate) fn amend(&self, _caps: &mut Caps) {
        match *self {}
    }

    pub(crate) fn reserve(
        &self,
        _usage: wgpu::BufferUsages,
        _bytes: u64,
    ) -> Result<(wgpu::Buffer, Arc<Backing>), WgpuError> {
        match *self {}
    }

    pub(crate) fn free_returned(&self) {
        match *self {}
    }

    pub(crate) fn announce(&self) -> Result<Announced<'_>, WgpuError> {
        match *self {}
    }
}

impl Backing {
    pub(crate) fn release(&self) {
        match *self {}
    }
}

impl Announced<'_> {
    pub(crate) fn submit<T>(self, _queue: &wgpu::Queue, _submit: impl FnOnce() -> T) -> T {
        match self.0 {}
    }
}
