//! A file of results: lines of JSON, those of one program under one policy together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use millpond::text::format_bytes;
use serde_json::{Map, Value};

use super::measures::{Measure, OF_BENCH, OF_REPLAY};
use crate::devices::SIMULATED;
use crate::failure::Failure;
use crate::files::{self, shown};

/// The fields of a replay that distinguish it from others. Those of the machine are none of them: two machines are
/// compared.
const REPLAY: [&str; 9] = ["trace", "policy", "conf", "limit_bytes", "scale", "threads", "in_flight", "vary", "keep"];

/// Those of them that are settings, as a title names them where they differ.
const SETTINGS: [&str; 7] = ["conf", "limit_bytes", "scale", "threads", "in_flight", "vary", "keep"];

/// The fields of a measurement that do.
const BENCH: [&str; 3] = ["group", "case", "bytes"];

/// The fields that distinguish the devices of one file.
const DEVICE: [&str; 3] = ["device", "device_options", "device_index"];

/// The results of a file.
pub(super) struct Results {
    /// The results by what distinguishes them, in the order of the file.
    groups: BTreeMap<String, Group>,
    order: Vec<String>,
    count: usize,
    conditions: String,
}

/// The results of one program under one policy: more than one where a file has several runs.
pub(super) struct Group {
    identity: Map<String, Value>,
    /// The settings in which it differs from other groups of the file, for readers.
    settings: String,
    rows: Vec<Value>,
}

impl Results {
    /// Reads a file, or standard input.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] that names the file and the line for what is no result.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = if files::is_input(path) { "standard input".to_owned() } else { shown(path) };
        let mut bytes = Vec::new();
        let read = match files::is_input(path) {
            true => io::stdin().lock().read_to_end(&mut bytes).map(drop),
            false => fs::read(path).map(|content| bytes = content),
        };
        read.map_err(|error| Failure::Input(format!("cannot read {name}: {error}; give a file of results")))?;
        Self::parse(&bytes).map_err(|what| Failure::Input(format!("{name}: {what}")))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        const MAKE: &str = "make one with `millpond replay --json > FILE` or `millpond bench --json > FILE`";
        let mut rows = Vec::new();
        let lines = bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
        for (at, line) in lines {
            let row: Option<Value> = serde_json::from_slice(line).ok();
            let row = row.filter(|row| is_replay(row) || is_bench(row));
            let what = || format!("line {}: this is no result of `replay` or `bench` in JSON; {MAKE}", at + 1);
            rows.push(row.ok_or_else(what)?);
        }
        let Some(first) = rows.first() else { return Err(format!("there is no result in it; {MAKE}")) };
        let conditions = conditions(first);
        let devices: Vec<_> = rows.iter().map(|row| DEVICE.map(|key| &row[key])).collect();
        let has_several = devices.iter().any(|device| *device != devices[0]);
        let mut digests = BTreeMap::<&str, BTreeSet<&str>>::new();
        for row in &rows {
            let (trace, digest) = (row["trace"].as_str(), row["trace_digest"].as_str());
            digests.entry(trace.unwrap_or_default()).or_default().extend(digest);
        }
        // Traces of one name in two folders.
        let has_namesakes = digests.values().any(|digests| digests.len() > 1);
        let (mut groups, mut order, count) = (BTreeMap::<String, Group>::new(), Vec::new(), rows.len());
        for row in rows {
            let identity = identity(&row, has_several, has_namesakes);
            let key = Value::Object(identity.clone()).to_string();
            let group = groups.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                Group { identity, settings: String::new(), rows: Vec::new() }
            });
            group.rows.push(row);
        }
        Ok(Self { groups, order, count, conditions })
    }

    /// Returns how many results there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns where and when the first was measured, for readers.
    pub(super) fn conditions(&self) -> &str {
        &self.conditions
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.order.iter().filter_map(|key| Some((key.as_str(), self.groups.get(key)?)))
    }

    pub(super) fn group(&self, key: &str) -> Option<&Group> {
        self.groups.get(key)
    }
}

