//! What is alive, by label: who is counted, what a step has left, and what is told at the end.

use std::sync::{Arc, Mutex};

use millpond::live::{Live, Tracking};
use millpond::settings::Scrub;
use millpond::{Allocator, Buffer, RawBuffer, Stream, tag, with_tag};
use millpond_sim::Sim;

fn tracking(tracking: Tracking) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::new(Sim::new());
    allocator.track_live(tracking);
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

/// Returns label, count, bytes and requested bytes of each group.
fn groups(live: &Live) -> Vec<(Option<&str>, u64, u64, u64)> {
    live.groups().iter().map(|g| (g.label.as_deref(), g.count, g.bytes, g.requested_bytes)).collect()
}

#[test]
fn buffers_are_counted_by_label_from_their_grant_to_their_free() {
    let (allocator, stream) = tracking(Tracking::Labels);
    assert!(allocator.live().is_empty());
    let weights = [1000, 3000].map(|bytes| stream.allocate_labelled("weights", bytes).unwrap());
    let plain = stream.allocate(4 << 20).unwrap();
    let other = allocator.create_stream().unwrap().allocate_labelled("cache", 1).unwrap();
    let empty = stream.allocate_labelled("nothing", 0).unwrap();
    assert_eq!(empty.label(), None);
    let live = allocator.live();
    assert_eq!(
        groups(&live),
        [(None, 1, 4 << 20, 4 << 20), (Some("weights"), 2, 4096, 4000), (Some("cache"), 1, 512, 1)]
    );
    assert_eq!((live.count(), live.bytes()), (4, allocator.memory_allocated()));
    let text = "4.00 MiB in 1 of (no label)\n4.00 KiB in 2 of weights\n512 bytes in 1 of cache";
    assert_eq!(live.to_string(), text);
    plain.set_label("cache");
    assert_eq!(plain.label().as_deref(), Some("cache"));
    let [first, _second] = weights;
    drop(first);
    assert_eq!(
        groups(&allocator.live()),
        [(Some("cache"), 2, (4 << 20) + 512, (4 << 20) + 1), (Some("weights"), 1, 3072, 3000)]
    );
    drop((plain, other, _second));
    assert!(allocator.live().is_empty() && allocator.memory_allocated() == 0);
    // The same block again has no label of its former owner's.
    assert_eq!(stream.allocate(1000).unwrap().label(), None);
}

#[test]
fn places_are_told_where_they_are_asked_for() {
    let (allocator, stream) = tracking(Tracking::Sites);
    let first = stream.allocate_labelled("tile", 512).unwrap();
    let line = line!() - 1;
    let second = stream.allocate(512).unwrap();
    second.set_label("tile");
    let (live, sites) = (allocator.live(), [line, line + 3]);
    let found: Vec<_> = live.groups().iter().map(|group| group.site.unwrap().line()).collect();
    assert_eq!(found, sites);
    assert!(live.groups()[0].site.unwrap().file().ends_with("library/live.rs"));
    assert!(live.to_string().starts_with("512 bytes in 1 of tile at "), "{live}");
    allocator.track_live(Tracking::Labels);
    second.set_label("tile");
    assert_eq!(allocator.live().groups().iter().filter(|group| group.site.is_none()).count(), 1);
    drop((first, second));
    assert!(allocator.live().is_empty());
}

#[test]
fn a_baseline_shows_what_a_step_has_left() {
    let (allocator, stream) = tracking(Tracking::Labels);
    let step = |leak: &mut Vec<Buffer<Sim>>| {
        let activations = stream.allocate_labelled("activations", 1 << 20).unwrap();
        leak.push(stream.allocate_labelled("cache", 2048).unwrap());
        drop(activations);
    };
    let mut leak = Vec::new();
    step(&mut leak);
    let baseline = allocator.live();
    assert!(allocator.live().since(&baseline).is_empty());
    step(&mut leak);
    step(&mut leak);
    let change = allocator.live().since(&baseline);
    assert_eq!(change.to_string(), "+4.00 KiB in +2 of cache");
    leak.clear();
    let change = allocator.live().since(&baseline);
    assert_eq!((change.groups()[0].count, change.groups()[0].bytes), (-1, -2048));
    assert_eq!(change.to_string(), "-2.00 KiB in -1 of cache");
}

