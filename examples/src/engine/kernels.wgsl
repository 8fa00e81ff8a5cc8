// The kernels of the engine. All four buffers are bound for reading and writing: blocks of one segment are ranges of one
// buffer, and a buffer has one usage in a dispatch.

struct Shape {
    rows: u32,
    inner: u32,
    columns: u32,
    activation: u32,
}

@group(0) @binding(0) var<storage, read_write> first: array<f32>;
@group(0) @binding(1) var<storage, read_write> second: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
@group(0) @binding(3) var<storage, read_write> shape: Shape;

const TILE: u32 = 16u;

var<workgroup> left: array<array<f32, 16>, 16>;
var<workgroup> right: array<array<f32, 16>, 16>;

// result = first * second, with `first` rows x inner and `second` inner x columns. What lies outside counts as zero.
@compute @workgroup_size(16, 16)
fn matmul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let row = group.y * TILE + local.y;
    let column = group.x * TILE + local.x;
    var sum = 0.0;
    for (var start = 0u; start < shape.inner; start += TILE) {
        let across = start + local.x;
        let down = start + local.y;
        var a = 0.0;
        if row < shape.rows && across < shape.inner {
            a = first[row * shape.inner + across];
        }
        var b = 0.0;
        if down < shape.inner && column < shape.columns {
            b = second[down * shape.columns + column];
        }
        left[local.y][local.x] = a;
        right[local.y][local.x] = b;
        workgroupBarrier();
        for (var k = 0u; k < TILE; k += 1u) {
            sum += left[local.y][k] * right[k][local.x];
        }
        workgroupBarrier();
    }
    if row < shape.rows && column < shape.columns {
        result[row * shape.columns + column] = sum;
    }
}

// result = activation(first + second), with `first` rows x columns and `second` one value for each column.
@compute @workgroup_size(16, 16)
fn activate(@builtin(global_invocation_id) place: vec3<u32>) {
    if place.y >= shape.rows || place.x >= shape.columns {
        return;
    }
    let at = place.y * shape.columns + place.x;
    let x = first[at] + second[place.x];
    if shape.activation == 0u {
        result[at] = x;
    } else if shape.activation == 1u {
        result[at] = max(x, 0.0);
    } else {
        // Beyond these bounds the hyperbolic tangent is 1 to the last bit, and some drivers overflow on the way there.
        let bent = clamp(0.7978846 * (x + 0.044715 * x * x * x), -10.0, 10.0);
        result[at] = 0.5 * x * (1.0 + tanh(bent));
    }
}
