/* The functions of CUDA's driver that torch asks for by name, for a machine without a GPU, under the name libcuda.so.1. */
#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags) {
    return flags == 0 ? 0 : 1;
}
EXPORT int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
EXPORT int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = device == 0;
    return 0;
}
EXPORT int cuCtxGetCurrent(void **context) {
    static int primary;
    *context = &primary;
    return 0;
}
