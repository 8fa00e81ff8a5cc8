//! The trial program on wgpu: `trial-wgpu [NUMBER]`, where the number is the adapter's place in wgpu's list.

mod engine;

use std::sync::Arc;

use engine::{Buffer, Engine, Error, Result, Stream};

/// The elements of a batch, 1 MiB of them.
const BATCH: usize = 1 << 18;
const BATCHES: usize = 32;
const THREADS: u32 = 4;

fn main() -> std::result::Result<(), String> {
    run().map_err(|error| error.to_string())
}

fn run() -> Result<()> {
    let index = std::env::args().nth(1).map_or(Ok(0), |index| index.parse());
    let engine = Engine::open(index.map_err(|_| Error::Other("the device is a number".into()))?)?;
    println!("device: {}", engine.name());
    typed(&engine)?;
    let state = streams(&engine)?;
    pollster::block_on(awaited(&engine, &state))?;
    drop(state);
    threads(&engine)?;
    out_of_memory(&engine)?;
    statistics(&engine)
}

/// Numbers of two types there and back.
fn typed(engine: &Arc<Engine>) -> Result<()> {
    let stream = Stream::new(engine);
    let whole: Vec<u32> = (0..1000).collect();
    let halves: Vec<f32> = whole.iter().map(|&number| number as f32 / 2.0).collect();
    let (first, second) = (stream.allocate_from(&whole)?, stream.allocate_from(&halves)?);
    assert_eq!((stream.download(&first)?, stream.download(&second)?), (whole, halves));
    println!("typed: 1000 u32 and 1000 f32 came back as they were");
    Ok(())
}

/// One stream loads batches, another takes each of them in; a batch is dropped while both still work on it.
fn streams(engine: &Arc<Engine>) -> Result<Buffer<f32>> {
    let (loads, computes) = (Stream::new(engine), Stream::new(engine));
    let state = computes.allocate::<f32>(BATCH)?;
    computes.clear(&state);
    for step in 0..BATCHES {
        let batch = loads.allocate_from(&vec![step as f32; BATCH])?;
        loads.submit();
        computes.copy(&batch, &state);
        computes.submit();
    }
    let last = computes.download(&state)?;
    assert!(last.iter().all(|&number| number == (BATCHES - 1) as f32));
    println!("streams: {BATCHES} batches of 1 MiB went through two streams, the last one is there");
    Ok(state)
}

/// Two downloads are on their way at once, and what comes is what was there when they were asked for.
async fn awaited(engine: &Arc<Engine>, state: &Buffer<f32>) -> Result<()> {
    let stream = Stream::new(engine);
    let half = BATCH / 2;
    let (first, second) = (stream.download_async(state, 0..half)?, stream.download_async(state, half..BATCH)?);
    stream.clear(state);
    stream.synchronize()?;
    let sum = |numbers: Vec<f32>| numbers.into_iter().map(f64::from).sum::<f64>();
    let sum = sum(first.await?) + sum(second.await?);
    assert_eq!(sum, (BATCH * (BATCHES - 1)) as f64);
    println!("awaited: two halves came, their sum is {sum}");
    Ok(())
}

/// Each thread has a stream of its own.
fn threads(engine: &Arc<Engine>) -> Result<()> {
    let work = |thread: u32| -> Result<()> {
        let stream = Stream::new(engine);
        for step in 0..25 {
            let numbers = vec![thread * 100 + step; 1 << 14];
            let buffer = stream.allocate_from(&numbers)?;
            assert_eq!(stream.download(&buffer)?, numbers);
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
fn out_of_memory(engine: &Arc<Engine>) -> Result<()> {
    let stream = Stream::new(engine);
    match stream.allocate::<u8>(1 << 40) {
        Err(Error::OutOfMemory) => println!("out of memory: 1 TiB was refused"),
        other => panic!("1 TiB was not refused: {:?}", other.map(|_| ())),
    }
    assert_eq!(stream.download(&stream.allocate_from(&[7_u8; 64])?)?, [7; 64]);
    Ok(())
}

/// What is live, what was live at most, what wgpu has of the driver for that, where it says so.
fn statistics(engine: &Engine) -> Result<()> {
    let (live, peak) = engine.live();
    let (reserved, pieces) = engine.reserved().ok_or_else(|| Error::Other("wgpu does not tell".into()))?;
    assert_eq!(live, 0);
    println!(
        "statistics: {} KiB live, {} at most, {} reserved, {pieces} allocations of the driver",
        live >> 10,
        peak >> 10,
        reserved >> 10
    );
    Ok(())
}
