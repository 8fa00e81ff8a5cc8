//! The table of controls that the library hands out.

use std::time::Duration;

use crate::driver::code::Code;
use crate::driver::memory::memory;
use crate::driver::work::Op;
use crate::driver::{plan, stop, world};
use crate::table::{RawViolation, Table, Text, VERSION};
use crate::{DEVICES, DmaBuf};

static TABLE: Table = Table {
    version: VERSION,
    reset,
    fail_nth,
    calls,
    set_bytes,
    set_others,
    set_rdma,
    set_dma_buf,
    read_dma_buf,
    held_bytes,
    lose,
    hold,
    open,
    violation,
    live,
    stop_nth,
    arrived,
    go_on,
};

#[unsafe(no_mangle)]
extern "C" fn millpond_cuda_driver_table() -> &'static Table {
    &TABLE
}

extern "C" fn reset() {
    plan::reset();
    stop::reset();
    memory().write().reset();
    world::lock().reset();
}

fn read(text: Text) -> &'static str {
    // SAFETY: a text comes from `Text::new` and lives during the call; it is not kept beyond it.
    let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(text.start, text.bytes) };
    std::str::from_utf8(bytes).unwrap_or("")
}

extern "C" fn fail_nth(function: Text, nth: u64, code: u32) -> u32 {
    let name = read(function);
    let known = super::known(name);
    if known.is_none() && !name.is_empty() {
        return 0;
    }
    plan::add(known, nth, Code(code));
    1
}

extern "C" fn calls(function: Text) -> u64 {
    super::known(read(function)).map_or(u64::MAX, plan::calls)
}

extern "C" fn set_bytes(device: u32, bytes: u64) {
    memory().write().devices[device as usize].bytes = bytes;
}

extern "C" fn set_others(device: u32, bytes: u64) {
    memory().write().devices[device as usize].others = bytes;
}

extern "C" fn set_rdma(device: u32, supported: u32) {
    memory().write().devices[device as usize].rdma = supported != 0;
}

extern "C" fn set_dma_buf(device: u32, level: u32) {
    let levels = [DmaBuf::None, DmaBuf::One, DmaBuf::Any];
    memory().write().devices[device as usize].dma_buf = levels[level as usize];
}

extern "C" fn read_dma_buf(descriptor: i32, offset: u64, to: *mut u8, bytes: u64) -> u32 {
    let Some(read) = memory().read().read_dma_buf(descriptor, offset, bytes) else { return 0 };
    // SAFETY: `Control::read_dma_buf` passes a place of as many bytes, as it has read.
    unsafe { std::ptr::copy_nonoverlapping(read.as_ptr(), to, read.len()) };
    1
}

extern "C" fn held_bytes(device: u32) -> u64 {
    memory().read().devices[device as usize].held
}

extern "C" fn lose(device: u32, code: u32) {
    world::lock().break_device(device as usize, Code(code));
}

extern "C" fn hold(device: u32, stream: usize) -> u64 {
    let device = device as usize;
    if device >= DEVICES {
        return 0;
    }
    let mut world = world::lock();
    let Ok(lane) = world.stream(stream as u64, device) else { return 0 };
    if world.lanes[lane].capture.is_some() {
        return 0;
    }
    let gate = world.number();
    world.gates.insert(gate);
    match world.push(lane, Op::Gate(gate)) {
        Ok(()) => gate,
        Err(_) => 0,
    }
}

extern "C" fn open(gate: u64) {
    world::lock().gates.remove(&gate);
    world::PROGRESS.notify_all();
}

extern "C" fn violation(index: u64) -> RawViolation {
    let none = RawViolation { kind: 0, device: 0, address: 0, bytes: 0 };
    world::lock().violations.get(index as usize).copied().unwrap_or(none)
}

extern "C" fn live(kind: u32) -> u64 {
    let count = |length: usize| length as u64;
    match kind {
        0 => count(memory().read().allocations.len()),
        1 => count(memory().read().hosts.len()),
        2 => count(memory().read().ranges.len()),
        3 => count(memory().read().mappings.len()),
        4 => count(memory().read().pages.len()),
        5 => world::lock().streams.len(),
        6 => world::lock().events.len(),
        _ => 0,
    }
}

extern "C" fn stop_nth(function: Text, nth: u64) -> u64 {
    super::known(read(function)).map_or(0, |function| stop::add(function, nth))
}

extern "C" fn arrived(stop: u64, milliseconds: u64) -> u32 {
    u32::from(stop::arrived(stop, Duration::from_millis(milliseconds)))
}

extern "C" fn go_on(stop: u64) {
    stop::go_on(stop);
}
