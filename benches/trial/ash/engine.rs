//! What a program on ash needs beside an allocator: a device, buffers, and memory that is given back once the device is
//! done with it. The allocator is `crate::memory`: it differs between the programs that have this file.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ash::vk;
use bytemuck::Pod;

use crate::memory::{Block, Memory};

/// What went wrong.
#[derive(Debug)]
pub enum Error {
    OutOfMemory,
    Vulkan(vk::Result),
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::OutOfMemory => f.write_str("out of memory"),
            Error::Vulkan(result) => write!(f, "the driver reports {result:?}"),
            Error::Other(what) => f.write_str(what),
        }
    }
}

impl From<vk::Result> for Error {
    fn from(result: vk::Result) -> Error {
        match result {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => Error::OutOfMemory,
            other => Error::Vulkan(other),
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;

/// A place in the work of a stream: reached once the semaphore has the value.
#[derive(Clone, Copy, PartialEq)]
pub struct Point {
    pub semaphore: vk::Semaphore,
    pub tick: u64,
}

/// The device, its memory, and what is to be given back.
pub struct Engine {
    pub device: ash::Device,
    memory: ManuallyDrop<Memory>,
    garbage: Mutex<Vec<(Block, Vec<Point>)>>,
    pub semaphores: Mutex<Vec<vk::Semaphore>>,
    pub queue: Mutex<vk::Queue>,
    pub family: u32,
    name: String,
    live: AtomicU64,
    peak: AtomicU64,
    instance: ash::Instance,
    _entry: ash::Entry,
}

impl Engine {
    /// Opens the device with that place in the driver's list.
    pub fn open(index: usize) -> Result<Arc<Engine>> {
        // SAFETY: the loader is kept until the instance is destroyed, in `drop`.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| Error::Other(error.to_string()))?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let create = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live for the calls; the handles are of this instance.
        let (instance, physical, name, families) = unsafe {
            let instance = entry.create_instance(&create, None)?;
            let devices = instance.enumerate_physical_devices()?;
            let physical = *devices.get(index).ok_or_else(|| Error::Other(format!("there is no device {index}")))?;
            let properties = instance.get_physical_device_properties(physical);
            let name = properties.device_name_as_c_str().map_or("?".into(), |name| name.to_string_lossy().into_owned());
            let families = instance.get_physical_device_queue_family_properties(physical);
            (instance, physical, name, families)
        };
        let computes = |family: &vk::QueueFamilyProperties| family.queue_flags.contains(vk::QueueFlags::COMPUTE);
        let family = families.iter().position(computes).ok_or_else(|| Error::Other("no queue computes".into()))? as u32;
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        let mut timelines = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let create = vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut timelines);
        // SAFETY: the family is one of this device's and has at least one queue.
        let (device, queue) = unsafe {
            let device = instance.create_device(physical, &create, None)?;
            let queue = device.get_device_queue(family, 0);
            (device, queue)
        };
        Ok(Arc::new(Engine {
            memory: ManuallyDrop::new(Memory::new(&instance, &device, physical)?),
            garbage: Mutex::default(),
            semaphores: Mutex::default(),
            queue: Mutex::new(queue),
            family,
            name,
            live: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            device,
            instance,
            _entry: entry,
        }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of live buffers, and their peak.
    pub fn live(&self) -> (u64, u64) {
        (self.live.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }

    /// Returns the bytes that the allocator holds now, and in how many pieces.
    pub fn reserved(&self) -> Result<(u64, usize)> {
        self.memory.reserved()
    }

    pub fn reached(&self, point: Point) -> Result<bool> {
        // SAFETY: semaphores are destroyed with the engine alone.
        Ok(unsafe { self.device.get_semaphore_counter_value(point.semaphore)? } >= point.tick)
    }

    pub fn wait(&self, point: Point) -> Result<()> {
        let (semaphores, values) = ([point.semaphore], [point.tick]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: semaphores are destroyed with the engine alone.
        Ok(unsafe { self.device.wait_semaphores(&info, u64::MAX)? })
    }

    /// Takes memory; if there is none, once more after everything that can be given back was.
    pub fn block(&self, bytes: u64, is_host: bool) -> Result<Block> {
        self.collect()?;
        match self.memory.take(bytes, is_host) {
            Err(Error::OutOfMemory) => {
                let _queue = self.queue.lock().unwrap();
                // SAFETY: the lock keeps other threads from submitting meanwhile.
                unsafe { self.device.device_wait_idle()? };
                self.collect()?;
                self.memory.take(bytes, is_host)
            }
            result => result,
        }
    }

    /// Gives a block back once all of the points are reached.
    pub fn discard(&self, block: Block, points: Vec<Point>) {
        self.garbage.lock().unwrap().push((block, points));
    }

    fn collect(&self) -> Result<()> {
        let mut garbage = self.garbage.lock().unwrap();
        let mut at = 0;
        while at < garbage.len() {
            let mut is_done = true;
            for point in &garbage[at].1 {
                is_done &= self.reached(*point)?;
            }
            if is_done {
                self.memory.give_back(garbage.swap_remove(at).0);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: streams and buffers keep the engine, so this is the last use of all of it. The memory is not used
        // again.
        unsafe {
            let _ = self.device.device_wait_idle();
            for (block, _) in self.garbage.get_mut().unwrap().drain(..) {
                self.memory.give_back(block);
            }
            ManuallyDrop::drop(&mut self.memory);
            for semaphore in self.semaphores.get_mut().unwrap().drain(..) {
                self.device.destroy_semaphore(semaphore, None);
            }
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

/// Elements on the device. Dropping it gives the memory back once the work that uses it is done.
pub struct Buffer<T> {
    engine: Arc<Engine>,
    block: Option<Block>,
    uses: Mutex<Vec<Point>>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Allocates elements, whose content is unspecified.
    pub fn new(engine: &Arc<Engine>, len: usize) -> Result<Buffer<T>> {
        let bytes = (len * size_of::<T>()) as u64;
        let block = Some(engine.block(bytes, false)?);
        let live = engine.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        engine.peak.fetch_max(live, Ordering::Relaxed);
        Ok(Buffer { engine: Arc::clone(engine), block, uses: Mutex::default(), len, elements: PhantomData })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

impl<T> Buffer<T> {
    pub fn handle(&self) -> vk::Buffer {
        self.block.as_ref().expect("a block until it is dropped").buffer
    }

    /// Notes that work up to a point uses it.
    pub fn used(&self, point: Point) {
        let mut uses = self.uses.lock().unwrap();
        uses.retain(|other| other.semaphore != point.semaphore);
        uses.push(point);
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let block = self.block.take().expect("a block until it is dropped");
        self.engine.live.fetch_sub((self.len * size_of::<T>()) as u64, Ordering::Relaxed);
        self.engine.discard(block, std::mem::take(&mut *self.uses.lock().unwrap()));
    }
}
