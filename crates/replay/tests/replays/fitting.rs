//! Which policies fit what an allocator has recorded: one that fits, none, and what is known without the beginning.

use millpond::history::Recording;
use millpond::settings::Settings;
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_replay::{Fit, Fits, fits_of, trace_of_snapshot, which_policies_fit};
use millpond_sim::Sim;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 64 * MIB;

fn limited(conf: &str, entries: usize) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::builder(Sim::new()).conf(conf).limit(LIMIT).build().expect("an allocator");
    allocator.record_history(Recording::all(entries));
    let stream = allocator.create_stream().expect("a stream");
    (allocator, stream)
}

/// Allocates nine blocks and frees every other one: 30 MiB of 54 are free, in pieces of 6 MiB.
fn with_holes(stream: &Stream<Sim>) -> Vec<Buffer<Sim>> {
    let blocks: Vec<_> = (0..9).map(|_| stream.allocate(6 * MIB).expect("room")).collect();
    blocks.into_iter().enumerate().filter(|(at, _)| at % 2 == 1).map(|(_, block)| block).collect()
}

fn refused(stream: &Stream<Sim>, bytes: u64) {
    let result = stream.allocate(bytes);
    assert!(matches!(&result, Err(Error::OutOfMemory(_))), "{result:?}");
}

fn verdicts(fits: &Fits) -> Vec<(&'static str, bool)> {
    fits.policies.iter().map(|fit| (fit.policy(), fit.fits())).collect()
}

#[test]
fn the_policies_that_move_pages_fit_what_classic_refuses() {
    let (allocator, stream) = limited("policy:classic", 1000);
    let held = with_holes(&stream);
    refused(&stream, 24 * MIB);
    let snapshot = allocator.snapshot();
    let fits = which_policies_fit(&snapshot, Sim::new).expect("replays");
    let classic = fits.policies.iter().find(|fit| fit.policy() == "classic").expect("classic");
    assert_eq!((classic.refused, classic.reserved_peak), (1, 60 * MIB), "as it was");
    for (policy, fits) in verdicts(&fits) {
        assert_eq!(fits, !matches!(policy, "classic" | "expandable"), "{policy}");
    }
    let paged = fits.policies.iter().find(|fit| fit.policy() == "paged").expect("paged");
    assert!(paged.reserved_peak >= fits.live_peak && paged.reserved_peak <= LIMIT, "{paged:?}");
    assert!(fits.best().is_some_and(|best| best.reserved_peak <= paged.reserved_peak));
    let text = fits.to_string();
    assert!(text.starts_with("Of the policies, ") && text.contains(" fit in 64.00 MiB:\n"), "{text}");
    assert!(text.contains("\n  classic     refuses a request; 60.00 MiB reserved at most\n"), "{text}");
    assert!(text.contains("\n  paged       fits, and reserves "), "{text}");
    assert!(!text.contains("lost") && !text.contains("in flight"), "{text}");

    // The advice helps: the same program, with that policy set.
    let (_, stream) = limited("policy:paged", 1000);
    let again = with_holes(&stream);
    assert!(stream.allocate(24 * MIB).is_ok());
    drop((held, again));
}

#[test]
fn where_more_is_asked_for_than_is_allowed_none_fits() {
    let (allocator, stream) = limited("policy:classic", 1000);
    let held = with_holes(&stream);
    refused(&stream, 48 * MIB);
    let fits = which_policies_fit(&allocator.snapshot(), Sim::new).expect("replays");
    assert!(fits.best().is_none() && fits.policies.len() >= 5, "{fits}");
    let text = fits.to_string();
    let expected = "No policy fits in 64.00 MiB: 72.00 MiB must be live at once, 8.00 MiB more:";
    assert!(text.starts_with(expected), "{text}");
    drop(held);
}

#[test]
fn what_was_live_where_the_history_begins_is_known_and_the_loss_is_told() {
    let (allocator, stream) = limited("policy:classic", 8);
    let held = with_holes(&stream);
    // Older than the eight entries that are left: the live blocks, and those that were freed.
    (0..20).for_each(|_| drop(stream.allocate(MIB / 4).expect("room")));
    refused(&stream, 24 * MIB);
    let snapshot = allocator.snapshot();
    assert!(snapshot.history.lost > 20);
    let fits = which_policies_fit(&snapshot, Sim::new).expect("replays");
    assert_eq!(fits.live_peak, (4 * 6 + 24) * MIB, "the four blocks that are alive, and the request");
    let text = fits.to_string();
    let lost = format!("The history has lost its {} oldest entries.", snapshot.history.lost);
    assert!(text.contains(&lost) && text.contains("what was cached there is not"), "{text}");
    // What was cached is what was in the way, and is not known.
    assert!(verdicts(&fits).contains(&("classic", true)), "{text}");
    assert!(text.contains("The policy that refused a request fits in the replay"), "{text}");
    drop(held);
}

#[test]
fn a_device_without_virtual_memory_has_fewer_policies() {
    let (allocator, stream) = limited("policy:classic", 1000);
    drop(stream.allocate(MIB).expect("room"));
    let trace = trace_of_snapshot(&allocator.snapshot());
    let open = || Sim::builder().pages(None).build();
    let fits = fits_of(&trace, &Settings::default(), LIMIT, open).expect("replays");
    let names: Vec<_> = fits.iter().map(|fit| (fit.policy(), fit.fits())).collect();
    assert_eq!(names, [("classic", true), ("direct", true)]);
}

#[test]
fn the_best_policy_fits_and_reserves_the_least() {
    let fit = |refused, reserved_peak| Fit { settings: Settings::default(), refused, reserved_peak };
    let policies = vec![fit(0, 30), fit(0, 20), fit(1, 10), fit(0, 40)];
    let mut fits = Fits { limit_bytes: None, live_peak: 10, policies, recorded: None };
    assert_eq!(fits.best().map(|fit| fit.reserved_peak), Some(20));
    fits.policies.retain(|fit| !fit.fits());
    assert_eq!(fits.best(), None);
}
