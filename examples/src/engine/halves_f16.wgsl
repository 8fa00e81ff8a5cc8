// Numbers of 16 bits as such, which takes `shader-f16`. The blocks of bindings 0 to 2 are bound a second time: a kernel
// reads and writes each of them either as words or as halves, as its flags say.

@group(0) @binding(4) var<storage, read_write> a16: array<f16>;
@group(0) @binding(5) var<storage, read_write> b16: array<f16>;
@group(0) @binding(6) var<storage, read_write> c16: array<f16>;

fn a_half(at: u32) -> f32 {
    return f32(a16[at]);
}

fn b_half(at: u32) -> f32 {
    return f32(b16[at]);
}

// Returns a number in 16 bits. What is too large for them, and what is no number, becomes infinite, by a product that
// leaves their range: WGSL itself leaves open what the conversion of such a number gives.
fn half(number: f32) -> f16 {
    return f16(clamp(number, -65504.0, 65504.0)) * select(2.0h, 1.0h, abs(number) <= 65504.0);
}

fn put_halves(at: u32, pair: vec2<f32>) {
    c16[at] = half(pair.x);
    c16[at + 1u] = half(pair.y);
}
