//! The training: the same steps whatever serves the memory, and what they took.

use std::time::{Duration, Instant};

use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::Device;
use cubecl::cuda::CudaDevice;

use crate::model::{Model, Size, batch};
use crate::rows;

/// Lengths are multiples of it, as those of padded batches are.
const PADDING: u64 = 8;

/// What one training was like.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The loss of each step.
    pub losses: Vec<f32>,
    /// The time of each step.
    pub times: Vec<Duration>,
    /// The most bytes that CubeCL was seen to have reserved, as it reports.
    pub pooled: u64,
    /// The most bytes of the device that all processes were seen to use.
    pub used: u64,
}

impl Outcome {
    fn look(&mut self, device: &Device, ordinal: usize) {
        self.pooled = self.pooled.max(device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved));
        self.used = self.used.max(rows::used_bytes(ordinal).unwrap_or(0));
    }
}

/// Trains for this number of steps, each with a batch of another length.
pub fn train(ordinal: usize, pools: bool, size: &Size, count: usize) -> Outcome {
    let device = CudaDevice::new(ordinal);
    let client = cubecl::Device::Cuda(device.clone()).client();
    let device = Device::from(device);
    if pools {
        return steps(&device, ordinal, size, count);
    }
    // Each tensor of this window is an allocation of its own, and goes back once it is freed.
    client.memory_dedicated_allocation((), |()| steps(&device, ordinal, size, count))
}

fn steps(inner: &Device, ordinal: usize, size: &Size, count: usize) -> Outcome {
    let device = inner.clone().autodiff();
    device.seed(7);
    let mut model = Model::new(size, &device);
    let mut optimizer = AdamWConfig::new().init();
    let longest = size.lengths.iter().copied().max().unwrap_or(1) as u64;
    let (mut outcome, mut state) = (Outcome::default(), 1_u64);
    for step in 0..count {
        let length = match step {
            // Both ends come early, so that most kernels are compiled before the times count.
            0 => longest,
            1 => PADDING,
            _ => PADDING * (1 + (state >> 33) % (longest / PADDING)),
        };
        let begin = Instant::now();
        let (inputs, targets) = batch(size, length as usize, &mut state, &device);
        let loss = model.loss(inputs, targets);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // Here CubeCL holds the most. To ask for it takes time, which the steps whose times count do not spend.
        if step < count / 2 {
            outcome.look(inner, ordinal);
        }
        model = optimizer.step(1e-4, model, gradients);
        outcome.losses.push(loss.into_scalar::<f32>());
        outcome.times.push(begin.elapsed());
        eprintln!("step {}: length {length}, {:?}", step + 1, begin.elapsed());
        outcome.look(inner, ordinal);
    }
    outcome
}
