//! What the device wrote for the host: a barrier to the host is placed between the write and the end of its command
//! buffer. No software driver needs it and no layer checks it, so these tests check the recorded commands.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use millpond_backend::{Backend, ClassId, HostMemory, Point, Transfer};
use millpond_vulkan::ash::{self, vk};
use millpond_vulkan::{Segment, Vulkan};
use parking_lot::Mutex;

use crate::adopted::{adopt, handles};
use crate::lab::Lab;

/// A command that was recorded into a command buffer, as far as these tests need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    /// A copy or a fill that writes the buffer.
    Write(vk::Buffer),
    /// A barrier that makes all writes of transfers readable by the host.
    ToHost,
    End,
}

static SEEN: Mutex<Option<HashMap<vk::CommandBuffer, Vec<Command>>>> = Mutex::new(None);

fn note(commands: vk::CommandBuffer, command: Command) {
    SEEN.lock().get_or_insert_default().entry(commands).or_default().push(command);
}

/// The driver's own functions, which the functions that note commands call.
struct Driver {
    copy: vk::PFN_vkCmdCopyBuffer,
    fill: vk::PFN_vkCmdFillBuffer,
    barrier: vk::PFN_vkCmdPipelineBarrier2,
    end: vk::PFN_vkEndCommandBuffer,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

fn driver() -> &'static Driver {
    DRIVER.get().expect("the driver's functions are found before any is replaced")
}

unsafe extern "system" fn copy(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Buffer,
    count: u32,
    regions: *const vk::BufferCopy,
) {
    note(commands, Command::Write(to));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (driver().copy)(commands, from, to, count, regions) }
}

unsafe extern "system" fn fill(commands: vk::CommandBuffer, to: vk::Buffer, offset: u64, bytes: u64, word: u32) {
    note(commands, Command::Write(to));
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (driver().fill)(commands, to, offset, bytes, word) }
}

unsafe extern "system" fn barrier(commands: vk::CommandBuffer, info: *const vk::DependencyInfo<'_>) {
    // SAFETY: the caller passes a valid structure with `memory_barrier_count` memory barriers.
    let barriers =
        unsafe { std::slice::from_raw_parts((*info).p_memory_barriers, (*info).memory_barrier_count as usize) };
    if barriers.iter().any(reaches_the_host) {
        note(commands, Command::ToHost);
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (driver().barrier)(commands, info) }
}

unsafe extern "system" fn end(commands: vk::CommandBuffer) -> vk::Result {
    note(commands, Command::End);
    // SAFETY: the argument is the caller's, unchanged.
    unsafe { (driver().end)(commands) }
}

/// Returns whether a barrier makes what transfers wrote available to the host's reads. `ALL_COMMANDS` does not include
/// the host.
fn reaches_the_host(barrier: &vk::MemoryBarrier2<'_>) -> bool {
    use vk::{AccessFlags2 as Access, PipelineStageFlags2 as Stage};
    barrier.src_stage_mask.intersects(Stage::ALL_COMMANDS | Stage::ALL_TRANSFER)
        && barrier.src_access_mask.intersects(Access::MEMORY_WRITE | Access::TRANSFER_WRITE)
        && barrier.dst_stage_mask.contains(Stage::HOST)
        && barrier.dst_access_mask.intersects(Access::MEMORY_READ | Access::HOST_READ)
}

/// Returns another handle of the lab's device, with functions that note what they record.
fn noting(lab: &Lab) -> ash::Device {
    let (instance, raw) = (lab.raw_instance(), lab.raw_device().handle());
    let find = |name: &CStr| -> *const c_void {
        // SAFETY: the device is alive and of this instance, and the name ends with a zero.
        unsafe { instance.get_device_proc_addr(raw, name.as_ptr()) }.map_or(std::ptr::null(), |it| it as *const c_void)
    };
    let own = lab.raw_device();
    DRIVER.get_or_init(|| Driver {
        copy: own.fp_v1_0().cmd_copy_buffer,
        fill: own.fp_v1_0().cmd_fill_buffer,
        barrier: own.fp_v1_3().cmd_pipeline_barrier2,
        end: own.fp_v1_0().end_command_buffer,
    });
    let load = |name: &CStr| match name.to_bytes() {
        b"vkCmdCopyBuffer" => copy as *const c_void,
        b"vkCmdFillBuffer" => fill as *const c_void,
        b"vkCmdPipelineBarrier2" => barrier as *const c_void,
        b"vkEndCommandBuffer" => end as *const c_void,
        _ => find(name),
    };
    // SAFETY: every function is the driver's under its own name, or one with the same arguments that calls it.
    unsafe { ash::Device::load_with(load, raw) }
}

/// Asserts that every write to the buffer has a barrier to the host behind it in its command buffer. Returns the number
/// of writes.
fn expect_barriers(buffer: vk::Buffer) -> usize {
    let seen = SEEN.lock();
    let mut writes = 0;
    for commands in seen.iter().flat_map(HashMap::values) {
        for (at, _) in commands.iter().enumerate().filter(|(_, command)| **command == Command::Write(buffer)) {
            let rest = commands[at..].split(|command| *command == Command::End).next().unwrap_or_default();
            assert!(rest.contains(&Command::ToHost), "no barrier to the host stands behind a write for it: {rest:?}");
            writes += 1;
        }
    }
    writes
}

/// Returns the segment's first byte as the host sees it.
fn seen_by_the_host(device: &Vulkan, segment: &Segment) -> u8 {
    let address = device.host_address(segment).expect("host classes are mapped");
    // SAFETY: the segment is mapped, and the work on it was waited for.
    unsafe { address.as_ptr().read_volatile() }
}

#[test]
fn what_transfers_write_for_the_host_is_made_available_to_it() {
    const BYTES: u64 = 4096;
    let Some(lab) = Lab::open() else { return };
    if lab.raw_device().fp_v1_3().cmd_pipeline_barrier2 as usize == 0 {
        return;
    }
    let device = adopt(millpond_vulkan::Adopted { device: noting(&lab), ..handles(&lab, None) }).unwrap();
    let stream = device.create_stream().unwrap();
    let source = device.reserve(ClassId::DEVICE, BYTES).unwrap();
    device.fill(stream, &source, 0, BYTES, 7).unwrap();
    type Write = fn(&Vulkan, millpond_backend::StreamId, &Segment, &Segment);
    let writes: [(Write, u8); 4] = [
        (|device, stream, source, host| device.copy(stream, (source, 0), (host, 0), BYTES).unwrap(), 7),
        (|device, stream, _, host| device.fill(stream, host, 0, BYTES, 8).unwrap(), 8),
        (|device, stream, _, host| device.fill(stream, host, 0, 3, 9).unwrap(), 9),
        (|device, stream, _, host| device.upload(stream, &[10; 5], host, 0).unwrap(), 10),
    ];
    for class in [ClassId(1), ClassId(2)] {
        for (write, value) in writes {
            let host = device.reserve(class, BYTES).unwrap();
            write(&device, stream, &source, &host);
            // The fill behind the write ensures that the barrier is not the last command by chance.
            device.fill(stream, &source, 0, BYTES, 7).unwrap();
            let tick = device.submit(stream).unwrap();
            assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
            assert_eq!(seen_by_the_host(&device, &host), value);
            assert!(expect_barriers(host.buffer()) > 0, "nothing was recorded");
            // SAFETY: the work was waited for, and no more is recorded.
            unsafe { device.release(host) };
        }
    }
    // SAFETY: as above.
    unsafe { device.release(source) };
}
