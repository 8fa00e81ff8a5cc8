//! Futures of points and of downloads: nothing polls the device but the thread that waits.

use std::time::{Duration, Instant};

use millpond::{Allocator, Error};
use millpond_backend::{Point, Transfer};
use millpond_wgpu::{Wgpu, WgpuError, wgpu};

use crate::common;

#[test]
fn points_and_downloads_are_awaited() {
    for device in common::both() {
        let allocator = Allocator::new(device.clone());
        let stream = allocator.create_stream().unwrap();
        let elements: Vec<u16> = (0..70_001).map(|at| at as u16).collect();
        let view = stream.allocate_from(&elements).unwrap().share();
        pollster::block_on(async {
            allocator.when_reached(stream.submit().unwrap()).await.unwrap();
            let part = stream.download_async(&view.slice(5..8).unwrap()).unwrap();
            let whole = stream.download_async(&view).unwrap();
            stream.clear_elements(&view).unwrap();
            assert!(whole.await.unwrap() == elements, "as they were when the download was queued");
            assert_eq!(part.await.unwrap(), [5, 6, 7]);
            assert_eq!(stream.download_async(&view.slice(..2).unwrap()).unwrap().await.unwrap(), [0, 0]);
        });
        let open = stream.point();
        let error = pollster::block_on(allocator.when_reached(open)).unwrap_err();
        assert!(matches!(error, Error::NotReached { point, .. } if point == open), "{error}");
        assert_eq!(device.errors(), [""; 0]);
    }
}

#[test]
fn a_download_that_is_dropped_ends_by_itself() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let allocator = Allocator::new(device.clone());
    let stream = allocator.create_stream().unwrap();
    let buffer = stream.allocate_from(&[3u8; 1000]).unwrap();
    for _ in 0..20 {
        drop(stream.download_async(&buffer).unwrap());
    }
    let last = stream.download_async(&buffer).unwrap();
    drop(buffer);
    stream.submit().unwrap();
    drop((stream, allocator));
    assert_eq!(pollster::block_on(last).unwrap(), [3; 1000]);
    let begun = Instant::now();
    while device.held_bytes() != 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the thread that waited gives the memory back");
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = device.device().poll(wgpu::PollType::wait_indefinitely());
    assert_eq!(device.errors(), [""; 0]);
}

#[test]
fn what_was_begun_is_read_once_its_tick_is_reached() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let allocator = Allocator::new(device.clone());
    let stream = allocator.create_stream().unwrap();
    let buffer = stream.allocate_from(b"seven bytes and more").unwrap();
    let (segment, offset) = (buffer.buffer().segment().unwrap(), buffer.buffer().offset());
    let begun = device.begin_download(stream.id(), segment, offset + 1, 7).unwrap();
    let (tick, readback) = begun.expect("the host reaches no memory of the device's");
    assert_eq!(millpond_backend::Backend::wait(&device, Point { stream: stream.id(), tick }).unwrap(), tick);
    let mut bytes = [0; 7];
    readback.read(&mut bytes).unwrap();
    assert_eq!(&bytes, b"even by");
    let outside = device.begin_download(stream.id(), segment, segment.bytes(), 1).err();
    assert!(matches!(outside, Some(WgpuError::Misuse(_))), "{outside:?}");
}
