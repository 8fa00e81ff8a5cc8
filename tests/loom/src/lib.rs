//! The lock protocol of the shell under every interleaving that loom can make: tests alone, in `tests/loom`. They are a
//! package of their own because loom replaces the locks and atomics of the whole build, which is long with more in it.
