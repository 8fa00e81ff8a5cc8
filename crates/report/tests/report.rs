//! Reports of programs on the simulated device: the numbers add up, looking changes nothing, and the page is safe.

use millpond::{Allocator, Stream};
use millpond_replay::{Life, Replay, Replayed, Until};
use millpond_report::{Agenda, Holders, Named, Program, Run, Sampled, Sampler, Scale, Scout, Scouted, Tree, Who};
use millpond_sim::Sim;
use millpond_trace::{Pattern, Place, Trace};

/// The policies that are looked at, as configurations.
const POLICIES: [&str; 3] = ["policy:classic", "policy:paged", "policy:classic,expandable_segments:True"];

fn open(conf: &str, limit: Option<u64>, streams: u32) -> (Allocator<Sim>, Vec<Stream<Sim>>) {
    let mut builder = Allocator::builder(Sim::new()).conf(conf);
    if let Some(limit) = limit {
        builder = builder.limit(limit);
    }
    let allocator = builder.build().expect("an allocator");
    let streams = (0..streams).map(|_| allocator.create_stream().expect("a stream")).collect();
    (allocator, streams)
}

fn scouted(replay: &Replay, conf: &str, limit: Option<u64>) -> (Replayed, Scouted) {
    let (allocator, streams) = open(conf, limit, replay.streams());
    let mut scout = Scout::new(&allocator, replay, true);
    let life = Life { observer: Some(&mut scout), ..Life::default() };
    let replayed = replay.run_life(&allocator, &streams, Until::Passes(2), life, |_| ()).expect("a replay");
    (replayed, scout.finish())
}

/// Returns the report of a program, with all that was seen.
fn report(name: &str, trace: &Trace, limit: Option<u64>) -> (Program, Vec<(Scouted, Sampled)>) {
    let (replay, blocks) = (Replay::new(trace), millpond_report::blocks(trace));
    let first: Vec<_> = POLICIES.map(|conf| scouted(&replay, conf, limit)).into();
    let scale = Scale::new(first.iter().map(|(_, seen)| seen.most_reserved.bytes).max().unwrap_or(0));
    let named: Vec<_> = POLICIES.into_iter().zip(first.iter().map(|(_, seen)| seen)).collect();
    let moments = millpond_report::moments(&named, 8);
    let (mut runs, mut all) = (Vec::new(), Vec::new());
    for (conf, (replayed, seen)) in POLICIES.into_iter().zip(first) {
        let agenda = Agenda::new(&seen, &moments, scale);
        let (allocator, streams) = open(conf, limit, replay.streams());
        let mut sampler = Sampler::new(&allocator, &agenda, &blocks);
        let life = Life { observer: Some(&mut sampler), ..Life::default() };
        replay.run_life(&allocator, &streams, Until::Passes(0), life, |_| ()).expect("a replay");
        let sampled = sampler.finish();
        runs.push(Run::new(conf.into(), &replayed, &seen, &sampled, &blocks));
        all.push((seen, sampled));
    }
    let (holders, named) =
        (Holders::of(&blocks, replay.events(), &trace.details), Named::of(runs.iter().flat_map(Run::rows), &blocks));
    let program = Program {
        name: name.into(),
        facts: vec![("program".into(), name.into())],
        events: replay.events(),
        columns: all[0].0.spans.columns(),
        micros: millpond_report::micros(trace, all[0].0.spans),
        cell: scale.cell_bytes,
        moments,
        who: Who::of(&blocks, holders.at, &trace.details, &named),
        blocks: named,
        holders,
        runs,
        fits: None,
        headline: String::new(),
    };
    (program, all)
}

fn programs() -> Vec<(&'static str, Trace)> {
    [Pattern::Streams, Pattern::ManyStreams].map(|pattern| (pattern.name(), pattern.trace(0))).into()
}

