/* What CCCL asks of CUDA's driver by the name libcuda.so.1: the way to its functions. They are those of the simulated
 * driver, which is loaded first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

__attribute__((visibility("default"))) int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                                                              int *found) {
    char second[100];
    (void)version;
    (void)flags;
    snprintf(second, sizeof second, "%s_v2", name);
    *out = dlsym(RTLD_DEFAULT, second);
    if (*out == NULL) {
        *out = dlsym(RTLD_DEFAULT, name);
    }
    *found = *out == NULL ? 1 : 0;
    return *out == NULL ? 500 : 0;
}
