//! A server that keeps the keys and values of each conversation on the device: it admits a request while there is room
//! for it, lets caches grow in place, and spills conversations that wait once there is no room.
//!
//! Run it with `cargo run -p millpond-examples --example 17_spill_and_admit`.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use millpond::hooks::{Answer, Registration};
use millpond::text::format_bytes;
use millpond::{Allocator, Buffer, Stream};
use millpond_sim::Sim;

const MIB: u64 = 1 << 20;

/// The conversations whose users are typing, the one that waits longest first. Their keys and values can be computed
/// again.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<VecDeque<Buffer<Sim>>>>);

impl Waiting {
    fn push(&self, conversation: Buffer<Sim>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(conversation);
    }

    /// Drops conversations of at least this many bytes together. Returns whether there was one.
    fn spill(&self, bytes: u64) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut freed = 0;
        while freed < bytes
            && let Some(conversation) = waiting.pop_front()
        {
            freed += conversation.capacity();
        }
        freed > 0
    }
}

/// Has conversations spilled before a request is refused.
fn spill_when_short(allocator: &Allocator<Sim>, waiting: &Waiting) -> Registration {
    let waiting = waiting.clone();
    allocator.on_out_of_memory(move |shortage| {
        let bytes = shortage.report().short_bytes();
        match waiting.spill(bytes) {
            true => {
                println!(
                    "  attempt {}: {} short, so waiting conversations were dropped",
                    shortage.attempt(),
                    format_bytes(bytes)
                );
                Answer::Retry
            }
            false => Answer::Pass,
        }
    })
}

/// Admits a conversation if nothing has to be spilled for it.
fn admit(stream: &Stream<Sim>, bytes: u64) -> Result<Option<Buffer<Sim>>, Box<dyn Error>> {
    let fit = stream.would_fit(bytes)?;
    if fit.fits() {
        println!(
            "{} fits, served by {:?}: {} will be reserved",
            format_bytes(bytes),
            fit.served_by,
            format_bytes(fit.reserves_bytes)
        );
        // Addresses for a conversation four times as long, and memory for what there is.
        return Ok(Some(stream.allocate_growable(bytes, 4 * bytes)?));
    }
    println!("{} does not fit: {} are missing", format_bytes(bytes), format_bytes(fit.short_bytes));
    Ok(None)
}

fn main() -> Result<(), Box<dyn Error>> {
    let allocator = Allocator::builder(Sim::new()).limit(256 * MIB).build()?;
    let (stream, waiting) = (allocator.create_stream()?, Waiting::default());
    let _hook = spill_when_short(&allocator, &waiting);

    // Requests that are not urgent are admitted while there is room.
    let mut active = VecDeque::new();
    while let Some(conversation) = admit(&stream, 60 * MIB)? {
        active.push_back(conversation);
    }
    // Two users are typing.
    active.drain(..2).for_each(|conversation| waiting.push(conversation));

    // An urgent one is served in any case: what waits makes room.
    active.push_back(stream.allocate(100 * MIB)?);
    println!("{} conversations are active", active.len());

    // With each answer a cache gets longer, at its place.
    for conversation in active.iter_mut().take(2) {
        let address = conversation.address();
        conversation.grow(8 * MIB)?;
        assert_eq!(conversation.address(), address);
        println!("a cache has grown to {}", format_bytes(conversation.len()));
    }

    // A prefetch takes what is free, and nothing from anyone.
    let prefetched = stream.allocate_cached(20 * MIB)?;
    println!("the prefetch of 20 MiB {}", if prefetched.is_some() { "is made" } else { "has to wait" });

    // With nothing left to spill, the request is refused.
    match stream.allocate(200 * MIB) {
        Ok(_) => println!("200 MiB fitted after all"),
        Err(error) => println!("{}", error.to_string().lines().next().unwrap_or_default()),
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
