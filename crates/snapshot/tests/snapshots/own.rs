//! Snapshots of Millpond's own allocators: they are what PyTorch's viewer can follow back to the beginning.

use std::collections::BTreeMap;

use millpond::history::Recording;
use millpond::{Allocator, Buffer, Stream, with_tag};
use millpond_sim::Sim;
use millpond_snapshot::{Action, Limits, Snapshot, State, TraceEntry};
use millpond_trace::Random;

/// Runs a program that gathers memory of several streams, and returns its snapshot.
fn recorded(conf: &str, seed: u64) -> (Snapshot, u64) {
    let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
    allocator.record_history(Recording::all(1_000_000));
    let streams: Vec<Stream<Sim>> = (0..3).map(|_| allocator.create_stream().unwrap()).collect();
    let mut random = Random::new(seed);
    let mut live: Vec<Buffer<Sim>> = Vec::new();
    for step in 0..600 {
        if step % 100 == 0 {
            allocator.annotate("a hundred steps");
        }
        if live.len() > 12 || (!live.is_empty() && random.one_in(2)) {
            drop(live.swap_remove(random.index(live.len())));
        } else {
            let bytes = if random.one_in(3) { 1 + random.below(1 << 19) } else { 1 + random.below(24 << 20) };
            let stream = random.pick(&streams.iter().collect::<Vec<_>>()).clone();
            live.push(with_tag("random", || stream.allocate(bytes)).unwrap());
        }
        if step == 400 {
            allocator.empty_cache().unwrap();
        }
    }
    allocator.poll().unwrap();
    let own = allocator.snapshot();
    let gathered = own.history.entries.iter().filter(|entry| entry.action.name() == "gather").count();
    (Snapshot::from(&own), gathered as u64)
}

#[test]
fn without_tags_there_are_no_categories() {
    let allocator = Allocator::new(Sim::new());
    allocator.record_history(Recording::all(100));
    drop(allocator.create_stream().unwrap().allocate(1000).unwrap());
    let snapshot = Snapshot::from(&with_tag("of no block", || allocator.snapshot()));
    let events = &snapshot.device_traces[0];
    assert!(events.len() > 3 && events.iter().all(|event| event.category.is_none()), "{events:?}");
}

/// What a viewer knows while it goes back: the segments and the blocks of a device, by address, with their lengths and
/// the bytes that were asked for.
#[derive(Default)]
struct Rewound {
    mapped: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, u64>,
}

impl Rewound {
    fn now(snapshot: &Snapshot) -> Rewound {
        let mut rewound = Rewound::default();
        for segment in &snapshot.segments {
            rewound.map(segment.address, segment.total_size);
            let active = segment.blocks.iter().filter(|block| block.state != State::Inactive);
            rewound.blocks.extend(active.map(|block| (block.address, block.requested_size)));
            let sum: u64 = segment.blocks.iter().map(|block| block.size).sum();
            assert_eq!(sum, segment.total_size, "the blocks tile the segment");
        }
        rewound
    }

    fn map(&mut self, at: u64, size: u64) {
        let (mut begin, mut end) = (at, at + size);
        if let Some((&before, &length)) = self.mapped.range(..=begin).next_back()
            && before + length >= begin
        {
            assert_eq!(before + length, begin, "{begin:#x} is mapped twice");
            begin = before;
        }
        if let Some(&length) = self.mapped.get(&end) {
            self.mapped.remove(&end);
            end += length;
        }
        self.mapped.insert(begin, end - begin);
    }

    fn unmap(&mut self, at: u64, size: u64) {
        let (&begin, &length) = self.mapped.range(..=at).next_back().expect("there is a segment");
        assert!(at + size <= begin + length, "{at:#x} and {size} bytes are not mapped");
        self.mapped.remove(&begin);
        let rest = [(begin, at - begin), (at + size, begin + length - at - size)];
        self.mapped.extend(rest.into_iter().filter(|(_, length)| *length > 0));
    }

    /// Goes back over an event, as the viewer does.
    fn undo(&mut self, event: &TraceEntry) {
        let Some(at) = event.addr else { return };
        match event.action {
            Action::Alloc => assert_eq!(self.blocks.remove(&at), Some(event.size), "{at:#x} is allocated"),
            Action::FreeRequested => assert!(self.blocks.contains_key(&at), "{at:#x} waits"),
            Action::FreeCompleted => assert_eq!(self.blocks.insert(at, event.size), None, "{at:#x} is free"),
            Action::SegmentAlloc | Action::SegmentMap => self.unmap(at, event.size),
            Action::SegmentFree | Action::SegmentUnmap => self.map(at, event.size),
            _ => {}
        }
        for (&block, &size) in &self.blocks {
            let (&begin, &length) = self.mapped.range(..=block).next_back().expect("every block has a segment");
            assert!(block + size <= begin + length, "{block:#x} lies in no segment");
        }
    }
}

