//! What can be compared in a result of `replay` or `bench`, and by how much equal runs differ in it.

use millpond::text::format_bytes;
use serde_json::Value;

use crate::devices::SIMULATED;
use crate::quantity::format_time;

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Bytes,
    Count,
    Nanos,
    Micros,
}

/// By how much equal runs differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Noise {
    /// Not at all: any difference is one.
    None,
    /// By the share by which the warm passes of a replay do.
    Passes,
    /// The same, but not at all on the clock of the simulated device.
    DriverClock,
    /// From the least to the most of the rounds of a measurement.
    Rounds,
}

/// A number of a result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    /// Its field in JSON.
    pub(super) key: &'static str,
    /// Its name in the table, which is that of the column of the command's own table.
    pub(super) name: &'static str,
    unit: Unit,
    noise: Noise,
}

const fn measure(key: &'static str, name: &'static str, unit: Unit, noise: Noise) -> Measure {
    Measure { key, name, unit, noise }
}

/// The measures of a replay.
pub(super) const OF_REPLAY: [Measure; 9] = [
    measure("peak_live_bytes", "live", Unit::Bytes, Noise::None),
    measure("peak_reserved_bytes", "reserved", Unit::Bytes, Noise::None),
    measure("life_peak_reserved_bytes", "reserved, all passes", Unit::Bytes, Noise::None),
    measure("driver_calls", "calls", Unit::Count, Noise::None),
    measure("all_driver_calls", "all calls", Unit::Count, Noise::None),
    measure("driver_time_us", "driver", Unit::Micros, Noise::DriverClock),
    measure("num_ooms", "OOMs", Unit::Count, Noise::None),
    measure("cold_ns_per_event", "cold", Unit::Nanos, Noise::Passes),
    measure("warm_ns_per_event", "warm", Unit::Nanos, Noise::Passes),
];

/// The measures of a row of `bench`.
pub(super) const OF_BENCH: [Measure; 2] =
    [measure("ns", "time", Unit::Nanos, Noise::Rounds), measure("driver_calls", "calls", Unit::Count, Noise::None)];

impl Measure {
    /// Returns whether the number is over all passes, so that replays of as many passes alone can be compared.
    pub(super) fn is_of_all_passes(&self) -> bool {
        matches!(self.key, "life_peak_reserved_bytes" | "all_driver_calls")
    }

    /// Returns whether the number is by the driver's clock, which is no other's on the simulated device.
    pub(super) fn is_of_driver_clock(&self) -> bool {
        self.noise == Noise::DriverClock
    }

    /// Returns whether the number is a time, which differs from run to run.
    pub(super) fn is_time(&self) -> bool {
        matches!(self.unit, Unit::Nanos | Unit::Micros)
    }

    /// Returns the number in a row, if it has one.
    pub(super) fn of(&self, row: &Value) -> Option<f64> {
        row[self.key].as_f64()
    }

    /// Returns by how much the number of a row differs between equal runs, as far as the row itself says.
    pub(super) fn spread(&self, row: &Value) -> Option<f64> {
        match self.noise {
            Noise::None => Some(0.0),
            Noise::DriverClock if row["device"] == SIMULATED => Some(0.0),
            Noise::DriverClock | Noise::Passes => Some(share_of_passes(row)? * self.of(row)?),
            Noise::Rounds => Some(row["ns_most"].as_f64()? - row["ns_least"].as_f64()?),
        }
    }

    /// Returns a number for readers.
    pub(super) fn shown(&self, value: f64) -> String {
        let time = |nanos: f64| {
            let time = std::time::Duration::try_from_secs_f64(nanos.max(0.0) / 1e9);
            time.map_or_else(|_| format!("{nanos:e} ns"), format_time)
        };
        match self.unit {
            Unit::Bytes => format_bytes(value as u64),
            Unit::Count => format!("{value:.0}"),
            Unit::Nanos => time(value),
            Unit::Micros => time(1e3 * value),
        }
    }
}

/// Returns the most that two warm passes differ, as a share of their mean; `None` for fewer than two.
fn share_of_passes(row: &Value) -> Option<f64> {
    let passes: Vec<f64> = row["ns_per_event_by_pass"].as_array()?.iter().skip(1).filter_map(Value::as_f64).collect();
    let (least, most) = least_and_most(&passes)?;
    let mean = passes.iter().sum::<f64>() / passes.len() as f64;
    (passes.len() > 1 && mean > 0.0).then(|| (most - least) / mean)
}

/// Returns the least and the most of some numbers, if there are any.
pub(super) fn least_and_most(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_spread_is_that_of_passes_of_rounds_or_none() {
        let spread = |measures: &[Measure], key: &str, row: &Value| {
            measures.iter().find(|measure| measure.key == key).expect(key).spread(row)
        };
        let row = json!({ "device": "cuda", "warm_ns_per_event": 100.0, "driver_time_us": 50.0, "driver_calls": 3,
                          "ns_per_event_by_pass": [900.0, 90.0, 110.0, 100.0] });
        assert_eq!(spread(&OF_REPLAY, "warm_ns_per_event", &row), Some(20.0));
        assert_eq!(spread(&OF_REPLAY, "driver_time_us", &row), Some(10.0));
        assert_eq!(spread(&OF_REPLAY, "driver_calls", &row), Some(0.0));
        let once = json!({ "device": SIMULATED, "warm_ns_per_event": 100.0, "ns_per_event_by_pass": [900.0, 90.0] });
        assert_eq!(spread(&OF_REPLAY, "warm_ns_per_event", &once), None, "one pass has no spread");
        assert_eq!(spread(&OF_REPLAY, "driver_time_us", &once), Some(0.0), "a simulated clock has none");
        let bench = json!({ "ns": 10.0, "ns_least": 9.0, "ns_most": 12.0 });
        assert_eq!(spread(&OF_BENCH, "ns", &bench), Some(3.0));
    }
}
