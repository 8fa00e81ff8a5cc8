//! Opening a device.
#![allow(unsafe_code)]

use millpond_backend::{Backend, ClassId, Point};
use millpond_vulkan::Vulkan;

#[test]
fn a_device_opens_submits_and_goes() {
    let device = Vulkan::builder().validation(true).build().unwrap();
    let stream = device.create_stream().unwrap();
    let segment = device.reserve(ClassId::DEVICE, 2 << 20).unwrap();
    let leaked = device.reserve(ClassId(1), 2 << 20).unwrap();
    device.record(stream, |_| ()).unwrap();
    let tick = device.submit(stream).unwrap();
    let reached = device.wait(Point { stream, tick }).unwrap();
    assert_eq!(reached, tick);
    // SAFETY: no work touches it.
    unsafe { device.release(segment) };
    drop(leaked);
    let log = device.validation().unwrap().clone();
    drop(device);
    assert_eq!(log.errors(), [""; 0]);
}
