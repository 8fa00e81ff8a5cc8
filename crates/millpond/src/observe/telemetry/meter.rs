//! Gauges and counters for `metrics`.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use millpond_backend::Backend;

use crate::allocator::Allocator;

const RESERVED: &str = "millpond_reserved_bytes";
const ALLOCATED: &str = "millpond_allocated_bytes";
const ACTIVE: &str = "millpond_active_bytes";
const PAUSED: &str = "millpond_paused_bytes";
const DRIVER_CALLS: &str = "millpond_driver_calls_total";
const RETRIES: &str = "millpond_alloc_retries_total";
const OOMS: &str = "millpond_ooms_total";
const IDLE: &str = "millpond_idle_released_bytes_total";
const ALLOCATIONS: &str = "millpond_allocations_total";

/// Describes the metrics of [`Allocator::publish_metrics`] to the installed recorder.
pub fn describe_metrics() {
    describe_gauge!(RESERVED, Unit::Bytes, "bytes reserved from the driver");
    describe_gauge!(ALLOCATED, Unit::Bytes, "bytes in buffers, after rounding");
    describe_gauge!(ACTIVE, Unit::Bytes, "bytes in buffers, and in freed ones that wait for points");
    describe_gauge!(PAUSED, Unit::Bytes, "bytes of paused groups, which the driver has until they are resumed");
    describe_counter!(DRIVER_CALLS, Unit::Count, "driver calls of the allocator");
    describe_counter!(RETRIES, Unit::Count, "requests that the driver refused, and that were tried again");
    describe_counter!(OOMS, Unit::Count, "requests that were refused");
    describe_counter!(IDLE, Unit::Bytes, "bytes that went back because nothing had needed them");
    describe_counter!(ALLOCATIONS, Unit::Count, "buffers that were handed out");
}

impl<B: Backend> Allocator<B> {
    /// Sets the gauges and counters of this allocator with the recorder of the crate `metrics` that is installed:
    /// `millpond_reserved_bytes`, `millpond_allocated_bytes`, `millpond_active_bytes` and `millpond_paused_bytes`, and
    /// of `millpond_driver_calls_total`, `millpond_alloc_retries_total`, `millpond_ooms_total`,
    /// `millpond_idle_released_bytes_total` and `millpond_allocations_total` what was counted since the start. All have
    /// the label `device`, with this name.
    ///
    /// Call it before each scrape, or every second. Each call costs as much as [`stats`](Self::stats), and nothing is
    /// measured between calls.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// // metrics_exporter_prometheus::PrometheusBuilder::new().install()?;
    /// millpond::telemetry::describe_metrics();
    /// let allocator = Allocator::new(Sim::new());
    /// let buffer = allocator.create_stream()?.allocate(1000)?;
    /// allocator.publish_metrics("gpu0"); // millpond_allocated_bytes{device="gpu0"} 1024
    /// # drop(buffer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn publish_metrics(&self, device: &str) {
        let (stats, activity) = (self.stats(), self.driver_activity());
        let gauges = [
            (RESERVED, stats.reserved_bytes.all.current),
            (ALLOCATED, stats.allocated_bytes.all.current),
            (ACTIVE, stats.active_bytes.all.current),
            (PAUSED, self.memory_paused()),
        ];
        for (name, value) in gauges {
            gauge!(name, "device" => device.to_owned()).set(value as f64);
        }
        let counters = [
            (DRIVER_CALLS, activity.calls),
            (RETRIES, stats.num_alloc_retries),
            (OOMS, stats.num_ooms),
            (IDLE, self.idle_stats().released_bytes),
            (ALLOCATIONS, stats.allocation.all.allocated),
        ];
        for (name, value) in counters {
            counter!(name, "device" => device.to_owned()).absolute(value);
        }
    }
}
