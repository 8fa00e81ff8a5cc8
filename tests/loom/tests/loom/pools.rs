//! Private pools: going back to a checkpoint while other threads free.

use loom::thread;
use millpond::settings::Settings;
use millpond::{Error, Obstacle};

use super::{allocate, explore, paged, settles, stream};

/// A pool goes back to a checkpoint while the block that lies there is freed, which another stream has used: the
/// coordinator learns of that free after the shard. Either the block is handed out again, or the pool is in use.
fn goes_back(settings: Settings) {
    explore(2, settings, |allocator| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let pool = allocator.create_pool().unwrap();
        let inside = pool.stream(one.id()).unwrap();
        let block = allocate(&inside, 1000);
        block.record_stream(&two).unwrap();
        let (place, checkpoint) = (block.offset(), pool.checkpoint());
        assert_eq!((checkpoint.len(), checkpoint.live_bytes()), (1, 1024));
        let other = thread::spawn(move || drop(block));
        let seen = pool.checkpoint();
        assert!(seen.is_empty() || seen == checkpoint, "what was live at one moment");
        let mut again = Vec::new();
        let mut handed_out = 1;
        match pool.restore(&checkpoint, &mut again) {
            Ok(()) => {
                assert_eq!((again.len(), again[0].offset()), (1, place));
                handed_out = 2;
            }
            Err(Error::NotRestorable { why, .. }) => {
                assert!(matches!(*why, Obstacle::Taken { .. } | Obstacle::Busy), "{why}");
            }
            Err(error) => panic!("{error}"),
        }
        other.join().unwrap();
        drop((again, inside, pool, one, two));
        allocator.poll().unwrap();
        settles(&allocator, handed_out);
    });
}

#[test]
fn a_pool_goes_back_to_a_checkpoint_while_its_block_is_freed() {
    goes_back(Settings::default());
}

#[test]
fn a_pool_goes_back_to_a_checkpoint_while_its_block_is_freed_with_pages() {
    goes_back(paged());
}
