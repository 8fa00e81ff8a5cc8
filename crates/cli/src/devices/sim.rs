//! The simulated device, and the options that `--device sim:...` takes.

use millpond_backend::{Backend as _, PageCaps, Reuse};
use millpond_sim::{Completion, CostModel, Sim};

use super::{Device, Entry, Found, Target};
use crate::failure::Failure;
use crate::quantity::parse_bytes;

/// The entry of the simulated device among the backends.
pub(super) const ENTRY: Entry = Entry { name: "sim", find, target, preferred: || Some(Target::Sim(Box::default())) };

/// The properties of a simulated device; those of an H200 where an option is not given.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct SimOptions {
    bytes: Option<u64>,
    reuse: Option<Reuse>,
    /// The granularity of its virtual memory; `Some(None)` is a device without any.
    pages: Option<Option<u64>>,
    cost: Option<CostModel>,
    completion: Option<Completion>,
}

fn find() -> Found {
    Found::Devices(vec![Ok(Device::of("sim", &SimOptions::default().open()))])
}

fn target(options: &str) -> Result<Target, Failure> {
    let parsed = SimOptions::parse(options).map_err(|what| Failure::Input(format!("--device sim: {what}")))?;
    Ok(Target::Sim(Box::new(parsed)))
}

impl SimOptions {
    fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for pair in text.split(',').filter(|_| !text.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("`{pair}` is no option; write KEY=VALUE, such as bytes=16GiB"));
            };
            let twice = match key {
                "bytes" => options.bytes.replace(size(key, value)?).is_some(),
                "reuse" => options.reuse.replace(reuse(value)?).is_some(),
                "pages" => options.pages.replace(pages(value)?).is_some(),
                "cost" => options.cost.replace(cost(value)?).is_some(),
                "completion" => options.completion.replace(completion(value)?).is_some(),
                _ => {
                    let known = "bytes, reuse, pages, cost and completion";
                    return Err(format!("unknown option `{key}`; the options are {known}"));
                }
            };
            if twice {
                return Err(format!("`{key}` is set a second time; set it once"));
            }
        }
        Ok(options)
    }

    /// Creates a device.
    pub(crate) fn open(&self) -> Sim {
        let mut builder = Sim::builder();
        if let Some(bytes) = self.bytes {
            builder = builder.total_bytes(bytes);
        }
        if let Some(reuse) = self.reuse {
            builder = builder.reuse(reuse);
        }
        if let Some(pages) = self.pages {
            builder = builder.pages(pages.map(PageCaps::new));
        }
        if let Some(cost) = self.cost {
            builder = builder.cost(cost);
        }
        if let Some(completion) = self.completion {
            builder = builder.completion(completion);
        }
        builder.build()
    }

    /// Returns the size of the device's memory in bytes.
    pub(super) fn total_bytes(&self) -> u64 {
        self.open().caps().classes[0].total_bytes
    }
}

fn size(key: &str, value: &str) -> Result<u64, String> {
    match parse_bytes(value) {
        Ok(0) => Err(format!("`{key}` is 0, must be at least one byte")),
        Ok(bytes) => Ok(bytes),
        Err(what) => Err(format!("`{key}`: {what}")),
    }
}

/// Parses `reuse`. Reuse after a submit is not offered: a replay submits nothing, so freed memory would never be
/// reused.
fn reuse(value: &str) -> Result<Reuse, String> {
    match value {
        "in-order" => Ok(Reuse::InOrder),
        "after-done" => Ok(Reuse::AfterDone),
        _ => Err(format!("`reuse` is `{value}`, must be in-order or after-done")),
    }
}

/// Parses `pages`. Large segments are 20 MiB and made of whole pages, which limits the granularity.
fn pages(value: &str) -> Result<Option<u64>, String> {
    if value == "none" {
        return Ok(None);
    }
    match size("pages", value)? {
        bytes if bytes.is_power_of_two() && (4096..=2 << 20).contains(&bytes) => Ok(Some(bytes)),
        _ => Err(format!("`pages` is `{value}`, must be none or a power of two from 4KiB to 2MiB")),
    }
}

fn cost(value: &str) -> Result<CostModel, String> {
    match value {
        "h200" => Ok(CostModel::h200()),
        "h200-vulkan" => Ok(CostModel::h200_vulkan()),
        "free" => Ok(CostModel::free()),
        _ => Err(format!("`cost` is `{value}`, must be h200, h200-vulkan or free")),
    }
}

fn completion(value: &str) -> Result<Completion, String> {
    if value == "at-once" {
        return Ok(Completion::Immediate);
    }
    let seed = value.strip_prefix("random:").and_then(|seed| seed.parse().ok());
    seed.map(Completion::Seeded)
        .ok_or_else(|| format!("`completion` is `{value}`, must be at-once or random:SEED with a whole number"))
}

#[cfg(test)]
mod tests {
    use millpond_backend::Backend as _;

    use super::*;

    #[test]
    fn options_shape_the_device() {
        let sim = SimOptions::parse("bytes=16GiB,reuse=after-done,pages=64KiB,cost=free").unwrap().open();
        assert_eq!(sim.caps().classes[0].total_bytes, 16 << 30);
        assert_eq!(sim.caps().reuse, Reuse::AfterDone);
        assert_eq!(sim.caps().pages.map(|pages| pages.granularity), Some(64 << 10));
        assert_eq!(SimOptions::parse("pages=none").unwrap().open().caps().pages, None);
        let late = SimOptions::parse("completion=random:7").unwrap();
        assert_eq!(late.completion, Some(Completion::Seeded(7)));
        assert_eq!(SimOptions::parse("completion=at-once").unwrap().completion, Some(Completion::Immediate));
        assert_eq!(SimOptions::parse("").unwrap().open().caps(), Sim::new().caps());
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("bytes", "`bytes` is no option; write KEY=VALUE"),
            ("bytes=1GiB,", "`` is no option"),
            ("bytes=lots", "`bytes`: `lots` is no size"),
            ("bytes=0", "`bytes` is 0"),
            ("bytes=1,bytes=2", "`bytes` is set a second time"),
            ("reuse=never", "must be in-order or after-done"),
            ("pages=3MiB", "must be none or a power of two"),
            ("cost=5", "must be h200, h200-vulkan or free"),
            ("completion=random", "must be at-once or random:SEED"),
            ("completion=random:x", "must be at-once or random:SEED"),
            ("colour=red", "unknown option `colour`; the options are bytes"),
        ];
        for (text, expected) in cases {
            let error = SimOptions::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
