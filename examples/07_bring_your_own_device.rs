//! An engine that already has a device and continues to use it: Millpond adopts the device, with wgpu and with Vulkan.
//!
//! Run it with `cargo run --release -p millpond-examples --example 07_bring_your_own_device`. The engine's own calls
//! into Vulkan are in `src/vulkan_setup.rs`.

use bytemuck::cast_slice;
use millpond::backend::Backend;
use millpond::{Allocator, Buffer, Stream};
use millpond_examples::engine::{Example, Kernels, Network, OnVulkan, OnWgpu, Result, Session, largest_difference};
use millpond_examples::present;
use millpond_examples::vulkan_setup::OwnDevice;
use millpond_vulkan::Vulkan;
use millpond_wgpu::{Wgpu, wgpu};

fn main() -> Result<()> {
    if present::wgpu()?.is_some() {
        with_wgpu()?;
    }
    if present::vulkan()?.is_some() {
        with_vulkan()?;
    }
    Ok(())
}

fn with_wgpu() -> Result<()> {
    // The engine opens its device as it would without Millpond, with all the adapter's limits, so that segments may be
    // large.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
    let descriptor = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;

    let lent = Wgpu::adopt(device.clone(), queue.clone());
    println!("wgpu: Millpond stands on {}", lent.caps().name);
    let session = Session::new(OnWgpu::new(lent.clone()));
    let stream = session.allocator().create_stream()?;
    let (output, expected) = compute(&session, &stream)?;

    // The engine records its own commands on a block of Millpond's and submits them to its own queue. What was recorded
    // through Millpond goes first, and a submit of the stream afterwards covers the engine's work with a tick.
    let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
    let size = output.len();
    let own = device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    let segment = output.segment().ok_or("the output has bytes")?;
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(segment.buffer(), output.offset(), &own, 0, size);
    stream.submit()?;
    queue.submit([encoder.finish()]);
    drop(output);
    stream.submit()?;

    own.slice(..).map_async(wgpu::MapMode::Read, |_| {});
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let values: Vec<f32> = cast_slice(&own.slice(..).get_mapped_range()?).to_vec();
    close("wgpu", largest_difference(&values, &expected))
}

fn with_vulkan() -> Result<()> {
    // The engine opens its device, with a timeline semaphore on which it counts its submits. It has made one so far.
    let mut engine = OwnDevice::open()?;
    engine.submit_empty(1)?;

    let (lent, stream) = engine.lend(2)?;
    println!("Vulkan: Millpond stands on {}", lent.caps().name);
    let session = Session::new(OnVulkan::new(lent.clone())?);
    let stream = session.allocator().stream(stream)?;
    own_submits(&mut engine, session.allocator(), &stream)?;

    // Work that goes through Millpond and work that goes around it are in order on the stream.
    let (output, expected) = compute(&session, &stream)?;
    let error = largest_difference(&session.download(&stream, &output)?, &expected);
    drop(output);
    let last = stream.submit()?.tick.0;
    // Millpond has released the device when the last of these is dropped. The engine need not watch for that: the
    // device lives for as long as either of them holds it.
    drop((session, stream, lent));

    engine.submit_empty(last + 1)?;
    engine.wait(last + 1)?;
    println!("  the engine's timeline went from 1 to {}, through Millpond's ticks", engine.reached()?);
    let log = engine.log();
    drop(engine);
    present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))?;
    close("Vulkan", error)
}

/// Fills a block by a submit of the engine's own, drops it, allocates the same memory again and fills that, without a
/// wait in between.
fn own_submits(engine: &mut OwnDevice, allocator: &Allocator<Vulkan>, stream: &Stream<Vulkan>) -> Result<()> {
    let first = stream.allocate(1 << 20)?;
    let place = first.offset();
    engine.fill(allocator.backend(), stream.id(), &first, 0x1111_1111)?;
    drop(first);
    let second: Buffer<Vulkan> = stream.allocate(1 << 20)?;
    println!("  same memory again: {}; how it may be used: {:?}", second.offset() == place, second.readiness());
    let tick = engine.fill(allocator.backend(), stream.id(), &second, 0x2222_2222)?;
    println!("  the engine's submits were values up to {tick} of its own timeline, which are the stream's ticks");

    let mut bytes = vec![0_u8; second.len() as usize];
    stream.download(&second, 0, &mut bytes)?;
    if bytes.iter().all(|byte| *byte == 0x22) { Ok(()) } else { Err("the second fill did not come last".into()) }
}

/// Records the forward pass. Returns its output and the values that are expected in it.
fn compute<K: Kernels>(session: &Session<K>, stream: &Stream<K::Backend>) -> Result<(Buffer<K::Backend>, Vec<f32>)> {
    let example = Example::new();
    let network = Network::new(session, stream, &example.model, example.rows)?;
    let input = session.upload(stream, &example.batch(0))?;
    Ok((network.forward(session, stream, input)?, example.expected(0)))
}

fn close(name: &str, error: f32) -> Result<()> {
    println!("  largest error of the network on the engine's own {name} device: {error:e}");
    if error < 1e-4 { Ok(()) } else { Err(format!("{name} computes something else: {error:e} off").into()) }
}

#[test]
fn runs() {
    main().unwrap();
}
