//! Memory of the host that devices can reach.

use std::ffi::c_uint;

use crate::driver::code::{Answer, Code};
use crate::driver::memory::memory;
use crate::driver::world;
use crate::ffi::pointers::Out;

exported! {
    Context fn cuMemHostAlloc(address: Out<u64>, bytes: u64, flags: c_uint) |device| {
        allocate(device, address, bytes, flags)
    }

    Context fn cuMemAllocHost_v2(address: Out<u64>, bytes: u64) |device| { allocate(device, address, bytes, 0) }

    // It waits for all work of the device, as the real one does.
    Context fn cuMemFreeHost(address: u64) |device| {
        let mut world = world::lock();
        world.refuse_unsafe()?;
        let bytes = memory().read().hosts.get(&address).filter(|host| !host.registered).map(|host| host.bytes);
        world.note_use(device, address, bytes.ok_or(Code::INVALID_VALUE)?);
        let ends = world.ends(device);
        world::wait(&mut world, device, |world| ends.iter().all(|end| world.reached(*end)))?;
        memory().write().free_host(address)
    }

    Context fn cuMemHostGetDevicePointer_v2(out: Out<u64>, address: u64, flags: c_uint) |_device| {
        if flags != 0 || memory().read().host(address).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        out.put(address)
    }

    Context fn cuMemHostRegister_v2(address: u64, bytes: u64, flags: c_uint) |device| {
        if flags > 15 {
            return Err(Code::INVALID_VALUE);
        }
        world::lock().refuse_unsafe()?;
        memory().write().register(device, address, bytes)
    }

    Context fn cuMemHostUnregister(address: u64) |device| {
        let mut world = world::lock();
        world.refuse_unsafe()?;
        let bytes = memory().read().hosts.get(&address).map(|host| host.bytes);
        world.note_use(device, address, bytes.ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?);
        memory().write().unregister(address)
    }
}

fn allocate(device: usize, address: Out<u64>, bytes: u64, flags: c_uint) -> Answer {
    if flags > 7 {
        return Err(Code::INVALID_VALUE);
    }
    let address = address.must()?;
    world::lock().refuse_unsafe()?;
    let allocated = memory().write().allocate_host(device, bytes)?;
    address.put(allocated)
}
