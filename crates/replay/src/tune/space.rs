//! The settings that a search tries.

use millpond::settings::{Divisions, Growth, Policy, Segments, Settings};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;

/// The unit in which slacks are drawn, and the largest: from 0.001 to 2.
const SLACK_UNIT: f64 = 1000.0;
const SLACK_MAX: u64 = 2000;

/// The slacks that are tried first, in thousandths.
const SLACKS: [u64; 16] = [0, 5, 10, 20, 30, 40, 60, 80, 100, 150, 200, 300, 500, 750, 1000, 1500];

/// The sizes of large segments that are tried, in MiB; 20 is the default. They are whole pages of 2 MiB.
const LARGE_MIB: [u64; 10] = [12, 16, 20, 24, 32, 48, 64, 128, 256, 512];

/// The divisions that are tried; 0 is the default.
const DIVISIONS: [u64; 6] = [0, 2, 4, 8, 16, 32];

/// The thresholds of garbage collection that are tried with a limit; 0 is the default.
const THRESHOLDS: [f64; 6] = [0.0, 0.5, 0.6, 0.7, 0.8, 0.9];

/// The settings that make a difference to a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Whether the device has virtual memory.
    pub has_pages: bool,
    /// Whether what may be reserved is limited: garbage is collected against the limit.
    pub is_limited: bool,
    /// Whether work is in flight on several streams: without, it makes no difference how `paged` grows.
    pub grows_apart: bool,
    /// The largest request of the program in bytes.
    pub largest: u64,
}

impl Space {
    /// Returns the settings of an allocator for which none were chosen.
    pub fn default_settings(&self) -> Settings {
        Settings { policy: Policy::default_for(self.has_pages), ..Settings::default() }
    }

    /// Returns the settings to begin with, the default first: every policy that the device can have.
    pub fn first(&self) -> Vec<Settings> {
        let with = |policy| Settings { policy, ..Settings::default() };
        let mut first = vec![self.default_settings(), with(Policy::Classic(Segments::Plain))];
        if self.has_pages {
            first.push(with(Policy::Classic(Segments::Expandable)));
        }
        if self.has_pages && self.grows_apart {
            first.push(with(Policy::paged(Growth::Tight)));
        }
        first.push(with(Policy::Direct));
        first
    }

    /// Returns the settings that come next, which are the same for every program: one after the other along each axis.
    pub fn grid(&self) -> Vec<Settings> {
        let mut grid = Vec::new();
        let with = |policy| Settings { policy, ..Settings::default() };
        let slacks = || SLACKS.iter().map(|&slack| slack as f64 / SLACK_UNIT);
        if self.has_pages {
            let growths: &[Growth] =
                if self.grows_apart { &[Growth::Balanced, Growth::Tight] } else { &[Growth::Balanced] };
            for &growth in growths {
                grid.extend(slacks().map(|slack| with(Policy::Paged { growth, slack })));
            }
            grid.extend(self.shaped(with(Policy::Classic(Segments::Expandable))));
        }
        grid.extend(self.shaped(with(Policy::Classic(Segments::Plain))));
        grid.extend(slacks().map(|slack| with(Policy::Classic(Segments::Snug(slack)))));
        grid
    }

    /// Returns segments of every shape, each with one setting changed.
    fn shaped(&self, base: Settings) -> Vec<Settings> {
        let mut shaped = Vec::new();
        shaped.extend(DIVISIONS.map(|number| Settings { divisions: Divisions([number; 16]), ..base.clone() }));
        shaped.extend(LARGE_MIB.map(|mib| Settings { large_segment_bytes: mib * MIB, ..base.clone() }));
        let splits = LARGE_MIB.iter().map(|mib| mib * MIB).filter(|bytes| *bytes >= base.large_segment_bytes);
        shaped.extend(splits.map(|bytes| Settings { max_split_bytes: Some(bytes), ..base.clone() }));
        shaped
    }

