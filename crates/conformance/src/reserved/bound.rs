//! How much more than what is live a program may have reserved.

use millpond::settings::{Growth, Policy, Segments};
use millpond_backend::{Caps, Reuse};

use super::NAMES;

/// The bound where nothing else is said.
const USUAL: f64 = 1.10;

/// The bounds of the policies that keep to none, by program, as [`NAMES`] has them, while the program waits for each
/// step and with work in flight. `classic` and `expandable` keep what a stream had for that stream, those of dropped
/// streams included: what they have for epochs is bounded by their number alone. `direct` releases only what the device
/// is done with. Where threads run at once, chance decides what each stream has at most: 2.42 was seen under `classic`.
const PLAIN: [[f64; 2]; NAMES.len()] =
    [[1.25, 1.30], [1.20, 1.35], [1.12, 1.13], [1.35, 1.50], [10.0, 10.0], [1.45, 1.45], [2.60, 2.60]];
const EXPANDABLE: [[f64; 2]; NAMES.len()] =
    [[1.15, 1.20], [1.20, 1.35], [1.14, 1.14], [1.55, 1.55], [9.50, 9.50], [1.40, 1.40], [2.60, 2.60]];
const DIRECT: [[f64; 2]; NAMES.len()] =
    [[1.05, 1.35], [1.05, 1.40], [1.05, 1.20], [1.05, 1.30], [1.05, 2.15], [1.20, 1.20], [1.60, 1.60]];

/// The bounds of `paged` with work in flight that streams may wait for on the device. `balanced` creates pages up to
/// 1.5 times what is live, and 8 MiB, while streams are behind.
const BALANCED: [f64; NAMES.len()] = [1.30, 1.45, USUAL, 1.55, 1.60, USUAL, 1.60];

/// The bounds of `paged` with work in flight where a stream cannot wait for another one on the device, or not even its
/// own work is in order before it is submitted; and where it is not before it is done. What the device still uses then
/// serves nobody, whatever the growth, and most of these programs have several times as much in flight as is live.
const UNORDERED: [f64; NAMES.len()] = [1.35, 1.55, USUAL, 1.55, 2.10, 1.30, 1.60];
const AFTER_DONE: [f64; NAMES.len()] = [1.60, 1.80, 1.30, 1.80, 2.80, 1.35, 1.60];

/// Returns how many times what was active a program may have reserved at most.
pub(super) fn bound(program: usize, policy: Policy, in_flight: bool, caps: &Caps) -> f64 {
    // A device that cannot hold work is done with each step as if it were waited for.
    let of =
        |table: [[f64; 2]; NAMES.len()]| table[program][..=usize::from(in_flight)].iter().copied().fold(0.0, f64::max);
    match policy {
        Policy::Classic(Segments::Expandable) => of(EXPANDABLE),
        Policy::Classic(_) => of(PLAIN),
        Policy::Direct => of(DIRECT),
        Policy::Paged { growth, .. } => of_pages(program, growth, in_flight, caps),
        _ => USUAL,
    }
}

fn of_pages(program: usize, growth: Growth, in_flight: bool, caps: &Caps) -> f64 {
    let name = NAMES[program];
    // Each pool has its own slack, and a pipeline's stages free what other stages use.
    let usual = match name {
        "pools" if caps.reuse != Reuse::InOrder => 1.30,
        "pools" => 1.18,
        "pipeline" => 1.15,
        // A thread passes over what another one has claimed, so chance decides. Of 1,500 runs on the simulated device
        // 1 % reserve more than 1.11 times what is live, and 0.1 % more than 1.3. The most that was seen is 1.43.
        "threads" => 1.60,
        _ => USUAL,
    };
    // What a stream has used at other addresses may be in order later.
    let reuse = caps.pages.map_or(caps.reuse, |pages| caps.reuse.max(pages.alias_reuse));
    let in_flight_alone = match (reuse, caps.stream_wait) {
        (Reuse::AfterDone, _) => AFTER_DONE[program],
        (Reuse::AfterSubmit, _) | (_, false) => UNORDERED[program],
        (Reuse::InOrder, true) => match growth {
            Growth::Tight => usual,
            Growth::Balanced => BALANCED[program],
        },
    };
    let bound = if in_flight { usual.max(in_flight_alone) } else { usual };
    bound + if in_flight { 4.0 } else { 1.0 } * of_large_pages(caps)
}

/// Returns what pages that are larger than the usual ones add.
fn of_large_pages(caps: &Caps) -> f64 {
    if caps.pages.is_some_and(|pages| pages.granularity > 2 << 20) { 0.10 } else { 0.0 }
}
