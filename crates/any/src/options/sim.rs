//! The simulated device, and the options that `sim:...` takes.

use millpond_backend::{PageCaps, Reuse};
use millpond_sim::{Completion, CostModel, Sim, SimBuilder};

use super::{listed, parse_bytes};

/// The properties of a simulated device. The defaults are those of an H200.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct SimOptions {
    /// Its memory, in bytes.
    pub bytes: Option<u64>,
    /// When freed memory may be used again on the stream that it was freed on.
    pub reuse: Option<Reuse>,
    /// The granularity of its virtual memory in bytes; `Some(None)` is a device without any.
    pub pages: Option<Option<u64>>,
    /// What driver calls cost on its clock.
    pub cost: Option<CostModel>,
    /// When queued work is done.
    pub completion: Option<Completion>,
    /// Whether what is written to its memory is kept.
    pub contents: Option<bool>,
}

impl SimOptions {
    /// Creates a device.
    pub fn open(&self) -> Sim {
        self.builder().build()
    }

    /// Returns the builder of a device, for properties that have no option.
    pub fn builder(&self) -> SimBuilder {
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
        if let Some(keep) = self.contents {
            builder = builder.keep_contents(keep);
        }
        builder
    }

    /// Parses the options after `sim:`, separated by commas.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the options.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for pair in listed(text) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("`{pair}` is no option; write KEY=VALUE, such as bytes=16GiB"));
            };
            let twice = match key {
                "bytes" => options.bytes.replace(size(key, value)?).is_some(),
                "reuse" => options.reuse.replace(reuse(value)?).is_some(),
                "pages" => options.pages.replace(pages(value)?).is_some(),
                "cost" => options.cost.replace(cost(value)?).is_some(),
                "completion" => options.completion.replace(completion(value)?).is_some(),
                "contents" => options.contents.replace(contents(value)?).is_some(),
                _ => {
                    let known = "bytes, reuse, pages, cost, completion and contents";
                    return Err(format!("unknown option `{key}`; the options are {known}"));
                }
            };
            if twice {
                return Err(format!("`{key}` is set a second time; set it once"));
            }
        }
        Ok(options)
    }

    /// Returns the device without options, which always exists.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn preferred() -> Result<Self, String> {
        Ok(Self::default())
    }
}

/// The most memory of a simulated device, in bytes: addresses of several times as many have 64 bits.
const MEMORY_MAX: u64 = 1 << 60;

fn size(key: &str, value: &str) -> Result<u64, String> {
    match parse_bytes(value) {
        Ok(0) => Err(format!("`{key}` is 0, must be at least one byte")),
        Ok(bytes) if bytes > MEMORY_MAX => Err(format!("`{key}` is {value}, must be at most 2^60 bytes, 1 EiB")),
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

fn contents(value: &str) -> Result<bool, String> {
    match value {
        "kept" => Ok(true),
        "none" => Ok(false),
        _ => Err(format!("`contents` is `{value}`, must be kept or none")),
    }
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
        assert_eq!(SimOptions::parse("contents=none").unwrap().contents, Some(false));
        assert_eq!(SimOptions::parse("contents=kept").unwrap().contents, Some(true));
        assert_eq!(SimOptions::parse("").unwrap().open().caps(), Sim::new().caps());
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("bytes", "`bytes` is no option; write KEY=VALUE"),
            ("bytes=1GiB,", "`` is no option"),
            ("bytes=lots", "`bytes`: `lots` is no size"),
            ("bytes=0", "`bytes` is 0"),
            ("bytes=18446744073709551615", "must be at most 2^60 bytes"),
            ("bytes=1,bytes=2", "`bytes` is set a second time"),
            ("reuse=never", "must be in-order or after-done"),
            ("pages=3MiB", "must be none or a power of two"),
            ("cost=5", "must be h200, h200-vulkan or free"),
            ("completion=random", "must be at-once or random:SEED"),
            ("completion=random:x", "must be at-once or random:SEED"),
            ("contents=some", "must be kept or none"),
            ("colour=red", "unknown option `colour`; the options are bytes"),
        ];
        for (text, expected) in cases {
            let error = SimOptions::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
