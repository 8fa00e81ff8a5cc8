//! The budget: its numbers are possible, and they follow what is reserved and released.

use std::thread;
use std::time::Duration;

use millpond_backend::{Backend, BudgetInfo, ClassId};

use super::bench::Bench;
use super::{advised, breach};
use crate::device::DeviceUnderTest;
use crate::session::Stop;

const VERB: &str = "Budget::budget";
/// The most bytes that are reserved to see the budget change.
const BYTES: u64 = 64 << 20;
/// The number of tries. Other processes may reserve and release at the same moment, so that one try shows nothing.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);
/// The driver's total may differ from the class's total by one part in this number: the driver keeps some memory for
/// itself.
const TOLERANCE: u64 = 16;

fn ask<D: DeviceUnderTest>(bench: &Bench<'_, D>, class: ClassId) -> Result<BudgetInfo, Stop> {
    let rule = "returns itself where Caps::budget announces it";
    let budget = bench.backend().budget().ok_or_else(|| breach("Backend::budget", "answers none", rule))?;
    budget.budget(class).map_err(|error| breach(VERB, format!("class {}: {error}", class.0), "asks the driver now"))
}

/// Checks that no part of the budget exceeds its total, and that the total agrees with that of the class.
pub(super) fn is_plausible<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    for class in bench.classes() {
        let (told, facts) = (ask(bench, class)?, bench.caps().class(class));
        let parts = [Some(told.free_bytes), told.others_bytes, told.process_bytes];
        if parts.into_iter().flatten().any(|bytes| bytes > told.total_bytes) {
            let found = format!("{told:?} of class {}: a part is larger than the whole", class.0);
            return Err(breach(VERB, found, "total_bytes are the bytes there are in all"));
        }
        if class == ClassId::DEVICE && told.total_bytes.abs_diff(facts.total_bytes) > facts.total_bytes / TOLERANCE {
            let found = format!("{} bytes in all, and the class has {}", told.total_bytes, facts.total_bytes);
            return Err(breach(VERB, found, "Class::total_bytes are all bytes that the device has in this class"));
        }
        let segment = bench.reserve(class, 1 << 20)?;
        bench.release(segment)?;
        if told.free_bytes == 0 {
            let found = format!("{told:?} of class {}, of which a segment was had", class.0);
            return Err(breach(VERB, found, "free_bytes can still be had"));
        }
    }
    Ok(())
}

/// Checks that memory that is reserved is missing from the free bytes or counted for this process, and that its release
/// reverts this.
pub(super) fn follows<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    if !bench.device.budget_follows(bench.backend()) {
        return Err(Stop::Skip("the device's budget is not of what it has handed out, says its author".to_owned()));
    }
    let class = bench.caps().class(ClassId::DEVICE);
    let bytes = BYTES.min(class.max_segment_bytes).min(class.total_bytes / 8);
    let taken = |from: &BudgetInfo, to: &BudgetInfo| {
        let less = from.free_bytes.saturating_sub(to.free_bytes);
        let more = to.process_bytes.zip(from.process_bytes).map_or(0, |(to, from)| to.saturating_sub(from));
        less.max(more) >= bytes / 2
    };
    let mut seen = None;
    for _ in 0..TRIES {
        let before = ask(bench, ClassId::DEVICE)?;
        let segment = bench.reserve(ClassId::DEVICE, bytes)?;
        let during = ask(bench, ClassId::DEVICE)?;
        bench.release(segment)?;
        let after = ask(bench, ClassId::DEVICE)?;
        if taken(&before, &during) && taken(&after, &during) {
            return Ok(());
        }
        seen = Some((before, during, after));
        thread::sleep(PAUSE);
    }
    let Some((before, during, after)) = seen else { return Ok(()) };
    let [first, then, last] = [before, during, after].map(|told| told.free_bytes);
    let found = format!(
        "{bytes} bytes were taken and given back, {TRIES} times: free_bytes were {first}, then {then}, then {last} of \
         {}",
        during.total_bytes
    );
    let rule = "free_bytes can still be had: less while memory is taken, as much after its release";
    Err(advised(breach(VERB, found, rule), suspicion(bytes, before, during, after)))
}

/// Returns what is probably wrong with a budget that does not follow what is reserved and released.
fn suspicion(bytes: u64, before: BudgetInfo, during: BudgetInfo, after: BudgetInfo) -> &'static str {
    let less = before.free_bytes.saturating_sub(during.free_bytes);
    if during.total_bytes != before.total_bytes {
        return "return all bytes of the class as total_bytes, which never change; BudgetInfo::new takes the free bytes \
                first";
    }
    if during.free_bytes > before.free_bytes {
        return "return what is free, not what is in use: it rises while memory is taken";
    }
    if less > 0 && less < bytes / 2 {
        return "return bytes: the driver's numbers may be in KiB, pages or blocks";
    }
    if less > 0 && after.free_bytes < before.free_bytes {
        return "see why the release gives nothing back: the check space/what-is-released-can-be-had-again";
    }
    "ask the driver at each call and keep no answer; if it counts only what was written, return false from \
     DeviceUnderTest::budget_follows"
}
