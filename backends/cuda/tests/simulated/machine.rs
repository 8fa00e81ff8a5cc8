//! The simulated driver, which takes the place of a real one.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millpond_backend::StreamId;
use millpond_cuda::cudarc::driver::sys::cuMemcpyDtoDAsync_v2;
use millpond_cuda::testing::Cuda;
use millpond_cuda_driver::{Control, DEVICE_NAME, DEVICES, install};

/// The longest time that a stream is kept busy, unless the test ends it: more than any test takes on a busy machine.
pub(crate) const SPIN: Duration = Duration::from_secs(30);

/// Installs the simulator where the bindings look up the driver, once for the process.
pub(crate) fn control() -> Control {
    install().expect("the simulator is built with the tests")
}

pub(crate) const IS_SIMULATED: bool = true;

pub(crate) fn prepare() {
    control();
}

/// The kernels of the simulator, which runs none: a gate keeps the stream busy instead, and the driver's own copy
/// copies.
pub(crate) struct Kernels {
    cuda: Cuda,
}

/// A stream that is kept busy until this value is dropped.
pub(crate) struct Spin {
    ends: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Kernels {
    pub(crate) fn new(cuda: &Cuda, _stream: StreamId) -> Kernels {
        Kernels { cuda: cuda.clone() }
    }

    /// Keeps the stream busy for a time, or until the returned value is dropped.
    pub(crate) fn spin(&self, stream: StreamId, time: Duration) -> Spin {
        let gate = control().hold(self.cuda.ordinal(), self.cuda.raw_stream(stream).unwrap() as usize);
        let (ends, ended) = channel();
        let keeper = std::thread::spawn(move || {
            // The gate is opened when the sender is dropped and when the time is over.
            let _ = ended.recv_timeout(time);
            gate.open();
        });
        Spin { ends: Some(ends), keeper: Some(keeper) }
    }

    /// Queues a copy.
    pub(crate) fn copy(&self, stream: StreamId, from: u64, to: u64, bytes: u64) {
        self.cuda.context().bind_to_thread().unwrap();
        let stream = self.cuda.raw_stream(stream).unwrap();
        // SAFETY: the tests pass addresses of memory that they own; the stream is alive.
        unsafe { cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream) }.result().unwrap();
    }

    /// Keeps the stream busy as `spin` does, and copies at the end.
    pub(crate) fn spin_and_copy(&self, stream: StreamId, time: Duration, from: u64, to: u64, bytes: u64) -> Spin {
        let spin = self.spin(stream, time);
        self.copy(stream, from, to, bytes);
        spin
    }
}

impl Spin {
    /// Ends the spin: the stream continues.
    pub(crate) fn end(self) {}
}

impl Drop for Spin {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(keeper) = self.keeper.take() {
            keeper.join().expect("the gate opens");
        }
    }
}

/// The other tests are skipped where devices are missing, so this one requires the simulator.
#[test]
fn the_simulator_is_what_is_tested() {
    prepare();
    let devices = Cuda::devices().expect("the simulator has all that is needed");
    assert_eq!(devices.len(), DEVICES);
    for device in devices {
        assert!(device.name.starts_with(DEVICE_NAME), "{}", device.name);
        Cuda::open(device.ordinal).expect("a device that is listed can be opened");
    }
}
