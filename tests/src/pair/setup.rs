//! Configurations drawn from a seed, written both as the model's rules and as the text that the allocator reads.

use std::fmt::Write as _;

use millpond::settings::Settings;
use millpond::{Allocator, conf};
use millpond_sim::{CostModel, Sim};

use crate::model::Rules;
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
/// The bytes of an H200.
const LARGE_DEVICE: u64 = 150_109_880_320;

/// One configuration of both sides.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The rules of the model.
    pub rules: Rules,
    /// The same rules, as the allocator's configuration.
    pub conf: String,
    /// Whether PyTorch 2.11's own behaviour is followed, without Millpond's departures from it.
    pub as_recorded: bool,
    /// The number of streams.
    pub streams: usize,
    /// The largest request in bytes.
    pub largest: u64,
}

impl Setup {
    /// Returns the defaults on a large device with three streams.
    pub fn plain() -> Setup {
        Setup {
            rules: Rules::new(LARGE_DEVICE),
            conf: String::new(),
            as_recorded: false,
            streams: 3,
            largest: 48 * MIB,
        }
    }

    /// Draws a configuration at random.
    pub fn draw(random: &mut Random) -> Setup {
        let mut setup = Setup::plain();
        setup.streams = random.between(1, 3) as usize;
        setup.as_recorded = random.one_in(4);
        setup.rules.search_after_wait = !setup.as_recorded;
        setup.rules.gc_without_limit = !setup.as_recorded;
        setup.rules.shorter_pages = !setup.as_recorded;
        setup.rules.open_ranges = !setup.as_recorded;
        setup.draw_space(random);
        if random.one_in(6) {
            let large = random.pick(&[11, 12, 32, 64]);
            setup.rules.large_segment = large * MIB;
            setup.add(&format!("large_segment_size_mb:{large}"));
        }
        if random.one_in(3) {
            setup.rules.expandable = true;
            setup.add("expandable_segments:True");
        }
        if random.one_in(3) {
            setup.draw_split(random);
        }
        if random.one_in(3) {
            let (text, share) = random.pick(&[("0.1", 0.1), ("0.5", 0.5), ("0.8", 0.8), ("0.95", 0.95)]);
            setup.rules.gc_threshold = share;
            setup.add(&format!("garbage_collection_threshold:{text}"));
        }
        if random.one_in(3) {
            setup.draw_divisions(random);
        }
        setup
    }

    /// Draws the device's bytes, the limit, and a largest request to match.
    fn draw_space(&mut self, random: &mut Random) {
        self.largest = random.pick(&[MIB, 4 * MIB, 12 * MIB, 48 * MIB, 200 * MIB]);
        if random.one_in(3) {
            self.rules.total = random.between(8, 320) * MIB + random.below(4) * 4096;
        }
        if random.one_in(2) {
            let most = (self.rules.total / MIB).min(600);
            let limit = random.between(1, most) * MIB + random.below(3) * 512;
            self.rules.limit = Some(limit);
        } else if random.one_in(6) {
            let share = random.pick(&[0.5, 0.75]);
            self.rules.limit = Some((share * self.rules.total as f64) as u64);
            self.add(&format!("per_process_memory_fraction:{share}"));
        }
    }

    fn draw_split(&mut self, random: &mut Random) {
        let least = self.rules.large_segment / MIB;
        let split = least + random.pick(&[0, 1, 4, 20, 80]);
        self.rules.max_split = Some(split * MIB);
        self.add(&format!("max_split_size_mb:{split}"));
        if random.one_in(2) {
            let rounding = least + random.pick(&[0, 2, 40]);
            self.rules.non_split_rounding = Some(rounding * MIB);
            self.add(&format!("max_non_split_rounding_mb:{rounding}"));
        }
    }

    fn draw_divisions(&mut self, random: &mut Random) {
        let divisions = random.pick(&[1, 2, 4, 8, 16]);
        if random.one_in(2) {
            self.rules.divisions = [divisions; 16];
            self.add(&format!("roundup_power2_divisions:{divisions}"));
            return;
        }
        // The key of a list is a power of two in MiB, whose logarithm is the slot; the first fills the slots below it.
        let (first, others) = (random.between(0, 4) as usize, random.pick(&[1, 2, 8]));
        let second = first + random.between(1, 3) as usize;
        let last = random.pick(&[1, 4]);
        self.rules.divisions[..=first].fill(divisions);
        self.rules.divisions[second] = others;
        self.rules.divisions[second + 1..].fill(last);
        let text = format!("[{}:{divisions},{}:{others},>:{last}]", 1 << first, 1 << second);
        self.add(&format!("roundup_power2_divisions:{text}"));
    }

    fn add(&mut self, pair: &str) {
        let separator = if self.conf.is_empty() { "" } else { "," };
        let _ = write!(self.conf, "{separator}{pair}");
    }

    /// Returns the allocator's settings.
    ///
    /// # Panics
    ///
    /// If the allocator refuses the configuration.
    pub fn settings(&self) -> Settings {
        let options = conf::parse(&self.conf).unwrap_or_else(|error| panic!("{:?}: {error}", self.conf));
        let settings = options.resolve(false);
        if self.as_recorded { settings.as_recorded() } else { settings }
    }

    /// Creates the device, and an allocator with settings that are this configuration's or close to them.
    ///
    /// # Panics
    ///
    /// If the device cannot serve the settings.
    pub fn build(&self, settings: Settings) -> (Sim, Allocator<Sim>) {
        let sim = Sim::builder().total_bytes(self.rules.total).cost(CostModel::free()).build();
        let mut builder = Allocator::builder(sim.clone()).settings(settings);
        if let Some(limit) = self.rules.limit.filter(|_| !self.conf.contains("per_process_memory_fraction")) {
            builder = builder.limit(limit);
        }
        match builder.build() {
            Ok(allocator) => (sim, allocator),
            Err(error) => panic!("{:?}: {error}", self.conf),
        }
    }
}
