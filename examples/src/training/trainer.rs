//! A perceptron that is trained, with its weights, activations and gradients in Millpond.

use bytemuck::cast_slice;
use millpond::backend::Backend;
use millpond::{Buffer, Stream};

use super::{Precision, Scaler, Task};
use crate::engine::{Bound, Kernel, Kernels, Model, Result, Session};

/// A batch: the inputs and what the network should make of them, each row by row.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The inputs.
    pub inputs: &'a [f32],
    /// The outputs that are wanted.
    pub targets: &'a [f32],
    /// What the error of the batch counts.
    pub weight: f32,
}

/// A matrix on the device.
struct Matrix<B: Backend> {
    buffer: Buffer<B>,
    rows: u32,
    columns: u32,
    is_half: bool,
}

/// A network of fully connected layers with rectifiers between them, whose squared error is brought down by gradient
/// descent.
pub struct Trainer<K: Kernels> {
    session: Session<K>,
    stream: Stream<K::Backend>,
    weights: Vec<Matrix<K::Backend>>,
    precision: Precision,
    scaler: Scaler,
}

impl<K: Kernels> Trainer<K> {
    /// Uploads the weights of a model; its biases and activations are not used. `scaler` is what the loss is scaled by.
    ///
    /// # Errors
    ///
    /// Returns the errors of the allocator and of the device.
    pub fn new(session: Session<K>, model: &Model, precision: Precision, scaler: Scaler) -> Result<Trainer<K>> {
        let stream = session.allocator().create_stream()?;
        let weights = model.layers.iter().map(|layer| {
            let buffer = stream.allocate_labelled("weights", size_of_val(&layer.weights[..]) as u64)?;
            stream.upload(&buffer, 0, cast_slice(&layer.weights))?;
            Ok(Matrix { buffer, rows: layer.inner, columns: layer.columns, is_half: false })
        });
        let weights = weights.collect::<Result<_>>()?;
        Ok(Trainer { session, stream, weights, precision, scaler })
    }

    /// Returns the engine, for its allocator.
    pub fn session(&self) -> &Session<K> {
        &self.session
    }

    /// Returns the scale of the loss and the steps that were left out.
    pub fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    /// Trains on a batch. Returns the mean squared error of the network as it was before.
    ///
    /// # Errors
    ///
    /// Returns the errors of the allocator and of the device.
    pub fn step(&mut self, batch: Batch<'_>, rate: f32) -> Result<f64> {
        let inputs = self.upload(batch.inputs, self.weights[0].rows)?;
        let targets = self.upload(batch.targets, self.weights[self.weights.len() - 1].columns)?;

        // Forward: the activations stay, because the gradients need them.
        let halves = self.halves()?;
        let mut activations = vec![self.cast(inputs)?];
        for (layer, weights) in self.used(&halves).enumerate() {
            let relu = if layer + 1 < self.weights.len() { Task::RELU } else { 0 };
            let next = self.product((&activations[layer], 0), (weights, 0), relu, self.is_mixed(), "activations")?;
            activations.push(next);
        }
        let outputs = activations.pop().ok_or("the network has no layers")?;

        // Backward: each activation is freed as soon as its gradients are queued.
        let factor = 2.0 * batch.weight * self.scaler.scale() / batch.targets.len() as f32;
        let mut gradient = self.grade(&outputs, &targets, factor)?;
        let mut steps = Vec::new();
        for (layer, weights) in self.used(&halves).enumerate().collect::<Vec<_>>().into_iter().rev() {
            let below = activations.pop().ok_or("every layer has an input")?;
            let turned = (&below, Task::A_TURNED);
            steps.push((layer, self.product(turned, (&gradient, 0), 0, false, "gradients of weights")?));
            if layer > 0 {
                let wanted =
                    self.product((&gradient, 0), (weights, Task::B_TURNED), 0, self.is_mixed(), "gradients")?;
                gradient = self.mask(wanted, &below)?;
            }
        }

        let overflowed = self.overflowed(&steps)?;
        if !overflowed {
            for (layer, gradient) in &steps {
                self.descend(&self.weights[*layer], gradient, rate / self.scaler.scale())?;
            }
        }
        self.scaler.update(overflowed);
        self.error(&outputs, batch.targets)
    }

    fn is_mixed(&self) -> bool {
        self.precision == Precision::Mixed
    }

    /// Returns copies of the weights in 16 bits, where those are what the products read.
    fn halves(&self) -> Result<Vec<Matrix<K::Backend>>> {
        let mixed = self.weights.iter().filter(|_| self.is_mixed());
        mixed.map(|weights| self.convert(weights, "weights of 16 bits")).collect()
    }

    /// Returns the weights that the products read.
    fn used<'a>(&'a self, halves: &'a [Matrix<K::Backend>]) -> impl Iterator<Item = &'a Matrix<K::Backend>> {
        if self.is_mixed() { halves.iter() } else { self.weights.iter() }
    }

    fn matrix(&self, rows: u32, columns: u32, is_half: bool, label: &str) -> Result<Matrix<K::Backend>> {
        let bytes = u64::from(rows) * u64::from(columns) * if is_half { 2 } else { 4 };
        Ok(Matrix { buffer: self.stream.allocate_labelled(label, bytes)?, rows, columns, is_half })
    }