#[test]
fn the_viewer_can_go_back_to_the_beginning() {
    let mut windows = 0;
    for (conf, seed) in [("policy:paged,growth:tight", 1), ("policy:paged,growth:tight", 2), ("policy:classic", 3)] {
        let (snapshot, gathered) = recorded(conf, seed);
        windows += gathered;
        let mut rewound = Rewound::now(&snapshot);
        for event in snapshot.device_traces[0].iter().rev() {
            rewound.undo(event);
        }
        assert_eq!((rewound.blocks, rewound.mapped), (BTreeMap::new(), BTreeMap::new()), "under {conf}");
    }
    assert!(windows > 0, "no memory was gathered");
}

#[test]
fn files_hold_what_the_allocator_knows() {
    let (snapshot, _) = recorded("policy:paged,growth:tight", 5);
    let json = snapshot.write_json(Vec::new()).unwrap();
    let pickle = snapshot.write_pickle(Vec::new()).unwrap();
    for bytes in [json, pickle] {
        assert_eq!(Snapshot::parse(&bytes, &Limits::default()).unwrap(), snapshot);
    }
    let alloc = snapshot.device_traces[0].iter().find(|event| event.action == Action::Alloc).unwrap();
    let frames = alloc.frames.as_ref().unwrap().frames();
    assert_eq!(alloc.category.as_deref(), Some("random"));
    assert!(frames[0].filename.ends_with("snapshots/own.rs") && frames[0].line > 0, "{frames:?}");
    let snapshots = snapshot.device_traces[0].iter().filter(|event| event.action == Action::Snapshot);
    let categories: Vec<_> = snapshots.map(|event| event.category.as_deref()).collect();
    assert_eq!(categories, [Some("unknown")], "the viewer needs one of them");
    assert_eq!(snapshot.external_annotations.len(), 6);
    assert_eq!(&*snapshot.external_annotations[0].name, "a hundred steps");
    let conf = snapshot.allocator_settings["PYTORCH_CUDA_ALLOC_CONF"].as_str().unwrap();
    assert!(conf.contains("growth:tight"), "{conf}");
}

/// What is in use through a window is free at home, before a live block there and behind it.
#[test]
fn memory_in_a_window_is_free_at_its_home() {
    const MIB: u64 = 1 << 20;
    let allocator = Allocator::builder(Sim::new()).conf("policy:paged,growth:tight").build().unwrap();
    let stream = allocator.create_stream().unwrap();
    let [first, between, last] = [6, 2, 6].map(|mib| stream.allocate(mib * MIB).unwrap());
    drop((first, last));
    allocator.set_limit(Some(14 * MIB));
    let window = stream.allocate(12 * MIB).unwrap();
    let snapshot = Snapshot::from(&allocator.snapshot());
    let parts = |address: Option<u64>| {
        let has = |segment: &&millpond_snapshot::Segment| segment.blocks.iter().any(|b| Some(b.address) == address);
        let segment = snapshot.segments.iter().find(has).expect("each block lies in a segment");
        let parts = segment.blocks.iter().map(|block| (block.size / MIB, block.state == State::Allocated));
        (segment.total_size / MIB, parts.collect::<Vec<_>>())
    };
    assert_eq!(parts(between.address()), (14, vec![(6, false), (2, true), (6, false)]));
    assert_eq!(parts(window.address()), (12, vec![(12, true)]));
}

/// Pages of one range lie where those of another would go on: they are segments of their own.
#[test]
fn pages_of_two_ranges_are_two_segments() {
    const MIB: u64 = 1 << 20;
    let allocator = Allocator::builder(Sim::new()).conf("policy:paged,growth:tight").build().unwrap();
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    let first = streams[0].allocate(6 * MIB).unwrap();
    let [gone, second] = [6, 2].map(|mib| streams[1].allocate(mib * MIB).unwrap());
    drop(gone);
    allocator.empty_cache().unwrap();
    let snapshot = Snapshot::from(&allocator.snapshot());
    let segments: Vec<_> = snapshot.segments.iter().map(|segment| (segment.address, segment.total_size)).collect();
    for (buffer, bytes) in [(first, 6 * MIB), (second, 2 * MIB)] {
        let segment = buffer.address().map(|address| (address, bytes));
        assert!(segment.is_some_and(|segment| segments.contains(&segment)), "{segments:?}");
    }
}
