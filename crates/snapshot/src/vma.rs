//! Writes the JSON dump of the Vulkan Memory Allocator (VMA), as `vmaBuildStatsString` makes it with a detailed map, so
//! that its tool `GpuMemDumpVis` draws a snapshot.
//!
//! A device becomes a heap with one memory type, a segment a block of `VkDeviceMemory`, and what lies in it a
//! suballocation. Segments of private pools become custom pools. Streams, call stacks and the history have no place in
//! that format; the place of an allocation is the suballocation's name.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Map, Value, json};

use crate::error::SnapshotError;
use crate::model::{Block, Segment, Snapshot, State};

/// What a dump says of the device, and a snapshot does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VmaDevice {
    /// The name of the device.
    pub name: String,
    /// The bytes of its memory; what is reserved, unless it is given.
    pub heap_bytes: Option<u64>,
}

/// The statistics that VMA keeps of blocks and what lies in them.
#[derive(Default)]
struct Statistics {
    blocks: u64,
    block_bytes: u64,
    allocations: u64,
    allocation_bytes: u64,
    unused_ranges: u64,
    allocation_sizes: Option<(u64, u64)>,
    unused_sizes: Option<(u64, u64)>,
}

impl Snapshot {
    /// Writes the segments as a dump of VMA and returns the writer, flushed. The writer should be buffered.
    ///
    /// Holds the dump in memory.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn write_vma<W: Write>(&self, device: &VmaDevice, mut out: W) -> Result<W, SnapshotError> {
        let mut heaps: BTreeMap<i64, Vec<&Segment>> = BTreeMap::new();
        for segment in &self.segments {
            heaps.entry(segment.device).or_default().push(segment);
        }
        let (mut info, mut defaults, mut customs) = (Map::new(), Map::new(), Map::new());
        for (number, segments) in &heaps {
            let (heap, memory_type) = (format!("Heap {number}"), format!("Type {number}"));
            info.insert(heap, heap_info(device, &memory_type, segments));
            let (private, default): (Vec<_>, Vec<_>) = segments.iter().partition(|segment| pool(segment).is_some());
            defaults.insert(memory_type.clone(), blocks(&default));
            let mut pools: BTreeMap<_, Vec<&Segment>> = BTreeMap::new();
            for segment in private {
                pools.entry(pool(segment)).or_default().push(segment);
            }
            let pools = pools.into_iter().enumerate().map(|(number, (pool, segments))| {
                let (first, second) = pool.unwrap_or_default();
                let mut pool = blocks(&segments);
                pool["Name"] = format!("{number} - ({first}, {second})").into();
                pool
            });
            let pools: Vec<Value> = pools.collect();
            if !pools.is_empty() {
                customs.insert(memory_type, pools.into());
            }
        }
        let dump = json!({
            "General": {
                "API": "Vulkan",
                "apiVersion": "1.0.0",
                "GPU": device.name,
                "deviceType": 0,
                "memoryHeapCount": heaps.len(),
                "memoryTypeCount": heaps.len(),
            },
            "Total": Statistics::of(self.segments.iter()).json(),
            "MemoryInfo": info,
            "DefaultPools": defaults,
            "CustomPools": customs,
        });
        serde_json::to_writer_pretty(&mut out, &dump).map_err(|error| SnapshotError::Write(error.into()))?;
        out.write_all(b"\n").and_then(|()| out.flush()).map_err(SnapshotError::Write)?;
        Ok(out)
    }
}

/// Returns the private pool of a segment.
fn pool(segment: &Segment) -> Option<(u64, u64)> {
    segment.segment_pool_id.filter(|pool| *pool != (0, 0))
}

fn heap_info(device: &VmaDevice, memory_type: &str, segments: &[&Segment]) -> Value {
    let statistics = Statistics::of(segments.iter().copied());
    let reserved = statistics.block_bytes;
    let size = device.heap_bytes.unwrap_or(reserved);
    json!({
        "Flags": ["DEVICE_LOCAL"],
        "Size": size,
        "Budget": { "BudgetBytes": size, "UsageBytes": reserved },
        "Stats": statistics.json(),
        "MemoryPools": { memory_type: { "Flags": ["DEVICE_LOCAL"], "Stats": statistics.json() } },
    })
}

/// Returns a pool with these segments as its blocks.
fn blocks(segments: &[&Segment]) -> Value {
    let preferred = segments.iter().map(|segment| segment.total_size).max().unwrap_or(0);
    let blocks = segments.iter().enumerate().map(|(number, segment)| (number.to_string(), block(segment)));
    json!({
        "PreferredBlockSize": preferred,
        "Blocks": blocks.collect::<Map<_, _>>(),
        "DedicatedAllocations": [],
    })
}

fn block(segment: &Segment) -> Value {
    let statistics = Statistics::of([segment].into_iter());
    let parts = segment.blocks.iter().map(|block| {
        let offset = block.address.saturating_sub(segment.address);
        if is_free(block) {
            return json!({ "Offset": offset, "Type": "FREE", "Size": block.size });
        }
        let mut part = json!({ "Offset": offset, "Type": "BUFFER", "Size": block.size, "Usage": 0 });
        if !block.frames.frames().is_empty() {
            part["Name"] = block.frames.site(1).into();
        }
        part
    });
    json!({
        "TotalBytes": segment.total_size,
        "UnusedBytes": segment.total_size.saturating_sub(statistics.allocation_bytes),
        "Allocations": statistics.allocations,
        "UnusedRanges": statistics.unused_ranges,
        "Suballocations": parts.collect::<Vec<_>>(),
    })
}

fn is_free(block: &Block) -> bool {
    block.state == State::Inactive
}

impl Statistics {
    fn of<'a>(segments: impl Iterator<Item = &'a Segment>) -> Self {
        let mut all = Self::default();
        let range = |known: Option<(u64, u64)>, bytes: u64| {
            let (least, most) = known.unwrap_or((bytes, bytes));
            Some((least.min(bytes), most.max(bytes)))
        };
        for segment in segments {
            all.blocks += 1;
            all.block_bytes = all.block_bytes.saturating_add(segment.total_size);
            for block in &segment.blocks {
                if is_free(block) {
                    all.unused_ranges += 1;
                    all.unused_sizes = range(all.unused_sizes, block.size);
                } else {
                    all.allocations += 1;
                    all.allocation_bytes = all.allocation_bytes.saturating_add(block.size);
                    all.allocation_sizes = range(all.allocation_sizes, block.size);
                }
            }
        }
        all
    }

    /// Returns them as VMA prints them: the smallest and the largest only where there are two at least.
    fn json(&self) -> Value {
        let mut json = json!({
            "BlockCount": self.blocks,
            "BlockBytes": self.block_bytes,
            "AllocationCount": self.allocations,
            "AllocationBytes": self.allocation_bytes,
            "UnusedRangeCount": self.unused_ranges,
        });
        for (count, sizes, name) in [
            (self.allocations, self.allocation_sizes, "AllocationSize"),
            (self.unused_ranges, self.unused_sizes, "UnusedRangeSize"),
        ] {
            if let Some((least, most)) = sizes.filter(|_| count > 1) {
                json[format!("{name}Min")] = least.into();
                json[format!("{name}Max")] = most.into();
            }
        }
        json
    }
}
