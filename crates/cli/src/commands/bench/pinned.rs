//! What page-locked memory costs a program that copies batches of varied sizes to the device: from the cache, and from
//! the driver each time. Every byte that arrives is verified.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millpond::settings::{Policy, Segments, Settings};
use millpond::{Buffer, Pinned, Stream};
use millpond_backend::{Backend, ClassId, ClassKind};
use millpond_trace::Random;

use super::measure::{Effort, nanos};
use super::row::Row;
use super::scene::{Scene, failed};
use crate::failure::Failure;

/// The number of copies that are queued before the oldest is verified.
const AHEAD: usize = 8;
/// The smallest size, in bytes.
const SMALLEST: u64 = 4096;
/// The largest size, in bytes: larger ones would show nothing new.
const LARGEST: u64 = 64 << 20;
/// Sizes are multiples of this many bytes, so that every device copies them.
const UNIT: u64 = 64;

/// Returns the first class of host memory, if the device has one that the host can address.
pub(super) fn class_of<B: Backend>(backend: &B) -> Option<ClassId> {
    let caps = backend.caps();
    let at = caps.classes.iter().position(|class| class.kind == ClassKind::Host && caps.host_memory)?;
    Some(ClassId(at as u16))
}

pub(super) fn measure<B: Backend + Clone>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let Some(class) = class_of(&backend) else { return Ok(Vec::new()) };
    let policy = Policy::default_for(backend.caps().pages.is_some());
    let scene = Scene::new(backend, policy, 1)?;
    let direct = Settings { policy: Policy::Direct, ..Settings::default() };
    // With more slack the cache keeps more memory that the sizes of the next copies may fit in.
    let roomy = Settings { policy: Policy::Classic(Segments::Snug(1.0)), ..Settings::for_host() };
    let ways = [("from the cache", Settings::for_host()), ("slack:1", roomy), ("from the driver each time", direct)];
    ways.into_iter()
        .map(|(way, settings)| {
            let pinned = scene.allocator.pinned_with(class, settings).map_err(failed)?;
            let time = program(&scene.streams[0], &pinned, effort)?;
            let (cache, stats) = (pinned.cache(), pinned.cache().stats());
            let live = stats.requested_bytes.all.peak as f64;
            let waste = cache.max_memory_reserved() as f64 / live - 1.0;
            let calls = cache.driver_activity().calls;
            let case = format!("{} copies, {way}", effort.copies);
            Ok(Row::new("pinned", case, nanos(time) / effort.copies as f64).with_waste(waste, calls))
        })
        .collect()
}

/// Copies to the device, with a few copies queued ahead of the one that is verified. Returns the time spent in
/// allocations and frees of host memory.
fn program<B: Backend>(stream: &Stream<B>, pinned: &Pinned<B>, effort: &Effort) -> Result<Duration, Failure> {
    let largest = effort.bytes_max.min(LARGEST);
    let mut time = Duration::ZERO;
    let mut ahead: VecDeque<(u64, Buffer<B>)> = VecDeque::new();
    for number in 0..effort.copies {
        let bytes = size(number, largest);
        let target = stream.allocate(bytes).map_err(failed)?;
        let start = Instant::now();
        let mut batch = pinned.allocate(bytes).map_err(failed)?;
        time += start.elapsed();
        write(batch.bytes_mut().map_err(failed)?, number);
        stream.upload_pinned((&batch, 0), (&target, 0), bytes).map_err(failed)?;
        stream.submit().map_err(failed)?;
        let start = Instant::now();
        drop(batch);
        time += start.elapsed();
        ahead.push_back((number, target));
        if ahead.len() > AHEAD
            && let Some((number, target)) = ahead.pop_front()
        {
            verify(stream, &target, number)?;
        }
    }
    ahead.into_iter().try_for_each(|(number, target)| verify(stream, &target, number))?;
    // The blocks that were freed last were still in use by their copies.
    let start = Instant::now();
    pinned.cache().poll().map_err(failed)?;
    Ok(time + start.elapsed())
}

/// Returns the size of a copy in bytes. Every octave is as likely as another.
fn size(number: u64, largest: u64) -> u64 {
    let drawn = (mixed(number) >> 11) as f64 / (1_u64 << 53) as f64;
    let octaves = (largest as f64 / SMALLEST as f64).log2();
    ((SMALLEST as f64 * (octaves * drawn).exp2()) as u64).next_multiple_of(UNIT)
}

/// Fills the bytes with a pattern that no other copy has.
fn write(bytes: &mut [u8], number: u64) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    assert!(rest.is_empty(), "sizes are multiples of {UNIT} bytes");
    for (at, word) in words.iter_mut().enumerate() {
        *word = word_of(number, at).to_le_bytes();
    }
}

fn verify<B: Backend>(stream: &Stream<B>, target: &Buffer<B>, number: u64) -> Result<(), Failure> {
    let mut arrived = vec![0; target.len() as usize];
    stream.download(target, 0, &mut arrived).map_err(failed)?;
    let (words, _) = arrived.as_chunks::<8>();
    let wrong = words.iter().enumerate().find(|(at, word)| u64::from_le_bytes(**word) != word_of(number, *at));
    if let Some((at, _)) = wrong {
        let text = format!("copy {number} of {} bytes arrived wrong at byte {}", target.len(), 8 * at);
        return Err(Failure::Check(text));
    }
    Ok(())
}

fn word_of(number: u64, at: usize) -> u64 {
    mixed(number) ^ at as u64
}

/// Spreads the bits of a number: the draws of the generator with the seed 0, by their place.
fn mixed(number: u64) -> u64 {
    Random::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_spread_over_the_octaves() {
        let sizes: Vec<u64> = (0..1000).map(|number| size(number, LARGEST)).collect();
        assert!(sizes.iter().all(|size| (SMALLEST..=LARGEST).contains(size) && size.is_multiple_of(UNIT)));
        for octave in 12..26 {
            let there = sizes.iter().filter(|size| size.ilog2() == octave).count();
            assert!((30..120).contains(&there), "{there} sizes of 2^{octave}");
        }
    }

    #[test]
    fn copies_differ_in_every_word() {
        let (mut one, mut other) = ([0; 64], [0; 64]);
        write(&mut one, 1);
        write(&mut other, 2);
        let (one, other) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
        assert!(one.iter().zip(other).all(|(one, other)| one != other));
    }
}
