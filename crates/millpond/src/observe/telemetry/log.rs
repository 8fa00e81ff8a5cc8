//! Events for `tracing`.

use tracing::{debug, trace, warn};

use crate::events::{Event, Sink};

/// A sink that makes a `tracing` event of each [event](crate::events::Event), with the target `millpond`:
///
/// | level | message |
/// |---|---|
/// | `TRACE` | `grant`, `grow`, `free`, `use`: what the program asks for |
/// | `DEBUG` | `miss`; `driver call`, `gather` (pages mapped once more), `wait`: what the allocator does then |
/// | `INFO` | `empty_cache`, `trim` |
/// | `WARN` | `refused by the driver, trying on`; `out of memory` |
///
/// Fields are `device` (the name that it was made with), `stream`, `segment`, `offset`, `bytes`, `requested`, `call`.
/// As with every sink, operations take a lock that all streams share while it is set. The subscriber is called under
/// that lock, so it must not use the allocator.
///
/// ```
/// use millpond::Allocator;
/// use millpond::telemetry::Tracing;
/// use millpond_sim::Sim;
///
/// // tracing_subscriber::fmt().with_env_filter("millpond=debug").init();
/// let allocator = Allocator::new(Sim::new());
/// allocator.set_sink(Tracing::new("gpu0"));
/// // DEBUG millpond: driver call device="gpu0" call="map" bytes=2097152
/// drop(allocator.create_stream()?.allocate(1000)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tracing {
    device: String,
}

impl Tracing {
    /// Creates a sink whose events have this name in the field `device`.
    pub fn new(device: impl Into<String>) -> Self {
        Self { device: device.into() }
    }

    fn step(&self, call: &str, bytes: u64) {
        let device = self.device.as_str();
        match (call, bytes) {
            ("done", _) => {}
            ("refuse", bytes) => warn!(target: "millpond", device, bytes, "out of memory"),
            ("wait" | "synchronize" | "stream_wait", _) => debug!(target: "millpond", device, call, "wait"),
            ("map", 0) => debug!(target: "millpond", device, "gather"),
            _ => debug!(target: "millpond", device, call, bytes, "driver call"),
        }
    }
}

impl Sink for Tracing {
    fn event(&mut self, event: &Event) {
        let device = self.device.as_str();
        match *event {
            Event::Grant { stream, requested, segment, offset, size } => {
                let (stream, segment, bytes) = (stream.0, segment.0, size);
                trace!(target: "millpond", device, stream, segment, offset, bytes, requested, "grant");
            }
            Event::Grow { stream, added, segment, offset, size } => {
                let (stream, segment, bytes) = (stream.0, segment.0, size);
                trace!(target: "millpond", device, stream, segment, offset, bytes, added, "grow");
            }
            Event::Free { segment, offset } => {
                trace!(target: "millpond", device, segment = segment.0, offset, "free");
            }
            Event::Use { segment, offset, stream } => {
                trace!(target: "millpond", device, stream = stream.0, segment = segment.0, offset, "use");
            }
            Event::Until { segment, offset, point } => {
                trace!(target: "millpond", device, stream = point.stream.0, segment = segment.0, offset, "use");
            }
            Event::Mark { .. } | Event::Submit { .. } | Event::Reached { .. } | Event::Look { .. } => {}
            Event::StreamWait { stream, .. } => {
                trace!(target: "millpond", device, stream = stream.0, "stream waits");
            }
            Event::HostWait { point } => {
                trace!(target: "millpond", device, stream = point.stream.0, "host waits");
            }
            Event::Miss { stream, requested } => {
                debug!(target: "millpond", device, stream = stream.0, requested, "miss");
            }
            Event::Refused { call, bytes } => {
                warn!(target: "millpond", device, call, bytes, "refused by the driver, trying on");
            }
            Event::EmptyCache => tracing::info!(target: "millpond", device, "empty_cache"),
            Event::Trim { bytes } => tracing::info!(target: "millpond", device, bytes, "trim"),
            Event::Step { name, bytes } => self.step(name, bytes),
        }
    }
}
