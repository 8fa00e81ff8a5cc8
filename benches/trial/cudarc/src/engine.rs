//! What a program on cudarc adds to it: the numbers of the driver's pool, and futures. cudarc itself has streams,
//! transfers of elements, and buffers that wait for each other by events; the driver's pool keeps freed memory.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use cudarc::driver::{
    CudaContext, CudaEvent, CudaSlice, CudaStream, DeviceRepr, DriverError, PinnedHostSlice, ValidAsZeroBits, sys,
};
use sys::CUmemPool_attribute as Attribute;

pub type Result<T> = std::result::Result<T, DriverError>;

/// The pool that the driver takes memory of the device from.
pub struct Pool(sys::CUmemoryPool);

impl Pool {
    /// Returns the device's pool, which keeps freed memory from now on.
    pub fn of(context: &CudaContext) -> Result<Pool> {
        let (mut pool, mut keep) = (std::ptr::null_mut(), u64::MAX);
        let key = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the device is open, and the values live for the calls.
        unsafe {
            sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result()?;
            sys::cuMemPoolSetAttribute(pool, key, (&raw mut keep).cast()).result()?;
        }
        Ok(Pool(pool))
    }

    /// Returns one of the pool's numbers of bytes.
    pub fn bytes(&self, of: Attribute) -> Result<u64> {
        let mut bytes = 0_u64;
        // SAFETY: all attributes that are asked for are numbers of 64 bits.
        unsafe { sys::cuMemPoolGetAttribute(self.0, of, (&raw mut bytes).cast()).result()? };
        Ok(bytes)
    }
}

/// Returns elements of the device, once they are there.
pub fn download<T: DeviceRepr>(stream: &Arc<CudaStream>, from: &CudaSlice<T>) -> Result<Vec<T>> {
    let elements = stream.clone_dtoh(from)?;
    stream.synchronize()?;
    Ok(elements)
}

/// Begins a download. Does not wait for it.
pub fn download_async<T>(stream: &Arc<CudaStream>, from: &CudaSlice<T>, range: Range<usize>) -> Result<Download<T>>
where
    T: DeviceRepr + ValidAsZeroBits,
{
    // SAFETY: the copy writes all elements before anything reads them.
    let mut staging = unsafe { stream.context().alloc_pinned_with_flags(range.len(), 0)? };
    stream.memcpy_dtoh(&from.slice(range), &mut staging)?;
    let event = Arc::new(stream.record_event(Some(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC))?);
    Ok(Download { staging, event, waker: None })
}

/// A future of elements on their way from the device.
pub struct Download<T> {
    staging: PinnedHostSlice<T>,
    event: Arc<CudaEvent>,
    /// Who is woken; `None` before a thread waits for the event.
    waker: Option<Arc<Mutex<Waker>>>,
}

impl<T: ValidAsZeroBits + Clone> Future for Download<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.event.try_is_complete()? {
            return Poll::Ready(self.staging.as_slice().map(<[T]>::to_vec));
        }
        if let Some(waker) = &self.waker {
            waker.lock().unwrap().clone_from(context.waker());
            // The thread may have woken the one before.
            if self.event.try_is_complete()? {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        let waker = Arc::new(Mutex::new(context.waker().clone()));
        let event = Arc::clone(&self.event);
        self.waker = Some(Arc::clone(&waker));
        std::thread::spawn(move || {
            let _ = event.synchronize();
            waker.lock().unwrap().wake_by_ref();
        });
        Poll::Pending
    }
}
