//! The settings that no other one beats.

use std::time::Duration;

use millpond::settings::Settings;

use super::{Measured, conf_of};

/// Settings, and the result of the program under them.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    /// The settings.
    pub settings: Settings,
    /// What the program came to.
    pub measured: Measured,
}

impl Tried {
    /// Returns the configuration that gives the settings on every device.
    pub fn conf(&self) -> String {
        conf_of(&self.settings)
    }
}

/// The settings that no other beats: every other one reserves more bytes, or takes more of the driver's time. In order
/// of reserved bytes, the fewest first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frontier {
    tried: Vec<Tried>,
}

impl Frontier {
    /// Returns the settings, the one that reserves the fewest bytes first and the one that takes the least time last.
    pub fn all(&self) -> &[Tried] {
        &self.tried
    }

    /// Returns whether there is a setting that reserves no more than these bytes in no more than that time. Takes a
    /// binary search.
    pub fn beats(&self, reserved_bytes: u64, driver_time: Duration) -> bool {
        let up_to = self.tried.partition_point(|tried| tried.measured.reserved_bytes <= reserved_bytes);
        // Times fall from one to the next, so the last one that is small enough takes the least.
        up_to.checked_sub(1).is_some_and(|last| self.tried[last].measured.driver_time <= driver_time)
    }

    /// Adds what was tried, unless it is beaten or equalled, and takes out what it beats. Returns whether it was added.
    pub fn add(&mut self, tried: Tried) -> bool {
        let Measured { reserved_bytes, driver_time, .. } = tried.measured;
        if self.beats(reserved_bytes, driver_time) {
            return false;
        }
        let at = self.tried.partition_point(|other| other.measured.reserved_bytes < reserved_bytes);
        let beaten = self.tried[at..].iter().take_while(|other| other.measured.driver_time >= driver_time).count();
        self.tried.splice(at..at + beaten, [tried]);
        true
    }
}
