//! A small engine on a lent device: it creates, writes, adds, copies, reads and drops buffers as engines do, and every
//! byte is compared with what the host computes.

use std::collections::VecDeque;

use millpond::Allocator;
use millpond_lent::{LENT, Lent};
use millpond_wgpu::Wgpu;
use wgpu::{BufferUsages, MapMode, PollType};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> left: array<u32>;
@group(0) @binding(1) var<storage, read_write> right: array<u32>;
@group(0) @binding(2) var<storage, read_write> sum: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&sum)) { sum[id.x] = left[id.x] + right[id.x]; }
}";

/// How storage buffers are served.
#[derive(Clone, Copy, Debug)]
enum Served {
    ByWgpu,
    Classic,
    Paged,
    InOrder,
}

const ALL: [Served; 4] = [Served::ByWgpu, Served::Classic, Served::Paged, Served::InOrder];

/// Returns a device, or `None` where there is none, unless `MILLPOND_REQUIRE` names it.
fn lent(served: Served) -> Option<Lent> {
    let paged = matches!(served, Served::Paged | Served::InOrder);
    let required = std::env::var("MILLPOND_REQUIRE").unwrap_or_default();
    let builder = Wgpu::builder().usage(LENT).vulkan_segments(paged);
    let wgpu = match builder.build() {
        Ok(wgpu) => wgpu,
        Err(error) => {
            assert!(!required.contains(if paged { "sparse" } else { "wgpu" }), "{error}");
            println!("SKIPPED {served:?}: {error}");
            return None;
        }
    };
    Some(match served {
        Served::ByWgpu => Lent::plain(wgpu.device().clone(), wgpu.queue().clone()),
        Served::Classic => Lent::new(Allocator::builder(wgpu).conf("policy:classic").build().unwrap()).unwrap(),
        Served::Paged => Lent::new(Allocator::new(wgpu)).unwrap(),
        Served::InOrder => Lent::in_order(Allocator::new(wgpu)).unwrap(),
    })
}

/// An engine: it knows wgpu and nothing of Millpond.
struct Engine {
    device: wgpu::Device,
    queue: wgpu::Queue,
    add: wgpu::ComputePipeline,
    encoder: wgpu::CommandEncoder,
    /// Whether it submits before it writes.
    in_order: bool,
}

