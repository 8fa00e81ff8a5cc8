//! Training in mixed precision: activations of 16 bits, weights of 32, and a scale that keeps small gradients apart
//! from zero.
//!
//! Half-sized tensors are nothing special to an allocator: the bytes of a tensor are what it asks for, and a step's
//! activations and gradients are freed as soon as nothing needs them. The network ([`Trainer`]) is written once, over
//! the kernels of [`engine`](crate::engine), whose sources are `training.wgsl` for Vulkan and wgpu, and [`host`] for
//! the simulated device.

pub mod host;
mod scaler;
mod trainer;

pub use scaler::Scaler;
pub use trainer::{Batch, Trainer};

/// The numbers that activations and their gradients are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// 32 bits.
    Full,
    /// 16 bits: half of the bytes. Weights, their gradients and all sums keep 32.
    Mixed,
}

/// What a training kernel is told: sizes, how its matrices lie, and a factor. On the device it is five words.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Task {
    /// Rows of the result.
    pub rows: u32,
    /// The length of the sums of a product.
    pub inner: u32,
    /// Columns of the result, an even number.
    pub columns: u32,
    /// The flags below.
    pub flags: u32,
    /// What `grade` and `descend` multiply with.
    pub factor: f32,
}

impl Task {
    /// The first matrix has numbers of 16 bits.
    pub const A_HALF: u32 = 1;
    /// The second matrix has numbers of 16 bits.
    pub const B_HALF: u32 = 2;
    /// The result has numbers of 16 bits.
    pub const C_HALF: u32 = 4;
    /// The first matrix of a product is turned on its diagonal.
    pub const A_TURNED: u32 = 8;
    /// The second matrix of a product is turned on its diagonal.
    pub const B_TURNED: u32 = 16;
    /// Negative results of a product become 0.
    pub const RELU: u32 = 32;

    /// Returns the words that the device reads.
    pub fn words(&self) -> [u32; 5] {
        [self.rows, self.inner, self.columns, self.flags, self.factor.to_bits()]
    }

    /// Returns the task that has these words.
    pub fn of_words(words: [u32; 5]) -> Task {
        let [rows, inner, columns, flags, factor] = words;
        Task { rows, inner, columns, flags, factor: f32::from_bits(factor) }
    }

    /// Returns whether a flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}