#[test]
fn nothing_is_known_unless_it_is_turned_on() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    let before = stream.allocate_labelled("weights", 512).unwrap();
    assert!(allocator.live().is_empty() && before.label().is_none());
    allocator.track_live(Tracking::Labels);
    before.set_label("weights");
    let after = stream.allocate_labelled("weights", 512).unwrap();
    assert_eq!(allocator.live().count(), 1, "what was handed out before is not known");
    drop(before);
    allocator.track_live(Tracking::Off);
    assert!(allocator.live().is_empty());
    drop(after);
    allocator.check();
}

#[test]
fn the_end_of_the_last_handle_tells_what_is_left() {
    let told: Arc<Mutex<Vec<Live>>> = Arc::default();
    let (allocator, stream) = tracking(Tracking::Labels);
    let ends = |allocator: &Allocator<Sim>| {
        let told = Arc::clone(&told);
        allocator.on_left_alive(move |live| told.lock().unwrap().push(live.clone()));
    };
    ends(&allocator);
    let view = stream.allocate_from(&[0u8; 700]).unwrap();
    view.buffer().set_label("left");
    drop(allocator);
    assert!(told.lock().unwrap().is_empty(), "a stream is a handle");
    drop(stream);
    assert_eq!(groups(&told.lock().unwrap()[0]), [(Some("left"), 1, 1024, 700)]);
    drop(view);
    assert_eq!(told.lock().unwrap().len(), 1);

    let (allocator, stream) = tracking(Tracking::Labels);
    ends(&allocator);
    drop(stream.allocate_labelled("not left", 700).unwrap());
    drop((allocator, stream));
    assert_eq!(told.lock().unwrap().len(), 1, "nothing is left, so nothing is told");
}

#[test]
fn numbers_and_scrubbed_buffers_are_counted_as_well() {
    let (allocator, stream) = tracking(Tracking::Labels);
    let raw = stream.allocate_labelled("table", 512).unwrap().into_raw();
    assert_eq!(groups(&allocator.live()), [(Some("table"), 1, 512, 512)]);
    let again = RawBuffer::from_bits(raw.to_bits());
    assert_eq!(allocator.capacity_raw(again), 512);

    let settings = millpond::settings::Settings { scrub: Scrub::Always, ..allocator.settings() };
    let scrubbing = Allocator::builder(Sim::new()).settings(settings).build().unwrap();
    scrubbing.track_live(Tracking::Labels);
    let buffer = scrubbing.create_stream().unwrap().allocate_labelled("secret", 512).unwrap();
    assert_eq!(groups(&scrubbing.live()), [(Some("secret"), 1, 512, 512)]);
    drop(buffer);
    assert!(scrubbing.live().is_empty());
}

#[test]
fn threads_label_and_free_for_each_other() {
    let (allocator, _) = tracking(Tracking::Labels);
    let (send, receive) = std::sync::mpsc::channel::<Buffer<Sim>>();
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            let (allocator, send) = (&allocator, send.clone());
            scope.spawn(move || {
                let stream = allocator.create_stream().unwrap();
                for round in 1..500 {
                    let _ = send.send(stream.allocate_labelled(name, round * 100).unwrap());
                }
            });
        }
        drop(send);
        scope.spawn(move || receive.iter().for_each(drop));
    });
    assert!(allocator.live().is_empty(), "{}", allocator.live());
    allocator.check();
}

/// A tag is the label of what is allocated while it is in force, a label in a tag is below it, and labels that are set
/// replace both.
#[test]
fn tags_are_labels() {
    let (allocator, stream) = tracking(Tracking::Sites);
    let outside = stream.allocate(512).unwrap();
    let held = with_tag("model", || {
        let plain = stream.allocate(1024).unwrap();
        let layer = tag("layer3");
        let inner = stream.allocate_labelled("weights", 2048).unwrap();
        drop(layer);
        (plain, inner, stream.allocate_labelled("other", 4096).unwrap())
    });
    let after = stream.allocate(512).unwrap();
    let labels = [&held.0, &held.1, &held.2, &outside, &after].map(Buffer::label);
    let names = [Some("model"), Some("model/layer3/weights"), Some("model/other"), None, None];
    assert_eq!(labels.each_ref().map(Option::as_deref), names);
    with_tag("not this", || held.0.set_label("exact"));
    assert_eq!(held.0.label().as_deref(), Some("exact"));
    let sites: Vec<_> = allocator.live().groups().iter().map(|group| group.site.unwrap().line()).collect();
    assert_eq!(sites.len(), 5, "each is from its own place");
}
