//! A small engine on a lent device: it creates, writes, adds, copies, reads and drops buffers as engines do, and every
//! byte is compared with what the host computes.

use std::collections::VecDeque;

use millpond::Allocator;
use millpond_lent::Lent;
use wgpu::{Buffer, BufferUsages};

use crate::common::{ALL, COPIED, Engine, HELD, Served, bytes_of, lent, open};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> left: array<u32>;
@group(0) @binding(1) var<storage, read_write> right: array<u32>;
@group(0) @binding(2) var<storage, read_write> sum: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&sum)) { sum[id.x] = left[id.x] + right[id.x]; }
}";

/// An engine that records into one encoder.
struct Program {
    engine: Engine,
    add: wgpu::ComputePipeline,
    encoder: wgpu::CommandEncoder,
    /// Whether it submits before it writes.
    in_order: bool,
}

impl Program {
    fn new(served: Served, lent: &Lent) -> Program {
        let engine = Engine::new(lent);
        let (add, encoder) = (engine.pipeline(ADD, None), engine.encoder());
        Program { engine, add, encoder, in_order: matches!(served, Served::InOrder) }
    }

    fn buffer(&self, words: usize) -> Buffer {
        self.engine.buffer(words as u64 * 4, COPIED)
    }

    fn write(&mut self, buffer: &Buffer, words: &[u32], offset: u64) {
        if self.in_order {
            self.submit();
        }
        self.engine.queue.write_buffer(buffer, offset, &bytes_of(words));
    }

    fn add(&mut self, left: &Buffer, right: &Buffer, sum: &Buffer) {
        let ranges = [left, right, sum].map(|buffer| (buffer, 0, None));
        let group = self.engine.group(&self.add.get_bind_group_layout(0), &ranges);
        let mut pass = self.encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.add);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups((sum.size() as u32 / 4).div_ceil(64), 1, 1);
    }

    fn copy(&mut self, from: &Buffer, to: &Buffer) {
        self.encoder.copy_buffer_to_buffer(from, 0, to, 0, Some(to.size()));
    }

    fn submit(&mut self) {
        let encoder = std::mem::replace(&mut self.encoder, self.engine.encoder());
        self.engine.queue.submit([encoder.finish()]);
    }

    fn read(&mut self, buffer: &Buffer) -> Vec<u32> {
        self.submit();
        self.engine.read_words(buffer)
    }
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Buffers that live, each with what it should hold.
type Alive = VecDeque<(Buffer, Vec<u32>)>;

/// Does one step of a program: most create a buffer, some drop one, submit or read.
fn step(program: &mut Program, numbers: &mut Numbers, alive: &mut Alive) {
    let pair = |numbers: &mut Numbers, alive: &Alive| {
        let (left, right) = (numbers.below(alive.len()), numbers.below(alive.len()));
        let words = alive[left].1.len().min(alive[right].1.len());
        (left, right, words)
    };
    match numbers.below(10) {
        0..=2 => {
            // Small and large blocks, also some that are no multiple of anything.
            let words = 1 + [63, 5_000, 300_000][numbers.below(3)] * (1 + numbers.below(4)) / 3;
            let mut content: Vec<u32> = (0..words).map(|_| numbers.below(1 << 30) as u32).collect();
            let buffer = program.buffer(words);
            // What is not written reads as zero, except by an engine that promises to write first.
            let unwritten = if program.in_order { 0 } else { numbers.below(2) * numbers.below(words) };
            program.write(&buffer, &content[unwritten..], unwritten as u64 * 4);
            content[..unwritten].fill(0);
            alive.push_back((buffer, content));
        }
        3..=5 if alive.len() > 1 => {
            let (left, right, words) = pair(numbers, alive);
            let (sum, spare) = (program.buffer(words), program.buffer(words));
            program.add(&alive[left].0, &alive[right].0, &sum);
            // A temporary that is dropped while the commands that use it are only recorded.
            program.add(&sum, &alive[left].0, &spare);
            program.add(&spare, &alive[right].0, &sum);
            let content = (0..words).map(|word| {
                let [left, right] = [left, right].map(|side| alive[side].1[word]);
                left.wrapping_add(right).wrapping_mul(2)
            });
            let content = content.collect();
            alive.push_back((sum, content));
        }
        6 if !alive.is_empty() => {
            let from = numbers.below(alive.len());
            let copy = program.buffer(alive[from].1.len());
            program.copy(&alive[from].0, &copy);
            alive.push_back((copy, alive[from].1.clone()));
        }
        7 => program.submit(),
        8 if !alive.is_empty() => {
            let read = numbers.below(alive.len());
            let words = program.read(&alive[read].0);
            assert!(words == alive[read].1, "a buffer of {} words holds something else", words.len());
        }
        _ => drop(alive.remove(numbers.below(alive.len().max(1)))),
    }
    while alive.len() > 24 {
        drop(alive.pop_front());
    }
}

