//! Operations of another thread on the shards between two looks of a plan.

use millpond_core::{Shard, ShardId, Shards};

/// Shards with an operation that is made just before the first look after `looks` others.
pub(crate) struct Meddled<'a, F> {
    pub(crate) shards: &'a mut Vec<Shard>,
    pub(crate) looks: u32,
    pub(crate) meddle: Option<F>,
}

impl<F: FnOnce(&mut Vec<Shard>)> Shards for Meddled<'_, F> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        match self.looks.checked_sub(1) {
            Some(left) => self.looks = left,
            None => self.meddle.take().into_iter().for_each(|meddle| meddle(self.shards)),
        }
        self.shards.visit(shard, f);
    }
}
