//! Kernels, on a device that runs them. The driver compiles them from the text in this file.

use std::ffi::{CString, c_void};
use std::time::Duration;

use millpond_backend::StreamId;
use millpond_cuda::cudarc::driver::result::{launch_kernel, module};
use millpond_cuda::cudarc::driver::sys::{CUfunction, CUmodule};
use millpond_cuda::testing::Cuda;

/// How long a kernel keeps a stream busy, while the host does things that must not wait for it.
pub(crate) const SPIN: Duration = Duration::from_millis(200);

/// The number of threads of each kernel, in one block: the rest of the device stays free for other streams.
const THREADS: u32 = 256;

/// A kernel that spins until the given number of nanoseconds has passed, then copies words of four bytes.
const SPIN_AND_COPY: &str = r"
.version 7.0
.target sm_70
.address_size 64

.visible .entry spin_and_copy(
    .param .u64 nanoseconds,
    .param .u64 from,
    .param .u64 to,
    .param .u64 words
)
{
    .reg .pred %goes_on;
    .reg .b32 %word, %thread, %threads;
    .reg .b64 %time, %begin, %now, %from, %to, %words, %at, %step, %bytes, %source, %target;

    ld.param.u64 %time, [nanoseconds];
    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    ld.param.u64 %words, [words];
    mov.u64 %begin, %globaltimer;
spin:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %goes_on, %now, %time;
    @%goes_on bra spin;

    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    cvt.u64.u32 %at, %thread;
    cvt.u64.u32 %step, %threads;
copy:
    setp.lt.u64 %goes_on, %at, %words;
    @!%goes_on bra done;
    shl.b64 %bytes, %at, 2;
    add.u64 %source, %from, %bytes;
    add.u64 %target, %to, %bytes;
    ld.global.u32 %word, [%source];
    st.global.u32 [%target], %word;
    add.u64 %at, %at, %step;
    bra copy;
done:
    ret;
}
";

/// Does nothing: the tests run on the devices of this machine.
pub(crate) fn prepare() {}

/// The kernels, loaded on one device.
pub(crate) struct Kernels {
    cuda: Cuda,
    module: CUmodule,
    spin_and_copy: CUfunction,
}

/// A kernel that keeps a stream busy.
pub(crate) struct Spin;

impl Spin {
    /// Does nothing: the kernel ends without a call when its time is over, and the stream continues then.
    pub(crate) fn end(self) {}
}

impl Kernels {
    pub(crate) fn new(cuda: &Cuda, stream: StreamId) -> Kernels {
        cuda.context().bind_to_thread().unwrap();
        let text = CString::new(SPIN_AND_COPY).unwrap();
        // SAFETY: the text is a program and ends with a 0.
        let module = unsafe { module::load_data(text.as_ptr().cast()) }.expect("the driver compiles the kernel");
        // SAFETY: the module was just loaded.
        let function = unsafe { module::get_function(module, c"spin_and_copy".to_owned()) };
        let kernels = Kernels { cuda: cuda.clone(), module, spin_and_copy: function.expect("the module has it") };
        // The first launch loads the kernel on the device, for which the driver may wait for work that runs there.
        kernels.copy(stream, 0, 0, 0);
        kernels
    }

    /// Queues a kernel that keeps the stream busy for a time.
    pub(crate) fn spin(&self, stream: StreamId, time: Duration) -> Spin {
        self.spin_and_copy(stream, time, 0, 0, 0)
    }

    /// Queues a kernel that copies without a delay. The addresses and the bytes are multiples of 4.
    pub(crate) fn copy(&self, stream: StreamId, from: u64, to: u64, bytes: u64) {
        self.spin_and_copy(stream, Duration::ZERO, from, to, bytes).end();
    }

    /// Queues a kernel that keeps the stream busy for a time, and copies at the end.
    pub(crate) fn spin_and_copy(&self, stream: StreamId, time: Duration, from: u64, to: u64, bytes: u64) -> Spin {
        let mut arguments = [u64::try_from(time.as_nanos()).unwrap(), from, to, bytes / 4];
        let mut places = arguments.each_mut().map(|argument| std::ptr::from_mut(argument).cast::<c_void>());
        self.cuda.context().bind_to_thread().unwrap();
        let stream = self.cuda.raw_stream(stream).unwrap();
        let one = (1, 1, 1);
        // SAFETY: the kernel takes these four numbers, which the driver copies; the tests pass addresses of memory that
        // they own, or no bytes to copy.
        let launched = unsafe { launch_kernel(self.spin_and_copy, one, (THREADS, 1, 1), 0, stream, &mut places) };
        launched.expect("the kernel is launched");
        Spin
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let _ = self.cuda.context().bind_to_thread();
        // SAFETY: the module was loaded for this value, and its kernels are not launched again; the tests end when
        // their kernels are over, and the driver waits for those that are not.
        let _ = unsafe { module::unload(self.module) };
    }
}
