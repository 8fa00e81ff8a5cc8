//! The ways to open a device, and the errors where there is none.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use millpond::Allocator;
use millpond_backend::{Backend, BackendError, ClassId, Closing, Fault, Reuse, Transfer};
use millpond_wgpu::{Wgpu, WgpuError, wgpu};

use crate::common;

fn round_trip(device: &Wgpu) {
    let stream = device.create_stream().unwrap();
    let segment = device.reserve(ClassId::DEVICE, 256).unwrap();
    device.upload(stream, b"downstream..", &segment, 16).unwrap();
    let mut seen = [0; 10];
    device.download(stream, &segment, 16, &mut seen).unwrap();
    assert_eq!(&seen, b"downstream");
    // SAFETY: the download has waited for all work on it.
    unsafe { device.release(segment) };
}

#[test]
fn adapters_are_listed_and_opened_by_number() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let adapters = Wgpu::adapters().unwrap();
    assert_eq!(adapters[0].name, device.caps().name);
    round_trip(&Wgpu::open(adapters.len() - 1).unwrap());
    let missing = Wgpu::open(adapters.len()).unwrap_err();
    let count = adapters.len();
    assert!(
        matches!(missing, WgpuError::NoSuchAdapter { index, count: there } if (index, there) == (count, count)),
        "{missing:?}"
    );
    assert_eq!(missing.fault(), Fault::Other);
}

#[test]
fn facts_are_the_devices_own() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let (caps, limits) = (device.caps(), device.device().limits());
    assert_eq!((caps.closing, caps.reuse, caps.needs_barrier), (Closing::Submit, Reuse::InOrder, false));
    assert!(caps.stream_wait && caps.transfer && caps.pages.is_none() && !caps.host_memory && !caps.budget);
    let names: Vec<_> = caps.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["device", "exclusive"]);
    let max = caps.classes[0].max_segment_bytes;
    assert!(limits.max_buffer_size - max < 4 && max.is_multiple_of(4), "{max} of {}", limits.max_buffer_size);
    if device.has_semaphore() {
        assert!(caps.classes[0].total_bytes >= 1 << 28, "{}", caps.classes[0].total_bytes);
    }
    let Some(told) = common::open(Wgpu::builder().total_bytes(5 << 30).semaphore(false)) else { return };
    assert_eq!((told.caps().classes[0].total_bytes, told.has_semaphore()), (5 << 30, false));
}

/// Wakes the thread that runs the future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn an_executor_may_request_a_device() {
    if common::open(Wgpu::builder()).is_none() {
        return;
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut request = Box::pin(Wgpu::builder().request());
    let device = loop {
        match request.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(device) => break device.unwrap(),
            Poll::Pending => std::thread::park(),
        }
    };
    round_trip(&device);
}

#[test]
fn a_device_that_somebody_else_opened_is_shared() {
    let Some(opened) = common::open(Wgpu::builder()) else { return };
    for semaphore in [true, false] {
        let adopted = Wgpu::builder().semaphore(semaphore).adopt(opened.device().clone(), opened.queue().clone());
        assert_ne!(adopted.serial(), opened.serial());
        round_trip(&adopted);
        round_trip(&opened);
        let allocator = Allocator::new(adopted.clone());
        let stream = allocator.create_stream().unwrap();
        drop(stream.allocate(1000).unwrap());
        adopted.submit(stream.id()).unwrap();
        drop((stream, allocator));
        assert_eq!(adopted.held_bytes(), 0);
        adopted.report_lost("its owner says so");
        let lost = adopted.reserve(ClassId::DEVICE, 4).unwrap_err();
        assert_eq!(lost.fault(), Fault::Lost);
        assert!(lost.to_string().contains("its owner says so"), "{lost}");
        round_trip(&opened);
    }
    let plain = Wgpu::adopt(opened.device().clone(), opened.queue().clone());
    round_trip(&plain);
}

#[test]
fn a_missing_feature_is_named() {
    if common::open(Wgpu::builder()).is_none() {
        return;
    }
    let missing = Wgpu::builder().features(wgpu::Features::all()).build().unwrap_err();
    assert!(matches!(missing, WgpuError::NoDevice { .. }), "{missing:?}");
}

#[test]
fn without_a_driver_it_says_what_to_install() {
    if common::is_child() {
        let error = Wgpu::open(0).unwrap_err();
        assert!(matches!(error, WgpuError::NoAdapter { .. }), "{error:?}");
        assert!(error.to_string().contains("mesa-vulkan-drivers"), "{error}");
        assert!(matches!(Wgpu::adapters(), Err(WgpuError::NoAdapter { .. })));
        return;
    }
    let mut child = common::child("opening::without_a_driver_it_says_what_to_install", None);
    common::expect_success(child.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent"));
}
