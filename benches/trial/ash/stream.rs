//! Streams by hand: timeline semaphores over one queue, with transfers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use ash::vk;
use bytemuck::{Pod, cast_slice};

use crate::engine::{Buffer, Engine, Point, Result};
use crate::future::Download;

/// A row of work. What is recorded runs in this order once it is submitted.
pub struct Stream {
    engine: Arc<Engine>,
    semaphore: vk::Semaphore,
    pool: vk::CommandPool,
    state: Mutex<State>,
}

struct State {
    /// The tick of the next submission.
    next: u64,
    recording: Option<vk::CommandBuffer>,
    waits: Vec<Point>,
    submitted: VecDeque<(u64, vk::CommandBuffer)>,
}

impl Stream {
    pub fn new(engine: &Arc<Engine>) -> Result<Stream> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let semaphore = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        let flags = vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER;
        let pool = vk::CommandPoolCreateInfo::default().queue_family_index(engine.family).flags(flags);
        // SAFETY: the structures live for the calls, and timelines were switched on.
        let (semaphore, pool) = unsafe {
            (engine.device.create_semaphore(&semaphore, None)?, engine.device.create_command_pool(&pool, None)?)
        };
        engine.semaphores.lock().unwrap().push(semaphore);
        let state = State { next: 1, recording: None, waits: Vec::new(), submitted: VecDeque::new() };
        Ok(Stream { engine: Arc::clone(engine), semaphore, pool, state: Mutex::new(state) })
    }

    /// Allocates elements, whose content is unspecified.
    pub fn allocate<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(&self.engine, len)
    }

    /// Allocates as many elements as there are, and uploads them.
    pub fn allocate_from<T: Pod>(&self, from: &[T]) -> Result<Buffer<T>> {
        let buffer = self.allocate(from.len())?;
        let staging = self.engine.block(buffer.bytes(), true)?;
        staging.write(cast_slice(from));
        let used = self.record_copy(staging.buffer, buffer.handle(), 0, buffer.bytes())?;
        buffer.used(used);
        self.engine.discard(staging, vec![used]);
        Ok(buffer)
    }

    pub fn clear<T: Pod>(&self, buffer: &Buffer<T>) -> Result<()> {
        // SAFETY: the buffer is kept until the work is done, by its use.
        let used = self.record(|device, commands| unsafe {
            device.cmd_fill_buffer(commands, buffer.handle(), 0, vk::WHOLE_SIZE, 0);
        })?;
        buffer.used(used);
        Ok(())
    }

    pub fn copy<T: Pod>(&self, from: &Buffer<T>, to: &Buffer<T>) -> Result<()> {
        let used = self.record_copy(from.handle(), to.handle(), 0, to.bytes())?;
        from.used(used);
        to.used(used);
        Ok(())
    }

    /// Begins a download and submits the stream. Does not wait for it.
    pub fn download_async<T: Pod>(&self, from: &Buffer<T>, range: Range<usize>) -> Result<Download<T>> {
        let bytes = (range.len() * size_of::<T>()) as u64;
        let staging = self.engine.block(bytes, true)?;
        let used = self.record_copy(from.handle(), staging.buffer, (range.start * size_of::<T>()) as u64, bytes)?;
        from.used(used);
        Ok(Download::new(Arc::clone(&self.engine), staging, self.submit()?, range.len()))
    }

    pub fn download<T: Pod>(&self, from: &Buffer<T>) -> Result<Vec<T>> {
        let download = self.download_async(from, 0..from.len())?;
        self.engine.wait(download.point())?;
        Ok(download.take())
    }

    /// Makes later work of this stream begin once the point is reached.
    pub fn wait_for(&self, point: Point) {
        self.state.lock().unwrap().waits.push(point);
    }

    /// Submits what was recorded, and returns the point that covers it.
    pub fn submit(&self) -> Result<Point> {
        let mut state = self.state.lock().unwrap();
        let Some(commands) = state.recording.take() else {
            return Ok(Point { semaphore: self.semaphore, tick: state.next - 1 });
        };
        let waits = std::mem::take(&mut state.waits);
        let (semaphores, values): (Vec<_>, Vec<_>) = waits.iter().map(|wait| (wait.semaphore, wait.tick)).unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let (signals, ticks, commands) = ([self.semaphore], [state.next], [commands]);
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values).signal_semaphore_values(&ticks);
        let submit = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&commands)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        let queue = self.engine.queue.lock().unwrap();
        // SAFETY: the commands are this stream's, recorded and not submitted; the queue is locked.
        unsafe {
            self.engine.device.end_command_buffer(commands[0])?;
            self.engine.device.queue_submit(*queue, &[submit], vk::Fence::null())?;
        }
        let tick = state.next;
        state.submitted.push_back((tick, commands[0]));
        state.next += 1;
        Ok(Point { semaphore: self.semaphore, tick })
    }

    pub fn synchronize(&self) -> Result<()> {
        let point = self.submit()?;
        self.engine.wait(point)
    }

    fn record_copy(&self, from: vk::Buffer, to: vk::Buffer, start: u64, size: u64) -> Result<Point> {
        let region = vk::BufferCopy { src_offset: start, dst_offset: 0, size };
        // SAFETY: both buffers are kept until the work is done, by their uses, and the region is in both of them.
        self.record(|device, commands| unsafe { device.cmd_copy_buffer(commands, from, to, &[region]) })
    }

    /// Records commands behind all earlier ones of the stream.
    fn record(&self, commands_of: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> Result<Point> {
        let mut state = self.state.lock().unwrap();
        let device = &self.engine.device;
        let commands = match state.recording {
            Some(commands) => commands,
            None => self.begin(&mut state)?,
        };
        let access = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let barrier = [vk::MemoryBarrier::default().src_access_mask(access).dst_access_mask(access)];
        let (stages, flags) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::DependencyFlags::empty());
        // SAFETY: the buffer is recording, under the lock of its stream.
        unsafe { device.cmd_pipeline_barrier(commands, stages, stages, flags, &barrier, &[], &[]) };
        commands_of(device, commands);
        state.recording = Some(commands);
        Ok(Point { semaphore: self.semaphore, tick: state.next })
    }

    /// Begins a command buffer: one that is done, or else a new one.
    fn begin(&self, state: &mut State) -> Result<vk::CommandBuffer> {
        let device = &self.engine.device;
        let oldest = state.submitted.front().map(|&(tick, _)| Point { semaphore: self.semaphore, tick });
        let commands = match oldest {
            Some(point) if self.engine.reached(point)? => state.submitted.pop_front().expect("there is an oldest").1,
            _ => {
                let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
                // SAFETY: the pool is used under the lock of the stream.
                unsafe { device.allocate_command_buffers(&info)?[0] }
            }
        };
        let begin = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffer is new or done, and its pool lets it be reset.
        unsafe { device.begin_command_buffer(commands, &begin)? };
        Ok(commands)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What was recorded is submitted, because buffers wait for its points.
        let _ = self.synchronize();
        // SAFETY: the work of the stream is done, and its command buffers are used by nothing else.
        unsafe { self.engine.device.destroy_command_pool(self.pool, None) };
    }
}
