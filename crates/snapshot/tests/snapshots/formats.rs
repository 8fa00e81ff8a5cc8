//! Snapshots as PyTorch writes them, made by `scripts/snapshot-fixtures.py`, and what is written of them.

use std::path::PathBuf;

use millpond_snapshot::{Action, Limits, Segment, Snapshot, State, VmaDevice};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn read(name: &str) -> Snapshot {
    Snapshot::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_format_of_one_snapshot_means_the_same() {
    let example = read("example.json");
    for name in ["example.2.pickle", "example.3.pickle", "example.4.pickle", "example.5.pickle", "example.pt"] {
        assert_eq!(read(name), example, "{name}");
    }
}

#[test]
fn all_fields_are_read() {
    let snapshot = read("example.4.pickle");
    assert_eq!((snapshot.segments.len(), snapshot.device_traces.len()), (3, 1));
    let [first, second, third] = &snapshot.segments[..] else { unreachable!("three segments") };
    assert_eq!((first.address, first.total_size, first.stream), (0x7f2c_4000_0000, 2 << 20, 0));
    assert_eq!((first.segment_type.as_deref(), first.is_expandable), (Some("small"), Some(false)));
    assert_eq!((second.stream, second.allocated_size, second.active_size), (94_026_421_337_600, 0, 4 << 20));
    assert_eq!(second.blocks[0].state, State::PendingFree);
    assert_eq!(third.segment_pool_id, Some((0, 3)));
    let frames = first.blocks[1].frames.frames();
    assert_eq!((&*frames[2].name, frames[2].line), ("forward", 125));
    assert_eq!(first.blocks[1].frames.site(1), "??:0:at::detail::empty_generic()");
    let site = "??:0:at::detail::empty_generic() < linear.py:125:forward < train.py:31:step";
    assert_eq!(first.blocks[1].frames.site(9), site);
    assert_eq!(first.blocks[0].frames.frames()[0].other["fx_node_name"], "adam");

    let trace = &snapshot.device_traces[0];
    assert_eq!((trace.len(), &trace[4].action, trace[4].addr), (15, &Action::Alloc, Some(0x7f2c_4000_0200)));
    assert_eq!((trace[9].device_free, trace[9].addr, trace[9].size), (Some(12345), None, 80 << 30));
    assert_eq!((trace[7].user_metadata.as_deref(), trace[7].pool_id), (Some("step 7"), Some((0, 0))));
    assert_eq!(trace[4].time_us, Some(1_720_000_000_000_020));
    assert_eq!(snapshot.allocator_settings["garbage_collection_threshold"], 0.8);
    assert_eq!(snapshot.allocator_settings["roundup_power2_divisions"]["32768"], 0);
    assert_eq!((&*snapshot.external_annotations[1].stage, snapshot.external_annotations.len()), ("END", 2));
}

#[test]
fn what_is_written_is_read_again() {
    for name in ["example.4.pickle", "later.pickle", "two_devices.pickle", "legacy.pickle", "large.pickle"] {
        let snapshot = read(name);
        let json = snapshot.write_json(Vec::new()).expect("memory takes it");
        let pickle = snapshot.write_pickle(Vec::new()).expect("memory takes it");
        for bytes in [&json, &pickle] {
            assert_eq!(Snapshot::parse(bytes, &Limits::default()).expect(name), snapshot, "{name}");
        }
        let is_large = name == "large.pickle";
        assert!(!is_large || pickle.len() * 2 < json.len(), "texts and stacks are written once");
        serde_json::from_slice::<Value>(&json).expect("JSON");
    }
}

#[test]
fn unknown_fields_and_kinds_are_kept() {
    let text = br#"{"segments": [{"address": 18446744073709551615, "total_size": 0, "blocks": [],
        "mood": [1, -2, 0.5, {"a": null}]}],
        "device_traces": [[{"action": "dance", "how": true, "user_metadata": 5}]], "host_traces": [[]]}"#;
    let snapshot = Snapshot::parse(text, &Limits::default()).expect("a snapshot");
    assert_eq!(snapshot.segments[0].other["mood"].to_string(), r#"[1,-2,0.5,{"a":null}]"#);
    assert_eq!(snapshot.device_traces[0][0].action.name(), "dance");
    assert_eq!(snapshot.device_traces[0][0].other["user_metadata"], 5);
    assert!(snapshot.other.contains_key("host_traces"));
    let pickle = snapshot.write_pickle(Vec::new()).expect("memory takes it");
    assert_eq!(Snapshot::parse(&pickle, &Limits::default()).expect("a snapshot"), snapshot);
}

