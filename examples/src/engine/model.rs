//! A perceptron of several layers, in host memory.

use millpond_trace::Random;

use super::reference;

/// The function that a layer applies to its sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// No function.
    None = 0,
    /// The rectifier: negative values become 0.
    Relu = 1,
    /// The Gaussian error linear unit, by its usual approximation with the hyperbolic tangent.
    Gelu = 2,
}

/// A fully connected layer. Matrices lie row by row.
#[derive(Clone, Debug)]
pub struct Dense {
    /// The number of input values for each row of the batch.
    pub inner: u32,
    /// The number of output values for each row of the batch.
    pub columns: u32,
    /// `inner` rows of `columns` weights.
    pub weights: Vec<f32>,
    /// One value for each column.
    pub bias: Vec<f32>,
    /// The function that is applied last.
    pub activation: Activation,
}

/// Layers, each of which takes the output of the one before.
#[derive(Clone, Debug)]
pub struct Model {
    /// The layers in the order of computation.
    pub layers: Vec<Dense>,
}

impl Model {
    /// Creates a model with these numbers of values between its layers: GELU and ReLU in turn, and no activation at the
    /// end. The weights are arbitrary, the same for the same widths, and scaled so that values keep their size although
    /// activations cut off half of them.
    ///
    /// # Panics
    ///
    /// If there are fewer than two widths, which make no layer.
    pub fn new(widths: &[u32]) -> Model {
        assert!(widths.len() >= 2, "{} widths make no layer", widths.len());
        let last = widths.len() - 2;
        let layers = widths.windows(2).enumerate().map(|(index, pair)| {
            let (inner, columns) = (pair[0], pair[1]);
            let scale = (6.0 / inner as f32).sqrt();
            let seed = 2 * index as u64;
            Dense {
                inner,
                columns,
                weights: sample(seed, inner as usize * columns as usize).map(|value| value * scale).collect(),
                bias: sample(seed + 1, columns as usize).map(|value| value / 8.0).collect(),
                activation: match index {
                    _ if index == last => Activation::None,
                    _ if index % 2 == 0 => Activation::Gelu,
                    _ => Activation::Relu,
                },
            }
        });
        Model { layers: layers.collect() }
    }

    /// Returns the number of input values for each row of the batch.
    pub fn inputs(&self) -> u32 {
        self.layers.first().map_or(0, |layer| layer.inner)
    }

    /// Returns the number of bytes that the weights and biases take on a device.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| 4 * (layer.weights.len() + layer.bias.len()) as u64).sum()
    }
}

/// The model and the batches that the examples compute: many layers, and tensors between them that are much larger than
/// the weights. No size is a multiple of a tile.
#[derive(Clone, Debug)]
pub struct Example {
    /// The model.
    pub model: Model,
    /// Rows of each batch.
    pub rows: u32,
}

impl Example {
    /// Creates the example, which is always the same.
    pub fn new() -> Example {
        Example { model: Model::new(&[29, 31, 31, 31, 31, 31, 31, 31, 31, 10]), rows: 2999 }
    }

    /// Returns the input of a step.
    pub fn batch(&self, step: u64) -> Vec<f32> {
        sample(1000 + step, self.rows as usize * self.model.inputs() as usize).collect()
    }

    /// Returns the expected output of a step, computed on the host.
    pub fn expected(&self, step: u64) -> Vec<f32> {
        reference(&self.model, &self.batch(step))
    }
}

impl Default for Example {
    fn default() -> Example {
        Example::new()
    }
}

/// Returns arbitrary values from -1 to 1, the same for the same seed.
pub fn sample(seed: u64, count: usize) -> impl Iterator<Item = f32> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| (random.bits() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0)
}

/// Returns the largest difference between values of two results, or infinity if they differ in length or one is no
/// number.
pub fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    if one.len() != other.len() {
        return f32::INFINITY;
    }
    let differences = one.iter().zip(other).map(|(one, other)| (one - other).abs());
    differences.fold(0.0, |largest, each| if each.is_nan() { f32::INFINITY } else { largest.max(each) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_depend_on_the_input() {
        let example = Example::new();
        assert!(largest_difference(&example.expected(0), &example.expected(1)) > 0.5);
        assert_eq!(example.expected(0).len(), example.rows as usize * 10);
    }

    #[test]
    fn what_is_no_result_is_infinitely_different() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
        assert_eq!(largest_difference(&[1.0], &[1.0, 2.0]), f32::INFINITY);
        assert_eq!(largest_difference(&[f32::NAN], &[1.0]), f32::INFINITY);
    }
}
