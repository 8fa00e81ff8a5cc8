//! The programs. Each is written so that some strategy of keeping free memory serves it badly.

use super::script::Script;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Grows buffers. No freed block is ever large enough for the next request of its own buffer, and the free memory that
/// a buffer leaves lies between blocks of other buffers.
pub(super) fn growing(script: &mut Script) {
    const BUFFERS: usize = 32;
    const ROUNDS: usize = 400;
    const STEP: u64 = 240 * KIB;
    let mut buffers: Vec<(u32, u64)> = Vec::new();
    for _ in 0..BUFFERS {
        let bytes = script.octaves(16, 20);
        buffers.push((script.allocate(bytes, 0), bytes));
    }
    for _ in 0..ROUNDS {
        script.shuffle(&mut buffers);
        for buffer in &mut buffers {
            let bytes = buffer.1 + script.random.between(STEP / 2, STEP * 3 / 2);
            let id = script.allocate(bytes, 0);
            script.free(buffer.0);
            *buffer = (id, bytes);
        }
    }
}

/// Runs phases. What one phase leaves free has the wrong size for the next, and when a size comes back it is on another
/// stream.
pub(super) fn phases(script: &mut Script) {
    const STREAMS: u32 = 3;
    const CYCLES: usize = 2;
    const FILL: u64 = 3 * GIB / 2;
    const SIZES: [u64; 6] = [192 * KIB, 9 * MIB, 1200 * KIB, 130 * MIB, 3 * MIB, 24 * MIB];
    let mut stream = 0;
    for _ in 0..CYCLES {
        for size in SIZES {
            let mut blocks = script.fill_to(FILL, stream, |script| size - script.random.below(size / 16));
            script.drain_to(0, &mut blocks);
            stream = (stream + 1) % STREAMS;
        }
        // Six phases run on three streams: without this step every size would come back on its own stream.
        stream = (stream + 1) % STREAMS;
    }
}

/// Raises and lowers live memory. The tenth that stays is scattered over all memory that the peak took.
pub(super) fn sawtooth(script: &mut Script) {
    const TEETH: usize = 20;
    let mut blocks = Vec::new();
    for _ in 0..TEETH {
        let peak = script.random.between(3 * GIB / 2, 5 * GIB / 2);
        blocks.extend(script.fill_to(peak, 0, |script| script.octaves(12, 25)));
        script.drain_to(peak / 10, &mut blocks);
    }
}

/// Leaves small blocks between free ranges, so that almost all memory is free and almost no segment is whole. The
/// survivors of a round are freed when the next round has its own, so there is always something between the free
/// ranges.
pub(super) fn survivors(script: &mut Script) {
    const ROUNDS: usize = 6;
    const FILL: u64 = GIB;
    const LARGE: u64 = 3 * GIB / 2;
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        // PyTorch's pools reserve segments of 2 MiB for small requests and of 20 MiB for large ones.
        let (small, rest) = if round % 2 == 0 { (16 * KIB, 600 * KIB) } else { (1100 * KIB, 6 * MIB) };
        let (mut stays, mut goes) = (Vec::new(), Vec::new());
        while script.live_bytes() < FILL {
            stays.push(script.allocate(small, 0));
            for _ in 0..3 {
                let bytes = rest - script.random.below(rest / 32);
                goes.push(script.allocate(bytes, 0));
            }
        }
        script.drain_to(0, &mut goes);
        script.drain_to(0, &mut kept);
        let mut large = script.fill_to(LARGE, 0, |script| script.random.between(32 * MIB, 256 * MIB));
        script.drain_to(0, &mut large);
        kept = stays;
    }
}

/// Uses one stream after the other. Where streams keep their memory, the next stream cannot use what one leaves free.
pub(super) fn streams(script: &mut Script) {
    const STREAMS: u32 = 32;
    for stream in 0..STREAMS {
        let mut blocks = script.fill_to(2 * GIB, stream, |script| script.octaves(16, 25));
        script.drain_to(0, &mut blocks);
    }
}

/// Acts like a server whose requests come and go on streams of their own.
pub(super) fn many_streams(script: &mut Script) {
    const STREAMS: u64 = 32;
    const EVENTS: usize = 40_000;
    const CEILING: u64 = 2 * GIB;
    let mut blocks = Vec::new();
    while script.events() < EVENTS {
        let bytes = script.octaves(9, 25);
        if script.live_bytes() + bytes > CEILING || (script.random.one_in(3) && !blocks.is_empty()) {
            let id = script.take(&mut blocks);
            script.free(id);
            continue;
        }
        let stream = script.random.below(STREAMS);
        let id = script.allocate(bytes, stream as u32);
        if script.random.one_in(8) {
            let other = (stream + 1 + script.random.below(STREAMS - 1)) % STREAMS;
            script.use_on(id, other as u32);
        }
        blocks.push(id);
    }
}

/// Allocates and frees at random, which is the classic hard case: every size is needed again, but not where it was
/// freed.
pub(super) fn random(script: &mut Script) {
    const EVENTS: usize = 30_000;
    const CEILING: u64 = 3 * GIB;
    let mut blocks = Vec::new();
    while script.events() < EVENTS {
        let bytes = script.octaves(9, 28);
        if script.live_bytes() + bytes > CEILING || (script.random.one_in(3) && !blocks.is_empty()) {
            let id = script.take(&mut blocks);
            script.free(id);
        } else {
            blocks.push(script.allocate(bytes, 0));
        }
    }
}

/// Leaves segments for small blocks, each with a survivor in it, and then requests large blocks.
pub(super) fn small_phase(script: &mut Script) {
    const SMALL: usize = 200_000;
    const KEPT: usize = SMALL / 500;
    const LARGE: u64 = 3 * GIB / 2;
    let mut blocks = Vec::with_capacity(SMALL);
    for _ in 0..SMALL {
        let bytes = script.octaves(9, 15);
        blocks.push(script.allocate(bytes, 0));
    }
    while blocks.len() > KEPT {
        let id = script.take(&mut blocks);
        script.free(id);
    }
    let mut large = script.fill_to(LARGE, 0, |script| script.octaves(20, 28));
    script.drain_to(0, &mut large);
}