    /// Returns settings that are drawn from all there are.
    pub fn drawn(&self, random: &mut Random) -> Settings {
        let policy = match random.below(if self.has_pages { 8 } else { 3 }) {
            0 | 1 => Policy::Classic(Segments::Plain),
            2 => Policy::Classic(Segments::Snug(slack(random))),
            3 | 4 => Policy::Classic(Segments::Expandable),
            _ => Policy::Paged { growth: self.growth(random), slack: slack(random) },
        };
        let mut settings = Settings { policy, ..Settings::default() };
        for _ in 0..random.between(1, 4) {
            self.change(&mut settings, random);
        }
        settings
    }

    /// Returns the settings with one or two changed, or those of a neighbour.
    pub fn changed(&self, settings: &Settings, random: &mut Random) -> Settings {
        let mut changed = settings.clone();
        if changed.policy == Policy::Direct {
            return self.drawn(random);
        }
        for _ in 0..random.between(1, 2) {
            match changed.policy.slack() {
                Some(slack) if random.below(3) > 0 => changed.policy = with_slack(changed.policy, near(slack, random)),
                _ => self.change(&mut changed, random),
            }
        }
        changed
    }

    fn growth(&self, random: &mut Random) -> Growth {
        if self.grows_apart { random.pick(&[Growth::Balanced, Growth::Tight]) } else { Growth::Balanced }
    }

    /// Changes one setting that makes a difference under the policy, and keeps the others within their ranges.
    fn change(&self, settings: &mut Settings, random: &mut Random) {
        let moves_pages = settings.policy.moves_pages();
        match random.below(6) {
            0 if self.is_limited && !matches!(settings.policy, Policy::Classic(Segments::Snug(_))) => {
                settings.gc_threshold = random.pick(&THRESHOLDS);
            }
            0 | 1 => {
                let (from, number) = (random.index(16), random.pick(&DIVISIONS));
                let from = if random.one_in(2) { 0 } else { from };
                settings.divisions.0[from..].fill(number);
            }
            2 if moves_pages => {
                let slack = slack(random);
                settings.policy = Policy::Paged { growth: self.growth(random), slack };
            }
            2 | 3 if !moves_pages => settings.large_segment_bytes = random.pick(&LARGE_MIB) * MIB,
            4 if !moves_pages => settings.max_split_bytes = self.above(settings.large_segment_bytes, random),
            _ if !moves_pages => {
                settings.max_non_split_rounding_bytes = self.above(settings.large_segment_bytes, random);
            }
            _ => {
                if let Some(old) = settings.policy.slack() {
                    settings.policy = with_slack(settings.policy, near(old, random));
                }
            }
        }
        let least = settings.large_segment_bytes;
        for bytes in [&mut settings.max_split_bytes, &mut settings.max_non_split_rounding_bytes] {
            *bytes = bytes.map(|bytes| bytes.max(least));
        }
    }

    /// Returns no limit, or one in whole MiB from `least` to twice the largest request.
    fn above(&self, least: u64, random: &mut Random) -> Option<u64> {
        let most = (self.largest / MIB * 2).max(least / MIB);
        if random.one_in(4) { None } else { Some(random.bytes(least / MIB, most) * MIB) }
    }
}

fn slack(random: &mut Random) -> f64 {
    random.bytes(1, SLACK_MAX) as f64 / SLACK_UNIT
}

/// Returns a slack between half and twice another one, or 0.
fn near(slack: f64, random: &mut Random) -> f64 {
    let old = (slack * SLACK_UNIT).round() as u64;
    if random.one_in(16) {
        return 0.0;
    }
    random.between(old / 2, (old * 2).clamp(4, SLACK_MAX)) as f64 / SLACK_UNIT
}

fn with_slack(policy: Policy, slack: f64) -> Policy {
    match policy {
        Policy::Paged { growth, .. } => Policy::Paged { growth, slack },
        Policy::Classic(Segments::Snug(_)) => Policy::Classic(Segments::Snug(slack)),
        other => other,
    }
}