    fn upload(&self, values: &[f32], columns: u32) -> Result<Matrix<K::Backend>> {
        let matrix = self.matrix(u32::try_from(values.len())? / columns, columns, false, "batch")?;
        self.stream.upload(&matrix.buffer, 0, cast_slice(values))?;
        Ok(matrix)
    }

    /// Returns a batch in the precision of activations.
    fn cast(&self, batch: Matrix<K::Backend>) -> Result<Matrix<K::Backend>> {
        if self.is_mixed() { self.convert(&batch, "activations") } else { Ok(batch) }
    }

    fn convert(&self, from: &Matrix<K::Backend>, label: &str) -> Result<Matrix<K::Backend>> {
        let half = self.matrix(from.rows, from.columns, true, label)?;
        self.launch(Kernel::Convert, from, from, &half, (0, 0, 0.0))?;
        Ok(half)
    }

    fn product(
        &self,
        (a, a_flag): (&Matrix<K::Backend>, u32),
        (b, b_flag): (&Matrix<K::Backend>, u32),
        relu: u32,
        is_half: bool,
        label: &str,
    ) -> Result<Matrix<K::Backend>> {
        let (rows, inner) = if a_flag == 0 { (a.rows, a.columns) } else { (a.columns, a.rows) };
        let columns = if b_flag == 0 { b.columns } else { b.rows };
        let result = self.matrix(rows, columns, is_half, label)?;
        self.launch(Kernel::Product, a, b, &result, (inner, a_flag | b_flag | relu, 0.0))?;
        Ok(result)
    }

    fn grade(
        &self,
        outputs: &Matrix<K::Backend>,
        targets: &Matrix<K::Backend>,
        factor: f32,
    ) -> Result<Matrix<K::Backend>> {
        let gradient = self.matrix(outputs.rows, outputs.columns, self.is_mixed(), "gradients")?;
        self.launch(Kernel::Grade, outputs, targets, &gradient, (0, 0, factor))?;
        Ok(gradient)
    }

    fn mask(&self, gradient: Matrix<K::Backend>, activation: &Matrix<K::Backend>) -> Result<Matrix<K::Backend>> {
        let masked = self.matrix(gradient.rows, gradient.columns, gradient.is_half, "gradients")?;
        self.launch(Kernel::Mask, &gradient, activation, &masked, (0, 0, 0.0))?;
        Ok(masked)
    }

    fn descend(&self, weights: &Matrix<K::Backend>, gradient: &Matrix<K::Backend>, factor: f32) -> Result<()> {
        self.launch(Kernel::Descend, gradient, gradient, weights, (0, 0, factor))
    }

    /// Returns whether a gradient is infinite. In full precision nothing is asked: it would wait for the device.
    fn overflowed(&self, steps: &[(usize, Matrix<K::Backend>)]) -> Result<bool> {
        if !self.is_mixed() {
            return Ok(false);
        }
        let flag = Matrix { buffer: self.stream.allocate_labelled("flag", 4)?, rows: 1, columns: 1, is_half: false };
        self.stream.upload(&flag.buffer, 0, &[0; 4])?;
        for (_, gradient) in steps {
            let task = Task { rows: gradient.rows, inner: 0, columns: gradient.columns, flags: 0, factor: 0.0 };
            self.dispatch(Kernel::Inspect, [gradient, gradient, &flag], &task)?;
        }
        let mut word = [0; 4];
        self.stream.download(&flag.buffer, 0, &mut word)?;
        Ok(word != [0; 4])
    }

    /// Returns the mean of the squared differences between the outputs and what was wanted.
    fn error(&self, outputs: &Matrix<K::Backend>, targets: &[f32]) -> Result<f64> {
        let mut bytes = vec![0; usize::try_from(outputs.buffer.len())?];
        self.stream.download(&outputs.buffer, 0, &mut bytes)?;
        let outputs: Vec<f32> = match outputs.is_half {
            true => cast_slice::<_, half::f16>(&bytes).iter().map(|value| value.to_f32()).collect(),
            false => cast_slice(&bytes).to_vec(),
        };
        let squares = outputs.iter().zip(targets).map(|(&got, &wanted)| (f64::from(got) - f64::from(wanted)).powi(2));
        Ok(squares.sum::<f64>() / targets.len() as f64)
    }

    fn launch(
        &self,
        kernel: Kernel,
        a: &Matrix<K::Backend>,
        b: &Matrix<K::Backend>,
        c: &Matrix<K::Backend>,
        (inner, flags, factor): (u32, u32, f32),
    ) -> Result<()> {
        let halves = [(a, Task::A_HALF), (b, Task::B_HALF), (c, Task::C_HALF)];
        let halves = halves.iter().filter(|(matrix, _)| matrix.is_half).fold(0, |all, (_, flag)| all | flag);
        let task = Task { rows: c.rows, inner, columns: c.columns, flags: flags | halves, factor };
        self.dispatch(kernel, [a, b, c], &task)
    }

    fn dispatch(&self, kernel: Kernel, [a, b, c]: [&Matrix<K::Backend>; 3], task: &Task) -> Result<()> {
        let words = self.session.upload(&self.stream, &task.words())?;
        let bound = Bound { first: &a.buffer, second: &b.buffer, result: &c.buffer, shape: &words };
        self.session.dispatch(&self.stream, kernel, &bound, [task.columns.div_ceil(32), task.rows.div_ceil(16)])
    }
}