#[test]
fn looking_changes_nothing() {
    for (name, trace) in programs() {
        let replay = Replay::new(&trace);
        for conf in POLICIES {
            let (allocator, streams) = open(conf, None, replay.streams());
            let plain = replay.run_on(&allocator, &streams, 2, |_| ()).expect("a replay");
            let (watched, _) = scouted(&replay, conf, None);
            assert_eq!((watched.stats, watched.pages), (plain.stats, plain.pages), "{name} under {conf}");
            let calls = |replayed: &Replayed| -> Vec<_> { replayed.passes().map(|pass| pass.driver).collect() };
            assert_eq!(calls(&watched), calls(&plain), "{name} under {conf}");
            assert_eq!(watched.life_reserved_peak, plain.life_reserved_peak, "{name} under {conf}");
        }
    }
}

#[test]
fn stacks_and_maps_add_up_to_what_is_reserved() {
    for (name, trace) in programs() {
        let (program, all) = report(name, &trace, None);
        for (run, (seen, sampled)) in program.runs.iter().zip(&all) {
            assert_eq!(run.differs, 0, "{name} under {}: the second run is the first again", run.policy);
            assert_eq!(sampled.samples.len(), seen.spans.columns());
            for (sample, column) in sampled.samples.iter().zip(&seen.columns) {
                assert_eq!(sample.ledger.total(), sample.reserved, "{name} at {}", sample.at);
                assert_eq!(sample.ledger.live_bytes, column.live.max, "{name} at {}", sample.at);
                assert!((column.reserved.min..=column.reserved.max).contains(&sample.reserved));
            }
            assert_eq!(sampled.moments.len(), program.moments.len());
            for (moment, (at, _)) in sampled.moments.iter().zip(&program.moments) {
                assert_eq!(moment.at, *at);
                assert_eq!(moment.map.bytes(), moment.ledger.total(), "{name} under {} at {at}", run.policy);
            }
            let live = program.holders.live;
            assert_eq!((run.live, live), (trace.live_peak(), trace.live_peak()), "{name}");
            let calls: u64 = run.columns.calls.0.iter().sum();
            assert!(calls <= run.passes[0].calls, "the frees at the end of a pass are behind its last column");
            assert_eq!(run.passes.len(), 3);
            assert_eq!(run.passes.iter().map(|pass| pass.reserved).max(), Some(run.life.1));
        }
    }
}

#[test]
fn a_refusal_is_explained_by_what_lies_beside_the_largest_hole() {
    let mib = 1 << 20;
    // Two blocks share a segment of 20 MiB, four segments fill the limit, and the first of each two is freed.
    let mut text: String = (0..8).map(|id| format!("a {id} {} 0\n", 9 * mib)).collect();
    (0..8).step_by(2).for_each(|id| text += &format!("f {id}\n"));
    text += &format!("a 8 {} 0\n", 30 * mib);
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    let (program, all) = report("holes", &trace, Some(80 * mib));
    let refusal = program.runs[0].refusal.as_ref().expect("classic refuses");
    assert_eq!((refusal.at, refusal.requested, refusal.free), (12, 30 * mib, 44 * mib));
    assert_eq!((refusal.hole, refusal.pins.len()), (Some((0, 9 * mib)), 1));
    assert!(!refusal.pins[0].before && refusal.pins[0].lifetime == "to the end", "{refusal:?}");
    assert_eq!(refusal.parts.iter().sum::<u64>(), refusal.reserved);
    assert!(all[0].1.refusal.is_some() && program.runs[1].refusal.is_none(), "paged gathers the holes");
    assert!(program.moments.iter().any(|(at, why)| *at == 12 && why.starts_with("first refusal (policy:classic")));
}

#[test]
fn a_page_loads_nothing_and_no_label_is_markup() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&";
    let trace = Trace::parse(b"a 0 1000000 0\na 1 5000000 0\nf 0\n").expect("a trace");
    let (program, _) = report(hostile, &trace, None);
    let page = millpond_report::page(&[program.clone(), program], hostile);
    for reference in ["http:", "https:", "//cdn", "@import", "url(", "src="] {
        // The label is in the page, escaped; nothing else may load anything.
        let without = page.replace("src=x", "");
        assert!(!without.contains(reference), "{reference} is in the page");
    }
    assert_eq!(page.matches("<script").count(), 2, "the data and the script");
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains("<img") && !page.contains("{{"), "no markup comes from a label");
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)") && page.contains("\\u003c/script>"));
    let data = page.split_once("id=\"data\">").expect("data").1.split_once("</script>").expect("an end").0;
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["programs"][0]["name"], hostile);
}

