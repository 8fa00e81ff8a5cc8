//! The text of an out-of-memory error, and tests that its advice helps.

use millpond::backend::{Backend as _, Closing, Fault};
use millpond::history::Recording;
use millpond::{Allocator, Error, OutOfMemory, RemedyAction, Stream, with_tag};
use millpond_sim::{Sim, SimBuilder, SimError};

const MIB: u64 = 1 << 20;

fn refusal(stream: &Stream<Sim>, bytes: u64) -> Box<OutOfMemory> {
    match stream.allocate(bytes) {
        Err(Error::OutOfMemory(error)) => error,
        other => panic!("expected a refusal: {other:?}"),
    }
}

/// Checks that a message has each of these texts and no advice that does not help: under `paged`, segments need not be
/// expandable.
fn says(error: &OutOfMemory, expected: &[&str]) {
    let message = error.to_string();
    for text in expected {
        assert!(message.contains(text), "expected {text:?} in: {message}");
    }
    assert!(!message.contains("expandable_segments"), "{message}");
    assert_eq!(message.matches("What to do:").count(), 1, "{message}");
}

fn paged(sim: SimBuilder) -> (Sim, Allocator<Sim>) {
    let sim = sim.build();
    let allocator = Allocator::new(sim.clone());
    assert!(allocator.settings().policy.moves_pages(), "the default where there is virtual memory");
    (sim, allocator)
}

#[test]
fn at_the_limit_it_says_by_how_much_to_raise_it() {
    let (_, allocator) = paged(Sim::builder());
    allocator.set_limit(Some(64 * MIB));
    let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let _live = stream.allocate(40 * MIB).unwrap();
    drop(other.allocate(8 * MIB).unwrap());
    let error = refusal(&stream, 40 * MIB - 100);
    says(
        &error,
        &[
            "Tried to allocate 40.00 MiB for a request of 40.00 MiB",
            "64.00 MiB allowed",
            "8.00 MiB idle, 0 bytes free once their last use is over; 16.00 MiB left below the limit.",
            "What to do: free buffers, or raise the limit by 16.00 MiB",
        ],
    );
    allocator.set_limit(Some(80 * MIB));
    assert!(stream.allocate(40 * MIB - 100).is_ok());
}

#[test]
fn on_a_full_device_it_says_how_much_to_free() {
    let (_, allocator) = paged(Sim::builder().total_bytes(64 * MIB));
    let stream = allocator.create_stream().unwrap();
    let _live = stream.allocate(40 * MIB).unwrap();
    let more = stream.allocate(16 * MIB).unwrap();
    let error = refusal(&stream, 24 * MIB);
    says(&error, &["64.00 MiB. Of the reserved", "What to do: free buffers of 16.00 MiB or more: caching cannot"]);
    drop(more);
    assert!(stream.allocate(24 * MIB).is_ok());
}

#[test]
fn beside_other_programs_it_says_that_the_driver_refused() {
    let (sim, allocator) = paged(Sim::builder().total_bytes(64 * MIB));
    let stream = allocator.create_stream().unwrap();
    let _live = stream.allocate(32 * MIB).unwrap();
    sim.set_others(32 * MIB);
    let error = refusal(&stream, 24 * MIB);
    says(&error, &["in the programs that share the device", "with 32.00 MiB of it not reserved here"]);
    sim.set_others(0);
    assert!(stream.allocate(24 * MIB).is_ok());
}

