//! The facts about the program behind a trace.

use serde_json::{Map, Value};

use crate::error::Problem;
use crate::parse::LINE_BYTES_MAX;

/// The header of a trace: JSON values by name. Names that Millpond does not know are kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Header {
    values: Map<String, Value>,
}

/// The names with a fixed meaning that hold text.
const TEXTS: [&str; 4] = ["workload", "conf", "torch", "gpu"];
/// The names with a fixed meaning that hold a number of bytes.
const BYTES: [&str; 5] = ["peak_requested", "peak_allocated", "peak_active", "peak_reserved", "address_bytes"];

/// The name of the list of segments.
const SEGMENTS: &str = "segment_addresses";

/// The name of the promise that the last line counts the events.
const COUNTED: &str = "counted";

/// The name of the version of the format. Without it, the version is 1.
const FORMAT: &str = "format";

/// The version of a trace of events alone. Such a trace does not name it.
pub(crate) const PLAIN: u64 = 1;
/// The version that has details.
pub(crate) const WITH_DETAILS: u64 = 2;
/// The version that has submits, waits and points that are reached, which is the newest.
pub(crate) const WITH_TIMING: u64 = 3;

/// Returns the pairs of whole numbers in a list, or `None` if it is anything else.
fn pairs(value: &Value) -> Option<Vec<(u64, u64)>> {
    let pair = |pair: &Value| match pair.as_array()?.as_slice() {
        [first, second] => Some((first.as_u64()?, second.as_u64()?)),
        _ => None,
    };
    value.as_array()?.iter().map(pair).collect()
}

impl Header {
    /// Creates a header with these values.
    ///
    /// # Errors
    ///
    /// Returns an error for a value of the wrong kind under a name with a fixed meaning: `workload`, `conf`, `torch`
    /// and `gpu` hold text; `peak_requested`, `peak_allocated`, `peak_active`, `peak_reserved` and `address_bytes`
    /// whole numbers; `seconds` a number; `segment_addresses` a list of pairs of whole numbers; `counted` is `true`,
    /// and `format` from 1 to 3. Those two are of the text and not of the program, and so are left out here. Returns an
    /// error also for values that together are longer, as the line that a trace has for them, than the 1 MiB of a line.
    pub fn new(values: Map<String, Value>) -> Result<Self, Problem> {
        Self::of_text(values).map(|(header, _)| header)
    }

    /// Creates a header as [`new`](Header::new) does. Also returns whether the values promise a last line that counts
    /// the events.
    pub(crate) fn of_text(mut values: Map<String, Value>) -> Result<(Self, bool), Problem> {
        let wrong = |key, expected| Err(Problem::HeaderValue { key, expected });
        for key in TEXTS {
            if values.get(key).is_some_and(|value| !value.is_string()) {
                return wrong(key, "text");
            }
        }
        for key in BYTES {
            if values.get(key).is_some_and(|value| !value.is_u64()) {
                return wrong(key, "a whole number of bytes");
            }
        }
        if values.get("seconds").is_some_and(|value| !value.is_number()) {
            return wrong("seconds", "a number");
        }
        if values.get(SEGMENTS).is_some_and(|value| pairs(value).is_none()) {
            return wrong(SEGMENTS, "a list of pairs of whole numbers: bytes and address");
        }
        let is_counted = match values.remove(COUNTED) {
            None => false,
            Some(Value::Bool(true)) => true,
            Some(_) => return wrong(COUNTED, "true: the last line is `# end EVENTS`"),
        };
        match values.remove(FORMAT).map(|value| value.as_u64()) {
            None | Some(Some(PLAIN..=WITH_TIMING)) => {}
            Some(Some(found @ 1..)) => return Err(Problem::NewerFormat { found, known: WITH_TIMING }),
            Some(_) => return wrong(FORMAT, "a whole number from 1"),
        }
        let header = Self { values };
        let bytes = header.line(WITH_TIMING).len();
        if bytes > LINE_BYTES_MAX {
            return Err(Problem::HeaderTooLong { bytes, limit: LINE_BYTES_MAX });
        }
        Ok((header, is_counted))
    }

    /// Returns the line of a trace of this version that has the values and promises a line at its end, without a line
    /// break.
    pub(crate) fn line(&self, format: u64) -> String {
        let mut values = self.values.clone();
        values.insert(COUNTED.into(), true.into());
        if format > PLAIN {
            values.insert(FORMAT.into(), format.into());
        }
        format!("# {}", Value::from(values))
    }

    /// Returns all values by name.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns a description of the program.
    pub fn workload(&self) -> Option<&str> {
        self.values.get("workload")?.as_str()
    }

    /// Returns the allocator configuration with which it ran.
    pub fn conf(&self) -> Option<&str> {
        self.values.get("conf")?.as_str()
    }

    /// Returns the device on which it ran.
    pub fn gpu(&self) -> Option<&str> {
        self.values.get("gpu")?.as_str()
    }

    /// Returns the version of PyTorch with which it ran.
    pub fn torch(&self) -> Option<&str> {
        self.values.get("torch")?.as_str()
    }

    /// Returns the time that it ran, in seconds.
    pub fn seconds(&self) -> Option<f64> {
        self.values.get("seconds")?.as_f64()
    }

    /// Returns the most bytes that the program had requested at one time, as its allocator counted them.
    pub fn peak_requested(&self) -> Option<u64> {
        self.values.get("peak_requested")?.as_u64()
    }

    /// Returns the same number after the allocator's rounding.
    pub fn peak_allocated(&self) -> Option<u64> {
        self.values.get("peak_allocated")?.as_u64()
    }

    /// Returns the same number including blocks that were freed and still in use by the device.
    pub fn peak_active(&self) -> Option<u64> {
        self.values.get("peak_active")?.as_u64()
    }

    /// Returns the most bytes that the program's allocator had reserved at one time.
    pub fn peak_reserved(&self) -> Option<u64> {
        self.values.get("peak_reserved")?.as_u64()
    }

    /// Returns the numbers of the blocks that stand for requests that the recorded program was refused, in order. Empty
    /// where the header does not say.
    pub fn refused_blocks(&self) -> Vec<u64> {
        let blocks = self.values.get("refused_blocks").and_then(Value::as_array);
        blocks.map(|blocks| blocks.iter().filter_map(Value::as_u64).collect()).unwrap_or_default()
    }

    /// Returns how many blocks were allocated before the recording began, and so in an order that is not known. 0 where
    /// the header does not say.
    pub fn blocks_before(&self) -> u64 {
        self.values.get("blocks_before").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns whether the recording is of a PyTorch program: one that names PyTorch's version, or was imported from
    /// its snapshot. Recordings of Rust and C programs are not.
    pub fn is_of_pytorch(&self) -> bool {
        let from = self.values.get("imported_from").and_then(Value::as_str);
        from.map_or(self.torch().is_some(), |from| from == "pytorch")
    }

    /// Returns the bytes of addresses that the device had for its ranges, if they were limited and the header says so.
    pub fn address_bytes(&self) -> Option<u64> {
        self.values.get("address_bytes")?.as_u64()
    }

    /// Returns the segments that the program's allocator took from the driver, in order: the bytes and the address of
    /// each. Empty where the header does not tell.
    pub fn segment_addresses(&self) -> Vec<(u64, u64)> {
        self.values.get(SEGMENTS).and_then(pairs).unwrap_or_default()
    }
}
