// The kernels of `kernels.wgsl` and `training.wgsl` for CUDA, with the same four arguments. Numbers of 16 bits are
// converted by the processor's own instructions, so that no header is needed.

typedef unsigned int word;
typedef unsigned short small;

struct Shape {
    word rows, inner, columns, activation;
};

struct Task {
    word rows, inner, columns, flags;
    float factor;
};

const word A_HALF = 1, B_HALF = 2, C_HALF = 4, A_TURNED = 8, B_TURNED = 16, RELU = 32;

__device__ float at(const void *numbers, word is_half, word index) {
    if (!is_half) {
        return ((const float *)numbers)[index];
    }
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(((const small *)numbers)[index]));
    return value;
}

// Numbers that are too large for 16 bits become infinite.
__device__ void put(void *numbers, word is_half, word index, float value) {
    if (!is_half) {
        ((float *)numbers)[index] = value;
        return;
    }
    small bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    ((small *)numbers)[index] = bits;
}

#define ROW (blockIdx.y * 16 + threadIdx.y)
#define COLUMN (blockIdx.x * 16 + threadIdx.x)

extern "C" __global__ void matmul(const float *first, const float *second, float *result, const Shape *shape) {
    __shared__ float left[16][16], right[16][16];
    float sum = 0;
    for (word start = 0; start < shape->inner; start += 16) {
        word across = start + threadIdx.x, down = start + threadIdx.y;
        bool has_left = ROW < shape->rows && across < shape->inner;
        bool has_right = down < shape->inner && COLUMN < shape->columns;
        left[threadIdx.y][threadIdx.x] = has_left ? first[ROW * shape->inner + across] : 0;
        right[threadIdx.y][threadIdx.x] = has_right ? second[down * shape->columns + COLUMN] : 0;
        __syncthreads();
        for (word k = 0; k < 16; k += 1) {
            sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        }
        __syncthreads();
    }
    if (ROW < shape->rows && COLUMN < shape->columns) {
        result[ROW * shape->columns + COLUMN] = sum;
    }
}

extern "C" __global__ void activate(const float *first, const float *second, float *result, const Shape *shape) {
    if (ROW >= shape->rows || COLUMN >= shape->columns) {
        return;
    }
    word index = ROW * shape->columns + COLUMN;
    float x = first[index] + second[COLUMN];
    if (shape->activation == 0) {
        result[index] = x;
    } else if (shape->activation == 1) {
        result[index] = fmaxf(x, 0);
    } else {
        result[index] = 0.5f * x * (1 + tanhf(0.7978846f * (x + 0.044715f * x * x * x)));
    }
}

// A thread of the training kernels computes two neighbours of a row, as in WGSL, so that the workgroups are the same.
#define EACH(COLUMNS) for (word column = COLUMN * 2; column < COLUMN * 2 + 2 && ROW < task->rows && column < (COLUMNS); column += 1)
#define INDEX (ROW * task->columns + column)
#define IS(FLAG) (task->flags & (FLAG))

extern "C" __global__ void product(const void *a, const void *b, void *c, const Task *task) {
    EACH(task->columns) {
        float sum = 0;
        for (word k = 0; k < task->inner; k += 1) {
            float x = at(a, IS(A_HALF), IS(A_TURNED) ? k * task->rows + ROW : ROW * task->inner + k);
            sum += x * at(b, IS(B_HALF), IS(B_TURNED) ? column * task->inner + k : k * task->columns + column);
        }
        put(c, IS(C_HALF), INDEX, IS(RELU) ? fmaxf(sum, 0) : sum);
    }
}

extern "C" __global__ void grade(const void *a, const void *b, void *c, const Task *task) {
    EACH(task->columns) {
        put(c, IS(C_HALF), INDEX, task->factor * (at(a, IS(A_HALF), INDEX) - at(b, IS(B_HALF), INDEX)));
    }
}

extern "C" __global__ void mask(const void *a, const void *b, void *c, const Task *task) {
    EACH(task->columns) {
        put(c, IS(C_HALF), INDEX, at(b, IS(B_HALF), INDEX) > 0 ? at(a, IS(A_HALF), INDEX) : 0);
    }
}

extern "C" __global__ void convert(const void *a, const void *, void *c, const Task *task) {
    EACH(task->columns) {
        put(c, IS(C_HALF), INDEX, at(a, IS(A_HALF), INDEX));
    }
}

extern "C" __global__ void descend(const float *a, const void *, float *c, const Task *task) {
    EACH(task->columns) {
        c[INDEX] -= task->factor * a[INDEX];
    }
}

extern "C" __global__ void inspect(const word *a, const void *, word *c, const Task *task) {
    EACH(task->columns) {
        if ((a[INDEX] & 0x7f800000u) == 0x7f800000u) {
            c[0] = 1;
        }
    }
}
