//! `millpond devices`: every backend, its devices, their memory and what they can do.

use std::collections::BTreeMap;

use millpond::Usage;
use millpond::settings::Policy;
use millpond::text::format_bytes;
use millpond_backend::{BudgetInfo, Caps, Closing, Reuse};
use serde::Serialize;

use crate::devices::{BACKENDS, Broken, Device, Fact, Found, UsageRow};
use crate::failure::Failure;
use crate::output::{Align, Output, Table, hanging};

/// The indentation of what is said about a device.
const INDENT: usize = 2;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Pass the name on the left to --device. A backend without devices is listed with the reason and what to do about it. \
Some drivers write to standard error when they are loaded: Mesa, for example, if XDG_RUNTIME_DIR is not set.

Examples:
  millpond devices
  millpond devices --json | jq -r 'select(.available) | .device'
                                 only the names
  millpond devices 2>/dev/null   without messages of drivers";

/// Lists all backends with their devices. A backend without devices is a result, not a failure.
pub(crate) fn run(output: &mut Output) -> Result<(), Failure> {
    for entry in BACKENDS {
        match (entry.find)() {
            Found::Devices(devices) => {
                for listed in &devices {
                    match listed {
                        Ok(device) if output.is_json() => output.json(&Row::present(entry.name, device)),
                        Ok(device) => output.text(&describe(device, output)),
                        Err(broken) if output.is_json() => output.json(&Row::broken(entry.name, broken)),
                        Err(broken) => output.text(&describe_broken(broken, output)),
                    }
                }
            }
            Found::Nothing { why, remedy } => {
                if output.is_json() {
                    output.json(&Row::absent(entry.name, &why, &remedy));
                } else {
                    let reason = hanging("  ", &format!("{why}; {remedy}"), output.width());
                    output.text(&format!("{}: not available\n{reason}\n", entry.name));
                }
            }
        }
    }
    Ok(())
}

fn describe(device: &Device, output: &Output) -> String {
    let width = output.width().saturating_sub(INDENT);
    let style = output.style();
    let mut memory = Table::new(&[("class", Align::Left), ("total", Align::Right), ("free", Align::Right)]);
    for (class, budget) in device.caps.classes.iter().zip(&device.budgets) {
        let free = budget.map_or("unknown".into(), |budget| format_bytes(budget.free_bytes));
        memory.row(vec![class.name.clone(), format_bytes(class.total_bytes), free]);
    }
    let in_use = device.budgets.first().copied().flatten().map(in_use);
    let powers = table("capability", capabilities(&device.caps)).fitted(width, style).text;
    let mut body = format!(
        "{}\n{}{powers}",
        memory.fitted(width, style).text,
        in_use.map_or(String::new(), |table| table.fitted(width, style).text + "\n")
    );
    if !device.facts.is_empty() {
        body = format!("{}\n{body}", table("device", device.facts.iter().cloned()).fitted(width, style).text);
    }
    if !device.missing.is_empty() {
        body += "\nmissing\n";
        device.missing.iter().for_each(|missing| body += &hanging("  ", missing, width));
    }
    format!("{}: {}\n{}\n", device.target, device.caps.name, indent(&body))
}

/// Returns a table of where the memory in use is, while nothing is reserved yet.
fn in_use(budget: BudgetInfo) -> Table {
    let usage = Usage::new(&budget, 0);
    let mut table = Table::new(&[("in use", Align::Left), ("", Align::Right)]);
    let parts = usage.parts().into_iter().filter(|&(name, _)| name != "reserved here");
    parts.chain([("total", usage.used_bytes())]).for_each(|(name, bytes)| {
        table.row(vec![name.into(), format_bytes(bytes)]);
    });
    table
}

fn describe_broken(broken: &Broken, output: &Output) -> String {
    let Broken { target, name, facts, why, remedy } = broken;
    let width = output.width();
    let facts = table("device", facts.iter().cloned()).fitted(width.saturating_sub(INDENT), output.style()).text;
    let reason = hanging("  ", &format!("not available: {why}; {remedy}"), width);
    format!("{target}: {name}\n{reason}\n{}\n", indent(&facts))
}

