//! The kernels of training on the host, for the simulated device. They compute what `training.wgsl` does.

use half::f16;

use super::Task;
use crate::engine::{Kernel, Result};

/// A matrix in the bytes of a buffer.
struct Numbers<'a> {
    bytes: &'a [u8],
    is_half: bool,
}

impl Numbers<'_> {
    fn at(&self, at: u32) -> f32 {
        let at = at as usize;
        if self.is_half {
            f16::from_le_bytes([self.bytes[2 * at], self.bytes[2 * at + 1]]).to_f32()
        } else {
            f32::from_le_bytes([0, 1, 2, 3].map(|byte| self.bytes[4 * at + byte]))
        }
    }
}

/// Runs a kernel over the bytes of its matrices, the last of which it changes.
///
/// # Errors
///
/// Returns an error for a kernel that is not one of training.
pub fn run(kernel: Kernel, a: &[u8], b: &[u8], c: &mut [u8], task: &Task) -> Result<()> {
    let first = Numbers { bytes: a, is_half: task.has(Task::A_HALF) };
    let second = Numbers { bytes: b, is_half: task.has(Task::B_HALF) };
    for row in 0..task.rows {
        for column in 0..task.columns {
            let at = row * task.columns + column;
            let value = match kernel {
                Kernel::Product => product(&first, &second, task, (row, column)),
                Kernel::Grade => task.factor * (first.at(at) - second.at(at)),
                Kernel::Mask if second.at(at) > 0.0 => first.at(at),
                Kernel::Mask => 0.0,
                Kernel::Convert => first.at(at),
                Kernel::Descend => Numbers { bytes: c, is_half: false }.at(at) - task.factor * first.at(at),
                Kernel::Inspect => {
                    if !first.at(at).is_finite() {
                        c[..4].copy_from_slice(&1_u32.to_le_bytes());
                    }
                    continue;
                }
                Kernel::Matmul | Kernel::Activate => return Err(format!("{kernel:?} trains nothing").into()),
            };
            put(c, at as usize, value, task.has(Task::C_HALF));
        }
    }
    Ok(())
}

fn product(a: &Numbers<'_>, b: &Numbers<'_>, task: &Task, (row, column): (u32, u32)) -> f32 {
    let mut sum = 0.0;
    for k in 0..task.inner {
        let x = a.at(if task.has(Task::A_TURNED) { k * task.rows + row } else { row * task.inner + k });
        let y = b.at(if task.has(Task::B_TURNED) { column * task.inner + k } else { k * task.columns + column });
        sum += x * y;
    }
    if task.has(Task::RELU) { sum.max(0.0) } else { sum }
}

fn put(c: &mut [u8], at: usize, value: f32, is_half: bool) {
    if is_half {
        c[2 * at..2 * at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
    } else {
        c[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
    }
}