impl Engine {
    fn new(served: Served, lent: &Lent) -> Engine {
        let (device, queue) = (lent.device(), lent.queue());
        let source = wgpu::ShaderSource::Wgsl(ADD.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let add = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let encoder = device.create_command_encoder(&Default::default());
        Engine { device, queue, add, encoder, in_order: matches!(served, Served::InOrder) }
    }

    fn buffer(&self, words: usize) -> wgpu::Buffer {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: words as u64 * 4,
            usage,
            mapped_at_creation: false,
        })
    }

    fn write(&mut self, buffer: &wgpu::Buffer, words: &[u32]) {
        if self.in_order {
            self.submit();
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.queue.write_buffer(buffer, 0, &bytes);
    }

    fn add(&mut self, left: &wgpu::Buffer, right: &wgpu::Buffer, sum: &wgpu::Buffer) {
        let entries: Vec<_> = [left, right, sum]
            .into_iter()
            .zip(0..)
            .map(|(buffer, binding)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.add.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut pass = self.encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.add);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups((sum.size() as u32 / 4).div_ceil(64), 1, 1);
    }

    fn copy(&mut self, from: &wgpu::Buffer, to: &wgpu::Buffer) {
        self.encoder.copy_buffer_to_buffer(from, 0, to, 0, Some(to.size()));
    }

    fn submit(&mut self) {
        let next = self.device.create_command_encoder(&Default::default());
        let encoder = std::mem::replace(&mut self.encoder, next);
        self.queue.submit([encoder.finish()]);
    }

    fn read(&mut self, buffer: &wgpu::Buffer) -> Vec<u32> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.copy(buffer, &staging);
        self.submit();
        staging.slice(..).map_async(MapMode::Read, |mapped| mapped.unwrap());
        self.device.poll(PollType::wait_indefinitely()).unwrap();
        let view = staging.slice(..).get_mapped_range().unwrap();
        view.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
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
type Alive = VecDeque<(wgpu::Buffer, Vec<u32>)>;

/// Does one step of a program: most create a buffer, some drop one, submit or read.
fn step(engine: &mut Engine, numbers: &mut Numbers, alive: &mut Alive) {
    let pair = |numbers: &mut Numbers, alive: &Alive| {
        let (left, right) = (numbers.below(alive.len()), numbers.below(alive.len()));
        let words = alive[left].1.len().min(alive[right].1.len());
        (left, right, words)
    };
    match numbers.below(10) {
        0..=2 => {
            // Small and large blocks, also some that are no multiple of anything.
            let words = 1 + [63, 5_000, 300_000][numbers.below(3)] * (1 + numbers.below(4)) / 3;
            let content: Vec<u32> = (0..words).map(|_| numbers.below(1 << 30) as u32).collect();
            let buffer = engine.buffer(words);
            engine.write(&buffer, &content);
            alive.push_back((buffer, content));
        }
        3..=5 if alive.len() > 1 => {
            let (left, right, words) = pair(numbers, alive);
            let (sum, spare) = (engine.buffer(words), engine.buffer(words));
            engine.add(&alive[left].0, &alive[right].0, &sum);
            // A temporary that is dropped while the commands that use it are only recorded.
            engine.add(&sum, &alive[left].0, &spare);
            engine.add(&spare, &alive[right].0, &sum);
            let content = (0..words).map(|word| {
                let [left, right] = [left, right].map(|side| alive[side].1[word]);
                left.wrapping_add(right).wrapping_mul(2)
            });
            let content = content.collect();
            alive.push_back((sum, content));
        }
        6 if !alive.is_empty() => {
            let from = numbers.below(alive.len());
            let copy = engine.buffer(alive[from].1.len());
            engine.copy(&alive[from].0, &copy);
            alive.push_back((copy, alive[from].1.clone()));
        }
        7 => engine.submit(),
        8 if !alive.is_empty() => {
            let read = numbers.below(alive.len());
            let words = engine.read(&alive[read].0);
            assert!(words == alive[read].1, "a buffer of {} words holds something else", words.len());
        }
        _ => drop(alive.remove(numbers.below(alive.len().max(1)))),
    }
    while alive.len() > 24 {
        drop(alive.pop_front());
    }
}

/// An engine's program gives the same bytes wherever its buffers come from, and leaves nothing allocated.
#[test]
fn programs_compute_the_same() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let mut engine = Engine::new(served, &lent);
        for seed in 0..4 {
            let (mut numbers, mut alive) = (Numbers(seed), Alive::new());
            // Writes go ahead of commands that are recorded and not submitted, as they do in wgpu: a program submits
            // before it writes to a buffer that recorded commands use, and these write to new ones alone.
            for _ in 0..150 {
                step(&mut engine, &mut numbers, &mut alive);
            }
            for (buffer, content) in &alive {
                assert!(engine.read(buffer) == *content, "{served:?}, seed {seed}");
            }
        }
        engine.submit();
        let counts = lent.counts();
        assert_eq!((counts.live, counts.live_bytes, counts.refused), (0, 0, 0), "{served:?}");
        if let Some(allocator) = lent.allocator() {
            assert_eq!(allocator.memory_allocated(), 0, "{served:?}");
            allocator.check();
        }
    }
}

/// A buffer that is dropped keeps its memory until the commands that use it are submitted: a new buffer lies elsewhere,
/// so that a write to it, which goes ahead of them, does not change what they read.
#[test]
fn recorded_commands_keep_their_memory() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let mut engine = Engine::new(served, &lent);
        let (one, sum) = (engine.buffer(1024), engine.buffer(1024));
        engine.write(&one, &[1; 1024]);
        engine.add(&one, &one, &sum);
        drop(one);
        let live = if matches!(served, Served::Classic | Served::Paged) { 2 } else { 1 };
        assert_eq!(lent.counts().live, live, "the recorded commands name it");
        let next = engine.buffer(1024);
        engine.write(&next, &[9; 1024]);
        assert_eq!(engine.read(&sum), vec![2; 1024], "{served:?}");
        assert_eq!(engine.read(&next), vec![9; 1024], "{served:?}");
        assert_eq!(lent.counts().live, 2, "submitted: it is gone");
    }
}

/// A program that repeats gets all of its memory from the cache, and no buffer is made by the driver.
#[test]
fn repetition_makes_no_driver_call() {
    for served in [Served::Classic, Served::Paged, Served::InOrder] {
        let Some(lent) = lent(served) else { continue };
        let mut engine = Engine::new(served, &lent);
        let allocator = lent.allocator().unwrap();
        let mut calls = Vec::new();
        for _ in 0..6 {
            let before = allocator.driver_activity();
            let buffers: Vec<_> = (1..40).map(|step| engine.buffer(step * 10_000)).collect();
            for neighbours in buffers.windows(3) {
                engine.add(&neighbours[1], &neighbours[2], &neighbours[0]);
            }
            drop(buffers);
            engine.submit();
            calls.push(allocator.driver_activity().since(before).calls);
        }
        assert!(calls[0] > 0 && calls[2..].iter().all(|calls| *calls == 0), "{served:?}: {calls:?}");
    }
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
    let lent_one = created(BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST, false);
    assert!(lent.allocator().unwrap().memory_allocated() >= 256);
    let mut engine = Engine::new(Served::Classic, &lent);
    engine.copy(&mapped, &lent_one);
    assert_eq!(engine.read(&lent_one), vec![0x0303_0303; 64]);
    drop(uniform);
}
