//! What a program on wgpu needs: a device, buffers of elements, streams, transfers and futures. wgpu itself keeps
//! buffers until the device is done with them.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytemuck::{Pod, cast_slice};
use wgpu::{BufferUsages, COPY_BUFFER_ALIGNMENT, CommandEncoder, ErrorFilter, MapMode, PollType, SubmissionIndex};

/// What went wrong.
#[derive(Debug)]
pub enum Error {
    OutOfMemory,
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::OutOfMemory => f.write_str("out of memory"),
            Error::Other(what) => f.write_str(what),
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;

fn other(error: impl fmt::Display) -> Error {
    Error::Other(error.to_string())
}

/// The device, and the bytes of live buffers.
pub struct Engine {
    device: wgpu::Device,
    queue: wgpu::Queue,
    name: String,
    live: AtomicU64,
    peak: AtomicU64,
}

impl Engine {
    /// Opens the adapter with that place in wgpu's list.
    pub fn open(index: usize) -> Result<Arc<Engine>> {
        let instance = wgpu::Instance::default();
        let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
        if index >= adapters.len() {
            return Err(Error::Other(format!("there is no adapter {index}")));
        }
        let adapter = adapters.swap_remove(index);
        let wanted = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&wanted)).map_err(other)?;
        let name = adapter.get_info().name;
        Ok(Arc::new(Engine { device, queue, name, live: AtomicU64::new(0), peak: AtomicU64::new(0) }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of live buffers, and their peak.
    pub fn live(&self) -> (u64, u64) {
        (self.live.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }

    /// Returns the bytes that wgpu holds of the driver now, and in how many pieces; `None` where it does not tell.
    pub fn reserved(&self) -> Option<(u64, usize)> {
        self.device.generate_allocator_report().map(|report| (report.total_reserved_bytes, report.blocks.len()))
    }

    /// Creates a buffer, mapped if there are bytes for it. Other errors than a lack of memory go to wgpu's handler.
    fn create(&self, size: u64, usage: BufferUsages, bytes: Option<&[u8]>) -> Result<wgpu::Buffer> {
        let size = size.next_multiple_of(COPY_BUFFER_ALIGNMENT);
        if size > self.device.limits().max_buffer_size {
            return Err(Error::OutOfMemory);
        }
        let scope = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let mapped_at_creation = bytes.is_some();
        let buffer =
            self.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation });
        if pollster::block_on(scope.pop()).is_some() {
            return Err(Error::OutOfMemory);
        }
        if let Some(bytes) = bytes {
            let mut view = buffer.get_mapped_range_mut(..).map_err(other)?;
            view.slice(..bytes.len()).copy_from_slice(bytes);
            drop(view);
            buffer.unmap();
        }
        Ok(buffer)
    }

    fn wait(&self, submission: Option<SubmissionIndex>) -> Result<()> {
        let wait = PollType::Wait { submission_index: submission, timeout: None };
        self.device.poll(wait).map(drop).map_err(other)
    }
}

/// Elements on the device. wgpu keeps the memory until the work that uses it is done.
pub struct Buffer<T> {
    engine: Arc<Engine>,
    buffer: wgpu::Buffer,
    len: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T> Buffer<T> {
    fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.engine.live.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

/// A row of work. wgpu has one queue: streams run in the order of their submits, and never at the same time.
pub struct Stream {
    engine: Arc<Engine>,
    recording: Mutex<Option<CommandEncoder>>,
}

impl Stream {
    pub fn new(engine: &Arc<Engine>) -> Stream {
        Stream { engine: Arc::clone(engine), recording: Mutex::new(None) }
    }

    fn create<T: Pod>(&self, len: usize, from: Option<&[u8]>) -> Result<Buffer<T>> {
        let bytes = (len * size_of::<T>()) as u64;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let buffer = self.engine.create(bytes, usage, from)?;
        let live = self.engine.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.engine.peak.fetch_max(live, Ordering::Relaxed);
        Ok(Buffer { engine: Arc::clone(&self.engine), buffer, len, elements: PhantomData })
    }

    /// Allocates elements, which are 0.
    pub fn allocate<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.create(len, None)
    }

    /// Allocates as many elements as there are, and uploads them.
    pub fn allocate_from<T: Pod>(&self, from: &[T]) -> Result<Buffer<T>> {
        self.create(from.len(), Some(cast_slice(from)))
    }

    pub fn clear<T: Pod>(&self, buffer: &Buffer<T>) {
        self.record(|encoder| encoder.clear_buffer(&buffer.buffer, 0, None));
    }

    pub fn copy<T: Pod>(&self, from: &Buffer<T>, to: &Buffer<T>) {
        let bytes = to.buffer.size();
        self.record(|encoder| encoder.copy_buffer_to_buffer(&from.buffer, 0, &to.buffer, 0, bytes));
    }

    /// Begins a download and submits the stream. Does not wait for it. The range begins at a multiple of 4 bytes.
    pub fn download_async<T: Pod>(&self, from: &Buffer<T>, range: Range<usize>) -> Result<Download<T>> {
        let (start, bytes) = ((range.start * size_of::<T>()) as u64, (range.len() * size_of::<T>()) as u64);
        let staging = self.engine.create(bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST, None)?;
        self.record(|encoder| encoder.copy_buffer_to_buffer(&from.buffer, start, &staging, 0, staging.size()));
        let submission = self.submit();
        let arrival = Arc::new(Mutex::new(Arrival::Pending(None)));
        let told = Arc::clone(&arrival);
        staging.map_async(MapMode::Read, .., move |result| {
            let before = std::mem::replace(&mut *told.lock().unwrap(), Arrival::Done(result.map_err(other)));
            if let Arrival::Pending(Some(waker)) = before {
                waker.wake();
            }
        });
        let (engine, elements) = (Arc::clone(&self.engine), PhantomData);
        Ok(Download { engine, staging, arrival, submission, len: range.len(), elements })
    }

    pub fn download<T: Pod>(&self, from: &Buffer<T>) -> Result<Vec<T>> {
        let download = self.download_async(from, 0..from.len)?;
        self.engine.wait(download.submission.clone())?;
        download.read()
    }

    /// Submits what was recorded.
    pub fn submit(&self) -> Option<SubmissionIndex> {
        let encoder = self.recording.lock().unwrap().take()?;
        Some(self.engine.queue.submit([encoder.finish()]))
    }

    pub fn synchronize(&self) -> Result<()> {
        let submission = self.submit();
        self.engine.wait(submission)
    }

    fn record(&self, commands: impl FnOnce(&mut CommandEncoder)) {
        let mut recording = self.recording.lock().unwrap();
        commands(recording.get_or_insert_with(|| self.engine.device.create_command_encoder(&Default::default())));
    }
}

/// Whether elements have come, and who is woken then.
enum Arrival {
    Pending(Option<Waker>),
    Done(Result<()>),
}

/// A future of elements on their way from the device.
pub struct Download<T> {
    engine: Arc<Engine>,
    staging: wgpu::Buffer,
    arrival: Arc<Mutex<Arrival>>,
    submission: Option<SubmissionIndex>,
    len: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> Download<T> {
    fn read(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        bytes.copy_from_slice(&self.staging.get_mapped_range(..).map_err(other)?[..bytes.len()]);
        Ok(elements)
    }
}

impl<T: Pod> Future for Download<T> {
    type Output = Result<Vec<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut arrival = self.arrival.lock().unwrap();
        match &mut *arrival {
            Arrival::Done(Ok(())) => return Poll::Ready(self.read()),
            Arrival::Done(Err(error)) => return Poll::Ready(Err(other(error))),
            Arrival::Pending(Some(waker)) => waker.clone_from(context.waker()),
            Arrival::Pending(none) => {
                // wgpu calls back only while the device is polled: a thread does that.
                *none = Some(context.waker().clone());
                let (engine, submission) = (Arc::clone(&self.engine), self.submission.clone());
                std::thread::spawn(move || engine.wait(submission));
            }
        }
        Poll::Pending
    }
}
