//! The cases on a device, and what is hoped for.

use crate::case::Unit;
use crate::workload::Pattern;

/// What is hoped for. Never a test: it is printed beside what was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// Passes that find their memory cached: the peer takes at least so many times what this allocator's default does.
    Warm(f64, &'static str),
    /// From an empty cache through the first pass: the same.
    Cold(f64, &'static str),
    /// With so many threads: at least so many times the peer's throughput.
    Threads(usize, f64, &'static str),
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct GpuCase {
    /// Its name: words between slashes, from the general to the particular.
    pub name: &'static str,
    /// What is asked, of each thread if there are several.
    pub pattern: Pattern,
    /// Per what the times are given.
    pub unit: Unit,
    /// Several threads at once, each on a stream of its own.
    pub threaded: bool,
    /// What is hoped for.
    pub goals: &'static [Goal],
}

/// PyTorch's allocator as it comes.
pub const TORCH: &str = "torch";

/// PyTorch's allocator with expandable segments.
pub const TORCH_EXPANDABLE: &str = "torch-expandable";

/// A driver call for everything: the one peer that is asked for few operations.
pub const SLOW: &str = "cudaMalloc";

/// So many operations of each list are asked of a slow peer.
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
    threads("threads/churn/1000/1MiB", Pattern::Churn { live: 1000, max_bytes: MIB }),
];
