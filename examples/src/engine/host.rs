//! The kernels on the simulated device: the host computes them, over the device's bytes.

use bytemuck::{cast_slice, cast_slice_mut};
use millpond::{Buffer, Stream};
use millpond_sim::Sim;

use super::{Activation, Bound, Kernel, Kernels, Result, Shape, cpu};
use crate::training::{self, Task};

/// The simulated device with the engine's kernels. It needs no GPU, and it detects work that touches memory too early
/// ([`Sim::violations`]).
#[derive(Clone, Debug)]
pub struct OnHost {
    sim: Sim,
}

impl OnHost {
    /// Creates a device that stores real bytes.
    pub fn new() -> OnHost {
        OnHost { sim: Sim::new() }
    }

    /// Returns the device.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }
}

impl Default for OnHost {
    fn default() -> OnHost {
        OnHost::new()
    }
}

impl Kernels for OnHost {
    type Backend = Sim;

    fn device(&self) -> Sim {
        self.sim.clone()
    }

    fn dispatch(&self, stream: &Stream<Sim>, kernel: Kernel, bound: &Bound<'_, Sim>, groups: [u32; 2]) -> Result<()> {
        let compute: fn(&[f32], &[f32], &Shape) -> Vec<f32> = match kernel {
            Kernel::Matmul => cpu::matmul,
            Kernel::Activate => |first, second, shape| cpu::activate(first, second, shape.activation),
            training => return train(stream, training, bound),
        };
        let shape = shape(&words(stream, bound.shape)?)?;
        if groups != shape.groups() {
            return Err(format!("{groups:?} workgroups do not cover {shape:?}").into());
        }
        let (first, second) = (words(stream, bound.first)?, words(stream, bound.second)?);
        stream.upload(bound.result, 0, cast_slice(&compute(&first, &second, &shape)))?;
        Ok(())
    }
}

/// Runs a kernel of training.
fn train(stream: &Stream<Sim>, kernel: Kernel, bound: &Bound<'_, Sim>) -> Result<()> {
    let words: Vec<u32> = words(stream, bound.shape)?;
    let task = Task::of_words(words.try_into().map_err(|_| "a task has five words")?);
    let [a, b, mut c] = [bytes(stream, bound.first)?, bytes(stream, bound.second)?, bytes(stream, bound.result)?];
    training::host::run(kernel, &a, &b, &mut c, &task)?;
    stream.upload(bound.result, 0, &c)?;
    Ok(())
}

fn bytes(stream: &Stream<Sim>, buffer: &Buffer<Sim>) -> Result<Vec<u8>> {
    words(stream, buffer)
}

fn words<T: bytemuck::Pod>(stream: &Stream<Sim>, buffer: &Buffer<Sim>) -> Result<Vec<T>> {
    let mut words = vec![T::zeroed(); buffer.len() as usize / size_of::<T>()];
    stream.download(buffer, 0, cast_slice_mut(&mut words))?;
    Ok(words)
}

fn shape(words: &[u32]) -> Result<Shape> {
    let &[rows, inner, columns, activation] = words else {
        return Err(format!("a shape has 4 words, and {} are bound", words.len()).into());
    };
    let known = [Activation::None, Activation::Relu, Activation::Gelu];
    let activation = known.into_iter().find(|each| *each as u32 == activation);
    let activation = activation.ok_or("the shape names no activation: its memory was overwritten")?;
    Ok(Shape { rows, inner, columns, activation })
}
