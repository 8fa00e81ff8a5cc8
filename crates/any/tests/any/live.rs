//! What is alive, by label, over erased types.

use std::sync::{Arc, Mutex};

use millpond_any::millpond::live::Tracking;
use millpond_any::millpond_sim::Sim;

use crate::on;

#[test]
fn labels_are_counted_and_what_is_left_is_told() {
    let allocator = on(&Sim::new());
    allocator.track_live(Tracking::Sites);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = Arc::clone(&told);
    allocator.on_left_alive(move |live| tell.lock().unwrap().push(live.to_string()));
    let stream = allocator.create_stream().unwrap();
    let line = line!() + 1;
    let buffer = stream.allocate_labelled("weights", 1000).unwrap();
    assert_eq!(buffer.label().as_deref(), Some("weights"));
    let live = allocator.live();
    let site = live.groups()[0].site.unwrap();
    assert!(site.file().ends_with("any/live.rs") && site.line() == line, "{site}");
    let other = stream.allocate(512).unwrap();
    other.set_label("cache");
    assert_eq!(allocator.live().since(&live).groups()[0].label.as_deref(), Some("cache"));
    drop((other, allocator, stream));
    let told = told.lock().unwrap();
    assert!(told.len() == 1 && told[0].starts_with("1024 bytes in 1 of weights at "), "{told:?}");
}
