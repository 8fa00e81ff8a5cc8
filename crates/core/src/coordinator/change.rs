//! Settings that change while memory is reserved.

use alloc::vec::Vec;

use super::{Coordinator, Shards};
use crate::settings::{Policy, SettingError, Settings};
use crate::size::Sizes;

impl Coordinator {
    /// Takes over the settings of `to` that may [change](Settings::changed_to), from the next decision on. Memory that
    /// is reserved and blocks that are handed out stay as they are: a limit applies to what comes after it. Blocks in
    /// use and segments count as oversize by the new limit.
    ///
    /// The limit on reserved bytes stays, because it may have been [set](Self::set_limit) since: a new memory fraction
    /// becomes one with [`set_memory_fraction`](Self::set_memory_fraction).
    ///
    /// Costs a visit of every shard, and of every block if the limit for splits is another one.
    ///
    /// # Errors
    ///
    /// A setting is out of its range. Nothing has changed then.
    pub fn change_settings(&mut self, to: &Settings, shards: &mut dyn Shards) -> Result<(), SettingError> {
        let settings = self.settings.changed_to(to);
        settings.validate()?;
        self.sizes = Sizes::new(&settings);
        self.sourced = Settings { policy: Policy::default(), ..settings.clone() };
        self.settings = settings;
        self.end_watch_if_off();
        let mut plain = Vec::new();
        for id in self.shard_ids() {
            let settings = self.settings_in(self.pool_of(id));
            let is_short = shards.with(id, |shard| {
                plain.extend(shard.plain_segments());
                shard.change_limits(settings)
            });
            if is_short {
                self.settle(id, shards);
            }
        }
        self.headroom.set_oversize(self.settings.max_split(), plain.into_iter());
        Ok(())
    }
}
