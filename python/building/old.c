/* What glibc 2.28 does not export and a newer one has headers for: linked into the library and the shims, so that they
 * run there. Programs that are built on glibc 2.28 get the first three from a part of glibc that is linked into them. */

#define _GNU_SOURCE
#include <sys/stat.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Of these interfaces this is the version that x86-64 has. */
enum { VERSION = 1 };

extern int __xstat64(int version, const char *path, struct stat64 *out);
extern int __lxstat64(int version, const char *path, struct stat64 *out);
extern int __fxstat64(int version, int file, struct stat64 *out);

HIDDEN int stat64(const char *path, struct stat64 *out) { return __xstat64(VERSION, path, out); }
HIDDEN int lstat64(const char *path, struct stat64 *out) { return __lxstat64(VERSION, path, out); }
HIDDEN int fstat64(int file, struct stat64 *out) { return __fxstat64(VERSION, file, out); }

/* False: there may be other threads, so libstdc++ counts references with atomic operations. */
HIDDEN char __libc_single_threaded = 0;
