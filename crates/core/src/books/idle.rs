//! Which memory a program no longer needs, and which it will use again soon.
//!
//! A *watch* is a time in which the peaks are measured. What is reserved beyond what these peaks need was not needed
//! for that long, and goes back when the watch is over. Then the next one begins. If most of what went back is taken
//! again soon, the program did need it: its peaks are further apart than a watch is long, or its free memory lies in
//! pieces. So watches become twice as long, up to sixteen times. They become shorter once memory has stayed away for
//! that long. So however unlucky a program is, it takes the same memory again at most once in sixteen times the time
//! that it asked for.

use core::time::Duration;

use crate::ids::ScopeId;
use crate::stats::IdleStats;

/// The longest that a watch becomes, in multiples of the shortest.
const PATIENCE_MAX: u32 = 16;

/// A time in which the peaks are measured. Times are nanoseconds since any moment, the same for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watch {
    pub(crate) begun: u64,
    /// The peaks since then.
    pub(crate) scope: ScopeId,
    /// The bytes that were live at its beginning in pools whose memory stays where it is.
    pub(crate) live_in_held: u64,
}

/// The memory that went back last, of which it is not known yet whether the program needs it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Given {
    at: u64,
    bytes: u64,
    /// What was left reserved.
    reserved: u64,
}

/// Where the release of idle memory stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing is measured.
    Off,
    Watching(Watch),
    /// A watch is over, and a plan gives memory back.
    Releasing,
}

/// The book of idle memory.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    state: State,
    /// How long a watch is, in multiples of the shortest.
    patience: u32,
    given: Option<Given>,
    releases: u64,
    released_bytes: u64,
    last: Option<u64>,
}

impl Default for Idle {
    fn default() -> Self {
        Self { state: State::Off, patience: 1, given: None, releases: 0, released_bytes: 0, last: None }
    }
}

impl Idle {
    /// Returns whether a watch can begin.
    pub(crate) fn is_off(&self) -> bool {
        self.state == State::Off
    }

    /// Begins a watch.
    pub(crate) fn watch(&mut self, watch: Watch) {
        self.state = State::Watching(watch);
    }

    /// Ends the watch whatever its length is, because memory goes back no longer, and returns it if there is one.
    pub(crate) fn give_up(&mut self) -> Option<Watch> {
        let State::Watching(watch) = self.state else { return None };
        self.state = State::Off;
        Some(watch)
    }

    /// Ends the watch if it has been as long as it should, where the shortest are of this length, and returns it.
    pub(crate) fn take_over(&mut self, now: u64, after: Duration) -> Option<Watch> {
        let State::Watching(watch) = self.state else { return None };
        (now.saturating_sub(watch.begun) >= times(self.patience, after)).then(|| {
            self.state = State::Releasing;
            watch
        })
    }

    /// Learns from a watch that is over how long the next ones are. `most_reserved` is the most that was reserved in
    /// it, and `after` the length of the shortest ones.
    pub(crate) fn learn(&mut self, now: u64, after: Duration, most_reserved: u64) {
        let Some(Given { at, bytes, reserved }) = self.given else { return };
        if most_reserved.saturating_sub(reserved) >= bytes.div_ceil(2) {
            self.patience = (2 * self.patience).min(PATIENCE_MAX);
            self.given = None;
        } else if now.saturating_sub(at) >= times(PATIENCE_MAX, after) {
            self.patience = (self.patience / 2).max(1);
            self.given = None;
        }
    }

    /// Notes what has gone back, after which the next watch can begin, and what is left reserved.
    pub(crate) fn end(&mut self, now: u64, released: u64, reserved: u64) {
        self.state = State::Off;
        if released > 0 {
            self.given = Some(Given { at: now, bytes: released, reserved });
            self.releases += 1;
            self.released_bytes += released;
            self.last = Some(now);
        }
    }

    /// Returns what has gone back so far.
    pub(crate) fn stats(&self, now: u64) -> IdleStats {
        let since = |last| Duration::from_nanos(now.saturating_sub(last));
        IdleStats { releases: self.releases, released_bytes: self.released_bytes, since_last: self.last.map(since) }
    }
}

/// Returns a multiple of a time in nanoseconds.
fn times(factor: u32, time: Duration) -> u64 {
    u64::try_from(time.saturating_mul(factor).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_nanos(10);

    /// A book, the time, and what is reserved.
    struct Scene {
        idle: Idle,
        now: u64,
        reserved: u64,
    }

    impl Scene {
        fn new() -> Self {
            Self { idle: Idle::default(), now: 0, reserved: 100 }
        }

        /// Waits until a watch is over in which this was reserved at most, and returns how long it was. `released`
        /// bytes go back then.
        fn watch(&mut self, most_reserved: u64, released: u64) -> u64 {
            let begun = self.now;
            self.idle.watch(Watch { begun, scope: ScopeId(0), live_in_held: 0 });
            while self.idle.take_over(self.now, AFTER).is_none() {
                self.now += 1;
            }
            self.idle.learn(self.now, AFTER, most_reserved);
            self.reserved -= released;
            self.idle.end(self.now, released, self.reserved);
            self.now - begun
        }

        /// Has 50 bytes go back, and taken again a watch later. Returns how long that one was.
        fn takes_again(&mut self) -> u64 {
            self.watch(100, 50);
            let length = self.watch(self.reserved, 0);
            self.watch(self.reserved + 25, 0);
            self.reserved += 50;
            length
        }
    }

    #[test]
    fn watches_are_longer_the_more_often_memory_is_taken_again() {
        let mut scene = Scene::new();
        assert_eq!([(); 5].map(|()| scene.takes_again()), [10, 20, 40, 80, 160]);
        // Half of it less one is taken again, so it stays away for good.
        let mut lengths = [(); 4].map(|()| {
            scene.watch(100, 50);
            let (since, mut length) = (scene.now, 0);
            while scene.now - since < 160 {
                length = scene.watch(scene.reserved + 24, 0);
            }
            scene.reserved += 50;
            length
        });
        lengths.sort_unstable();
        assert_eq!(lengths, [10, 20, 40, 80]);
        assert_eq!((scene.watch(1000, 0), scene.watch(1000, 0)), (10, 10), "what rose without a release says nothing");
    }

    /// After a program of much more memory, a small one takes a segment again and again.
    #[test]
    fn what_went_back_last_counts() {
        let mut scene = Scene::new();
        scene.watch(100, 80);
        scene.watch(20, 20);
        scene.watch(20, 0);
        assert_eq!(scene.watch(20, 0), 20);
    }

    #[test]
    fn a_watch_is_taken_once_and_counts_what_it_led_to() {
        let mut idle = Idle::default();
        let watch = Watch { begun: 5, scope: ScopeId(0), live_in_held: 0 };
        assert!(idle.is_off() && idle.take_over(99, AFTER).is_none());
        idle.watch(watch);
        assert_eq!((idle.take_over(14, AFTER), idle.take_over(15, AFTER)), (None, Some(watch)));
        assert!(!idle.is_off() && idle.take_over(99, AFTER).is_none(), "a plan gives memory back");
        idle.end(20, 0, 9);
        assert!(idle.is_off());
        assert_eq!(idle.stats(30), IdleStats::default());
        idle.end(40, 7, 2);
        let since_last = Some(Duration::from_nanos(2));
        assert_eq!(idle.stats(42), IdleStats { releases: 1, released_bytes: 7, since_last });
    }
}
