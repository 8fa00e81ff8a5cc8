//! What an allocator knows, over erased types: the same as over the typed ones.

use millpond_any::millpond::history::Recording;
use millpond_any::millpond::with_tag;
use millpond_any::millpond_sim::Sim;
use millpond_any::{AnyAllocator, AnyDevice};

use crate::on;

#[test]
fn the_history_and_the_snapshot_are_those_of_the_typed_form() {
    let allocator = on(&Sim::new());
    allocator.record_history(Recording::all(100));
    let stream = allocator.create_stream().unwrap();
    let line = line!() + 1;
    let buffer = with_tag("layer3", || stream.allocate(1000)).unwrap();
    let elements = stream.allocate_from(&[1u8; 5]).unwrap();
    let prepared = stream.allocate_prepared(600, || Ok(())).unwrap();
    allocator.annotate("a step");
    let history = allocator.history();
    let granted: Vec<_> = history.entries.iter().filter(|entry| entry.action.name() == "alloc").collect();
    let lines: Vec<_> = granted.iter().map(|entry| entry.site.unwrap().line() - line).collect();
    assert_eq!(lines, [0, 1, 2], "the places are this program's");
    assert!(granted.iter().all(|entry| entry.site.unwrap().file().ends_with("any/history.rs")));
    assert_eq!(granted[0].tag.as_deref(), Some("layer3"));
    let typed = allocator.as_sim().unwrap();
    assert_eq!(history, typed.history());
    assert_eq!(allocator.snapshot().segments, typed.snapshot().segments);
    drop((buffer, elements, prepared));
}

#[test]
fn ignored_settings_are_told() {
    let builder = AnyAllocator::builder(AnyDevice::from(Sim::new())).conf("backend:native,max_split_size_mb:64");
    assert_eq!(builder.ignored(), ["backend"]);
    assert_eq!(builder.build().unwrap().ignored_settings(), ["backend"]);
}
