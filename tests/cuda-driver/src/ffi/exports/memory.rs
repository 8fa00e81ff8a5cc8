//! Memory of the devices, and what is known of an address.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::code::{Answer, Code};
use crate::driver::memory::{Memory, Place, memory};
use crate::driver::world;
use crate::ffi::pointers::{In, Out};

use super::context;

exported! {
    Context fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) |device| {
        let memory = memory().read();
        free.offer(memory.devices[device].free());
        total.offer(memory.devices[device].bytes);
        Ok(())
    }

    Context fn cuMemAlloc_v2(address: Out<u64>, bytes: u64) |device| {
        world::lock().refuse_unsafe()?;
        let address = address.must()?;
        let allocated = memory().write().allocate(device, bytes, false)?;
        address.put(allocated)
    }

    // It waits for all work of the device, as the real one does.
    Context fn cuMemFree_v2(address: u64) |_device| {
        let allocation = |memory: &Memory| {
            let allocation = memory.allocations.get(&address).filter(|allocation| !allocation.freeing);
            let allocation = allocation.ok_or(Code::INVALID_VALUE)?;
            Ok((allocation.device, allocation.bytes))
        };
        let mut world = world::lock();
        world.refuse_unsafe()?;
        let (owner, bytes) = allocation(&memory().read())?;
        world.note_use(owner, address, bytes);
        let ends = world.ends(owner);
        world::wait(&mut world, owner, |world| ends.iter().all(|end| world.reached(*end)))?;
        memory().write().free(address)
    }

    Context fn cuMemGetAddressRange_v2(start: Out<u64>, bytes: Out<u64>, address: u64) |_device| {
        let (from, length, _) = range(&memory().read(), address).ok_or(Code::INVALID_VALUE)?;
        start.offer(from);
        bytes.offer(length);
        Ok(())
    }

    Context fn cuPointerGetAttribute(value: Out<c_void>, attribute: c_uint, address: u64) |_device| {
        let memory = memory().read();
        if range(&memory, address).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        put_attribute(&memory, value, attribute, address)
    }

    Context fn cuPointerGetAttributes(
        count: c_uint,
        attributes: In<c_uint>,
        values: In<Out<c_void>>,
        address: u64,
    ) |_device| {
        let (attributes, values) = (attributes.list(count as usize)?, values.list(count as usize)?);
        let memory = memory().read();
        attributes.into_iter().zip(values).try_for_each(|(attribute, value)| {
            put_attribute(&memory, value, attribute, address)
        })
    }
}

/// Returns the range around an address that the driver knows: its start, its bytes, and its device.
fn range(memory: &Memory, address: u64) -> Option<(u64, u64, usize)> {
    let allocation = memory.allocation(address).map(|(start, found)| (start, found.bytes, found.device));
    let host = || memory.host(address).map(|(start, found)| (start, found.bytes, found.device));
    let mapping = || memory.mapping(address).map(|(start, found)| (start, found.bytes, found.device));
    allocation.or_else(host).or_else(mapping)
}

/// Writes an attribute by its number in `CUpointer_attribute`. Of an address that is not known all values are 0, except
/// the ordinal of the device, which is -2.
fn put_attribute(memory: &Memory, value: Out<c_void>, attribute: c_uint, address: u64) -> Answer {
    let known = range(memory, address);
    let host = memory.place(address, 1) == Ok(Place::Host);
    let (start, bytes, device) = known.unwrap_or((0, 0, 0));
    let told = |number: u64| if known.is_some() { number } else { 0 };
    match attribute {
        1 => value.of::<u64>().put(told(context::handle(Some(device)))),
        2 => value.of::<c_uint>().put(told(if host { 1 } else { 2 }) as c_uint),
        3 => value.of::<u64>().put(told(address)),
        4 if host => value.of::<u64>().put(address),
        4 if known.is_some() => Err(Code::INVALID_VALUE),
        4 => value.of::<u64>().put(0),
        8 => value.of::<u8>().put(0),
        9 => value.of::<c_int>().put(if known.is_some() { device as c_int } else { -2 }),
        11 => value.of::<u64>().put(start),
        12 => value.of::<u64>().put(bytes),
        13 => value.of::<u8>().put(u8::from(known.is_some())),
        _ => Err(Code::INVALID_VALUE),
    }
}