fn table(head: &'static str, rows: impl IntoIterator<Item = Fact>) -> Table {
    let mut table = Table::new(&[(head, Align::Left), ("", Align::Left)]);
    rows.into_iter().for_each(|(name, value)| table.row(vec![name.into(), value]));
    table
}

/// Returns what the device can do, and the consequence for the allocator where it cannot.
fn capabilities(caps: &Caps) -> [(&'static str, String); 9] {
    let or_missing = |has: bool, missing: &str| if has { "yes".to_string() } else { format!("no: {missing}") };
    let mut reuse = match caps.reuse {
        Reuse::InOrder => "at once, in order on the stream",
        Reuse::AfterSubmit => "once the work before the free was submitted",
        Reuse::AfterDone => "once the work before the free is done",
    }
    .to_string();
    if caps.needs_barrier {
        reuse += ", behind a memory barrier of the caller's";
    }
    let closing = match caps.closing {
        Closing::Backend => "by the backend, when asked what was reached",
        Closing::Submit => "by the application's submit",
    };
    let pages = match caps.pages {
        Some(pages) => {
            let twice = if pages.aliasing { "may" } else { "cannot" };
            format!("yes: pages of {}, which {twice} be mapped twice", format_bytes(pages.granularity))
        }
        None => "no: policy:paged and expandable_segments are refused".into(),
    };
    let release = if caps.release_waits { "waits for the device" } else { "does not wait" };
    [
        ("reuse on the home stream", reuse),
        ("ticks are closed", closing.into()),
        ("releasing a segment", release.into()),
        ("virtual memory", pages),
        ("device-side waits", or_missing(caps.stream_wait, "the host waits where streams meet")),
        ("host addresses", or_missing(caps.host_memory, "no class can be touched by the host")),
        ("fills and copies", or_missing(caps.transfer, "bytes are moved by the application's own work")),
        ("reports free memory", or_missing(caps.budget, "set a limit where others use the device too")),
        ("default policy", format!("{}: {}", default_policy(caps).name(), why_default(caps))),
    ]
}

fn default_policy(caps: &Caps) -> Policy {
    Policy::default_for(caps.pages.is_some())
}

/// Returns why that policy is the default, and when it can use freed memory elsewhere.
fn why_default(caps: &Caps) -> &'static str {
    match caps.pages {
        None => "paged falls back to it, as there is no virtual memory",
        Some(pages) if !pages.aliasing => "free memory is reused in place and cannot be joined",
        Some(pages) if pages.alias_reuse == Reuse::AfterDone => "free memory is joined after its last use is done",
        Some(pages) if pages.alias_reuse == Reuse::AfterSubmit => {
            "free memory is joined after its last use is submitted"
        }
        Some(_) if !caps.stream_wait || caps.closing == Closing::Submit => {
            "free memory is joined at once for its stream, and for others after its last use is done"
        }
        Some(_) => "free memory is joined at once, for another stream after a device-side wait",
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".into() } else { format!("  {line}\n") }).collect()
}

/// A line of JSON.
#[derive(Serialize)]
struct Row<'a> {
    backend: &'a str,
    available: bool,
    #[serde(flatten)]
    rest: Rest<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Rest<'a> {
    Present {
        device: &'a str,
        name: &'a str,
        classes: Vec<ClassRow<'a>>,
        memory_usage: Option<UsageRow>,
        reuse: &'static str,
        needs_barrier: bool,
        closing: &'static str,
        release_waits: bool,
        page_granularity_bytes: Option<u64>,
        page_aliasing: Option<bool>,
        page_alias_reuse: Option<&'static str>,
        stream_wait: bool,
        host_memory: bool,
        transfer: bool,
        budget: bool,
        default_policy: &'static str,
        default_policy_reason: &'static str,
        facts: BTreeMap<&'static str, &'a str>,
        missing: &'a [String],
    },
    Broken {
        device: &'a str,
        name: &'a str,
        facts: BTreeMap<&'static str, &'a str>,
        reason: &'a str,
        remedy: &'a str,
    },
    Absent {
        reason: &'a str,
        remedy: &'a str,
    },
}

