//! The policy `paged`: a request that missed is served from memory that is free anywhere at home, or from new pages.
//!
//! The streams of a pool have one home, and every page has one place there for its whole life. A request that gets no
//! free block there at once comes here. The plan's attempt has the streams asked how far they are, and takes the
//! first way ([`ways`]) that serves the request: a free block, listed as [tiles](taker), is used after waits, the home
//! grows within the slack, a window that was [`kept`] is used again, or free memory is [gathered](gather) in a new
//! window. A [`job`] claims what that needs, says which driver calls to make, and books what they changed. How much is
//! created before anything else, and how large its pages are, is the [governor's](crate::governor).

mod gather;
mod grow;
mod idle;
mod job;
mod kept;
mod taker;
mod ways;

use crate::books::Points;
use crate::coordinator::{Coordinator, Shards};

pub use grow::Growable;
pub(crate) use job::{Job, Way};
pub(crate) use taker::Taker;

/// What serves requests that missed: the books of the coordinator, and the shards.
pub(crate) struct Pager<'a> {
    pub(crate) core: &'a mut Coordinator,
    pub(crate) shards: &'a mut dyn Shards,
}

/// What the attempts of a plan have learnt.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Knows {
    pub(crate) times: Times,
    /// What the next attempt has to do without.
    pub(crate) lacks: Lacks,
    /// The points that the plan waited for last: waiting for the same ones again leads nowhere.
    pub(crate) waited: Points,
}

/// How far the streams are, as the plan knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Times {
    /// They were not asked.
    #[default]
    Unasked,
    /// They were asked, and what that makes free was not looked at.
    Told,
    /// They were asked, and what that makes free was looked at.
    Seen,
}

/// What an attempt has to do without, because an earlier one was refused it, or has no need to try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lacks {
    /// The driver or the limit has refused new pages: those there are have to do.
    pub(crate) new_pages: bool,
    /// A stream cannot take part in a device-side wait now: nothing is taken behind one.
    pub(crate) waits: bool,
    /// There are no addresses for a new window.
    pub(crate) windows: bool,
    /// There are no addresses for a home to grow in.
    pub(crate) homes: bool,
    /// What the device's budget leaves, which has to be asked for before anything is created.
    pub(crate) budget: bool,
    /// Idle memory that goes back before a growable block gets new pages.
    pub(crate) idle: bool,
}

impl Knows {
    /// Notes that the plan was told how far streams are.
    pub(crate) fn told(&mut self) {
        if self.times == Times::Seen {
            self.times = Times::Told;
        }
    }

    /// Forgets what held up to now, as the ladder begins once more with what the driver grants beyond the budget.
    pub(crate) fn begin_again(&mut self) {
        *self = Self { lacks: Lacks { waits: self.lacks.waits, ..Lacks::default() }, ..Self::default() };
    }
}

impl Lacks {
    /// Has the driver asked again for the memory and the addresses that it refused.
    pub(crate) fn forget_refusals(&mut self) {
        (self.new_pages, self.windows, self.homes) = (false, false, false);
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::{Point, StreamId, Tick};

    use super::*;

    #[test]
    fn news_are_news_until_they_are_looked_at() {
        let told = |times| {
            let mut knows = Knows { times, ..Knows::default() };
            knows.told();
            knows.times
        };
        assert_eq!([Times::Unasked, Times::Told, Times::Seen].map(told), [Times::Unasked, Times::Told, Times::Told]);
    }

    #[test]
    fn beyond_the_budget_a_plan_tries_new_pages_again() {
        let lacks = Lacks { new_pages: true, waits: true, windows: true, homes: true, budget: true, idle: true };
        let waited = Points::from_iter([Point { stream: StreamId(0), tick: Tick(1) }]);
        let mut knows = Knows { times: Times::Seen, lacks, waited };
        knows.begin_again();
        let lacks = Lacks { waits: true, ..Lacks::default() };
        assert_eq!(knows, Knows { lacks, ..Knows::default() }, "a capture goes on");
    }
}
