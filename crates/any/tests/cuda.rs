//! A chosen device on CUDA, with the simulated driver in the place of a real one. A program of its own, because the
//! driver is one for the process.

#![cfg(all(feature = "sim", feature = "cuda", target_os = "linux"))]

use millpond_any::millpond::backend::Backend as _;
use millpond_any::millpond::{Error, Keep};
use millpond_any::millpond_sim::Sim;
use millpond_any::{
    AnyAllocator, AnyCapture, AnyDevice, AnyError, AnyGroup, AnyPool, DriverError, ErrorKind, devices, open, open_best,
};
use millpond_cuda_driver::{DEVICE_NAME, install};

fn on_cuda(name: &str) -> AnyAllocator {
    install().expect("the simulator is built with the tests");
    open(name, "").unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn devices_are_opened_by_their_numbers() {
    for (name, ordinal) in [("cuda", 0), ("cuda:1", 1), ("cuda:1,pages=none", 1)] {
        let allocator = on_cuda(name);
        let device = allocator.backend();
        assert_eq!(device.as_cuda().expect("it is on CUDA").ordinal(), ordinal, "{name}");
        assert_eq!(device.caps().pages.is_none(), name.ends_with("none"), "{name}");
        assert!(device.as_sim().is_none());
        let told = format!("device ID {ordinal}");
        assert!(allocator.memory_summary(true).contains(&told), "{}", allocator.memory_summary(true));
    }
    let error = open("cuda:7", "").unwrap_err();
    assert!(
        matches!(&error, AnyError::NoDevice { name, source: DriverError::Cuda(_) } if name == "cuda:7"),
        "{error:?}"
    );
    assert_eq!(open("cuda:first", "").unwrap_err().kind(), ErrorKind::Input);
}

#[test]
fn gpus_come_before_the_simulated_device() {
    install().expect("the simulator is built with the tests");
    let best = open_best("").unwrap();
    assert_eq!((best.name.as_str(), best.passed_over.len()), ("cuda:0", 0));
    assert_eq!(best.allocator.backend().backend_name(), "cuda");
    let listed: Vec<_> = devices().into_iter().flatten().collect();
    assert!(listed[0].label.starts_with(DEVICE_NAME) && listed[0].is_gpu, "{listed:?}");
    let names: Vec<_> = listed.iter().map(|found| found.name.as_str()).collect();
    assert_eq!((&names[..2], names.last()), (&["cuda:0", "cuda:1"][..], Some(&"sim")));
}

#[test]
fn memory_and_bytes_are_those_of_the_device() {
    let allocator = on_cuda("cuda:0");
    let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let buffer = stream.allocate(8).unwrap();
    stream.upload(&buffer, 0, b"millpond").unwrap();
    other.wait_for(stream.point()).unwrap();
    buffer.record_stream(&other).unwrap();
    let mut bytes = [0; 8];
    other.download(&buffer, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"millpond");
    let segment = buffer.segment().and_then(|segment| segment.as_cuda()).expect("it is on CUDA");
    let start = allocator.backend().as_cuda().unwrap().address(segment);
    assert_eq!(buffer.address(), start.map(|start| start + buffer.offset()));
    drop(buffer);
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn things_of_one_backend_are_refused_by_another() {
    let cuda = on_cuda("cuda:0");
    let sim = AnyAllocator::new(AnyDevice::from(Sim::new()));
    let (here, there) = (cuda.create_stream().unwrap(), sim.create_stream().unwrap());
    let (own, strange) = (here.allocate(8).unwrap(), there.allocate(8).unwrap());
    let (pinned, mut strange_pinned) = (cuda.pinned().unwrap(), sim.pinned().unwrap().allocate(8).unwrap());
    let pinned = pinned.allocate(8).unwrap();
    let names_both = |error: &Error<DriverError>| {
        let text = error.to_string();
        matches!(error, Error::WrongDevice { .. }) && text.contains("(simulated H200)") && text.contains(DEVICE_NAME)
    };
    let buffers = [
        here.fill(&strange, 0, 8, 1),
        here.upload(&strange, 0, b"millpond"),
        here.download(&strange, 0, &mut [0; 8]),
        here.copy((&strange, 0), (&own, 0), 8),
        here.copy((&own, 0), (&strange, 0), 8),
        here.upload_pinned((&strange_pinned, 0), (&own, 0), 8),
        here.upload_pinned((&pinned, 0), (&strange, 0), 8),
        here.download_pinned((&own, 0), (&mut strange_pinned, 0), 8),
    ];
    for (at, refused) in buffers.into_iter().enumerate() {
        let error = refused.unwrap_err();
        assert!(names_both(&error) && error.kind() == ErrorKind::Input, "{at}: {error:?}");
    }
    let streams = [own.record_stream(&there), pinned.record_use(&there), cuda.allocate(8, &there).map(drop)];
    for (at, refused) in streams.into_iter().enumerate() {
        let error = refused.unwrap_err();
        assert!(names_both(&error), "{at}: {error:?}");
    }
    let (error, strange) = cuda.free(strange).unwrap_err();
    assert!(names_both(&error), "{error:?}");
    drop(strange);
}

#[test]
fn a_graph_keeps_its_memory_and_a_group_sleeps() {
    const MIB: u64 = 1 << 20;
    let allocator = on_cuda("cuda:0");
    let stream = allocator.create_stream().unwrap();
    let pool: AnyPool = allocator.create_pool().unwrap();
    let graph = pool.stream(stream.id()).unwrap();
    let capture: AnyCapture = graph.begin_capture().unwrap();
    let place = graph.allocate(4 * MIB).unwrap().address();
    capture.end();
    allocator.empty_cache().unwrap();
    assert_eq!(graph.allocate(4 * MIB).unwrap().address(), place, "the graph may run again");

    let group: AnyGroup = allocator.group("weights").unwrap();
    let weights = group.stream(stream.id()).unwrap().allocate(6 * MIB).unwrap();
    stream.upload(&weights, 1000, b"millpond").unwrap();
    let place = weights.address();
    group.pause(Keep::Host).unwrap();
    assert!(group.is_paused() && allocator.memory_paused() >= 6 * MIB);
    group.resume().unwrap();
    let mut bytes = [0; 8];
    stream.download(&weights, 1000, &mut bytes).unwrap();
    assert_eq!((&bytes, weights.address()), (b"millpond", place));
}

#[test]
fn elements_are_at_the_address_that_kernels_take() {
    let stream = on_cuda("cuda:0").create_stream().unwrap();
    let buffer = stream.allocate_from(&[1.0f32, 2.0, 3.0]).unwrap();
    let last = buffer.slice(2..).unwrap();
    assert_eq!(last.address(), buffer.buffer().address().map(|address| address + 8));
    stream.upload_elements(&last, &[4.0]).unwrap();
    assert_eq!(stream.download_vec(&buffer.share().slice(1..).unwrap()).unwrap(), [2.0, 4.0]);
}

#[test]
fn points_and_downloads_are_awaited() {
    let allocator = on_cuda("cuda:0");
    let stream = allocator.create_stream().unwrap();
    let view = stream.allocate_from(&[1u64, 2, 3]).unwrap().share();
    pollster::block_on(async {
        allocator.when_reached(stream.point()).await.unwrap();
        let tail = stream.download_async(&view.slice(1..).unwrap()).unwrap();
        stream.clear_elements(&view).unwrap();
        assert_eq!(tail.await.unwrap(), [2, 3]);
        stream.when_done().unwrap().await.unwrap();
    });
}
