//! What a result in JSON says of where it was measured, so that results of several devices, machines and days can be
//! told apart.

use std::io::BufWriter;
use std::sync::OnceLock;
use std::time::SystemTime;

use millpond_trace::Trace;
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use crate::devices::Target;

/// The conditions of a result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Conditions {
    /// The name of the device, for readers.
    device_name: String,
    /// What followed its name in `--device`, if anything did.
    device_options: Option<String>,
    /// Its number among those of its backend, where they are numbered.
    device_index: Option<usize>,
    /// The version of its driver, where it says so.
    driver: Option<String>,
    /// The name of the machine.
    host: String,
    /// The version of this command.
    version: &'static str,
    /// When the command began, in UTC.
    date: String,
}

impl Conditions {
    /// Returns the conditions of results on a device of that name.
    pub(crate) fn new(target: &Target, device_name: &str) -> Self {
        Self {
            device_name: device_name.to_owned(),
            device_options: target.options().map(str::to_owned),
            device_index: target.index(),
            driver: target.driver(),
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION"),
            date: humantime::format_rfc3339_seconds(began()).to_string(),
        }
    }
}

/// Returns when the first result was asked for: results of one command have one date.
fn began() -> SystemTime {
    static BEGAN: OnceLock<SystemTime> = OnceLock::new();
    *BEGAN.get_or_init(SystemTime::now)
}

/// Returns the digest of a trace's plain text, 128 bits of XXH3. Equal traces have equal ones, however they are
/// compressed.
///
/// Costs the time to write the trace.
pub(crate) fn digest(trace: &Trace) -> String {
    match trace.write_to(BufWriter::new(Xxh3::new())).map(BufWriter::into_inner) {
        Ok(Ok(hasher)) => format!("{:032x}", hasher.digest128()),
        Ok(Err(error)) => panic!("a trace is written to memory: {error}"),
        Err(error) => panic!("a trace that was read can be written: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_traces_have_equal_digests() {
        let parsed = |text: &str| Trace::parse(text.as_bytes()).expect("a trace");
        let (one, other) = (parsed("a 0 512 0\nf 0\n"), parsed("a 0 1024 0\nf 0\n"));
        assert_eq!(digest(&one), digest(&one.clone()));
        assert_ne!(digest(&one), digest(&other));
        assert_eq!(digest(&one).len(), 32);
    }
}
