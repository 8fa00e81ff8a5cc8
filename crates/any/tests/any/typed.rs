//! Typed buffers, slices and views over erased buffers.

use millpond_any::millpond::Error;
use millpond_any::millpond::typed::{Typed, View, ViewError};
use millpond_any::{AnyBuffer, AnyError, AnySlice, AnyTypedBuffer, AnyView, ErrorKind};

use crate::two_streams;

#[test]
fn elements_go_and_come_back_through_slices_and_views() {
    let (_, allocator, [stream, _]) = two_streams();
    let buffer: AnyTypedBuffer<f32> = stream.allocate_from(&[1.0, 2.0, 3.0, 4.0]).unwrap();
    let middle: AnySlice<'_, f32> = buffer.slice(1..3).unwrap();
    stream.upload_elements(&middle, &[5.0, 6.0]).unwrap();
    stream.clear_elements(&buffer.slice(3..).unwrap()).unwrap();
    assert_eq!(middle.address().unwrap(), buffer.address().unwrap() + 4);
    assert_eq!(stream.download_vec(&buffer).unwrap(), [1.0, 5.0, 6.0, 0.0]);

    let whole: AnyView<f32> = buffer.share();
    let part = whole.slice(2..).unwrap();
    assert_eq!(stream.download_vec(&part).unwrap(), [6.0, 0.0]);
    stream.copy_elements(&whole.slice(..2).unwrap(), &part).unwrap();
    drop(whole);
    assert_eq!(allocator.memory_allocated(), 512);
    assert_eq!(stream.download_vec(&part).unwrap(), [1.0, 5.0]);
    let mut bits = [0u32; 2];
    stream.download_elements(&part.cast().unwrap(), &mut bits).unwrap();
    assert_eq!(bits, [1.0f32, 5.0].map(f32::to_bits));
    let buffer: AnyBuffer = part.try_into_buffer().unwrap();
    assert_eq!(buffer.len(), 16);
    drop(buffer);
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn lengths_are_those_that_were_asked_for() {
    let (_, _, [stream, _]) = two_streams();
    let past = stream.allocate(512).unwrap();
    stream.fill(&past, 0, 512, 0x5E).unwrap();
    drop(past);
    let buffer = stream.allocate(16).unwrap();
    let mut seen = [0; 512];
    let errors = [
        stream.download(&buffer, 0, &mut seen).unwrap_err(),
        stream.download_elements(&buffer, &mut seen).unwrap_err(),
        stream.upload_elements(&buffer, &[0; 17]).unwrap_err(),
        stream.copy_elements(&buffer, &stream.allocate(17).unwrap()).unwrap_err(),
    ];
    assert_eq!(seen, [0; 512], "what the last owner left was read");
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Input), "{errors:?}");
    let lengths = errors.iter().filter(|error| matches!(error, AnyError::Allocator(Error::View(_))));
    assert_eq!(lengths.count(), 3);
    assert_eq!(stream.download_vec(&buffer).unwrap().len(), 16);
    let error = AnyError::from(View::new(buffer).slice(..17).unwrap_err());
    assert!(matches!(error, AnyError::Allocator(Error::View(ViewError::Range { start: 0, end: 17, len: 16 }))));
    assert!(Typed::<u32, _>::new(stream.allocate(15).unwrap()).is_err());
    assert!(stream.allocate_elements::<u64>(u64::MAX).is_err());
}

#[test]
fn elements_that_the_device_does_not_keep_are_an_error_and_not_zeros() {
    let allocator = millpond_any::open("sim:contents=none", "").unwrap();
    let stream = allocator.create_stream().unwrap();
    let buffer: AnyTypedBuffer<u32> = stream.allocate_from(&[1, 2, 3]).unwrap();
    let view = buffer.share();
    let errors = [
        stream.download_vec(&view).unwrap_err(),
        stream.download(view.buffer(), 0, &mut [0; 12]).unwrap_err(),
        stream.download_async(&view).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(millpond_any::millpond::text::with_causes(&error).contains("without contents=none"), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Driver);
    }
}