#[derive(Serialize)]
struct ClassRow<'a> {
    name: &'a str,
    kind: &'static str,
    total_bytes: u64,
    free_bytes: Option<u64>,
    others_bytes: Option<u64>,
    process_bytes: Option<u64>,
    alignment: u64,
    max_segment_bytes: u64,
}

fn name_of(reuse: Reuse) -> &'static str {
    match reuse {
        Reuse::InOrder => "in-order",
        Reuse::AfterSubmit => "after-submit",
        Reuse::AfterDone => "after-done",
    }
}

impl<'a> Row<'a> {
    fn absent(backend: &'a str, reason: &'a str, remedy: &'a str) -> Self {
        Row { backend, available: false, rest: Rest::Absent { reason, remedy } }
    }

    fn present(backend: &'a str, device: &'a Device) -> Self {
        let caps = &device.caps;
        let classes = caps.classes.iter().zip(&device.budgets).map(|(class, budget)| ClassRow {
            name: &class.name,
            kind: class.kind.name(),
            total_bytes: class.total_bytes,
            free_bytes: budget.map(|budget| budget.free_bytes),
            others_bytes: budget.and_then(|budget| budget.others_bytes),
            process_bytes: budget.and_then(|budget| budget.process_bytes),
            alignment: class.alignment,
            max_segment_bytes: class.max_segment_bytes,
        });
        let rest = Rest::Present {
            device: &device.target,
            name: &caps.name,
            classes: classes.collect(),
            memory_usage: device
                .budgets
                .first()
                .copied()
                .flatten()
                .map(|budget| UsageRow::new(&Usage::new(&budget, 0))),
            reuse: name_of(caps.reuse),
            needs_barrier: caps.needs_barrier,
            closing: match caps.closing {
                Closing::Backend => "backend",
                Closing::Submit => "submit",
            },
            release_waits: caps.release_waits,
            page_granularity_bytes: caps.pages.map(|pages| pages.granularity),
            page_aliasing: caps.pages.map(|pages| pages.aliasing),
            page_alias_reuse: caps.pages.filter(|pages| pages.aliasing).map(|pages| name_of(pages.alias_reuse)),
            stream_wait: caps.stream_wait,
            host_memory: caps.host_memory,
            transfer: caps.transfer,
            budget: caps.budget,
            default_policy: default_policy(caps).name(),
            default_policy_reason: why_default(caps),
            facts: by_name(&device.facts),
            missing: &device.missing,
        };
        Row { backend, available: true, rest }
    }

    fn broken(backend: &'a str, broken: &'a Broken) -> Self {
        let Broken { target, name, facts, why, remedy } = broken;
        let rest = Rest::Broken { device: target, name, facts: by_name(facts), reason: why, remedy };
        Row { backend, available: false, rest }
    }
}

fn by_name(facts: &[Fact]) -> BTreeMap<&'static str, &str> {
    facts.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use millpond_backend::{Backend as _, PageCaps};
    use millpond_sim::Sim;

    use super::*;

    #[test]
    fn the_default_policy_follows_from_what_the_device_can_do() {
        let pages = |aliasing| Some(PageCaps::new(2 << 20).with_aliasing(aliasing));
        let ordered = |alias_reuse| Some(PageCaps::new(2 << 20).with_alias_reuse(alias_reuse));
        let cases = [
            (None, true, "classic", "no virtual memory"),
            (pages(false), true, "paged", "cannot be joined"),
            (pages(true), false, "paged", "for others after its last use is done"),
            (pages(true), true, "paged", "after a device-side wait"),
            (ordered(Reuse::AfterSubmit), true, "paged", "after its last use is submitted"),
            (ordered(Reuse::AfterDone), true, "paged", "joined after its last use is done"),
        ];
        for (pages, stream_wait, policy, reason) in cases {
            let sim = Sim::builder().pages(pages).stream_wait(stream_wait).build();
            let (name, told) = capabilities(sim.caps())[8].clone();
            assert_eq!(name, "default policy");
            assert!(told.starts_with(&format!("{policy}: ")) && told.contains(reason), "{told}");
        }
    }
}
