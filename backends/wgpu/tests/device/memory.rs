//! Memory that is refused, given back, and lost.

use millpond::Allocator;
use millpond_backend::{Backend, BackendError, ClassId, Fault, Point, Tick, Transfer};
use millpond_wgpu::{Misuse, Wgpu, WgpuError};

use crate::common;

const MIB: u64 = 1 << 20;

#[test]
fn a_segment_over_the_limit_never_reaches_the_driver() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let max = device.caps().classes[0].max_segment_bytes;
    let refused = device.reserve(ClassId::DEVICE, max + 1).unwrap_err();
    assert!(
        matches!(refused, WgpuError::TooLarge { asked, max: most } if (asked, most) == (max + 1, max)),
        "{refused:?}"
    );
    assert_eq!(refused.fault(), Fault::OutOfMemory);
    let empty = device.reserve(ClassId::DEVICE, 0);
    assert!(matches!(empty, Err(WgpuError::Misuse(Misuse::Empty { .. }))), "{empty:?}");
    assert_eq!((device.held_bytes(), device.errors()), (0, vec![]));
}

/// Returns the bytes that wgpu has taken from the driver.
fn taken(device: &Wgpu) -> u64 {
    device.device().generate_allocator_report().unwrap().total_reserved_bytes
}

#[test]
fn released_memory_goes_back_to_the_driver_at_once() {
    for device in common::both() {
        let stream = device.create_stream().unwrap();
        let segment = device.reserve(ClassId::DEVICE, 64 * MIB).unwrap();
        device.fill(stream, &segment, 0, 64 * MIB, 0).unwrap();
        let tick = device.submit(stream).unwrap();
        assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
        // A clone of the buffer that a program still has does not keep the memory.
        let kept = segment.buffer().clone();
        assert_eq!(device.held_bytes(), 64 * MIB);
        assert!(taken(&device) >= 64 * MIB, "{} bytes", taken(&device));
        // SAFETY: the only work on the segment is done, and none will be recorded.
        unsafe { device.release(segment) };
        assert_eq!(device.held_bytes(), 0);
        assert!(taken(&device) < 64 * MIB, "{} bytes", taken(&device));
        drop(kept);
        assert_eq!(device.errors(), [""; 0]);
    }
}

#[test]
fn a_refusal_is_typed_and_the_next_request_works() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    for fault in [Fault::OutOfMemory, Fault::Other] {
        let calls = device.fallible_calls();
        device.fail_nth(1, fault);
        let refused = device.reserve(ClassId::DEVICE, MIB).unwrap_err();
        assert_eq!((refused.fault(), device.fallible_calls()), (fault, calls + 1));
        let segment = device.reserve(ClassId::DEVICE, MIB).unwrap();
        // SAFETY: no work was ever recorded on it.
        unsafe { device.release(segment) };
    }
}

/// In a process with few addresses the driver really has no more memory. Only drivers that map memory when it is
/// allocated fail then: lavapipe up to Mesa 22 does.
#[test]
fn a_driver_without_memory_is_survived() {
    const ADDRESSES_KIB: u64 = 4 << 20;
    if common::is_child() {
        let Some(device) = common::open(Wgpu::builder()) else { return };
        let mut segments = Vec::new();
        let refused = loop {
            match device.reserve(ClassId::DEVICE, 512 * MIB) {
                Ok(segment) => segments.push(segment),
                Err(error) => break error,
            }
            if segments.len() as u64 * 512 * MIB > 2 * (ADDRESSES_KIB << 10) {
                println!("never refused");
                return;
            }
        };
        let asked = 512 * MIB;
        assert!(matches!(refused, WgpuError::OutOfMemory { asked: bytes, .. } if bytes == asked), "{refused:?}");
        assert_eq!(refused.fault(), Fault::OutOfMemory);
        // The refusal is not fatal: existing memory still works, and the same request succeeds after a release.
        let stream = device.create_stream().unwrap();
        let last = segments.pop().unwrap();
        device.fill(stream, &last, 0, MIB, 5).unwrap();
        let mut seen = [0; 4];
        device.download(stream, &last, MIB - 4, &mut seen).unwrap();
        assert_eq!(seen, [5; 4]);
        // SAFETY: the download has waited for all work on it.
        unsafe { device.release(last) };
        device.reserve(ClassId::DEVICE, 512 * MIB).unwrap();
        assert_eq!(device.errors(), [""; 0]);
        return;
    }
    if common::open(Wgpu::builder()).is_none() {
        return;
    }
    let mut child = common::child("memory::a_driver_without_memory_is_survived", Some(ADDRESSES_KIB));
    let text = common::expect_success(&mut child);
    if text.contains("never refused") {
        assert!(!common::required("oom"), "MILLPOND_REQUIRE names oom, and this driver never refuses");
        eprintln!("SKIPPED: this driver grants more than it has");
    }
}

#[test]
fn a_lost_device_is_lost_for_good() {
    for device in common::both() {
        let allocator = Allocator::new(device.clone());
        let stream = allocator.create_stream().unwrap();
        let buffer = stream.allocate(1000).unwrap();
        let (segment, offset) = (buffer.segment().unwrap(), buffer.offset());
        device.fill(stream.id(), segment, offset, 512, 1).unwrap();
        let before = device.submit(stream.id()).unwrap();
        device.device().destroy();
        let lost = device.reserve(ClassId::DEVICE, MIB).unwrap_err();
        assert!(matches!(lost, WgpuError::Lost { .. }), "{lost:?}");
        let answers = [
            device.submit(stream.id()).map(drop),
            device.reached(stream.id()).map(drop),
            device.wait(Point { stream: stream.id(), tick: Tick(before.0 + 1) }).map(drop),
            device.fill(stream.id(), segment, offset, 4, 0),
            device.upload(stream.id(), &[0; 4], segment, offset),
            device.download(stream.id(), segment, offset, &mut [0; 4]),
            device.record(stream.id(), |_| ()).map(drop),
            device.create_stream().map(drop),
        ];
        for (at, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.map_err(|error| error.fault()), Err(Fault::Lost), "call {at}");
        }
        drop((buffer, stream, allocator));
        assert_eq!(device.errors(), [""; 0]);
    }
}

type Call = fn(&Wgpu) -> Result<(), WgpuError>;

/// No call has checked the device since it was destroyed: each call finds out without help, and none hangs.
#[test]
fn each_call_notices_the_loss_itself() {
    let calls: [Call; 3] = [
        |device| device.reserve(ClassId::DEVICE, MIB).map(drop),
        |device| {
            let stream = device.create_stream()?;
            let tick = device.submit(stream)?;
            device.wait(Point { stream, tick }).map(drop)
        },
        |device| {
            let stream = device.create_stream()?;
            device.submit(stream)?;
            loop {
                if device.reached(stream)? == Tick(1) {
                    return Ok(());
                }
            }
        },
    ];
    for call in calls {
        for device in common::both() {
            device.device().destroy();
            assert_eq!(call(&device).map_err(|error| error.fault()), Err(Fault::Lost));
        }
    }
}
