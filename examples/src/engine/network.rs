//! The model on a device: weights that stay, and activations that are allocated and freed with each pass.

use millpond::{Buffer, Stream};

use super::{Bound, Kernel, Kernels, Model, Result, Session, Shape};

/// A [`Model`] whose weights are on the device, for batches of a certain number of rows.
pub struct Network<K: Kernels> {
    layers: Vec<Layer<K>>,
}

struct Layer<K: Kernels> {
    shape: Shape,
    weights: Buffer<K::Backend>,
    bias: Buffer<K::Backend>,
    shape_words: Buffer<K::Backend>,
}

impl<K: Kernels> Network<K> {
    /// Uploads the model, in the order of the stream on which it is to be used.
    ///
    /// # Errors
    ///
    /// Returns the errors of the allocator and of the device.
    pub fn new(session: &Session<K>, stream: &Stream<K::Backend>, model: &Model, rows: u32) -> Result<Network<K>> {
        let layers = model.layers.iter().map(|layer| {
            let shape = Shape { rows, inner: layer.inner, columns: layer.columns, activation: layer.activation };
            Ok(Layer {
                shape,
                weights: session.upload(stream, &layer.weights)?,
                bias: session.upload(stream, &layer.bias)?,
                shape_words: session.upload(stream, &shape.words())?,
            })
        });
        Ok(Network { layers: layers.collect::<Result<_>>()? })
    }

    /// Records the forward pass on the stream and returns the buffer that will hold the result. Neither blocks nor
    /// submits.
    ///
    /// Each layer allocates two tensors and drops two. The next layer gets the memory of those dropped, although the
    /// device has not begun with this one: on a stream, later work comes after earlier work.
    ///
    /// # Errors
    ///
    /// Returns the errors of the allocator and of the device.
    pub fn forward(
        &self,
        session: &Session<K>,
        stream: &Stream<K::Backend>,
        input: Buffer<K::Backend>,
    ) -> Result<Buffer<K::Backend>> {
        let mut values = input;
        for layer in &self.layers {
            let bytes = 4 * u64::from(layer.shape.rows) * u64::from(layer.shape.columns);
            let sums = stream.allocate(bytes)?;
            let bound = Bound { first: &values, second: &layer.weights, result: &sums, shape: &layer.shape_words };
            session.launch(stream, Kernel::Matmul, &layer.shape, &bound)?;
            drop(values);
            let next = stream.allocate(bytes)?;
            let bound = Bound { first: &sums, second: &layer.bias, result: &next, shape: &layer.shape_words };
            session.launch(stream, Kernel::Activate, &layer.shape, &bound)?;
            values = next;
        }
        Ok(values)
    }
}
