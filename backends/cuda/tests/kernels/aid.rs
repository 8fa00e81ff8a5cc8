//! Helpers that the tests with kernels share.

use millpond::{Allocator, Buffer, Stream};
use millpond_backend::{StreamId, Transfer};
use millpond_cuda::Segment;
use millpond_cuda::cudarc::driver::sys::{CUresult, cuStreamQuery};
use millpond_cuda::testing::Cuda;

use crate::lab::device;
use crate::machine::Kernels;

/// The policies: both kinds of memory, and both growths of `paged`.
pub(crate) const POLICIES: [&str; 3] = ["policy:classic", "policy:paged", "policy:paged,growth:tight"];

/// Opens a device and loads its kernels. Returns `None`, and prints a line, if there is none.
pub(crate) fn machine() -> Option<(Cuda, Kernels)> {
    let cuda = device()?;
    let stream = millpond_backend::Backend::create_stream(&cuda).unwrap();
    let kernels = Kernels::new(&cuda, stream);
    crate::lab::finish(&cuda, stream);
    Some((cuda, kernels))
}

/// Creates an allocator with these settings. Returns `None`, and prints a line, if the device does not support them.
pub(crate) fn allocator(cuda: &Cuda, conf: &str) -> Option<Allocator<Cuda>> {
    if conf.starts_with("policy:paged") && millpond_backend::Backend::caps(cuda).pages.is_none() {
        eprintln!("SKIPPED {conf}: the device has no virtual memory");
        return None;
    }
    Some(Allocator::builder(cuda.clone()).conf(conf).build().unwrap())
}

/// Returns whether work of the stream is in progress.
pub(crate) fn runs(cuda: &Cuda, stream: StreamId) -> bool {
    cuda.context().bind_to_thread().unwrap();
    // SAFETY: the stream is alive.
    match unsafe { cuStreamQuery(cuda.raw_stream(stream).unwrap()) } {
        CUresult::CUDA_SUCCESS => false,
        CUresult::CUDA_ERROR_NOT_READY => true,
        other => panic!("{stream} was asked whether it runs, and answered {other:?}"),
    }
}

/// Returns the address of a buffer that has one.
pub(crate) fn address(buffer: &Buffer<Cuda>) -> u64 {
    buffer.address().expect("memory of a CUDA device has an address")
}

/// Returns whether all bytes of the buffer have this value, after all earlier work of the stream.
pub(crate) fn holds(stream: &Stream<Cuda>, buffer: &Buffer<Cuda>, value: u8) -> bool {
    let mut bytes = vec![!value; buffer.len() as usize];
    stream.download(buffer, 0, &mut bytes).unwrap();
    bytes.iter().all(|byte| *byte == value)
}

/// Returns whether all bytes of the segment have this value, after all earlier work of the stream.
pub(crate) fn segment_holds(cuda: &Cuda, stream: StreamId, segment: &Segment, value: u8) -> bool {
    let mut bytes = vec![!value; segment.bytes() as usize];
    cuda.download(stream, segment, 0, &mut bytes).unwrap();
    bytes.iter().all(|byte| *byte == value)
}
