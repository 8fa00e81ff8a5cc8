//! Replays that have their segments where the recorded program had them.

use millpond::Allocator;
use millpond::settings::{Policy, Segments, Settings, Ties};
use millpond_replay::Replay;
use millpond_sim::Sim;
use millpond_trace::Trace;

const MIB: u64 = 1 << 20;

/// Two small segments of two blocks of 1 MiB each, of which the later has the lower address. The second block of each
/// is freed, and the two free blocks tie for 512 bytes. In the later segment those leave the earlier one to become free
/// as a whole, which holds two blocks of 768 KiB and one of 512 KiB; in the earlier one they do not.
const TIE: &str = "\
a 0 1048576 0
a 1 1048576 0
a 2 1048576 0
a 3 1048576 0
f 1
f 3
a 4 512 0
f 0
a 5 786432 0
a 6 786432 0
a 7 786432 0
a 8 524288 0
";

/// Returns the peak of reserved bytes in a replay under `classic`.
fn reserved(header: &str, ties: Ties) -> u64 {
    let replay = Replay::new(&Trace::parse(format!("{header}{TIE}").as_bytes()).expect("a trace"));
    let sim = Sim::new();
    sim.expect_segments(replay.segment_addresses());
    let settings = Settings { policy: Policy::Classic(Segments::Plain), ties, ..Settings::default() };
    let allocator = Allocator::builder(sim).settings(settings).build().expect("valid settings");
    replay.run(&allocator, 0).expect("no driver fails");
    allocator.max_memory_reserved()
}

#[test]
fn a_tie_is_decided_by_the_addresses_of_the_recorded_segments() {
    let falling = "# {\"segment_addresses\": [[2097152, 139642275823616], [2097152, 139642273726464]]}\n";
    let rising = "# {\"segment_addresses\": [[2097152, 139642273726464], [2097152, 139642275823616]]}\n";
    assert_eq!(reserved(falling, Ties::Address), 4 * MIB);
    assert_eq!(reserved(rising, Ties::Address), 6 * MIB);
    assert_eq!(reserved("", Ties::Address), 6 * MIB, "the device's own addresses rise");
    assert_eq!(reserved(falling, Ties::Birth), 6 * MIB, "by birth, addresses decide nothing");
}
