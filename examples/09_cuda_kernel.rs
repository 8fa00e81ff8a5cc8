//! A kernel of an engine's own on CUDA, compiled by NVRTC, with buffers of Millpond as its arguments.
//!
//! Run it with `cargo run --release -p millpond-examples --example 09_cuda_kernel`. It needs NVIDIA's driver and NVRTC,
//! and says so where they are missing. Its options show how a memory checker reacts to a mistake:
//!
//! - `--policy direct|classic|paged` chooses where memory comes from;
//! - `--plant-oob` has the kernel write one number behind the end of its result.
//!
//! Under NVIDIA's `compute-sanitizer --tool memcheck` the planted mistake is found with `direct`, where every buffer is
//! an allocation of the driver's. With the others it hits memory that the pool holds, and is not detected. The sizes of
//! the buffers are multiples of 512 bytes: other sizes are rounded up to that, and what lies behind their length would
//! still be part of the block.

use std::env;

use bytemuck::{cast_slice, cast_slice_mut};
use millpond::backend::Backend;
use millpond::{Allocator, Buffer, Stream};
use millpond_cuda::Cuda;
use millpond_examples::cuda_kernel::Saxpy;
use millpond_examples::engine::Result;
use millpond_examples::present;

/// A buffer of this number of values does not end at the end of a page: what lies behind it belongs to no buffer.
const COUNT: usize = 128 * 7813;
const A: f32 = 0.5;

fn main() -> Result<()> {
    let (mut policy, mut oob) = ("auto".to_owned(), false);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--policy" => policy = arguments.next().ok_or("--policy wants direct, classic or paged")?,
            "--plant-oob" => oob = true,
            other => return Err(format!("'{other}' is neither --policy nor --plant-oob").into()),
        }
    }
    run(&policy, oob)
}

fn run(policy: &str, oob: bool) -> Result<()> {
    let Some(cuda) = present::cuda()? else { return Ok(()) };
    if !present::cuda_kernels(&cuda)? {
        return Ok(());
    }
    println!("on {}", cuda.caps().name);
    let saxpy = Saxpy::new(&cuda)?;

    // The engine's own stream is registered with Millpond, and the engine goes on using it.
    let own = cuda.context().new_stream()?;
    let lane = cuda.register(&own)?;
    let allocator = Allocator::builder(cuda).conf(&format!("policy:{policy}")).build()?;
    let stream = allocator.stream(lane)?;

    let x: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..COUNT).map(|i| 1.0 - i as f32 / 4.0).collect();
    let (x_there, y_there) = (upload(&stream, &x)?, upload(&stream, &y)?);
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| A.mul_add(*x, *y)).collect();
    for round in 0..3 {
        // Every round's result is freed as soon as it is read, and the next one gets its memory, where memory is
        // cached.
        let out = stream.allocate((COUNT * size_of::<f32>()) as u64)?;
        stream.fill(&out, 0, out.len(), 0xff)?;
        saxpy.launch(&own, A, (&x_there, &y_there), &out, oob)?;
        let mut result = vec![0.0_f32; COUNT];
        stream.download(&out, 0, cast_slice_mut(&mut result))?;
        if let Some(at) = (0..COUNT).find(|&at| result[at] != expected[at]) {
            return Err(format!("round {round}: number {at} is {}, not {}", result[at], expected[at]).into());
        }
    }
    drop((x_there, y_there));
    stream.synchronize()?;
    println!("{COUNT} numbers are right in 3 rounds; the driver was asked {} times", allocator.driver_activity().calls);
    allocator.empty_cache()?;
    match allocator.memory_reserved() {
        0 => Ok(()),
        bytes => Err(format!("{bytes} bytes were not given back").into()),
    }
}

fn upload(stream: &Stream<Cuda>, numbers: &[f32]) -> Result<Buffer<Cuda>> {
    let buffer = stream.allocate(size_of_val(numbers) as u64)?;
    stream.upload(&buffer, 0, cast_slice(numbers))?;
    Ok(buffer)
}

#[test]
fn runs_under_every_policy() {
    for policy in ["direct", "classic", "paged"] {
        run(policy, false).unwrap();
    }
}