impl Group {
    pub(super) fn identity(&self) -> &Map<String, Value> {
        &self.identity
    }

    pub(super) fn rows(&self) -> &[Value] {
        &self.rows
    }

    /// Returns the digest of the trace, if it is told.
    pub(super) fn digest(&self) -> Option<&str> {
        self.rows.first()?["trace_digest"].as_str()
    }

    /// Returns whether its times of the driver are by the simulated device's clock.
    pub(super) fn is_simulated(&self) -> bool {
        self.rows.iter().all(|row| row["device"] == SIMULATED)
    }

    /// Returns how many passes its replays have; the most, where they differ.
    pub(super) fn passes(&self) -> Option<u64> {
        self.rows.iter().filter_map(|row| row["passes"].as_u64()).max()
    }

    /// Returns what can be compared.
    pub(super) fn measures(&self) -> impl Iterator<Item = Measure> {
        let all: &[Measure] = if self.rows.iter().any(is_replay) { &OF_REPLAY } else { &OF_BENCH };
        all.iter().copied()
    }

    /// Returns the values of a measure, one for each run that has it.
    pub(super) fn values(&self, measure: Measure) -> Vec<f64> {
        self.rows.iter().filter_map(|row| measure.of(row)).collect()
    }

    /// Returns the value in the middle, or the mean of the two there.
    pub(super) fn median(&self, measure: Measure) -> Option<f64> {
        let mut values = self.values(measure);
        values.sort_by(f64::total_cmp);
        let upper = values.get(values.len() / 2)?;
        Some(values[(values.len() - 1) / 2].midpoint(*upper))
    }

    /// Returns the program and the policy, as a key.
    fn program(&self) -> String {
        format!("{:?}", ["trace", "policy"].map(|key| self.identity.get(key)))
    }

    /// Returns a setting for readers.
    fn setting(&self, key: &str) -> String {
        match self.identity.get(key) {
            None => "none".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) if key.ends_with("_bytes") => value.as_u64().map_or_else(|| value.to_string(), format_bytes),
            Some(value) => value.to_string(),
        }
    }

    /// Returns what the results are of, for readers.
    pub(super) fn title(&self) -> String {
        let text = |key: &str| self.identity.get(key).and_then(Value::as_str).unwrap_or_default();
        let index = self.identity.get("device_index").map(Value::to_string).unwrap_or_default();
        let device = match (text("device"), text("device_options"), index.as_str()) {
            ("", ..) => String::new(),
            (device, "", "") => format!("{device}: "),
            (device, "", which) | (device, which, _) => format!("{device}:{which}: "),
        };
        if self.identity.contains_key("case") {
            let bytes = self.identity.get("bytes").and_then(Value::as_u64);
            let bytes = bytes.map_or(String::new(), |bytes| format!(", {}", format_bytes(bytes)));
            return format!("{device}{}: {}{bytes}", text("group"), text("case"));
        }
        format!("{device}{} under {}{}", text("trace"), text("policy"), self.settings)
    }
}

/// Gives each group of a replay the settings in which the groups of its program and policy differ, of both files.
pub(super) fn name_settings(files: [&mut Results; 2]) {
    let mut found = BTreeMap::<String, BTreeMap<&str, BTreeSet<String>>>::new();
    for group in files.iter().flat_map(|results| results.groups.values()) {
        let settings = found.entry(group.program()).or_default();
        for key in SETTINGS {
            settings.entry(key).or_default().insert(group.setting(key));
        }
    }
    for group in files.into_iter().flat_map(|results| results.groups.values_mut()) {
        let settings = &found[&group.program()];
        let differ = SETTINGS.iter().filter(|key| settings[**key].len() > 1);
        let named =
            |key: &&str| format!(", {} {}", key.trim_end_matches("_bytes").replace('_', " "), group.setting(key));
        group.settings = differ.map(named).collect();
    }
}

