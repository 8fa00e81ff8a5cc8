//! The training: the same steps on every device, and what they took.

use std::time::{Duration, Instant};

use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Device;
use cubecl::wgpu::WgpuDevice;
use millpond_lent::Lent;

use crate::device::Pools;
use crate::model::{Model, Size, batch};

/// What one training was like.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The loss of each step.
    pub losses: Vec<f32>,
    /// The time of each step.
    pub times: Vec<Duration>,
    /// The calls that made or released memory, up to the end of each pass over the lengths: buffers that wgpu made, or
    /// Millpond's driver calls.
    pub calls: Vec<u64>,
    /// The most bytes that CubeCL had reserved at the end of a step, as it reports.
    pub pooled: u64,
}

/// Trains for this number of passes over the lengths.
pub fn train(device: &WgpuDevice, lent: Option<&Lent>, pools: Pools, size: &Size, passes: usize) -> Outcome {
    let client = cubecl::Device::Wgpu(device.clone()).client();
    let device = Device::from(device.clone());
    match pools {
        Pools::Adaptive | Pools::Exclusive => steps(&device, lent, size, passes),
        // All that is allocated in this window is a buffer of its own, and goes back once it is freed.
        Pools::Off => client.memory_dedicated_allocation((), |()| steps(&device, lent, size, passes)),
    }
}

fn steps(inner: &Device, lent: Option<&Lent>, size: &Size, passes: usize) -> Outcome {
    let device = inner.clone().autodiff();
    device.seed(7);
    let mut model = Model::new(size, &device);
    let mut optimizer = AdamConfig::new().init();
    let (mut outcome, mut state) = (Outcome::default(), 1_u64);
    for _ in 0..passes {
        for length in size.lengths {
            let begin = Instant::now();
            let (inputs, targets) = batch(size, *length, &mut state, &device);
            let loss = model.loss(inputs, targets);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(1e-3, model, gradients);
            outcome.losses.push(loss.into_scalar::<f32>());
            outcome.times.push(begin.elapsed());
            eprintln!("step {}: length {length}, {:?}", outcome.times.len(), begin.elapsed());
            let usage = inner.memory_pool_usage();
            outcome.pooled = outcome.pooled.max(usage.map_or(0, |usage| usage.bytes_reserved));
        }
        outcome.calls.push(lent.map_or(0, calls));
    }
    outcome
}

fn calls(lent: &Lent) -> u64 {
    match lent.allocator() {
        Some(allocator) => allocator.driver_activity().calls,
        None => lent.counts().created,
    }
}
