//! Slices and views as cudarc's arguments: of kernels, copies, fills and libraries.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop};
use millpond::Error;

use super::owned::Slice;
use super::uses::Access;
use super::views::{SliceView, SliceViewMut};
use crate::error::CudaError;

/// An argument for a kernel that is launched on a given stream: [`Slice::on`]. Pass it by value to `arg`.
#[derive(Clone, Copy, Debug)]
#[must_use = "the use is noted already: pass the argument to the launch"]
pub struct OnStream<'a> {
    address: &'a CUdeviceptr,
}

/// Implements cudarc's traits for reading, and the argument for launches on another stream than the home.
macro_rules! readable {
    ($type:ty $(, $life:lifetime)?) => {
        impl<$($life,)? T> DeviceSlice<T> for $type {
            fn len(&self) -> usize {
                self.len
            }

            fn stream(&self) -> &Arc<CudaStream> {
                self.core.home()
            }
        }

        impl<$($life,)? T> DevicePtr<T> for $type {
            fn device_ptr<'g>(&'g self, stream: &'g CudaStream) -> (CUdeviceptr, SyncOnDrop<'g>) {
                (self.address, self.core.enter(stream, Access::Read))
            }
        }

        impl<$($life,)? T> $type {
            /// Returns an argument for a kernel that reads the elements and is launched on that stream, next. The
            /// stream is registered if it is new, and waits for earlier writes on other streams.
            ///
            /// # Errors
            ///
            /// The errors of [`SliceAllocator::stream`](crate::SliceAllocator::stream), and the driver's errors of a
            /// wait.
            pub fn on(&self, stream: &Arc<CudaStream>) -> Result<OnStream<'_>, Error<CudaError>> {
                self.core.enter_registered(stream, Access::Read)?;
                Ok(OnStream { address: &self.address })
            }
        }

        // SAFETY: the argument is the address of the device, which is a plain number and outlives the arguments.
        unsafe impl<'args, 'b: 'args, $($life: 'b,)? T> PushKernelArg<&'b $type> for LaunchArgs<'args> {
            fn arg(&mut self, arg: &'b $type) -> &mut Self {
                arg.core.enter_home(Access::Read);
                self.arg(&arg.address)
            }
        }
    };
}

/// Implements the same for writing.
macro_rules! writable {
    ($type:ty, $access:ident $(, $life:lifetime)?) => {
        impl<$($life,)? T> DevicePtrMut<T> for $type {
            fn device_ptr_mut<'g>(&'g mut self, stream: &'g CudaStream) -> (CUdeviceptr, SyncOnDrop<'g>) {
                (self.address, self.core.enter(stream, Access::$access))
            }
        }

        impl<$($life,)? T> $type {
            /// Returns an argument for a kernel that writes the elements and is launched on that stream, next. The
            /// stream is registered if it is new, and waits for all earlier uses on other streams.
            ///
            /// # Errors
            ///
            /// The errors of [`SliceAllocator::stream`](crate::SliceAllocator::stream), and the driver's errors of a
            /// wait.
            pub fn on_mut(&mut self, stream: &Arc<CudaStream>) -> Result<OnStream<'_>, Error<CudaError>> {
                self.core.enter_registered(stream, Access::$access)?;
                Ok(OnStream { address: &self.address })
            }
        }

        // SAFETY: the argument is the address of the device, which is a plain number and outlives the arguments.
        unsafe impl<'args, 'b: 'args, $($life: 'b,)? T> PushKernelArg<&'b mut $type> for LaunchArgs<'args> {
            fn arg(&mut self, arg: &'b mut $type) -> &mut Self {
                arg.core.enter_home(Access::$access);
                self.arg(&arg.address)
            }
        }
    };
}

readable!(Slice<T>);
readable!(SliceView<'v, T>, 'v);
readable!(SliceViewMut<'v, T>, 'v);
writable!(Slice<T>, WriteAll);
writable!(SliceViewMut<'v, T>, WritePart, 'v);

// SAFETY: the argument is the address of the device, which is a plain number and outlives the arguments.
unsafe impl<'args, 'b: 'args> PushKernelArg<OnStream<'b>> for LaunchArgs<'args> {
    fn arg(&mut self, arg: OnStream<'b>) -> &mut Self {
        self.arg(arg.address)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::streams::SliceStream;
    use super::*;
    use crate::device::Cuda;

    /// What the argument of a launch on the home stream does. The simulated driver has no kernels to launch.
    #[test]
    fn the_home_of_another_thread_is_a_default_stream_of_this_one() {
        let control = match millpond_cuda_driver::install() {
            Ok(control) => control,
            Err(absent) => return eprintln!("SKIPPED: {absent}"),
        };
        let _alone = control.alone();
        let cuda = Cuda::open(0).expect("the simulator has two devices");
        let home = SliceStream::from_stream(&cuda.context().per_thread_stream()).unwrap();
        let slice = home.upload(&[7_u8; 64]).unwrap();
        let streams = |count| format!("{:?}", home.allocator()).contains(&format!("streams: {count}"));
        slice.core.enter_home(Access::Read);
        assert!(streams(1), "{:?}", home.allocator());
        let events = control.calls("cuStreamWaitEvent");
        thread::scope(|scope| scope.spawn(|| slice.core.enter_home(Access::Read)).join().unwrap());
        assert!(streams(2), "{:?}", home.allocator());
        assert!(control.calls("cuStreamWaitEvent") > events, "the thread's stream has not waited for the upload");
        cuda.context().check_err().unwrap();
    }
}
