//! The promise across devices: recorded programs and seeded ones lead to the same decisions, layouts and statistics on
//! the simulated device and on every real one, byte for byte.
//!
//! Traces are scaled down to what the smallest real device can serve, as the real devices here may be in software.

use std::path::Path;

use millpond::backend::Caps;
use millpond::settings::Policy;
use millpond_conformance::sameness::{DECIDED_ALIKE, Program, divisor, reference, trail};
use millpond_conformance::{DeviceUnderTest, Outcome, VulkanDevice, WgpuDevice, caps_or_skip};
use millpond_trace::Trace;
use millpond_wgpu::Wgpu;

const TRACES: [&str; 7] =
    ["bert_multistream", "gnn", "gpt2_train", "llm_generate", "prefetch", "resnet50_amp", "serving_kv"];
/// The number of events of each trace; `millpond sameness` compares whole traces.
const EVENTS: usize = 40_000;
/// Each opens the device anew.
const SEEDS: u64 = 100;

fn read(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/traces").join(format!("{name}.trace.gz"));
    let mut trace = Trace::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    // A part of a trace from its start is a trace.
    trace.events.truncate(EVENTS);
    trace
}

/// Compares a program on the device with the same on its reference. Policies that the device cannot serve are left out.
/// Returns the number of policies that were compared.
fn compare<D: DeviceUnderTest>(name: &str, device: &D, caps: &Caps, program: &Program<'_>) -> usize {
    let served = |policy: &&Policy| caps.pages.is_some() || !policy.needs_pages();
    DECIDED_ALIKE
        .iter()
        .filter(served)
        .map(|&policy| {
            let run = |outcome: Result<_, Outcome>| {
                outcome.unwrap_or_else(|outcome| panic!("{name}, {}: {outcome}", policy.variant_name()))
            };
            let here = run(trail(device, policy, program));
            let there = run(trail(&reference(caps), policy, program));
            if let Some(difference) = here.difference(&there) {
                panic!("{name}, {}, on {}: {difference}", policy.variant_name(), device.name());
            }
            assert_eq!(here.digest(), there.digest(), "{name}, {}", policy.variant_name());
        })
        .count()
}

fn traces_agree<D: DeviceUnderTest>(device: &D) {
    let Some(caps) = caps_or_skip(device) else { return };
    for trace_name in TRACES {
        let trace = read(trace_name);
        let scaled = trace.scaled_down(divisor(&trace, [&caps]));
        assert!(compare(trace_name, device, &caps, &Program::Trace(&scaled)) > 0);
    }
}

fn seeds_agree<D: DeviceUnderTest>(device: &D) {
    let Some(caps) = caps_or_skip(device) else { return };
    for seed in 0..SEEDS {
        assert!(compare(&format!("seed {seed}"), device, &caps, &Program::Seed(seed)) > 0);
    }
}

#[test]
fn traces_on_vulkan() {
    traces_agree(&VulkanDevice::new(0));
}

#[test]
fn seeds_on_vulkan() {
    seeds_agree(&VulkanDevice::new(0));
}

fn wgpu() -> WgpuDevice {
    WgpuDevice::new("the first adapter", Wgpu::builder().adapter(0))
}

#[test]
fn traces_on_wgpu() {
    traces_agree(&wgpu());
}

#[test]
fn seeds_on_wgpu() {
    seeds_agree(&wgpu());
}
