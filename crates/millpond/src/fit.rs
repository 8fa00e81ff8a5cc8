//! What would serve a request: the answer of [`Stream::would_fit`](crate::Stream::would_fit).

use millpond_core::Forecast;

/// What would serve a request, from what costs least to what costs most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ServedBy {
    /// A cached block, perhaps after a wait.
    Cached,
    /// Free memory of several places, mapped side by side. Nothing is reserved.
    Gathered,
    /// New memory from the driver, for all of it or for what free memory lacks.
    New,
    /// Nothing: the request would be refused.
    Nothing,
}

/// What stands in the way of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bound {
    /// The limit on reserved bytes, which is this number.
    Limit(u64),
    /// The device, or the source of the pool: there is no limit, or it leaves room. The number is what the device was
    /// taken to have left, in bytes.
    Device(u64),
}

/// Whether a request would be served, and what it would take: from [`Stream::would_fit`](crate::Stream::would_fit).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fit {
    /// What would serve it.
    pub served_by: ServedBy,
    /// The bytes that would be reserved for it, 0 if it would be refused.
    pub reserves_bytes: u64,
    /// The bytes of cached memory that would go back to the driver first.
    pub releases_bytes: u64,
    /// Whether the host would wait for work of the device that is not known to be over.
    pub waits: bool,
    /// What stands in the way, if it would be refused.
    pub bound: Option<Bound>,
    /// By how many bytes the request exceeds `bound`. 0 if it would be served, or if addresses are missing and not
    /// bytes. Freeing this many may not be enough, because freed pieces may stay reserved.
    pub short_bytes: u64,
}

impl Fit {
    /// Returns whether the request would be served.
    pub fn fits(&self) -> bool {
        self.served_by != ServedBy::Nothing
    }

    /// The answer for a request that takes nothing.
    pub(crate) const AT_ONCE: Fit = Fit {
        served_by: ServedBy::Cached,
        reserves_bytes: 0,
        releases_bytes: 0,
        waits: false,
        bound: None,
        short_bytes: 0,
    };

    pub(crate) fn of(forecast: &Forecast) -> Self {
        if !forecast.is_served {
            let (bound, short_bytes) = shortage(forecast);
            return Self { served_by: ServedBy::Nothing, bound: Some(bound), short_bytes, ..Self::AT_ONCE };
        }
        let served_by = match forecast {
            Forecast { reserves_bytes: 1.., .. } => ServedBy::New,
            Forecast { gathered_pages: 1.., .. } => ServedBy::Gathered,
            _ => ServedBy::Cached,
        };
        let &Forecast { reserves_bytes, releases_bytes, waits, .. } = forecast;
        Self { served_by, reserves_bytes, releases_bytes, waits, ..Self::AT_ONCE }
    }
}

/// Returns what stands in the way of a request that would be refused, and how much is missing.
fn shortage(forecast: &Forecast) -> (Bound, u64) {
    let device = Bound::Device(forecast.had_bytes);
    let Some(report) = &forecast.report else { return (device, 0) };
    match (report.limit_bytes, report.beyond_limit_bytes()) {
        (Some(limit), beyond @ 1..) => (Bound::Limit(limit), beyond),
        _ => (device, report.missing_bytes().saturating_sub(forecast.left_bytes)),
    }
}
