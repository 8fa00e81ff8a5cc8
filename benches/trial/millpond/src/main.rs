//! The trial program on Millpond: `trial-millpond [DEVICE]`, where the device is `sim`, `vulkan:0`, `wgpu:0` or
//! `cuda:0`, as far as they are built in. Without a device it takes the first GPU, or else the simulated device.

use millpond_any::{AnyAllocator, AnyError, AnyTypedBuffer, ErrorKind, open, open_best};

/// The elements of a batch, 1 MiB of them.
const BATCH: usize = 1 << 18;
const BATCHES: usize = 32;
const THREADS: u32 = 4;

fn main() -> Result<(), AnyError> {
    let allocator = match std::env::args().nth(1) {
        Some(name) => open(&name, "")?,
        None => open_best("")?.allocator,
    };
    println!("device: {}", allocator.backend().caps().name);
    typed(&allocator)?;
    let state = streams(&allocator)?;
    pollster::block_on(awaited(&allocator, &state))?;
    drop(state);
    threads(&allocator)?;
    out_of_memory(&allocator)?;
    statistics(&allocator);
    Ok(())
}

/// Numbers of two types there and back.
fn typed(allocator: &AnyAllocator) -> Result<(), AnyError> {
    let stream = allocator.create_stream()?;
    let whole: Vec<u32> = (0..1000).collect();
    let halves: Vec<f32> = whole.iter().map(|&number| number as f32 / 2.0).collect();
    let (first, second) = (stream.allocate_from(&whole)?, stream.allocate_from(&halves)?);
    assert_eq!((stream.download_vec(&first)?, stream.download_vec(&second)?), (whole, halves));
    println!("typed: 1000 u32 and 1000 f32 came back as they were");
    Ok(())
}

/// One stream loads batches, another takes each of them in; a batch is dropped while both still work on it.
fn streams(allocator: &AnyAllocator) -> Result<AnyTypedBuffer<f32>, AnyError> {
    let (loads, computes) = (allocator.create_stream()?, allocator.create_stream()?);
    let state = computes.allocate_elements::<f32>(BATCH as u64)?;
    computes.clear_elements(&state)?;
    for step in 0..BATCHES {
        let batch = loads.allocate_from(&vec![step as f32; BATCH])?;
        computes.wait_for(loads.submit()?)?;
        computes.copy_elements(&batch, &state)?;
        batch.buffer().used_until(computes.submit()?)?;
    }
    let last = computes.download_vec(&state)?;
    assert!(last.iter().all(|&number| number == (BATCHES - 1) as f32));
    println!("streams: {BATCHES} batches of 1 MiB went through two streams, the last one is there");
    Ok(state)
}

/// Two downloads are on their way at once, and what comes is what was there when they were asked for.
async fn awaited(allocator: &AnyAllocator, state: &AnyTypedBuffer<f32>) -> Result<(), AnyError> {
    let stream = allocator.create_stream()?;
    let half = BATCH as u64 / 2;
    let (first, second) = (state.slice(..half)?, state.slice(half..)?);
    let (first, second) = (stream.download_async(&first)?, stream.download_async(&second)?);
    stream.clear_elements(state)?;
    stream.synchronize()?;
    let sum = |numbers: Vec<f32>| numbers.into_iter().map(f64::from).sum::<f64>();
    let sum = sum(first.await?) + sum(second.await?);
    assert_eq!(sum, (BATCH * (BATCHES - 1)) as f64);
    println!("awaited: two halves came, their sum is {sum}");
    Ok(())
}

/// Each thread has a stream of its own.
fn threads(allocator: &AnyAllocator) -> Result<(), AnyError> {
    let work = |thread: u32| -> Result<(), AnyError> {
        let stream = allocator.create_stream()?;
        for step in 0..25 {
            let numbers = vec![thread * 100 + step; 1 << 14];
            let buffer = stream.allocate_from(&numbers)?;
            assert_eq!(stream.download_vec(&buffer)?, numbers);
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
fn out_of_memory(allocator: &AnyAllocator) -> Result<(), AnyError> {
    let stream = allocator.create_stream()?;
    match stream.allocate_elements::<u8>(1 << 40) {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => println!("out of memory: 1 TiB was refused"),
        other => panic!("1 TiB was not refused: {other:?}"),
    }
    assert_eq!(stream.download_vec(&stream.allocate_from(&[7_u8; 64])?)?, [7; 64]);
    Ok(())
}

/// What is live, what was live at most, what is reserved of the driver for that.
fn statistics(allocator: &AnyAllocator) {
    let stats = allocator.stats();
    assert_eq!(allocator.memory_allocated(), 0);
    println!(
        "statistics: {} KiB live, {} at most, {} reserved, {} allocations of the driver",
        allocator.memory_allocated() >> 10,
        allocator.max_memory_allocated() >> 10,
        allocator.memory_reserved() >> 10,
        stats.num_device_alloc
    );
}
