//! An allocator with streams, and the acts of a program around it.

use millpond::settings::{Policy, Settings};
use millpond::text::with_causes;
use millpond::{Allocator, Stream};
use millpond_backend::{Backend, Fault, Point};

use super::row::Clock;
use crate::failure::Failure;

/// An allocator and its streams, on which a case is measured.
pub(super) struct Scene<B: Backend> {
    pub(super) allocator: Allocator<B>,
    pub(super) streams: Vec<Stream<B>>,
}

impl<B: Backend> Scene<B> {
    pub(super) fn new(backend: B, policy: Policy, streams: usize) -> Result<Self, Failure> {
        Self::with(backend, Settings { policy, ..Settings::default() }, streams)
    }

    pub(super) fn with(backend: B, settings: Settings, streams: usize) -> Result<Self, Failure> {
        let allocator = Allocator::builder(backend).settings(settings).build();
        let allocator = allocator.map_err(|error| Failure::Input(error.to_string()))?;
        let streams = (0..streams).map(|_| allocator.create_stream()).collect::<Result<_, _>>();
        Ok(Self { streams: streams.map_err(failed)?, allocator })
    }

    pub(super) fn backend(&self) -> &B {
        self.allocator.backend()
    }

    /// Submits every stream and waits for it, so that all uses of what was freed so far are over.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        for stream in &self.streams {
            let tick = self.backend().submit(stream.id()).map_err(|error| driver(&error))?;
            let point = Point { stream: stream.id(), tick };
            // Everything was submitted, so the wait ends only when the point is reached.
            let _ = self.backend().wait(point).map_err(|error| driver(&error))?;
        }
        Ok(())
    }

    /// Runs `act` and returns the time that its driver calls took, in nanoseconds, by
    /// [`driver_clock`](Self::driver_clock).
    pub(super) fn driver_time(&self, act: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
        let before = self.allocator.driver_activity();
        act()?;
        Ok(self.allocator.driver_activity().since(before).time.as_nanos() as f64)
    }

    pub(super) fn driver_clock(&self) -> Clock {
        if self.backend().driver_clock().is_some() { Clock::Device } else { Clock::Host }
    }
}

/// Converts an error of the allocator to a failure of the command.
pub(super) fn failed<E: millpond_backend::BackendError>(error: millpond::Error<E>) -> Failure {
    Failure::from_allocator(&error)
}

/// Converts an error of the driver to a failure of the command.
pub(super) fn driver<E: millpond_backend::BackendError>(error: &E) -> Failure {
    Failure::Device(with_causes(error))
}

/// Returns the result for one size, or `None` where the device has no room for that size.
pub(super) fn if_room<B: Backend, T>(result: Result<T, millpond::Error<B::Error>>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.fault() == Fault::OutOfMemory => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
