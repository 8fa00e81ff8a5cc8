//! The trial program on cudarc: `trial-cudarc [NUMBER]`, where the number is the device's ordinal.

mod engine;

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, DriverError, sys};
use engine::{Pool, Result, download, download_async};
use sys::CUmemPool_attribute as Attribute;

/// The elements of a batch, 1 MiB of them.
const BATCH: usize = 1 << 18;
const BATCHES: usize = 32;
const THREADS: u32 = 4;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let index = std::env::args().nth(1).map_or(Ok(0), |index| index.parse())?;
    let context = CudaContext::new(index)?;
    let pool = Pool::of(&context)?;
    println!("device: {}", context.name()?);
    typed(&context)?;
    let mut state = streams(&context)?;
    pollster::block_on(awaited(&context, &mut state))?;
    drop(state);
    threads(&context)?;
    out_of_memory(&context)?;
    context.synchronize()?;
    Ok(statistics(&pool)?)
}

/// Numbers of two types there and back.
fn typed(context: &Arc<CudaContext>) -> Result<()> {
    let stream = context.new_stream()?;
    let whole: Vec<u32> = (0..1000).collect();
    let halves: Vec<f32> = whole.iter().map(|&number| number as f32 / 2.0).collect();
    let (first, second) = (stream.clone_htod(&whole)?, stream.clone_htod(&halves)?);
    assert_eq!((download(&stream, &first)?, download(&stream, &second)?), (whole, halves));
    println!("typed: 1000 u32 and 1000 f32 came back as they were");
    Ok(())
}

/// One stream loads batches, another takes each of them in; a batch is dropped while both still work on it.
fn streams(context: &Arc<CudaContext>) -> Result<CudaSlice<f32>> {
    let (loads, computes) = (context.new_stream()?, context.new_stream()?);
    let mut state = computes.alloc_zeros::<f32>(BATCH)?;
    for step in 0..BATCHES {
        let batch = loads.clone_htod(&vec![step as f32; BATCH])?;
        computes.memcpy_dtod(&batch, &mut state)?;
    }
    let last = download(&computes, &state)?;
    assert!(last.iter().all(|&number| number == (BATCHES - 1) as f32));
    println!("streams: {BATCHES} batches of 1 MiB went through two streams, the last one is there");
    Ok(state)
}

/// Two downloads are on their way at once, and what comes is what was there when they were asked for.
async fn awaited(context: &Arc<CudaContext>, state: &mut CudaSlice<f32>) -> Result<()> {
    let stream = context.new_stream()?;
    let half = BATCH / 2;
    let (first, second) = (download_async(&stream, state, 0..half)?, download_async(&stream, state, half..BATCH)?);
    stream.memset_zeros(state)?;
    stream.synchronize()?;
    let sum = |numbers: Vec<f32>| numbers.into_iter().map(f64::from).sum::<f64>();
    let sum = sum(first.await?) + sum(second.await?);
    assert_eq!(sum, (BATCH * (BATCHES - 1)) as f64);
    println!("awaited: two halves came, their sum is {sum}");
    Ok(())
}

/// Each thread has a stream of its own.
fn threads(context: &Arc<CudaContext>) -> Result<()> {
    let work = |thread: u32| -> Result<()> {
        let stream = context.new_stream()?;
        for step in 0..25 {
            let numbers = vec![thread * 100 + step; 1 << 14];
            let buffer = stream.clone_htod(&numbers)?;
            assert_eq!(download(&stream, &buffer)?, numbers);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
    })?;
    println!("threads: {THREADS} threads made 25 buffers each");
    Ok(())
}

/// What is too much is refused, and the program goes on.
fn out_of_memory(context: &Arc<CudaContext>) -> Result<()> {
    let stream = context.new_stream()?;
    match stream.alloc_zeros::<u8>(1 << 40) {
        Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => println!("out of memory: 1 TiB was refused"),
        other => panic!("1 TiB was not refused: {:?}", other.map(|_| ())),
    }
    assert_eq!(download(&stream, &stream.clone_htod(&[7_u8; 64])?)?, [7; 64]);
    Ok(())
}

/// What is live, what was live at most, what is reserved of the driver for that. How often is not told.
fn statistics(pool: &Pool) -> Result<()> {
    let live = pool.bytes(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    assert_eq!(live, 0);
    println!(
        "statistics: {} KiB live, {} at most, {} reserved",
        live >> 10,
        pool.bytes(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)? >> 10,
        pool.bytes(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)? >> 10
    );
    Ok(())
}
