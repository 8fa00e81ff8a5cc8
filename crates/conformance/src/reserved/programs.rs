//! The programs.

use std::collections::VecDeque;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use millpond::{Buffer, Pool, Stream};
use millpond_trace::Random;

use super::scene::{Ended, Scene};
use crate::device::DeviceUnderTest;
use crate::session::Stop;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

type Buffers<D> = Vec<Buffer<<D as DeviceUnderTest>::Backend>>;

/// Allocates weights as a model has them: some large ones, and with each a small one.
fn weights<D: DeviceUnderTest>(
    scene: &Scene<'_, D>,
    stream: &Stream<D::Backend>,
    layers: usize,
) -> Result<Buffers<D>, Stop> {
    let sizes = [9 * MIB, 36 * KIB, 3 * MIB, 6 * KIB];
    (0..layers * sizes.len()).map(|at| scene.allocate(stream, sizes[at % sizes.len()])).collect()
}

/// A loop with a copy stream: inputs are uploaded some steps ahead, compute waits for them, and they are freed while it
/// works on them.
pub(super) fn copy_stream<D: DeviceUnderTest>(scene: &Scene<'_, D>) -> Result<Ended<D>, Stop> {
    let input = |random: &mut Random| [KIB, random.between(16, 48) * KIB, random.between(2, 6) * 512 * KIB];
    feed(scene, input, [8 * MIB, 700 * KIB, 8 * KIB])
}

/// The same without any small request.
pub(super) fn prefetch<D: DeviceUnderTest>(scene: &Scene<'_, D>) -> Result<Ended<D>, Stop> {
    let input = |random: &mut Random| [(); 3].map(|()| random.between(9, 24) * 128 * KIB);
    feed(scene, input, [8 * MIB, 3 * MIB, 2 * MIB])
}

fn feed<D: DeviceUnderTest>(
    scene: &Scene<'_, D>,
    sizes_of: fn(&mut Random) -> [u64; 3],
    activations: [u64; 3],
) -> Result<Ended<D>, Stop> {
    const AHEAD: usize = 2;
    let (compute, copy) = (scene.stream()?, scene.stream()?);
    let weights = weights(scene, &compute, 14)?;
    let mut random = Random::new(1);
    let mut inputs = VecDeque::new();
    for step in 0..240 {
        scene.begin_step(step, &[&compute]);
        while inputs.len() <= AHEAD {
            let input = sizes_of(&mut random).map(|bytes| scene.allocate(&copy, bytes));
            inputs.push_back(input.into_iter().collect::<Result<Buffers<D>, _>>()?);
        }
        let input = inputs.pop_front().unwrap_or_default();
        scene.order(&compute, &copy)?;
        input.iter().try_for_each(|buffer| scene.use_on(&compute, buffer))?;
        let activations = activations.map(|bytes| scene.allocate(&compute, bytes));
        scene.submit(&compute)?;
        drop((input, activations));
        scene.end_step(step, &[&compute, &copy])?;
    }
    drop((weights, inputs));
    Ok(vec![compute, copy])
}

/// A sequence of the engine below.
struct Sequence<D: DeviceUnderTest> {
    tokens: u64,
    end: u64,
    pieces: Buffers<D>,
}

/// An engine with a KV cache: sequences are admitted as long as the cache has room, each grows by a piece now and then,
/// and the one that came last is preempted when the room ends. Prompts are uploaded on a copy stream, and what each
/// step finds is downloaded there.
pub(super) fn kv_engine<D: DeviceUnderTest>(scene: &Scene<'_, D>) -> Result<Ended<D>, Stop> {
    /// The tokens and the bytes of a piece, and the number of pieces that the cache has room for.
    const PIECE: (u64, u64, usize) = (16, MIB, 96);
    let (compute, copy) = (scene.stream()?, scene.stream()?);
    let weights = weights(scene, &compute, 7)?;
    let mut random = Random::new(2);
    let mut running: Vec<Sequence<D>> = Vec::new();
    let mut preempted = VecDeque::new();
    let pieces_of = |tokens: u64| tokens.div_ceil(PIECE.0) as usize;
    for step in 0..320 {
        scene.begin_step(step, &[&compute]);
        let used = |running: &[Sequence<D>]| running.iter().map(|sequence| sequence.pieces.len()).sum::<usize>();
        if random.one_in(2) || running.is_empty() {
            let fresh = || (random.between(8, 160), random.between(20, 200));
            let (tokens, more) = preempted.pop_front().unwrap_or_else(fresh);
            if used(&running) + pieces_of(tokens) < PIECE.2 {
                let prompt = scene.allocate(&copy, tokens * 8)?;
                scene.order(&compute, &copy)?;
                let pieces: Buffers<D> =
                    (0..pieces_of(tokens)).map(|_| scene.allocate(&compute, PIECE.1)).collect::<Result<_, _>>()?;
                scene.use_on(&compute, &prompt)?;
                running.push(Sequence { tokens, end: tokens + more, pieces });
            } else {
                preempted.push_front((tokens, more));
            }
        }
        let mut at = 0;
        while at < running.len() {
            running[at].tokens += 1;
            if pieces_of(running[at].tokens) > running[at].pieces.len() {
                while used(&running) >= PIECE.2 {
                    let Some(last) = running.pop() else { break };
                    preempted.push_back((last.tokens, last.end - last.tokens));
                }
                if let Some(sequence) = running.get_mut(at) {
                    sequence.pieces.push(scene.allocate(&compute, PIECE.1)?);
                }
            }
            at += 1;
        }
        running.retain(|sequence| sequence.tokens < sequence.end);
        let workspace = scene.allocate(&compute, (1 + running.len() as u64) * 96 * KIB)?;
        let sampled = scene.allocate(&compute, 4 * running.len().max(1) as u64)?;
        scene.order(&copy, &compute)?;
        scene.use_on(&copy, &sampled)?;
        drop((workspace, sampled));
        scene.submit(&copy)?;
        scene.end_step(step, &[&compute, &copy])?;
    }
    drop((weights, running));
    Ok(vec![compute, copy])
}

