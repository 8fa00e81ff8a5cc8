//! Fills with another byte than 0, for which wgpu has no command: they are copies from buffers full of that byte.

use std::collections::VecDeque;

use wgpu::BufferUsages;

use crate::WgpuError;
use crate::device::Shared;
use crate::lane::Lane;

/// The largest buffer of a pattern in bytes: a longer fill takes several copies.
const PATTERN_BYTES_MAX: u64 = 1 << 20;
/// The smallest buffer in bytes, so that short fills of one value share a buffer.
const PATTERN_BYTES_MIN: u64 = 4 << 10;
/// The most bytes of all buffers that are kept for the next fill.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// Buffers full of one byte each, the most recently used last.
#[derive(Default)]
pub(crate) struct Patterns(VecDeque<Pattern>);

#[derive(Clone)]
struct Pattern {
    value: u8,
    bytes: u64,
    buffer: wgpu::Buffer,
}

impl Patterns {
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

impl Shared {
    /// Records the copies that fill a range of whole words.
    pub(crate) fn fill_pattern(
        &self,
        lane: &Lane,
        target: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), WgpuError> {
        let pattern = self.pattern(value, bytes)?;
        let mut work = lane.work.lock();
        let encoder = self.encoder(&mut work)?;
        let mut done = 0;
        while done < bytes {
            let piece = pattern.bytes.min(bytes - done);
            encoder.copy_buffer_to_buffer(&pattern.buffer, 0, target, offset + done, piece);
            done += piece;
        }
        Ok(())
    }

    fn pattern(&self, value: u8, bytes: u64) -> Result<Pattern, WgpuError> {
        let wanted = bytes.next_power_of_two().clamp(PATTERN_BYTES_MIN, PATTERN_BYTES_MAX);
        if let Some(pattern) = self.movers.patterns.lock().find(value, wanted) {
            return Ok(pattern);
        }
        let buffer = self.create_buffer("fill", wanted, BufferUsages::COPY_SRC, true)?;
        match buffer.slice(..).get_mapped_range_mut() {
            Ok(mut view) => view.slice(..).fill(value),
            Err(error) => return Err(WgpuError::Map { call: "fill", reason: error.to_string() }),
        }
        buffer.unmap();
        let pattern = Pattern { value, bytes: wanted, buffer };
        self.movers.patterns.lock().keep(pattern.clone());
        Ok(pattern)
    }
}
