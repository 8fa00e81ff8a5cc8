// Numbers of 16 bits, two to a word, which WGSL unpacks and packs on every device.

fn number(word: u32, is_odd: bool) -> f32 {
    let pair = unpack2x16float(word);
    return select(pair.x, pair.y, is_odd);
}

fn a_half(at: u32) -> f32 {
    return number(a[at / 2u], at % 2u == 1u);
}

fn b_half(at: u32) -> f32 {
    return number(b[at / 2u], at % 2u == 1u);
}

// Writes two numbers as a word. What is too large for 16 bits, and what is no number, becomes infinite: WGSL itself
// leaves open what the packing of such a number gives.
fn put_halves(at: u32, pair: vec2<f32>) {
    var word = pack2x16float(clamp(pair, vec2(-65504.0), vec2(65504.0)));
    if !(abs(pair.x) <= 65504.0) {
        word = (word & 0xffff0000u) | 0x7c00u;
    }
    if !(abs(pair.y) <= 65504.0) {
        word = (word & 0x0000ffffu) | 0x7c000000u;
    }
    c[at / 2u] = word;
}
