//! The text of an out-of-memory error, and tests that its advice helps.

use millpond::backend::{Backend as _, Closing, Fault};
use millpond::{Allocator, Error, OutOfMemory, Stream};
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
    // The last use is on another stream, or on the home stream of memory that another one wants.
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
fn classic_recommends_pages_where_the_device_has_them() {
    let allocator = |sim: Sim, conf: &str| Allocator::builder(sim).conf(conf).limit(200 * MIB).build().unwrap();
    // All is reserved, and 32 MiB are free on another stream, in two segments that live blocks pin.
    let fill = |allocator: &Allocator<Sim>| {
        let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let blocks: Vec<_> = (0..10).map(|_| other.allocate(4 * MIB).unwrap()).collect();
        let kept: Vec<_> = blocks.into_iter().step_by(5).collect();
        let large = stream.allocate(160 * MIB).unwrap();
        (stream, kept, large)
    };
    let classic = allocator(Sim::new(), "policy:classic");
    let (stream, _kept, _large) = fill(&classic);
    let error = refusal(&stream, 12 * MIB);
    says(&error, &["What to do: set policy:paged, which maps free pages"]);

    let (stream, _kept, _large) = fill(&allocator(Sim::new(), "policy:paged"));
    assert!(stream.allocate(12 * MIB).is_ok(), "the advice helps");

    let without = allocator(Sim::builder().pages(None).build(), "");
    let (stream, _kept, _large) = fill(&without);
    let error = refusal(&stream, 12 * MIB);
    says(&error, &["What to do: free buffers, or raise the limit by 12.00 MiB"]);
    assert!(!error.to_string().contains("page"), "the device has none: {error}");
    assert_eq!(Error::<SimError>::OutOfMemory(error).fault(), Fault::OutOfMemory);
}
