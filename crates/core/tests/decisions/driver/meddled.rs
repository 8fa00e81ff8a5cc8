//! Operations of another thread between two looks of a plan at the shards.

use millpond_core::{Shard, ShardId, Shards};

/// Shards with an operation that is made just before the first look after `looks` others. Looks at shards that are held
/// count as well.
pub(crate) struct Meddled<'a> {
    pub(crate) shards: &'a mut Vec<Shard>,
    pub(crate) looks: &'a mut u32,
    pub(crate) meddle: &'a mut dyn FnMut(&mut Vec<Shard>),
}

impl Shards for Meddled<'_> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        if *self.looks == 0 {
            (self.meddle)(self.shards);
        }
        *self.looks = self.looks.wrapping_sub(1);
        self.shards.visit(shard, f);
    }
}
