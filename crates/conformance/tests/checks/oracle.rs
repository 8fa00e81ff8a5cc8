//! The oracle finds what a check of the structures cannot: memory that is handed out too early while the structures are
//! consistent.

use millpond::Allocator;
use millpond::plant::Plant;
use millpond::settings::Settings;
use millpond_conformance::oracle::Violation;
use millpond_conformance::{Trouble, Watched};
use millpond_sim::{Completion, Sim};

/// Frees a block that another stream still uses, requests it again, and returns the oracle's verdict. The allocator's
/// own check passes all the time.
fn reuse_under_use(plant: Option<Plant>) -> Result<(), Violation> {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let settings = Settings { plant, ..Settings::default() };
    let watched = Watched::new(Allocator::builder(sim.clone()).settings(settings).build().unwrap());
    let [home, other] = [(); 2].map(|()| watched.allocator().create_stream().unwrap());
    let block = watched.allocate(&home, 1 << 20).unwrap();
    sim.busy(other.id());
    watched.record_stream(&block, &other).unwrap();
    watched.free(block);
    let again = watched.allocate(&home, 1 << 20);
    watched.allocator().check();
    match again {
        Ok(block) => {
            watched.free(block);
            Ok(())
        }
        Err(Trouble::Violation(violation)) => Err(violation),
        Err(refused) => panic!("{refused}"),
    }
}

#[test]
fn a_premature_grant_is_seen_where_the_structures_are_in_order() {
    assert_eq!(reuse_under_use(None), Ok(()));
    for plant in [Plant::EarlyReuse, Plant::OffByOneTick] {
        let found = reuse_under_use(Some(plant)).unwrap_err();
        assert!(matches!(found, Violation::Premature { .. }), "{plant:?}: {found}");
    }
}
