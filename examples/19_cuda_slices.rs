//! Slices of Millpond as arguments of cudarc: a reduction compiled by NVRTC, on two streams, and a product of matrices
//! by cuBLAS.
//!
//! Run it with `cargo run --release -p millpond-examples --features cublas --example 19_cuda_slices`. It needs NVIDIA's
//! driver, NVRTC and cuBLAS, and says so where they are missing. `--policy direct|classic|paged` chooses where memory
//! comes from. Under `compute-sanitizer --tool memcheck` use `direct`, where every slice is an allocation of the
//! driver's.

use std::env;
use std::sync::Arc;

use millpond::Allocator;
use millpond::backend::Backend;
use millpond_cuda::{Cuda, SliceAllocator};
use millpond_examples::cuda_slices::Sum;
use millpond_examples::engine::Result;
use millpond_examples::present;

const COUNT: usize = 1_000_003;
const ROUNDS: usize = 4;

fn main() -> Result<()> {
    let mut policy = "auto".to_owned();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--policy" => policy = arguments.next().ok_or("--policy wants direct, classic or paged")?,
            other => return Err(format!("'{other}' is not --policy").into()),
        }
    }
    run(&policy)
}

fn run(policy: &str) -> Result<()> {
    let Some(cuda) = present::cuda()? else { return Ok(()) };
    if !present::cuda_kernels(&cuda)? {
        return Ok(());
    }
    println!("on {}", cuda.caps().name);
    // What an application has already: a context and streams of cudarc's.
    let context = Arc::clone(cuda.context());
    let (own, other) = (context.new_stream()?, context.new_stream()?);
    let sum = Sum::new(&cuda)?;
    drop(cuda);

    let cuda = Cuda::adopt(context)?;
    let allocator = Allocator::builder(cuda).conf(&format!("policy:{policy}")).build()?;
    let slices = SliceAllocator::new(&allocator);
    let home = slices.stream(&own)?;

    let numbers: Vec<f32> = (0..COUNT).map(|at| (at % 7) as f32).collect();
    let expected: f64 = numbers.iter().copied().map(f64::from).sum();
    for round in 0..ROUNDS {
        let from = home.upload(&numbers)?;
        // One round in two runs on another stream, whose use of the slices is noted with the arguments.
        let total = if round % 2 == 0 { sum.on_home(&home, &from)? } else { sum.on(&home, &other, &from)? };
        // The sum is queued, and later slices get the memory once it is done.
        drop(from);
        let clobber = home.zeros::<f32>(COUNT)?;
        let found = f64::from(own.clone_dtoh(&total)?[0]);
        if (found - expected).abs() > expected * 1e-3 {
            return Err(format!("round {round}: the sum is {found}, not {expected}").into());
        }
        drop(clobber);
    }
    println!("{COUNT} numbers were added up in {ROUNDS} rounds, on two streams");
    product(&home)?;
    own.synchronize()?;
    other.synchronize()?;
    drop((home, slices));
    allocator.empty_cache()?;
    match allocator.memory_reserved() {
        0 => Ok(()),
        bytes => Err(format!("{bytes} bytes were not given back").into()),
    }
}

#[cfg(feature = "cublas")]
use millpond_examples::cuda_slices::product;

#[cfg(not(feature = "cublas"))]
fn product(_home: &millpond_cuda::SliceStream) -> Result<()> {
    println!("SKIPPED: the product of matrices needs the feature cublas");
    Ok(())
}

#[test]
fn runs_under_every_policy() {
    for policy in ["direct", "classic", "paged"] {
        run(policy).unwrap();
    }
}