/// What is live is the same under each policy, as long as none refuses a request.
#[test]
fn a_page_has_each_series_once() {
    let (program, _) = report("streams", &Pattern::Streams.trace(0), None);
    let page = millpond_report::page(std::slice::from_ref(&program), "");
    let data = page.split_once("id=\"data\">").expect("data").1.split_once("</script>").expect("an end").0;
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let (runs, series) = (&data["programs"][0]["runs"], data["programs"][0]["series"].as_array().expect("series"));
    let text = |number: &serde_json::Value| series[number.as_u64().expect("a number") as usize].clone();
    for (place, run) in program.runs.iter().enumerate() {
        let columns = &runs[place]["columns"];
        assert_eq!(columns["live_max"], runs[0]["columns"]["live_max"]);
        assert_eq!(text(&columns["reserved_max"]), serde_json::to_value(&run.columns.reserved_max).expect("JSON"));
        for (at, (name, part)) in run.parts.iter().enumerate() {
            assert_eq!(runs[place]["parts"][at][0], *name);
            assert_eq!(text(&runs[place]["parts"][at][1]), serde_json::to_value(part).expect("JSON"), "{name}");
        }
    }
    assert!(series.iter().enumerate().all(|(at, one)| !series[..at].contains(one)), "no series is there twice");
}

#[test]
fn a_page_opens_with_the_headlines_of_its_programs() {
    let trace = Trace::parse(b"a 0 1000000 0\nf 0\n").expect("a trace");
    let (program, _) = report("<p>", &trace, None);
    let program = Program { headline: "It is <so>: `a=\"b\"` fits.".into(), ..program };
    let page = millpond_report::page(std::slice::from_ref(&program), "");
    let sentence = "It is &lt;so&gt;: <code>a=&quot;b&quot;</code> fits.";
    assert!(page.contains(&format!("<p class=\"headline\">{sentence}</p>")));
    let page = millpond_report::page(&[program.clone(), program], "");
    assert_eq!(page.matches(&format!("<li><strong>&lt;p&gt;</strong>: {sentence}</li>")).count(), 2);
}

#[test]
fn plots_are_drawn_without_fonts_and_twice_the_same() {
    let (program, _) = report("streams & <more>", &Pattern::Streams.trace(0), None);
    for plot in [millpond_report::timeline_plot, millpond_report::life_plot] {
        let svg = plot(&program).expect("a plot");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{}", &svg[..80]);
        assert!(svg.contains("streams &amp; &lt;more&gt;"), "names are escaped");
        assert!(svg.len() < 100_000, "{} bytes", svg.len());
        assert_eq!(svg, plot(&program).expect("a plot"));
    }
}

/// Returns a program with call stacks and labels: two lines of a model, and a frame and a label that are hostile.
fn with_details(hostile: &str) -> Trace {
    let mib = 1 << 20;
    let text: String = (0..12).map(|id| format!("a {id} {} 0\n", (id % 4 + 1) * mib)).collect();
    let mut trace = Trace::parse(format!("{text}f 3\nf 7\na 12 {mib} 0\n").as_bytes()).expect("a trace");
    let details = &mut trace.details;
    for event in 0..11 {
        let leaf = ["model.py:7 attention", "model.py:9 mlp", hostile][event % 3];
        let stack =
            details.stack(["train.py:4 main", "site-packages/torch/nn/modules/module.py:1773 _call_impl", leaf]);
        let label = Some(details.label(if event % 2 == 0 { "activations" } else { hostile }));
        // Of the last two blocks nothing is known.
        details.push(event, Place { stack, label, micros: None });
    }
    trace
}

