//! A wgpu device as a device under test.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_backend::{Backend, Fault, Point, StreamId};
use millpond_wgpu::{Wgpu, WgpuBuilder};

use crate::device::{DeviceUnderTest, Need, Unavailable};

/// A wgpu adapter, opened anew for each scenario.
#[derive(Debug)]
pub struct WgpuDevice {
    name: String,
    builder: WgpuBuilder,
    /// The streams whose work is held back: the device's number and the stream.
    held: Mutex<Vec<(u64, StreamId)>>,
}

impl WgpuDevice {
    /// Creates the device under test from this builder.
    pub fn new(name: &str, builder: WgpuBuilder) -> Self {
        Self { name: format!("wgpu, {name}"), builder, held: Mutex::new(Vec::new()) }
    }

    fn held(&self) -> MutexGuard<'_, Vec<(u64, StreamId)>> {
        // A scenario that panicked has failed already, and the list is still sound.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceUnderTest for WgpuDevice {
    type Backend = Wgpu;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self, need: &Need) -> Result<Wgpu, Unavailable> {
        let no_pages = || Unavailable("the device was opened without virtual memory, or has none".to_owned());
        // Opening takes time, which is saved for a scenario that cannot run.
        if need.pages && !self.builder.may_have_pages() {
            return Err(no_pages());
        }
        let device = self.builder.clone().build().map_err(|error| Unavailable(error.to_string()))?;
        if need.pages && device.caps().pages.is_none() { Err(no_pages()) } else { Ok(device) }
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("wgpu")
    }

    fn twin(&self, backend: &Wgpu) -> Option<Wgpu> {
        Some(backend.clone())
    }

    fn submit(&self, backend: &Wgpu, stream: StreamId) {
        if !self.held().contains(&(backend.serial(), stream)) {
            // A device that cannot submit reports it again when the work is waited for.
            let _ = backend.submit(stream);
        }
    }

    /// Keeps the stream's work from being submitted. A gate on the device would not work: wgpu chains its submits, and
    /// on some drivers the next one, of any stream, blocks the host until the gate opens.
    fn hold(&self, backend: &Wgpu, stream: StreamId) -> bool {
        self.held().push((backend.serial(), stream));
        true
    }

    fn unhold(&self, backend: &Wgpu, stream: StreamId) {
        self.held().retain(|held| *held != (backend.serial(), stream));
        self.submit(backend, stream);
    }

    fn fail_nth(&self, backend: &Wgpu, nth: u64, fault: Fault) -> bool {
        backend.fail_nth(nth, fault);
        true
    }

    fn forget_faults(&self, backend: &Wgpu) {
        backend.forget_faults();
    }

    fn fallible_calls(&self, backend: &Wgpu) -> Option<u64> {
        Some(backend.fallible_calls())
    }

    fn held_bytes(&self, backend: &Wgpu) -> Option<u64> {
        Some(backend.held_bytes())
    }

    /// Returns false for a device in software, where the driver counts the machine's memory that is in use, and so only
    /// what was written.
    fn budget_follows(&self, backend: &Wgpu) -> bool {
        backend.device().adapter_info().device_type != millpond_wgpu::wgpu::DeviceType::Cpu
    }

    fn comes_after(backend: &Wgpu, stream: StreamId, point: Point) -> Option<bool> {
        Some(stream == point.stream || backend.submitted(point.stream) >= point.tick)
    }

    fn violations(&self, backend: &Wgpu) -> Vec<String> {
        backend.errors()
    }
}
