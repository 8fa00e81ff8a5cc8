//! The kernels on the host, whose results the devices' results are compared with.

use super::{Activation, Model, Shape};

/// Returns what [`Kernel::Matmul`](super::Kernel::Matmul) computes. Sums are kept in twice the precision.
pub(super) fn matmul(first: &[f32], second: &[f32], shape: &Shape) -> Vec<f32> {
    let (inner, columns) = (shape.inner as usize, shape.columns as usize);
    let mut result = Vec::with_capacity(shape.rows as usize * columns);
    for row in first.chunks_exact(inner) {
        let mut sums = vec![0.0_f64; columns];
        for (&value, weights) in row.iter().zip(second.chunks_exact(columns)) {
            for (sum, &weight) in sums.iter_mut().zip(weights) {
                *sum += f64::from(value) * f64::from(weight);
            }
        }
        result.extend(sums.into_iter().map(|sum| sum as f32));
    }
    result
}

/// Returns what [`Kernel::Activate`](super::Kernel::Activate) computes.
pub(super) fn activate(first: &[f32], bias: &[f32], activation: Activation) -> Vec<f32> {
    first.iter().zip(bias.iter().cycle()).map(|(&sum, &bias)| apply(activation, sum + bias)).collect()
}

fn apply(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()),
    }
}

/// Computes the whole model on the host and returns its output.
pub fn reference(model: &Model, input: &[f32]) -> Vec<f32> {
    model.layers.iter().fold(input.to_vec(), |values, layer| {
        let rows = (values.len() / layer.inner as usize) as u32;
        let shape = Shape { rows, inner: layer.inner, columns: layer.columns, activation: layer.activation };
        activate(&matmul(&values, &layer.weights, &shape), &layer.bias, layer.activation)
    })
}