#[test]
fn old_snapshots_are_completed() {
    let snapshot = read("legacy.pickle");
    let [used, free] = &snapshot.segments[0].blocks[..] else { unreachable!("two blocks") };
    assert_eq!((used.requested_size, used.frames.site(1)), (300, "adam.py:160:_init_group".into()));
    assert_eq!((free.address - used.address, free.requested_size), (512, 0));
    assert_eq!((snapshot.segments[0].allocated_size, snapshot.segments[0].requested_size), (512, 300));
}

#[test]
fn files_are_written_by_their_names() {
    let snapshot = read("example.json");
    for (name, start) in [("a.json", b"{\"".as_slice()), ("a.pickle", b"\x80\x02")] {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        snapshot.write(&path).expect("a file");
        assert!(std::fs::read(&path).expect("a file").starts_with(start), "{name}");
        assert_eq!(Snapshot::read(&path).expect("a snapshot"), snapshot);
    }
    let error = snapshot.write("/nonexistent/a.json").expect_err("no folder").to_string();
    assert!(error.starts_with("cannot open /nonexistent/a.json: "), "{error}");
}

#[test]
fn a_dump_of_vma_adds_up() {
    let device = VmaDevice { name: "H200".into(), heap_bytes: Some(1 << 37) };
    let dump = read("two_devices.pickle").write_vma(&device, Vec::new()).expect("memory takes it");
    // Here for its tool, `GpuMemDumpVis.py`, which draws it.
    std::fs::write(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vma.json"), &dump).expect("a file");
    let dump: Value = serde_json::from_slice(&dump).expect("JSON");
    assert_eq!((&dump["General"]["API"], &dump["General"]["GPU"]), (&"Vulkan".into(), &"H200".into()));
    assert_eq!(dump["Total"]["BlockCount"], 4);
    assert_eq!(dump["MemoryInfo"]["Heap 0"]["Size"], 1_u64 << 37);
    let mut bytes = 0;
    let pools = ["Type 0", "Type 1"].map(|name| &dump["DefaultPools"][name]);
    let custom = &dump["CustomPools"]["Type 0"][0];
    assert_eq!(custom["Name"], "0 - (0, 3)");
    for pool in pools.into_iter().chain([custom]) {
        assert!(pool["DedicatedAllocations"].as_array().is_some_and(Vec::is_empty));
        for block in pool["Blocks"].as_object().expect("blocks").values() {
            let parts = block["Suballocations"].as_array().expect("parts");
            let sum: u64 = parts.iter().map(|part| part["Size"].as_u64().expect("a size")).sum();
            assert_eq!(Some(sum), block["TotalBytes"].as_u64());
            bytes += sum;
        }
    }
    assert_eq!(dump["Total"]["BlockBytes"], bytes);
    let named = &dump["DefaultPools"]["Type 0"]["Blocks"]["0"]["Suballocations"][0];
    assert_eq!((&named["Name"], &named["Type"]), (&"adam.py:160:_init_group".into(), &"BUFFER".into()));
}

#[test]
fn a_difference_tells_what_grew() {
    let (before, after) = (read("example.json"), read("later.pickle"));
    let diff = before.diff(&after, 2);
    let mib = 1 << 20;
    assert_eq!((diff.before.reserved, diff.after.reserved), (24 * mib, 24 * mib));
    assert_eq!((diff.before.allocated, diff.after.allocated), (3 * mib + 512, 11 * mib));
    let changes: Vec<_> = diff.segments.iter().map(|change| (change.before, change.after)).collect();
    assert_eq!(changes, [(Some(20 * mib), None), (None, Some(20 * mib))]);
    let site = &diff.sites[0];
    assert_eq!(site.key, "??:0:at::detail::empty_generic() < linear.py:125:forward");
    assert_eq!((site.before.bytes, site.after.bytes, site.growth()), (5 * mib, 9 * mib, 4 << 20));
    let streams: Vec<_> = diff.streams.iter().map(|row| (row.key.as_str(), row.growth())).collect();
    assert_eq!(streams, [("0", (8 << 20) - 512), ("0x55843b717e00", -(4 << 20))]);
    let states: Vec<_> = diff.states.iter().map(|row| (row.key.as_str(), row.before.count, row.after.count)).collect();
    assert_eq!(states, [("active_allocated", 3, 3), ("active_pending_free", 1, 0), ("inactive", 2, 3)]);
    assert_eq!(diff.sizes[0].key, "512");
    assert!(before.diff(&before, 1).segments.is_empty());
    let same = before.diff(&before, 1);
    assert!(same.sites.iter().chain(&same.states).chain(&same.sizes).all(|row| row.is_same()));
}

#[test]
fn segments_sum_their_blocks() {
    let read = read("example.json");
    for segment in &read.segments {
        let built = Segment::new(segment.device, segment.address, segment.stream, segment.blocks.clone());
        assert_eq!(built.total_size, segment.total_size);
        assert_eq!(built.requested_size, segment.requested_size);
        assert_eq!((built.allocated_size, built.active_size), (segment.allocated_size, segment.active_size));
    }
}
