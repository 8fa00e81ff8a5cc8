//! One run on a freshly opened device: the watched allocator, its streams, and the device's controls for tests.

use std::fmt::Write as _;

use millpond::settings::{Policy, Settings};
use millpond::{Allocator, Stream};
use millpond_backend::{Backend, Point, Transfer};

use crate::device::{DeviceUnderTest, Live, Need};
use crate::watched::{Strings, Tenancy, Watched};

/// The causes of a wrong byte, where no single call is to blame.
pub(crate) const TWO_OWNERS: &str = "Probably the memory had two owners: Backend::reached or Backend::wait returned a \
                                     tick before its work was done, or a page or a segment was handed out twice";

/// The number of bytes of a block that are read at a time.
const PART_BYTES: usize = 1 << 20;

/// The reason why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The device lacks something.
    Skip(String),
    /// A check failed.
    Fail(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Stop::Fail(text)
    }
}

/// The requirements and the configuration of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) policy: Policy,
    /// The configuration after the policy's.
    pub(crate) conf: &'a str,
    pub(crate) limit: Option<u64>,
    pub(crate) streams: u32,
    pub(crate) bytes: bool,
}

/// A run in progress.
pub(crate) struct Session<'d, D: DeviceUnderTest> {
    pub(crate) device: &'d D,
    pub(crate) watched: Watched<D::Backend>,
    pub(crate) streams: Vec<Stream<D::Backend>>,
    pub(crate) twin: Option<D::Backend>,
    /// Whether several threads work on it, so that peaks are not known.
    pub(crate) threaded: bool,
}

/// An allocator, and another handle of its device where there is one.
pub(crate) type Opened<B> = (Allocator<B>, Option<B>);

/// Opens the device for a setup, and creates the allocator. Skips where the device cannot serve the policy.
pub(crate) fn open_allocator<D: DeviceUnderTest>(device: &D, setup: &Setup<'_>) -> Result<Opened<D::Backend>, Stop> {
    allocator_on(device, open_backend(device, setup)?, setup, Settings::default())
}

/// Opens the device for a setup. Skips where it cannot serve the policy.
fn open_backend<D: DeviceUnderTest>(device: &D, setup: &Setup<'_>) -> Result<D::Backend, Stop> {
    let need = Need { streams: setup.streams, bytes: setup.bytes, pages: setup.policy.needs_pages() };
    let backend = device.open(&need).map_err(|missing| Stop::Skip(missing.0))?;
    if setup.policy.needs_pages() && backend.caps().pages.is_none() {
        return Err(Stop::Skip("the device has no virtual memory".to_owned()));
    }
    Ok(backend)
}

/// Creates an allocator on a device that is open, with settings below those of the policy.
fn allocator_on<D: DeviceUnderTest>(
    device: &D,
    backend: D::Backend,
    setup: &Setup<'_>,
    settings: Settings,
) -> Result<Opened<D::Backend>, Stop> {
    let twin = device.twin(&backend);
    let mut builder =
        Allocator::builder(backend).settings(Settings { policy: setup.policy, ..settings }).conf(setup.conf);
    if let Some(bytes) = setup.limit {
        builder = builder.limit(bytes);
    }
    let allocator = builder.build().map_err(|error| Stop::Fail(format!("no allocator: {error}")))?;
    Ok((allocator, twin))
}

impl<'d, D: DeviceUnderTest> Session<'d, D> {
    pub(crate) fn open(device: &'d D, setup: &Setup<'_>) -> Result<Self, Stop> {
        Self::open_with(device, setup, Settings::default())
    }

    /// Opens the device and its streams, with settings below those of the policy.
    pub(crate) fn open_with(device: &'d D, setup: &Setup<'_>, settings: Settings) -> Result<Self, Stop> {
        Self::open_on(device, open_backend(device, setup)?, setup, settings)
    }

    /// Opens new streams on a device that is open and not in use, as another run left it.
    pub(crate) fn open_again(device: &'d D, backend: D::Backend, setup: &Setup<'_>) -> Result<Self, Stop> {
        Self::open_on(device, backend, setup, Settings::default())
    }

    fn open_on(device: &'d D, backend: D::Backend, setup: &Setup<'_>, settings: Settings) -> Result<Self, Stop> {
        let (allocator, twin) = allocator_on(device, backend, setup, settings)?;
        let strings = Strings { reached: D::reached, comes_after: D::comes_after, place_barrier: D::place_barrier };
        let watched = Watched::with_strings(allocator, strings);
        let mut session = Self { device, watched, streams: Vec::new(), twin, threaded: false };
        for _ in 0..setup.streams {
            let stream = session.watched.allocator().create_stream();
            session.streams.push(stream.map_err(|error| Stop::Skip(format!("no further stream: {error}")))?);
        }
        Ok(session)
    }

    pub(crate) fn backend(&self) -> &D::Backend {
        self.watched.backend()
    }