/// Returns the sums of what the children of each node have.
fn below(tree: &Tree, values: &[u64]) -> Vec<u64> {
    let mut sums = vec![0; values.len()];
    (1..values.len()).for_each(|node| sums[tree.parents.0[node] as usize] += values[node]);
    sums
}

#[test]
fn who_allocates_adds_up_to_the_peak_and_to_all_that_is_allocated() {
    let trace = with_details("engine.rs:1 run");
    let (program, _) = report("details", &trace, None);
    let mib = 1 << 20;
    let who = &program.who;
    for tree in [&who.stacks, &who.by_label] {
        let tree = tree.as_ref().expect("a tree");
        assert_eq!((tree.peak_bytes[0], tree.all_bytes[0]), (program.holders.live, 31 * mib));
        assert_eq!((tree.peak_blocks[0], tree.all_blocks[0]), (program.holders.blocks, 13));
        assert_eq!(program.holders.live, trace.live_peak());
        for values in [&tree.peak_bytes, &tree.peak_blocks, &tree.all_bytes, &tree.all_blocks] {
            let sums = below(tree, values);
            assert_eq!(sums[0], values[0], "the root allocates nothing itself");
            assert!(sums.iter().zip(values).all(|(below, own)| below <= own), "{tree:?}");
        }
        assert!(tree.names[1..].contains(&-1), "the last blocks are known to no node: {tree:?}");
    }
    assert_eq!(who.frames.len(), 5);
    assert_eq!(who.libraries, "01000");
    let leaves = who.calls.iter().skip(2).map(|frame| who.frames[*frame].as_str());
    assert_eq!(leaves.collect::<Vec<_>>(), ["model.py:7 attention", "model.py:9 mlp", "engine.rs:1 run"]);
    assert_eq!(who.callers.0, [0, 1, 2, 2, 2]);
    let (plain, _) = report("plain", &Pattern::Streams.trace(0), None);
    assert_eq!((plain.who.stacks, plain.who.by_label, plain.who.frames.len()), (None, None, 0));
}

#[test]
fn maps_name_the_blocks_that_cover_their_cells() {
    let trace = with_details("engine.rs:1 run");
    let (program, _) = report("details", &trace, None);
    let blocks = millpond_report::blocks(&trace);
    let ids = program.blocks.ids();
    assert_eq!(ids, (0..12).collect::<Vec<u32>>(), "each of them is live at a peak");
    assert_eq!((program.who.block_calls.len(), program.who.block_labels.len()), (12, 12));
    assert_eq!((program.who.block_calls[11], program.who.block_labels[11]), (0, 0), "nothing is known of the last");
    for run in &program.runs {
        for (moment, (at, why)) in run.moments.iter().zip(&program.moments) {
            let placed: Vec<_> = moment.rows.iter().flat_map(|row| row.blocks.iter().map(move |b| (row, b))).collect();
            let live = blocks.iter().filter(|block| block.is_live_after(*at)).count();
            assert_eq!(placed.len(), if why.is_empty() { 0 } else { live }, "{} at {at}", run.policy);
            for (row, placed) in placed {
                assert!(blocks[placed.block as usize].is_live_after(*at), "{placed:?} at {at}");
                let end = placed.offset + placed.covers;
                assert!(row.begin <= placed.offset && end <= row.begin + row.bytes, "{placed:?} in {row:?}");
            }
        }
    }
}

#[test]
fn no_frame_and_no_label_of_a_trace_is_markup() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>";
    let (program, _) = report("details", &with_details(hostile), None);
    assert!(program.holders.groups.iter().any(|group| group.place.as_deref() == Some(hostile)));
    let page = millpond_report::page(std::slice::from_ref(&program), "");
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert!(!page.contains("<img"), "no markup comes from a frame");
    let data = page.split_once("id=\"data\">").expect("data").1.split_once("</script>").expect("an end").0;
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let who = &data["programs"][0]["who"];
    assert!(who["frames"].as_array().is_some_and(|frames| frames.iter().any(|frame| frame == hostile)));
    assert!(who["labels"].as_array().is_some_and(|labels| labels.iter().any(|label| label == hostile)));
}
