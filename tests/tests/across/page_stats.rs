//! The statistics of pages add up: what was added less what was removed is what exists.

use millpond::Allocator;
use millpond::stats::PageStats;
use millpond_replay::Replay;
use millpond_sim::Sim;
use millpond_trace::Pattern;

fn adds_up(stats: &PageStats) {
    assert_eq!(stats.pages, stats.created - stats.released, "{stats:?}");
    assert_eq!(stats.shadows, stats.moved - stats.unmapped, "{stats:?}");
}

#[test]
fn pages_and_windows_are_counted_as_they_come_and_go() {
    let allocator = Allocator::new(Sim::new());
    let replayed = Replay::new(&Pattern::ManyStreams.trace(0)).run(&allocator, 0).expect("no driver fails");
    adds_up(&replayed.pages);
    assert!(replayed.pages.created > 0 && replayed.pages.moved > 0, "{:?}", replayed.pages);
    assert_eq!(allocator.page_stats(), replayed.pages);

    allocator.empty_cache().expect("no driver fails");
    let after = allocator.page_stats();
    adds_up(&after);
    assert_eq!((after.pages, after.released), (0, after.created), "nothing is live");
    assert!(allocator.memory_summary(true).contains("| Pages                 |       0    |"));
}

/// The pages of expandable segments are not counted.
#[test]
fn other_policies_have_none() {
    for conf in ["policy:classic", "policy:classic,expandable_segments:True", "policy:direct"] {
        let allocator = Allocator::builder(Sim::new()).conf(conf).build().expect("valid settings");
        let stream = allocator.create_stream().expect("a stream");
        let _live = stream.allocate(40 << 20).expect("there is room");
        assert_eq!(allocator.page_stats(), PageStats::default(), "{conf}");
        assert!(!allocator.memory_summary(true).contains("Pages"), "{conf}");
    }
}