/// A pipeline: each stage has a stream, what one stage makes the next one uses, and each stage keeps its own until the
/// micro-batch comes back.
pub(super) fn pipeline<D: DeviceUnderTest>(scene: &Scene<'_, D>) -> Result<Ended<D>, Stop> {
    const STAGES: usize = 4;
    const BATCHES: usize = 6;
    let stages: Vec<_> = (0..STAGES).map(|_| scene.stream()).collect::<Result<_, _>>()?;
    let weights: Vec<Buffers<D>> = stages.iter().map(|stage| weights(scene, stage, 3)).collect::<Result<_, _>>()?;
    let mut random = Random::new(3);
    let all: Vec<_> = stages.iter().collect();
    let mut steps = 0..;
    for _ in 0..16 {
        let mut kept: Vec<Buffers<D>> = Vec::new();
        for step in steps.by_ref().take(BATCHES) {
            scene.begin_step(step, &all);
            let mut batch: Buffers<D> = Vec::new();
            for (at, stage) in stages.iter().enumerate() {
                if let Some(before) = batch.last() {
                    scene.order(stage, &stages[at - 1])?;
                    scene.use_on(stage, before)?;
                }
                let scratch = scene.allocate(stage, random.between(2, 16) * 128 * KIB)?;
                let facts = scene.allocate(stage, 2 * KIB)?;
                batch.push(scene.allocate(stage, random.between(16, 32) * 128 * KIB)?);
                drop((scratch, facts));
                scene.submit(stage)?;
            }
            kept.push(batch);
            scene.end_step(step, &all)?;
        }
        for (step, mut batch) in steps.by_ref().zip(kept) {
            scene.begin_step(step, &all);
            let mut later: Option<Buffer<D::Backend>> = None;
            for (at, stage) in stages.iter().enumerate().rev() {
                if let Some(gradient) = later.take() {
                    scene.order(stage, &stages[at + 1])?;
                    scene.use_on(stage, &gradient)?;
                }
                let activation = batch.pop();
                later = Some(scene.allocate(stage, 1280 * KIB)?);
                drop(activation);
                scene.submit(stage)?;
            }
            scene.end_step(step, &all)?;
        }
    }
    drop(weights);
    Ok(stages)
}

/// Epochs that make their streams anew, beside weights that stay: a loader's stream and two for compute.
pub(super) fn epochs<D: DeviceUnderTest>(scene: &Scene<'_, D>) -> Result<Ended<D>, Stop> {
    const EPOCHS: usize = 12;
    let main = scene.stream()?;
    let weights = weights(scene, &main, 10)?;
    let mut random = Random::new(4);
    for _ in 0..EPOCHS {
        let (loader, one, two) = (scene.stream()?, scene.stream()?, scene.stream()?);
        [&one, &two].into_iter().try_for_each(|stream| scene.order(stream, &main))?;
        for step in 0..16 {
            scene.begin_step(step, &[&one, &two]);
            let stream = [&one, &two][step % 2];
            let input = scene.allocate(&loader, random.between(4, 32) * 256 * KIB)?;
            let labels = scene.allocate(&loader, KIB)?;
            scene.order(stream, &loader)?;
            scene.use_on(stream, &input)?;
            scene.use_on(stream, &labels)?;
            let activations = [24 * MIB, 5 * MIB, 900 * KIB, 24 * KIB].map(|bytes| scene.allocate(stream, bytes));
            drop((input, labels, activations));
            scene.submit(stream)?;
            scene.end_step(step, &[&loader, &one, &two])?;
        }
        scene.order(&main, &one)?;
        scene.order(&main, &two)?;
    }
    drop(weights);
    Ok(vec![main])
}