    /// Returns the device's fills and copies. Skips where there are none.
    pub(crate) fn transfer(&self) -> Result<&Mover<'_, D::Backend>, Stop> {
        self.backend().transfer().ok_or_else(|| match self.backend().caps().transfer {
            true => Stop::Fail("Backend::transfer answers none, and Caps::transfer announces it".to_owned()),
            false => Stop::Skip("the device neither fills nor copies".to_owned()),
        })
    }

    /// Queues a fill of the whole buffer.
    pub(crate) fn fill(&self, at: usize, tenancy: &Tenancy<D::Backend>, value: u8) -> Result<(), Stop> {
        self.fill_from(at, tenancy, 0, value)
    }

    /// Sets the bytes of a buffer's block from an offset on.
    pub(crate) fn fill_from(&self, at: usize, tenancy: &Tenancy<D::Backend>, from: u64, value: u8) -> Result<(), Stop> {
        let (bytes, Some(segment)) = (tenancy.capacity() - from, tenancy.segment()) else { return Ok(()) };
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.streams[at].id();
        let filled = self.transfer()?.fill(stream, segment, tenancy.offset() + from, bytes, value);
        filled.map_err(|error| Stop::Fail(format!("fill of {bytes} bytes on {stream}: {error}")))
    }

    /// Reads the whole buffer on a stream and fails at the first byte that is not `value`.
    pub(crate) fn verify(&self, at: usize, tenancy: &Tenancy<D::Backend>, value: u8) -> Result<(), Stop> {
        let Some(segment) = tenancy.segment() else { return Ok(()) };
        let (stream, mover) = (self.streams[at].id(), self.transfer()?);
        let most = PART_BYTES.min(tenancy.capacity() as usize);
        let (mut bytes, expected) = (vec![0; most], vec![value; most]);
        for begin in (0..tenancy.capacity()).step_by(PART_BYTES) {
            let length = PART_BYTES.min((tenancy.capacity() - begin) as usize);
            let part = &mut bytes[..length];
            let read = mover.download(stream, segment, tenancy.offset() + begin, part);
            read.map_err(|error| format!("download on {stream}: {error}"))?;
            // Compared as a whole first: byte by byte it takes many times as long, and tests do it for every block.
            if *part != expected[..length]
                && let Some(wrong) = part.iter().position(|&byte| byte != value)
            {
                let (found, at) = (part[wrong], begin + wrong as u64);
                let text = format!(
                    "{:?} holds {found:#04x} at byte {at}, and {value:#04x} was written. {TWO_OWNERS}",
                    **tenancy
                );
                return Err(Stop::Fail(text));
            }
        }
        Ok(())
    }

    /// Makes later work of one stream come after everything queued on another so far: on the device where it supports
    /// that, and otherwise by waiting on the host.
    pub(crate) fn order(&self, later: usize, earlier: usize) -> Result<(), Stop> {
        let point = self.streams[earlier].point();
        self.order_after(later, point)
    }

    pub(crate) fn order_after(&self, later: usize, point: Point) -> Result<(), Stop> {
        // The point's stream is submitted first, so that its work does not wait, through other streams, for the stream
        // that waits for it.
        self.device.submit(self.backend(), point.stream);
        let stream = self.streams[later].id();
        match self.backend().stream_wait() {
            Some(waits) => {
                waits.wait_for(stream, point).map_err(|error| format!("{stream} cannot wait for {point}: {error}"))?;
            }
            None => drop(self.wait(point)?),
        }
        Ok(())
    }

    /// Waits on the host and returns whether the point was reached.
    pub(crate) fn wait(&self, point: Point) -> Result<bool, Stop> {
        let reached = self.backend().wait(point).map_err(|error| format!("the wait for {point} failed: {error}"))?;
        Ok(reached >= point.tick)
    }

    /// Submits everything and waits for it.
    pub(crate) fn sync(&self) -> Result<(), Stop> {
        let points: Vec<Point> = self.streams.iter().map(Stream::point).collect();
        for point in &points {
            self.device.submit(self.backend(), point.stream);
        }
        for point in points {
            if !self.wait(point)? {
                return Err(Stop::Fail(format!("{point} was submitted, waited for, and is not reached")));
            }
        }
        Ok(())
    }

    /// Checks everything that can be checked at any time.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        self.watched.check(!self.threaded)?;
        let reserved = self.watched.allocator().memory_reserved();
        if let Some(held) = self.device.held_bytes(self.backend()).filter(|&held| held != reserved) {
            return Err(Stop::Fail(format!("{reserved} bytes are reserved, and the device has handed out {held}")));
        }
        if let Some(beyond) = self.watched.allocator().beyond_device() {
            return Err(Stop::Fail(beyond.to_string()));
        }
        Ok(device_is_content(self.device, self.backend())?)
    }

    /// Ends a run in which the program holds no blocks any more. Drops the allocator and checks that the device has all
    /// its memory back.
    pub(crate) fn finish(self) -> Result<(), Stop> {
        self.sync()?;
        self.check()?;
        let Self { device, watched, streams, twin, .. } = self;
        drop((streams, watched));
        Ok(nothing_is_left(device, twin.as_ref())?)
    }
}

/// The part of a backend that moves bytes.
pub(crate) type Mover<'a, B> = dyn Transfer<Segment = <B as Backend>::Segment, Error = <B as Backend>::Error> + 'a;

/// Checks that the device saw no breach of the contract.
pub(crate) fn device_is_content<D: DeviceUnderTest>(device: &D, backend: &D::Backend) -> Result<(), String> {
    let seen = device.violations(backend);
    let Some(first) = seen.first() else { return Ok(()) };
    let mut text = format!("the device saw {} breaches of the contract: {first}", seen.len());
    for more in seen.iter().skip(1).take(3) {
        let _ = write!(text, "; {more}");
    }
    Err(text)
}

/// Checks that the device has all its memory back after the allocator is dropped, as far as the device can tell.
pub(crate) fn nothing_is_left<D: DeviceUnderTest>(device: &D, twin: Option<&D::Backend>) -> Result<(), String> {
    let Some(twin) = twin else { return Ok(()) };
    device_is_content(device, twin)?;
    match (device.held_bytes(twin), device.live(twin)) {
        (Some(bytes), _) if bytes > 0 => Err(format!("the allocator is gone and {bytes} bytes were not given back")),
        (_, Some(live)) if live != Live::default() => Err(format!("the allocator is gone and has left {live:?}")),
        _ => Ok(()),
    }
}
