//! The suite detects devices that overwrite memory incorrectly.

use millpond_backend::{Closing, Reuse};
use millpond_conformance::{DeviceUnderTest, Need, SimDevice, Unavailable, suite};
use millpond_sim::{Completion, Overwriting, Sim};

/// A simulated device that overwrites in this way.
struct Leaky(Overwriting);

const SOUND: SimDevice = SimDevice::new(Closing::Backend, Reuse::InOrder, Completion::Manual);

impl DeviceUnderTest for Leaky {
    type Backend = Sim;

    fn name(&self) -> String {
        format!("with overwriting {:?}", self.0)
    }

    fn open(&self, need: &Need) -> Result<Sim, Unavailable> {
        let sim = SOUND.open(need)?;
        sim.set_overwriting(self.0);
        Ok(sim)
    }
}

#[test]
fn overwriting_that_is_left_out_or_ends_early_fails_under_every_policy() {
    for overwriting in [Overwriting::LeftOut, Overwriting::AllBut(100)] {
        let failed = std::panic::catch_unwind(|| suite::expect_group(&Leaky(overwriting), "scrubbing", &[]));
        let text = *failed.expect_err("nobody noticed").downcast::<String>().expect("a text");
        for policy in ["classic", "expandable", "direct", "paged", "tight"] {
            for name in ["other-streams-find-nothing", "nobody-finds-anything"] {
                let expected = format!("scrubbing/{name}/{policy}: FAILED");
                assert!(text.contains(&expected) && text.contains("somebody else's"), "{expected}: {text}");
            }
        }
    }
    suite::expect_group(&Leaky(Overwriting::Sound), "scrubbing", &[]);
}
