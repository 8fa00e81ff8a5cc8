//! Bytes that are no whole words: a shader writes them, and leaves the other bytes of their words as they are.
//!
//! wgpu's own copies and fills begin at multiples of 4 and move multiples of 4. What a transfer has beyond that, at
//! most three bytes at each end, or all of it where a copy's two places differ by no multiple of 4, goes this way. Two
//! threads of the shader never write the same word, and words are shared by bytes of one block only.

use std::sync::OnceLock;

use wgpu::BufferUsages;
use wgpu::util::{BufferInitDescriptor, DeviceExt};

use crate::error::WgpuError;
use crate::memory::Segment;
use crate::open::Driver;
use crate::probe::WORD;

/// The threads of a workgroup, as the shader declares them.
const THREADS: u32 = 64;

/// A place, in bytes of the two bindings, and a length. `given` is where bytes come from, `taken` where they go.
const SHADER: &str = "
struct Place { given: u32, taken: u32, bytes: u32 }
@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> taken: array<u32>;
@group(0) @binding(2) var<uniform> place: Place;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = (place.taken >> 2u) + id.x;
    let end = place.taken + place.bytes;
    if ((word << 2u) >= end) { return; }
    var value = taken[word];
    for (var byte = 0u; byte < 4u; byte++) {
        let at = (word << 2u) + byte;
        if (at >= place.taken && at < end) {
            let source = place.given + (at - place.taken);
            let one = (given[source >> 2u] >> ((source & 3u) * 8u)) & 0xffu;
            value = (value & ~(0xffu << (byte * 8u))) | (one << (byte * 8u));
        }
    }
    taken[word] = value;
}";

/// A range, cut at multiples of a word: an offset and a length of each part, in bytes. Parts may have no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    pub(super) head: (u64, u64),
    pub(super) words: (u64, u64),
    pub(super) tail: (u64, u64),
}

impl Parts {
    pub(super) fn of(offset: u64, bytes: u64) -> Parts {
        let end = offset + bytes;
        let first = offset.next_multiple_of(WORD).min(end);
        let last = (end / WORD * WORD).max(first);
        Parts { head: (offset, first - offset), words: (first, last - first), tail: (last, end - last) }
    }

    /// Returns the parts that are no whole words and have bytes.
    pub(super) fn edges(&self) -> impl Iterator<Item = (u64, u64)> {
        [self.head, self.tail].into_iter().filter(|&(_, bytes)| bytes > 0)
    }
}

/// The shader of a device, made with its first use.
#[derive(Default)]
pub(super) struct Bytes(OnceLock<wgpu::ComputePipeline>);

impl Bytes {
    /// Makes a buffer of a few bytes that the shader can take them from.
    pub(super) fn source(&self, driver: &Driver, call: &'static str, bytes: &[u8]) -> Result<wgpu::Buffer, WgpuError> {
        let mut words = [0; 2 * WORD as usize];
        words[..bytes.len()].copy_from_slice(bytes);
        let descriptor =
            BufferInitDescriptor { label: Some("millpond"), contents: &words, usage: BufferUsages::STORAGE };
        driver.caught(call, bytes.len() as u64, || driver.device.create_buffer_init(&descriptor))
    }

    /// Returns the shader. One that could not be made is tried again with the next use.
    fn pipeline(&self, driver: &Driver, call: &'static str) -> Result<&wgpu::ComputePipeline, WgpuError> {
        if let Some(made) = self.0.get() {
            return Ok(made);
        }
        let made = driver.caught(call, 0, || pipeline(&driver.device))?;
        Ok(self.0.get_or_init(|| made))
    }

    /// Records that bytes of `source`, from `at` on, are written to a range of a segment.
    pub(super) fn write(
        &self,
        driver: &Driver,
        call: &'static str,
        encoder: &mut wgpu::CommandEncoder,
        (source, at): (&wgpu::Buffer, u64),
        segment: &Segment,
        (offset, bytes): (u64, u64),
    ) -> Result<(), WgpuError> {
        let (target, before) = segment.window(offset, bytes)?;
        let place = [at as u32, before as u32, bytes as u32, 0].map(u32::to_le_bytes);
        let words = ((before % WORD + bytes).div_ceil(WORD)) as u32;
        let pipeline = self.pipeline(driver, call)?;
        let group = driver.caught(call, 0, || {
            let usage = BufferUsages::UNIFORM;
            let place = BufferInitDescriptor { label: Some("millpond"), contents: place.as_flattened(), usage };
            let place = driver.device.create_buffer_init(&place);
            let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
            driver.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some("millpond"),
                layout: &pipeline.get_bind_group_layout(0),
                entries: &[
                    entry(0, source.as_entire_binding()),
                    entry(1, wgpu::BindingResource::Buffer(target)),
                    entry(2, place.as_entire_binding()),
                ],
            })
        })?;
        driver.caught(call, 0, || {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(words.div_ceil(THREADS), 1, 1);
        })
    }
}

fn pipeline(device: &wgpu::Device) -> wgpu::ComputePipeline {
    let source = wgpu::ShaderSource::Wgsl(SHADER.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("millpond bytes"), source });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("millpond bytes"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_exactly_one_part() {
        for offset in 0..9 {
            for bytes in 0..20 {
                let parts = Parts::of(offset, bytes);
                let mut covered: Vec<u64> = Vec::new();
                for (from, length) in [parts.head, parts.words, parts.tail] {
                    covered.extend(from..from + length);
                }
                assert_eq!(covered, (offset..offset + bytes).collect::<Vec<_>>(), "{parts:?}");
                let (from, length) = parts.words;
                assert!(length == 0 || from % WORD == 0 && length % WORD == 0, "{parts:?}");
                assert!(parts.edges().all(|(_, length)| length < WORD), "{parts:?}");
            }
        }
    }
}
