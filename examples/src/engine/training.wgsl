// The kernels of training. Matrices are of numbers of 32 bits, or of 16 bits: `halves_f16.wgsl` reads and writes those
// where the device has `shader-f16`, and `halves_words.wgsl` everywhere. Sums are kept in 32 bits, as the tensor cores of
// a GPU do. A thread computes two neighbours of a row, which are one word of the smaller kind, so that no word has two
// writers; numbers of columns are therefore even.

struct Task {
    rows: u32,
    inner: u32,
    columns: u32,
    flags: u32,
    factor: f32,
}

@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<u32>;
@group(0) @binding(3) var<storage, read_write> task: Task;

const A_HALF: u32 = 1u;
const B_HALF: u32 = 2u;
const C_HALF: u32 = 4u;
const A_TURNED: u32 = 8u;
const B_TURNED: u32 = 16u;
const RELU: u32 = 32u;

fn has(flag: u32) -> bool {
    return (task.flags & flag) != 0u;
}

// `a_half`, `b_half` and `put_halves` are in the file on halves that the device can have.
fn a_at(at: u32) -> f32 {
    if has(A_HALF) {
        return a_half(at);
    }
    return bitcast<f32>(a[at]);
}

fn b_at(at: u32) -> f32 {
    if has(B_HALF) {
        return b_half(at);
    }
    return bitcast<f32>(b[at]);
}

fn put(at: u32, pair: vec2<f32>) {
    if has(C_HALF) {
        put_halves(at, pair);
    } else {
        c[at] = bitcast<u32>(pair.x);
        c[at + 1u] = bitcast<u32>(pair.y);
    }
}

fn is_outside(place: vec3<u32>) -> bool {
    return place.y >= task.rows || place.x * 2u >= task.columns;
}

// c = a * b, each turned on its diagonal if the flags say so: `a` is rows x inner then, and `b` inner x columns.
@compute @workgroup_size(16, 16)
fn product(@builtin(global_invocation_id) place: vec3<u32>) {
    if is_outside(place) {
        return;
    }
    let row = place.y;
    let column = place.x * 2u;
    var sums = vec2(0.0);
    for (var k = 0u; k < task.inner; k += 1u) {
        let x = a_at(select(row * task.inner + k, k * task.rows + row, has(A_TURNED)));
        let y = select(
            vec2(k * task.columns + column, k * task.columns + column + 1u),
            vec2(column * task.inner + k, (column + 1u) * task.inner + k),
            has(B_TURNED),
        );
        sums += x * vec2(b_at(y.x), b_at(y.y));
    }
    if has(RELU) {
        sums = max(sums, vec2(0.0));
    }
    put(row * task.columns + column, sums);
}

// c = factor * (a - b): the gradient of a squared error.
@compute @workgroup_size(16, 16)
fn grade(@builtin(global_invocation_id) place: vec3<u32>) {
    if is_outside(place) {
        return;
    }
    let at = place.y * task.columns + place.x * 2u;
    put(at, task.factor * vec2(a_at(at) - b_at(at), a_at(at + 1u) - b_at(at + 1u)));
}

// c = a where b > 0, and 0 elsewhere: the gradient of the rectifier.
@compute @workgroup_size(16, 16)
fn mask(@builtin(global_invocation_id) place: vec3<u32>) {
    if is_outside(place) {
        return;
    }
    let at = place.y * task.columns + place.x * 2u;
    put(at, vec2(select(0.0, a_at(at), b_at(at) > 0.0), select(0.0, a_at(at + 1u), b_at(at + 1u) > 0.0)));
}

// c = a, in the precision of c.
@compute @workgroup_size(16, 16)
fn convert(@builtin(global_invocation_id) place: vec3<u32>) {
    if is_outside(place) {
        return;
    }
    let at = place.y * task.columns + place.x * 2u;
    put(at, vec2(a_at(at), a_at(at + 1u)));
}

// c = c - factor * a, all of 32 bits: a step of gradient descent.
@compute @workgroup_size(16, 16)
fn descend(@builtin(global_invocation_id) place: vec3<u32>) {
    if is_outside(place) {
        return;
    }
    let at = place.y * task.columns + place.x * 2u;
    c[at] = bitcast<u32>(bitcast<f32>(c[at]) - task.factor * bitcast<f32>(a[at]));
    c[at + 1u] = bitcast<u32>(bitcast<f32>(c[at + 1u]) - task.factor * bitcast<f32>(a[at + 1u]));
}

// c[0] = 1 if a number of a, of 32 bits, is infinite or none. Threads that write it all write the same.
@compute @workgroup_size(16, 16)
fn inspect(@builtin(global_invocation_id) place: vec3<u32>) {
    if is_outside(place) {
        return;
    }
    let at = place.y * task.columns + place.x * 2u;
    if (a[at] & 0x7f800000u) == 0x7f800000u || (a[at + 1u] & 0x7f800000u) == 0x7f800000u {
        c[0] = 1u;
    }
}
