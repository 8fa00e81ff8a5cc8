//! The cases on a device, and their goals.

use crate::case::Unit;
use crate::workload::Pattern;

/// A goal of a measurement. It is not tested: it is only printed beside the result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// Passes that find their memory cached: the peer takes at least this multiple of the time of this allocator's
    /// default.
    Warm(f64, &'static str),
    /// From an empty cache through the first pass: the peer takes at least this multiple of the time.
    Cold(f64, &'static str),
    /// With this number of threads, at least this multiple of the peer's throughput.
    Threads(usize, f64, &'static str),
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct GpuCase {
    /// Its name: words between slashes, from the general to the particular.
    pub name: &'static str,
    /// The operations, of each thread if there are several.
    pub pattern: Pattern,
    /// The unit of the times.
    pub unit: Unit,
    /// Whether several threads run at once, each on a stream of its own.
    pub threaded: bool,
    /// The goals.
    pub goals: &'static [Goal],
}

/// PyTorch's allocator with its default settings.
pub const TORCH: &str = "torch";

/// PyTorch's allocator with expandable segments.
pub const TORCH_EXPANDABLE: &str = "torch-expandable";

/// The peer that calls the driver for every operation, which is why it gets shorter lists.
pub const SLOW: &str = "cudaMalloc";

/// The number of operations of each list that a slow peer gets.
pub const SLOW_OPERATIONS: usize = 200;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const fn hit(name: &'static str, bytes: u64) -> GpuCase {
    let goals = &[Goal::Warm(8.0, TORCH)];
    GpuCase { name, pattern: Pattern::Hit { bytes }, unit: Unit::Pair, threaded: false, goals }
}

const fn churn(name: &'static str, live: u32, max_bytes: u64) -> GpuCase {
    let pattern = Pattern::Churn { live, max_bytes };
    GpuCase { name, pattern, unit: Unit::Operation, threaded: false, goals: &[] }
}

const fn trace(name: &'static str, trace: &'static str) -> GpuCase {
    let goals = &[Goal::Warm(8.0, TORCH), Goal::Cold(1.0, TORCH_EXPANDABLE)];
    GpuCase { name, pattern: Pattern::Trace(trace), unit: Unit::Operation, threaded: false, goals }
}

const fn threads(name: &'static str, pattern: Pattern) -> GpuCase {
    let goals = &[Goal::Threads(16, 50.0, TORCH)];
    GpuCase { name, pattern, unit: Unit::Operation, threaded: true, goals }
}

/// All cases.
pub const GPU_CASES: &[GpuCase] = &[
    hit("hit/4KiB", 4 * KIB),
    hit("hit/1MiB", MIB),
    hit("hit/32MiB", 32 * MIB),
    churn("churn/1000/1MiB", 1000, MIB),
    churn("churn/1000/64MiB", 1000, 64 * MIB),
    churn("churn/10000/4MiB", 10_000, 4 * MIB),
    trace("trace/bert_multistream", "bert_multistream"),
    trace("trace/gnn", "gnn"),
    trace("trace/gpt2_train", "gpt2_train"),
    trace("trace/llm_generate", "llm_generate"),
    trace("trace/prefetch", "prefetch"),
    trace("trace/resnet50_amp", "resnet50_amp"),
    trace("trace/serving_kv", "serving_kv"),
    threads("threads/hit/1MiB", Pattern::Hit { bytes: MIB }),
    threads("threads/churn/64/4MiB", Pattern::Churn { live: 64, max_bytes: 4 * MIB }),
    threads("threads/churn/1000/1MiB", Pattern::Churn { live: 1000, max_bytes: MIB }),
];