fn is_replay(row: &Value) -> bool {
    row["trace"].is_string() && row["policy"].is_string() && row["peak_reserved_bytes"].is_u64()
}

fn is_bench(row: &Value) -> bool {
    row["group"].is_string() && row["case"].is_string() && row["ns"].is_f64()
}

/// Returns the fields that distinguish a result from others of its file.
fn identity(row: &Value, with_device: bool, with_digest: bool) -> Map<String, Value> {
    let own = if is_replay(row) { &REPLAY[..] } else { &BENCH };
    let device = if with_device { &DEVICE[..] } else { &[] };
    let digest = if with_digest { &["trace_digest"][..] } else { &[] };
    let fields = own.iter().chain(device).chain(digest).filter(|key| !row[**key].is_null());
    fields.map(|key| ((*key).to_owned(), row[*key].clone())).collect()
}

fn conditions(row: &Value) -> String {
    let text = |key: &str| row[key].as_str();
    let parts = [
        text("device_name").map(|name| match text("device") {
            Some(device) if device != SIMULATED => format!("{name} through {device}"),
            _ => name.to_owned(),
        }),
        text("driver").map(str::to_owned),
        text("host").map(|host| format!("on {host}")),
        text("version").map(|version| format!("millpond {version}")),
        text("date").map(str::to_owned),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "{\"trace\":\"a\",\"policy\":\"paged\",\"device\":\"x\",\"peak_reserved_bytes\":7}";

    #[test]
    fn rows_of_one_program_are_one_group() {
        let other = ROW.replace("\"x\"", "\"y\"");
        let one = Results::parse(format!("{ROW}\n\n{ROW}\n").as_bytes()).unwrap_or_else(|what| panic!("{what}"));
        assert_eq!((one.len(), one.groups().count()), (2, 1));
        let two = Results::parse(format!("{ROW}\n{other}\n").as_bytes()).unwrap_or_else(|what| panic!("{what}"));
        let titles: Vec<_> = two.groups().map(|(_, group)| group.title()).collect();
        assert_eq!(titles, ["x: a under paged", "y: a under paged"]);
    }

    #[test]
    fn a_title_names_the_settings_in_which_results_differ() {
        let results = |text: &str| Results::parse(text.as_bytes()).unwrap_or_else(|what| panic!("{what}"));
        let titles = |results: &Results| results.groups().map(|(_, group)| group.title()).collect::<Vec<_>>();
        let with = |more: &str| ROW.replace('}', &format!(",{more}}}"));
        let (one, two) = (with("\"limit_bytes\":2097152"), with("\"in_flight\":200"));
        let first = "a under paged, limit 2.00 MiB, in flight none";
        let second = "a under paged, limit none, in flight 200";
        let (mut a, mut b) = (results(&format!("{one}\n{two}\n")), results(&one));
        name_settings([&mut a, &mut b]);
        assert_eq!((titles(&a), titles(&b)), (vec![first.to_owned(), second.to_owned()], vec![first.to_owned()]));
        // The settings of two files differ, too.
        let (mut a, mut b) = (results(&one), results(&two));
        name_settings([&mut a, &mut b]);
        assert_eq!((titles(&a), titles(&b)), (vec![first.to_owned()], vec![second.to_owned()]));
        let (mut a, mut b) = (results(&one), results(&one));
        name_settings([&mut a, &mut b]);
        assert_eq!(titles(&a), ["a under paged"]);
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_line() {
        for (text, says) in [
            ("", "there is no result in it"),
            ("# {}\na 0 1 0\n", "line 1: this is no result"),
            ("{\"backend\":\"x\"}\n", "line 1: this is no result"),
            (&format!("{ROW}\n[]\n"), "line 2: this is no result"),
        ] {
            let error = Results::parse(text.as_bytes()).err().unwrap_or_else(|| panic!("read: {text}"));
            assert!(error.contains(says) && error.contains("--json > FILE"), "{text}: {error}");
        }
    }
}
