//! Page-locked memory.

use millpond_any::millpond::Error;
use millpond_any::millpond::settings::Settings;
use millpond_any::millpond_sim::{Sim, Work};
use millpond_any::{AnyError, ClassId, ErrorKind};

use crate::{on, two_streams};

#[test]
fn bytes_go_to_the_device_and_come_back() {
    let (_, allocator, [stream, _]) = two_streams();
    let pinned = allocator.pinned().unwrap();
    let on_device = stream.allocate(8).unwrap();
    let mut there = pinned.allocate(10).unwrap();
    assert_eq!((there.len(), there.is_empty()), (10, false));
    assert!(there.capacity() >= 10);
    assert_eq!(there.address(), there.as_sim().unwrap().address());
    there.bytes_mut().unwrap().copy_from_slice(b"__millpond");
    assert_eq!(there.host_address().as_ptr().cast_const(), there.bytes().unwrap().as_ptr());
    stream.upload_pinned((&there, 2), (&on_device, 0), 8).unwrap();
    drop(there);
    let mut back = pinned.allocate(6).unwrap();
    stream.download_pinned((&on_device, 4), (&mut back, 1), 4).unwrap();
    back.wait().unwrap();
    assert_eq!(&back.bytes().unwrap()[1..5], b"pond");
    assert_eq!(pinned.cache().memory_allocated(), back.capacity());
    assert!(pinned.cache().create_stream().is_err());
}

#[test]
fn memory_in_use_is_not_handed_to_the_host() {
    let (sim, allocator, [stream, _]) = two_streams();
    let mut buffer = allocator.pinned().unwrap().allocate(8).unwrap();
    sim.launch(stream.id(), Work::Busy);
    buffer.record_use(&stream).unwrap();
    let error = buffer.bytes().map(drop).unwrap_err();
    assert!(matches!(error, AnyError::Allocator(Error::InUse { .. })), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert!(buffer.bytes_mut().is_err());
    buffer.wait().unwrap();
    assert_eq!(buffer.bytes().unwrap().len(), 8);
    let (_, _, [strange, _]) = two_streams();
    assert_eq!(buffer.record_use(&strange).unwrap_err().kind(), ErrorKind::Input);
}

#[test]
fn a_cache_of_a_class_has_its_own_settings() {
    let (_, allocator, _) = two_streams();
    let settings = Settings { gc_threshold: 0.5, ..Settings::for_host() };
    let pinned = allocator.pinned_with(ClassId(1), settings.clone()).unwrap();
    assert_eq!((pinned.cache().settings(), pinned.cache().class()), (settings, ClassId(1)));
    let error = allocator.pinned_with(ClassId::DEVICE, Settings::for_host()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(on(&Sim::new()).pinned().unwrap().backend_name(), "sim");
}
