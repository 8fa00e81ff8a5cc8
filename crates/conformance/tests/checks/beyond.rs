//! A device that grants more than it lists although it says that it does not oversubscribe: the suite fails it, and the
//! allocator reports it.

use millpond::Allocator;
use millpond_conformance::suite::run;
use millpond_conformance::{DeviceUnderTest, Need, Outcome, Unavailable};
use millpond_sim::Sim;

const LISTED: u64 = 16 << 20;

/// A device that has 1 GiB and lists 16 MiB.
struct Modest {
    oversubscribes: bool,
}

impl Modest {
    fn sim(&self) -> Sim {
        let sim = Sim::builder().total_bytes(1 << 30).lists(LISTED).oversubscribes(self.oversubscribes);
        sim.pages(None).build()
    }
}

impl DeviceUnderTest for Modest {
    type Backend = Sim;

    fn name(&self) -> String {
        "modest".to_owned()
    }

    fn open(&self, _need: &Need) -> Result<Sim, Unavailable> {
        Ok(self.sim())
    }
}

#[test]
fn the_suite_fails_a_device_that_grants_more_than_it_lists() {
    let failures = |device: &Modest| {
        let mut failures = 0;
        run(device, &[], &mut |result| {
            let text = result.outcome.to_string();
            failures += u32::from(matches!(result.outcome, Outcome::Failed(_)) && text.contains("more than it lists"));
        });
        failures
    };
    assert!(failures(&Modest { oversubscribes: false }) > 20);
    assert_eq!(failures(&Modest { oversubscribes: true }), 0);
}

#[test]
fn the_allocator_says_so() {
    let said = |oversubscribes| {
        let allocator = Allocator::new(Modest { oversubscribes }.sim());
        let stream = allocator.create_stream().expect("a stream");
        let small = stream.allocate(8 << 20).expect("memory");
        assert_eq!(allocator.beyond_device().filter(|beyond| beyond.reserved_bytes <= LISTED), None);
        drop(small);
        let _large = stream.allocate(64 << 20).expect("memory");
        (allocator.beyond_device(), allocator.memory_summary(true))
    };
    let (beyond, summary) = said(false);
    let beyond = beyond.expect("64 MiB of 16");
    assert!(beyond.reserved_bytes >= 64 << 20 && beyond.listed_bytes == LISTED, "{beyond:?}");
    assert!(summary.ends_with("its driver grants more than it lists\n"), "{summary}");
    let (beyond, summary) = said(true);
    assert!(beyond.is_none() && !summary.contains("grants more"), "{summary}");
}
