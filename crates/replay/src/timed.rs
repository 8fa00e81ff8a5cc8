//! Work on a simulated clock: what waits of streams for each other cost, without a device.

use std::collections::VecDeque;
use std::time::Duration;

use millpond_backend::{Backend, Point, StreamId};
use millpond_trace::Random;

use crate::flight::{Flight, Hold};

/// The time that the host takes for an event of the trace, beside what it queues and what the driver costs.
const EVENT: u64 = 100;
/// The time that the host takes to queue a kernel.
const LAUNCH: u64 = 2000;
/// The number of kernels that a stream's queue has room for. The host waits where there is none.
const QUEUE: usize = 1024;

/// How the kernels of several streams share the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Kernels of different streams run side by side, and none makes another slower.
    SideBySide,
    /// Each kernel fills the device: of those that can begin, the one runs that could begin first.
    OneAtATime,
}

/// Kernels that each take a given time on the clock of a simulated device.
///
/// The host takes 100 ns for an event, 2 us to queue a kernel, and what the simulated driver costs. A stream queues up
/// to 1,024 kernels before the host has to wait. A kernel begins when the one before it on its stream has ended and all
/// that its stream waits for is reached. So two policies can be compared by the time that a program takes under each:
/// the device is the limit, or the host is. What the allocator itself costs the host is not in it.
pub struct Timed<'a> {
    device: Box<dyn Hold + 'a>,
    sharing: Sharing,
    /// The time that a kernel takes, in nanoseconds, as all times here.
    kernel: u64,
    now: u64,
    /// What the driver's calls had cost when the clock was set last.
    driver: u64,
    lanes: Vec<Lane>,
    /// By how many percent the time of a kernel differs from that at most, and what draws it.
    vary: Option<(u64, Random)>,
}

/// The kernels of one stream.
struct Lane {
    stream: StreamId,
    queue: VecDeque<Kernel>,
    /// When the kernel at the front ends, if it has begun.
    ends: Option<u64>,
    /// When the last one has ended.
    ended: u64,
}

/// A kernel, as two pieces of work of the device: one that is complete when the kernel begins, and one when it ends.
struct Kernel {
    queued: u64,
    begin: Point,
    end: Point,
}

impl<'a> Timed<'a> {
    /// Creates the work of a device, of kernels that take this time.
    pub fn new(device: Box<dyn Hold + 'a>, kernel: Duration, sharing: Sharing) -> Self {
        let kernel = u64::try_from(kernel.as_nanos()).unwrap_or(u64::MAX);
        let driver = device.driver_clock();
        Self { device, sharing, kernel, now: 0, driver, lanes: Vec::new(), vary: None }
    }

    /// Varies the time of each kernel at random by up to `percent`, from 0 to 100. Equal seeds give equal times.
    #[must_use]
    pub fn varied(self, percent: u64, seed: u64) -> Self {
        Self { vary: Some((percent.min(100), Random::new(seed))), ..self }
    }

    /// Draws the time that the next kernel takes.
    fn draw(&mut self) -> u64 {
        let Some((percent, random)) = &mut self.vary else { return self.kernel };
        let most = self.kernel / 100 * *percent;
        random.between(self.kernel - most, self.kernel + most)
    }

    /// Lets the host take some time, and what the driver has cost since.
    fn take(&mut self, time: u64) {
        let driver = self.device.driver_clock();
        let spent = driver - std::mem::replace(&mut self.driver, driver);
        self.run_until(self.now + time + spent);
    }

    /// Runs the device up to a time, which becomes the host's.
    fn run_until(&mut self, time: u64) {
        while let Some((ends, at)) = self.next_end().filter(|(ends, _)| *ends <= time) {
            let lane = &mut self.lanes[at];
            (lane.ends, lane.ended) = (None, ends);
            if let Some(kernel) = lane.queue.pop_front() {
                self.device.finish(kernel.end);
            }
            self.begin_kernels(ends);
        }
        self.now = self.now.max(time);
        self.device.set_time(self.now);
    }

    /// Returns the end of the kernel that ends next, and its lane.
    fn next_end(&self) -> Option<(u64, usize)> {
        self.lanes.iter().enumerate().filter_map(|(at, lane)| Some((lane.ends?, at))).min()
    }

    /// Begins the kernels that can begin at a time. One that begins may be what others wait for.
    fn begin_kernels(&mut self, time: u64) {
        while self.begin_one(time) {}
    }

    fn begin_one(&mut self, time: u64) -> bool {
        if self.sharing == Sharing::OneAtATime && self.next_end().is_some() {
            return false;
        }
        let since = |lane: &Lane| lane.queue.front().map(|kernel| kernel.queued.max(lane.ended));
        let mut ready: Vec<_> = self.lanes.iter().enumerate().filter(|(_, lane)| lane.ends.is_none()).collect();
        ready.retain(|(_, lane)| !lane.queue.is_empty());
        ready.sort_by_key(|(at, lane)| (since(lane), *at));
        // The device keeps a kernel from beginning whose stream waits.
        let begins = |lane: &Lane| lane.queue.front().is_some_and(|kernel| self.device.finish(kernel.begin));
        let Some(at) = ready.into_iter().find(|(_, lane)| begins(lane)).map(|(at, _)| at) else { return false };
        self.lanes[at].ends = Some(time + self.draw());
        true
    }

    fn lane(&mut self, stream: StreamId) -> &mut Lane {
        let at = self.lanes.iter().position(|lane| lane.stream == stream).unwrap_or_else(|| {
            self.lanes.push(Lane { stream, queue: VecDeque::new(), ends: None, ended: 0 });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }
}

impl<B: Backend> Flight<B> for Timed<'_> {
    fn begin(&mut self, stream: StreamId) -> Result<(), B::Error> {
        self.take(LAUNCH);
        while self.lane(stream).queue.len() >= QUEUE
            && let Some((ends, _)) = self.next_end()
        {
            self.run_until(ends);
        }
        let [begin, end] = [(); 2].map(|()| Point { stream, tick: self.device.begin(stream) });
        let queued = self.now;
        self.lane(stream).queue.push_back(Kernel { queued, begin, end });
        self.begin_kernels(queued);
        Ok(())
    }

    fn event(&mut self) {
        self.take(EVENT);
    }

    fn clock(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.now))
    }

    fn land(&mut self) {
        while let Some((ends, _)) = self.next_end() {
            self.run_until(ends);
        }
        // What the host has waited for is complete already, and its stream may be idle.
        let mut left: Vec<_> = self.lanes.iter_mut().flat_map(|lane| lane.queue.drain(..)).collect();
        left.sort_by_key(|kernel| kernel.queued);
        for kernel in left {
            self.device.finish(kernel.end);
        }
    }
}