/// Work that was recorded and not submitted is never complete: waiting for it does not help, and submitting it does.
#[test]
fn where_freed_memory_waits_for_work_that_was_not_submitted_it_says_so() {
    // The last use is on another stream, or on the stream that had memory which another one wants.
    for (used_elsewhere, stream_wait) in [(true, true), (true, false), (false, false)] {
        let (sim, allocator) = paged(Sim::builder().closing(Closing::Submit).stream_wait(stream_wait));
        allocator.set_limit(Some(64 * MIB));
        let (home, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let buffer = home.allocate(40 * MIB).unwrap();
        let (user, asking) = if used_elsewhere { (&other, &home) } else { (&home, &other) };
        sim.busy(user.id());
        buffer.record_stream(user).unwrap();
        drop(buffer);
        let error = refusal(asking, 40 * MIB);
        says(
            &error,
            &[
                &format!("Freed memory that work in flight may still use: 40.00 MiB by {}.", user.id()),
                "0 bytes idle, 40.00 MiB free once their last use is over; 24.00 MiB left below the limit.",
                "What to do: submit or finish the work that 40.00 MiB of freed memory wait for, then try again.",
            ],
        );
        let report = error.report();
        assert_eq!((report.waiting_frees, report.unreached_bytes), (0, 40 * MIB));
        sim.submit(user.id()).unwrap();
        assert!(asking.allocate(40 * MIB).is_ok());
        allocator.check();
    }
}

/// Pages were created while work was under way, and none of them is free now.
#[test]
fn it_says_what_is_reserved_beyond_the_slack() {
    let (sim, allocator) = paged(Sim::builder().closing(Closing::Submit));
    allocator.set_limit(Some(64 * MIB));
    let (first, second) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let buffer = first.allocate(24 * MIB).unwrap();
    sim.busy(first.id());
    drop(buffer);
    let _live = second.allocate(24 * MIB).unwrap();
    let error = refusal(&second, 40 * MIB);
    let beyond = "Beyond the slack: 22.80 MiB; it allows 25.20 MiB, as 24.00 MiB were live at most.";
    let pinned = format!("Freed memory that work in flight may still use: 24.00 MiB by {}.", first.id());
    says(&error, &[beyond, &pinned]);
    let report = error.report();
    assert_eq!((report.slack.pinned_bytes, report.slack.pinned_by.len()), (0, 1), "it is free for its own stream");
    let error = refusal(&first, 56 * MIB).to_string();
    assert!(!error.contains("may still use"), "the asking stream was the last to use it: {error}");
}

#[test]
fn classic_says_nothing_of_pages() {
    let allocator = |sim: Sim, conf: &str| Allocator::builder(sim).conf(conf).limit(200 * MIB).build().unwrap();
    // All is reserved, and 32 MiB are free on another stream, in two segments that live blocks pin.
    let fill = |allocator: &Allocator<Sim>| {
        let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let blocks: Vec<_> = (0..10).map(|_| other.allocate(4 * MIB).unwrap()).collect();
        let kept: Vec<_> = blocks.into_iter().step_by(5).collect();
        let large = stream.allocate(160 * MIB).unwrap();
        (stream, kept, large)
    };
    for (sim, conf) in [(Sim::new(), "policy:classic"), (Sim::builder().pages(None).build(), "")] {
        let classic = allocator(sim, conf);
        let (stream, _kept, _large) = fill(&classic);
        let error = refusal(&stream, 12 * MIB);
        says(&error, &["What to do: free buffers, or raise the limit by 12.00 MiB"]);
        assert!(!error.to_string().contains("page"), "{error}");
        assert_eq!(Error::<SimError>::OutOfMemory(error).fault(), Fault::OutOfMemory);
    }
}

/// The blocks on both sides of the largest hole are named with their tags and places, and each remedy with its bytes.
#[test]
fn it_names_what_is_in_the_way_and_what_each_remedy_frees() {
    let allocator =
        Allocator::builder(Sim::new()).conf("policy:classic").limit(120 * MIB).build().expect("an allocator");
    allocator.record_history(Recording::all(100));
    let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    // One segment of 20 MiB: two blocks with a hole between them.
    let [before, hole, behind] = [(4, "encoder"), (9, "activations"), (5, "decoder")].map(|(mib, name)| {
        let block = with_tag("model", || stream.allocate_labelled(name, mib * MIB)).unwrap();
        (block, line!() - 1)
    });
    drop(hole);
    let large = other.allocate(80 * MIB).unwrap();
    let error = refusal(&stream, 30 * MIB);
    let explanation = error.explanation();
    let found = explanation.hole.as_ref().unwrap();
    assert_eq!(found.range.bytes, 9 * MIB);
    let pins: Vec<_> = found.pinned_by.iter().map(|block| (block.pin.size / MIB, block.label.as_deref())).collect();
    assert_eq!(pins, [(4, Some("model/encoder")), (5, Some("model/decoder"))]);
    assert_eq!(found.pinned_by[0].site.unwrap().line(), before.1);
    let remedies: Vec<_> = explanation.remedies.iter().map(|r| (r.action, r.bytes / MIB, r.suffices)).collect();
    assert_eq!(remedies, [(RemedyAction::RaiseLimit, 10, true)], "{explanation}");
    assert_eq!(explanation.holders[0].bytes, 80 * MIB);
    assert!(explanation.is_recorded);
    let site = found.pinned_by[0].site.unwrap();
    says(
        &error,
        &[
            &format!("pinned by 4.00 MiB live at offset 0 (model/encoder, from {site}), and 5.00 MiB live at offset"),
            "Held most by: 80.00 MiB in 1 of (no label) at ",
            "The history is recorded: millpond_replay::which_policies_fit(&allocator.snapshot(), Sim::new) shows which",
        ],
    );
    let text = explanation.to_string();
    assert!(text.contains("Would have helped: 10.00 MiB by raising the limit (enough)."), "{text}");

    // Without notes the explanation has the numbers alone.
    allocator.record_history(Recording::off());
    let error = refusal(&stream, 30 * MIB);
    let explanation = error.explanation();
    assert!(explanation.holders.is_empty() && !explanation.is_recorded);
    let pinned = &explanation.hole.as_ref().unwrap().pinned_by;
    assert!(pinned.len() == 2 && pinned.iter().all(|block| block.label.is_none() && block.site.is_none()));
    drop((before, behind, large));
}

#[test]
fn work_in_flight_is_a_remedy_by_stream() {
    let (sim, allocator) = paged(Sim::builder().closing(Closing::Submit));
    allocator.set_limit(Some(64 * MIB));
    let (home, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let buffer = home.allocate(40 * MIB).unwrap();
    sim.busy(other.id());
    buffer.record_stream(&other).unwrap();
    drop(buffer);
    let error = refusal(&home, 40 * MIB);
    let waits: Vec<_> = error.explanation().remedies.iter().map(|r| (r.action, r.bytes / MIB, r.suffices)).collect();
    assert_eq!(waits[0], (RemedyAction::Wait(other.id()), 40, true), "{waits:?}");
    assert!(error.explanation().to_string().contains(&format!("40.00 MiB by waiting for {} (enough)", other.id())));
    sim.submit(other.id()).unwrap();
    assert!(home.allocate(40 * MIB).is_ok(), "the remedy helps");
}