/// Private pools made and dropped, as graphs are captured anew whenever shapes change: a few live at a time, each with
/// memory that a graph keeps and memory that its capture frees again. What a dropped one had is given back, as PyTorch
/// does.
pub(super) fn pools<D: DeviceUnderTest>(scene: &Scene<'_, D>) -> Result<Ended<D>, Stop> {
    const ALIVE: usize = 3;
    let stream = scene.stream()?;
    let weights = weights(scene, &stream, 6)?;
    let mut random = Random::new(5);
    let mut graphs = VecDeque::new();
    let failed = |what: &'static str| move |error| Stop::Fail(format!("{what}: {error}"));
    for step in 0..40 {
        scene.begin_step(step, &[&stream]);
        if graphs.len() == ALIVE
            && let Some((kept, graph, pool)) = graphs.pop_front()
        {
            let (_, _, id): (Buffers<D>, Stream<D::Backend>, _) = (kept, graph, Pool::id(&pool));
            drop(pool);
            // Where submits close ticks, what was freed can go only behind one.
            scene.drain(&[&stream])?;
            scene.allocator.empty_cache_of(id).map_err(failed("empty_cache_of"))?;
        }
        let pool = scene.allocator.create_pool().map_err(failed("create_pool"))?;
        let graph = pool.stream(stream.id()).map_err(failed("Pool::stream"))?;
        let mut kept: Buffers<D> = Vec::new();
        for _ in 0..6 {
            let scratch = scene.allocate(&graph, random.between(1, 10) * 512 * KIB)?;
            kept.push(scene.allocate(&graph, random.between(8, 64) * 256 * KIB)?);
            kept.push(scene.allocate(&graph, random.between(1, 64) * 512)?);
            drop(scratch);
        }
        scene.submit(&stream)?;
        graphs.push_back((kept, graph, pool));
        let eager = [6 * MIB, 20 * KIB].map(|bytes| scene.allocate(&stream, bytes));
        scene.submit(&stream)?;
        drop(eager);
        scene.end_step(step, &[&stream])?;
    }
    drop((graphs, weights));
    Ok(vec![stream])
}

/// Threads on streams of their own, each with a cache of its own of blocks that it keeps for a while. Which of them
/// works on much changes from phase to phase, so that memory has to go from thread to thread.
///
/// No work is held: where streams share a queue, a thread would wait for what another one has to let go, and the
/// validation layer has no signal go past a wait.
pub(super) fn threads<D: DeviceUnderTest>(scene: &Scene<'_, D>) -> Result<Ended<D>, Stop> {
    const THREADS: usize = 4;
    const PHASES: usize = 8;
    let streams: Vec<_> = (0..THREADS).map(|_| scene.stream()).collect::<Result<_, _>>()?;
    let stopped: Mutex<Option<Stop>> = Mutex::new(None);
    let together = Barrier::new(THREADS);
    let phase = |me: usize, phase: usize, cache: &mut Buffers<D>, random: &mut Random| -> Result<(), Stop> {
        let stream = &streams[me];
        let is_busy = (me + phase).is_multiple_of(THREADS);
        for step in 0..if is_busy { 64 } else { 16 } {
            let bytes = if random.one_in(3) { random.between(1, 32) * KIB } else { random.between(4, 48) * 128 * KIB };
            cache.push(scene.allocate(stream, bytes)?);
            let scratch = scene.allocate(stream, KIB)?;
            scene.submit(stream)?;
            drop(scratch);
            scene.end_step(step, &[stream])?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (streams, stopped, together, phase) = (&streams, &stopped, &together, &phase);
            scope.spawn(move || {
                let (mut cache, mut random) = (Vec::new(), Random::new(me as u64));
                for number in 0..PHASES {
                    if let Err(stop) = phase(me, number, &mut cache, &mut random) {
                        stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(stop);
                    }
                    // All caches are full at once, and then all are empty.
                    together.wait();
                    cache.clear();
                    // Where submits close ticks, other streams may have what was freed only behind one.
                    let _ = scene.submit(&streams[me]);
                    together.wait();
                }
            });
        }
    });
    match stopped.into_inner() {
        Ok(Some(stop)) => Err(stop),
        _ => Ok(streams),
    }
}
