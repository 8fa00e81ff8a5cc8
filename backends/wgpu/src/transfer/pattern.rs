//! Buffers for fills with another byte than 0, for which wgpu has no command: they are copies from buffers full of that
//! byte.

use std::collections::VecDeque;

use parking_lot::Mutex;
use wgpu::BufferUsages;

use crate::error::WgpuError;
use crate::open::Driver;

/// The largest buffer of a pattern in bytes: a longer fill takes several copies.
const PATTERN_BYTES_MAX: u64 = 1 << 20;
/// The smallest buffer in bytes, so that short fills of one value share a buffer.
const PATTERN_BYTES_MIN: u64 = 4 << 10;
/// The most bytes of all buffers that are kept for the next fill.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// Buffers full of one byte each, shared by all streams.
#[derive(Default)]
pub(crate) struct Patterns(Mutex<Kept>);

/// The buffers that are kept, the most recently used last.
#[derive(Default)]
struct Kept(VecDeque<Pattern>);

/// A buffer full of one byte.
#[derive(Clone)]
pub(crate) struct Pattern {
    value: u8,
    pub(crate) bytes: u64,
    pub(crate) buffer: wgpu::Buffer,
}

impl Patterns {
    /// Returns a buffer full of a byte, for a fill of that many bytes: a longer fill copies it several times.
    pub(crate) fn of(&self, driver: &Driver, value: u8, bytes: u64) -> Result<Pattern, WgpuError> {
        let wanted = bytes.next_power_of_two().clamp(PATTERN_BYTES_MIN, PATTERN_BYTES_MAX);
        if let Some(pattern) = self.0.lock().find(value, wanted) {
            return Ok(pattern);
        }
        let buffer = driver.create_buffer("fill", wanted, BufferUsages::COPY_SRC, true)?;
        match buffer.slice(..).get_mapped_range_mut() {
            Ok(mut view) => view.slice(..).fill(value),
            Err(error) => return Err(WgpuError::Map { call: "fill", reason: error.to_string() }),
        }
        buffer.unmap();
        let pattern = Pattern { value, bytes: wanted, buffer };
        self.0.lock().keep(pattern.clone());
        Ok(pattern)
    }
}

impl Kept {
    /// Returns a kept buffer of at least that many bytes of the value.
    fn find(&mut self, value: u8, bytes: u64) -> Option<Pattern> {
        let at = self.0.iter().position(|pattern| pattern.value == value && pattern.bytes >= bytes)?;
        let pattern = self.0.remove(at)?;
        self.0.push_back(pattern.clone());
        Some(pattern)
    }

    /// Keeps a buffer, and drops the oldest. Recorded work keeps the buffers that it copies from alive.
    fn keep(&mut self, pattern: Pattern) {
        self.0.retain(|kept| kept.value != pattern.value);
        self.0.push_back(pattern);
        while self.0.iter().map(|kept| kept.bytes).sum::<u64>() > KEPT_BYTES_MAX {
            self.0.pop_front();
        }
    }
}
