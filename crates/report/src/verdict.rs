//! Whether a program has settled, in a sentence.

use crate::data::PassData;
use crate::text::bytes;

/// Returns the sentence for these passes.
pub(crate) fn of(passes: &[PassData]) -> String {
    let Some(last) = passes.last() else { return String::new() };
    if passes.len() == 1 {
        return format!("One pass, with {} driver calls: whether it settles takes more.", last.calls);
    }
    let quiet = passes.iter().rev().take_while(|pass| pass.calls == 0).count();
    if quiet > 0 {
        let first = passes.len() - quiet + 1;
        return format!("Settled: no driver calls from pass {first} on.");
    }
    let waits = last.waits + last.stalls;
    let mut text = format!("Not settled: {} driver calls in the last pass", last.calls);
    if waits > 0 {
        text += &format!(", {waits} of them waits");
    }
    let most = last.pinned.streams.iter().max_by_key(|(_, waiting, _)| *waiting);
    if let Some((stream, waiting, _)) = most.filter(|(_, waiting, _)| *waiting > 0) {
        text += &format!(
            ". Work in flight pins up to {} of freed memory, stream {stream} the most: {}",
            bytes(last.pinned.bytes),
            bytes(*waiting)
        );
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Pinned;

    fn pass(calls: u64, waits: u64, streams: Vec<(u32, u64, u64)>) -> PassData {
        let pinned = Pinned { bytes: streams.iter().map(|(_, bytes, _)| bytes).sum(), streams };
        PassData { live: 1, reserved: 1, calls, micros: 0, waits, stalls: 0, refused: 0, pinned }
    }

    #[test]
    fn the_first_quiet_pass_is_named() {
        let passes = [pass(9, 0, vec![]), pass(3, 0, vec![]), pass(0, 0, vec![]), pass(0, 0, vec![])];
        assert_eq!(of(&passes), "Settled: no driver calls from pass 3 on.");
    }

    #[test]
    fn what_keeps_it_from_settling_is_named() {
        let passes = [pass(9, 0, vec![]), pass(7, 5, vec![(1, 1 << 20, 0), (4, 3 << 20, 0)])];
        let text = of(&passes);
        assert!(text.starts_with("Not settled: 7 driver calls in the last pass, 5 of them waits."), "{text}");
        assert!(text.contains("4.00 MiB") && text.ends_with("stream 4 the most: 3.00 MiB."), "{text}");
    }
}
