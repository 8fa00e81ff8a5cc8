//! Elements on their way from the device.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytemuck::Pod;

use crate::engine::{Engine, Point, Result};
use crate::memory::Block;

/// A future of elements.
pub struct Download<T> {
    engine: Arc<Engine>,
    staging: Option<Block>,
    point: Point,
    len: usize,
    /// Who is woken; `None` before a thread waits for the point.
    waker: Option<Arc<Mutex<Waker>>>,
    elements: PhantomData<fn() -> T>,
}

impl<T> Download<T> {
    pub fn new(engine: Arc<Engine>, staging: Block, point: Point, len: usize) -> Download<T> {
        Download { engine, staging: Some(staging), point, len, waker: None, elements: PhantomData }
    }

    pub fn point(&self) -> Point {
        self.point
    }
}

impl<T: Pod> Download<T> {
    /// Returns the elements. The point must be reached.
    pub fn take(mut self) -> Vec<T> {
        self.read()
    }

    fn read(&mut self) -> Vec<T> {
        let mut elements = vec![T::zeroed(); self.len];
        let staging = self.staging.as_ref().expect("a download is taken once");
        staging.read(bytemuck::cast_slice_mut(&mut elements));
        elements
    }
}

impl<T: Pod> Future for Download<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.engine.reached(self.point)? {
            return Poll::Ready(Ok(self.read()));
        }
        if let Some(waker) = &self.waker {
            waker.lock().unwrap().clone_from(context.waker());
            // The thread may have woken the one before.
            if self.engine.reached(self.point)? {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        let waker = Arc::new(Mutex::new(context.waker().clone()));
        let (engine, point) = (Arc::clone(&self.engine), self.point);
        self.waker = Some(Arc::clone(&waker));
        std::thread::spawn(move || {
            let _ = engine.wait(point);
            waker.lock().unwrap().wake_by_ref();
        });
        Poll::Pending
    }
}

impl<T> Drop for Download<T> {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.take() {
            self.engine.discard(staging, vec![self.point]);
        }
    }
}
