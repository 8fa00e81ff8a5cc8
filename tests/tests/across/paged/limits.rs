//! Limits: what is refused, and when.

use millpond::settings::Settings;
use millpond::{Allocator, Error};
use millpond_sim::Completion;

use super::device::{GIB, GROWTHS, MIB, device, settings, streams};

/// `throw_on_cudamalloc_oom` refuses at once a request that would take more than the share from the driver, but none
/// that idle memory of another stream serves.
#[test]
fn a_throw_at_the_fraction_counts_what_would_be_created() {
    for growth in GROWTHS {
        let sim = device(GIB, Completion::Immediate).build();
        let settings = Settings { throw_on_oom: true, memory_fraction: 0.5, ..settings(growth) };
        let allocator = Allocator::builder(sim.clone()).settings(settings).build().expect("settings that exist");
        let streams = streams(&allocator, 2);
        drop(streams[0].allocate(300 * MIB).expect("there is room"));
        let held = streams[1].allocate(300 * MIB).unwrap_or_else(|error| panic!("{growth:?}: {error}"));
        assert_eq!(allocator.memory_reserved(), 300 * MIB, "{growth:?}");
        for too_much in [300 * MIB, 600 * MIB] {
            let refused = streams[0].allocate(too_much).expect_err("more than the share");
            assert!(matches!(refused, Error::OutOfMemory(_)), "{growth:?}: {refused}");
        }
        let stats = allocator.stats();
        let counted = (stats.num_oom_rejections, stats.num_ooms, stats.num_alloc_retries);
        assert_eq!(counted, (2, 0, 0), "{growth:?}");
        drop(held);
        allocator.check();
        assert_eq!(sim.violations(), []);
    }
}
