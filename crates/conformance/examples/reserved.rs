//! Programs of real shape on the devices of this machine: what each has reserved for what it has live, by policy.
//!
//! `reserved [DEVICE...]`, with the devices `sim`, `cuda:0`, `vulkan:0`, `wgpu` and so on; all that are built in unless
//! some are named; `all` is every kind of simulated device. The first figure of a cell is what was reserved over what
//! was live, the second over what was live or kept for the device; `!` marks one beyond its bound.
//!
//! `cargo run -p millpond-conformance --features cuda,vulkan,wgpu --example reserved -- cuda:0 vulkan:0`

use millpond_backend::{Closing, Reuse};
use millpond_conformance::reserved::{Measured, NAMES, measure};
use millpond_conformance::scenario::POLICIES;
use millpond_conformance::{DeviceUnderTest, Outcome, SimDevice};
use millpond_sim::Completion;

fn table<D: DeviceUnderTest>(device: &D) {
    println!("{}", device.name());
    print!("{:22}", "");
    POLICIES.iter().for_each(|policy| print!("{:>14}", policy.variant_name()));
    println!();
    let mut notes = Vec::new();
    for (name, in_flight) in NAMES.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        print!("{:22}", format!("{name}{}", if in_flight { ", in flight" } else { "" }));
        for policy in POLICIES {
            match measure(device, name, policy, in_flight) {
                Ok(Measured { most, bound }) => {
                    let mark = if most.active_ratio() > bound { "!" } else { " " };
                    print!("{:>14}", format!("{:.2} {:.2}{mark}", most.ratio(), most.active_ratio()));
                }
                Err(outcome) => {
                    let word = if matches!(outcome, Outcome::Skipped(_)) { "skipped" } else { "FAILED" };
                    print!("{word:>14}");
                    notes.push(format!("{name}/{}: {outcome}", policy.variant_name()));
                }
            }
        }
        println!();
    }
    notes.dedup();
    notes.iter().for_each(|note| println!("  {note}"));
    println!();
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| named.is_empty() || named.iter().any(|named| named == name);
    if is_wanted("sim") {
        for closing in [Closing::Backend, Closing::Submit] {
            table(&SimDevice::new(closing, Reuse::InOrder, Completion::Manual));
        }
    }
    if named.iter().any(|named| named == "all") {
        SimDevice::all().iter().for_each(table);
    }
    #[cfg(feature = "cuda")]
    (0..8)
        .filter(|at| is_wanted(&format!("cuda:{at}")))
        .for_each(|at| table(&millpond_conformance::CudaDevice::new(at)));
    #[cfg(feature = "vulkan")]
    (0..8)
        .filter(|at| is_wanted(&format!("vulkan:{at}")))
        .for_each(|at| table(&millpond_conformance::VulkanDevice::new(at)));
    #[cfg(feature = "wgpu")]
    if is_wanted("wgpu") {
        table(&millpond_conformance::WgpuDevice::new("by default", millpond_wgpu::Wgpu::builder()));
    }
}