/// Does the steps of a program, and compares what it leaves behind.
fn play(program: &mut Program, seed: u64, steps: usize) {
    let (mut numbers, mut alive) = (Numbers(seed), Alive::new());
    // Writes go ahead of commands that are recorded and not submitted, as they do in wgpu: a program submits before it
    // writes to a buffer that recorded commands use, and these write to new ones alone.
    for _ in 0..steps {
        step(program, &mut numbers, &mut alive);
    }
    for (buffer, content) in &alive {
        assert!(program.read(buffer) == *content, "seed {seed}");
    }
    drop(alive);
    program.submit();
}

/// Checks that nothing is left of what programs created.
fn expect_empty(lent: &Lent) {
    let counts = lent.counts();
    assert_eq!((counts.live, counts.live_bytes, counts.refused), (0, 0, 0));
    if let Some(allocator) = lent.allocator() {
        assert_eq!(allocator.memory_allocated(), 0);
        allocator.check();
    }
}

/// An engine's program gives the same bytes wherever its buffers come from, and leaves nothing allocated.
#[test]
fn programs_compute_the_same() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let mut program = Program::new(served, &lent);
        (0..4).for_each(|seed| play(&mut program, seed, 150));
        expect_empty(&lent);
    }
}

/// Threads share a device: each program holds its bytes while the others allocate, write and submit.
#[test]
fn programs_of_two_threads_compute_the_same() {
    for served in [Served::ByWgpu, Served::Classic, Served::Paged] {
        let Some(lent) = lent(served) else { continue };
        std::thread::scope(|scope| {
            for seed in 10..12 {
                let mut program = Program::new(served, &lent);
                scope.spawn(move || play(&mut program, seed, 250));
            }
        });
        expect_empty(&lent);
    }
}

/// A buffer that is dropped keeps its memory until the commands that use it are submitted: a new buffer lies elsewhere,
/// so that a write to it, which goes ahead of them, does not change what they read.
#[test]
fn recorded_commands_keep_their_memory() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let mut program = Program::new(served, &lent);
        let (one, sum) = (program.buffer(1024), program.buffer(1024));
        program.write(&one, &[1; 1024], 0);
        program.add(&one, &one, &sum);
        drop(one);
        let live = if HELD.contains(&served) { 2 } else { 1 };
        assert_eq!(lent.counts().live, live, "the recorded commands name it");
        let next = program.buffer(1024);
        program.write(&next, &[9; 1024], 0);
        assert_eq!(program.read(&sum), vec![2; 1024], "{served:?}");
        assert_eq!(program.read(&next), vec![9; 1024], "{served:?}");
        assert_eq!(lent.counts().live, 2, "submitted: it is gone");
    }
}

/// A program that repeats gets all of its memory from the cache, and no buffer is made by the driver.
#[test]
fn repetition_makes_no_driver_call() {
    for served in [Served::Classic, Served::Paged, Served::InOrder] {
        let Some(lent) = lent(served) else { continue };
        let mut program = Program::new(served, &lent);
        let allocator = lent.allocator().unwrap();
        let mut calls = Vec::new();
        for _ in 0..6 {
            let before = allocator.driver_activity();
            let buffers: Vec<_> = (1..40).map(|step| program.buffer(step * 10_000)).collect();
            for neighbours in buffers.windows(3) {
                program.add(&neighbours[1], &neighbours[2], &neighbours[0]);
            }
            drop(buffers);
            program.submit();
            calls.push(allocator.driver_activity().since(before).calls);
        }
        assert!(calls[0] > 0 && calls[2..].iter().all(|calls| *calls == 0), "{served:?}: {calls:?}");
    }
}

/// A buffer for which Millpond has no memory is wgpu's own, and is counted.
#[test]
fn a_buffer_over_the_limit_is_wgpus() {
    let Some(wgpu) = open(false, |builder| builder) else { return };
    let lent = Lent::new(Allocator::builder(wgpu).limit(1 << 20).build().unwrap()).unwrap();
    let engine = Engine::new(&lent);
    let large = engine.words(&[7; 1 << 20], COPIED);
    assert_eq!((lent.counts().refused, lent.counts().live), (1, 1));
    assert_eq!(engine.read_words(&large), vec![7; 1 << 20]);
    drop((engine.buffer(0, COPIED), large));
    assert_eq!((lent.counts().refused, lent.counts().live), (1, 0), "what has no bytes needs no memory");
}

/// What the host maps, and uniforms, stay wgpu's own.
#[test]
fn other_buffers_are_wgpus() {
    let Some(lent) = lent(Served::Classic) else { return };
    let device = lent.device();
    let created = |usage, mapped_at_creation| {
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 256, usage, mapped_at_creation })
    };
    let mapped = created(BufferUsages::COPY_SRC, true);
    mapped.slice(..).get_mapped_range_mut().unwrap().copy_from_slice(&[3; 256]);
    mapped.unmap();
    let uniform = created(BufferUsages::UNIFORM | BufferUsages::COPY_DST, false);
    assert_eq!(lent.counts().created, 0);
    assert_eq!(lent.allocator().unwrap().memory_allocated(), 0);
    let lent_one = created(COPIED, false);
    assert!(lent.allocator().unwrap().memory_allocated() >= 256);
    let mut program = Program::new(Served::Classic, &lent);
    program.copy(&mapped, &lent_one);
    assert_eq!(program.read(&lent_one), vec![0x0303_0303; 64]);
    drop(uniform);
}
