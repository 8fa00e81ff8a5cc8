//! Typed buffers, slices and views: their bounds, their casts, what they keep alive, and what they move.

use half::{bf16, f16};
use millpond::typed::{Slice, Typed, TypedBuffer, View, ViewError};
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_sim::Sim;

type SimView<T> = View<T, Buffer<Sim>>;

fn two() -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

/// Leaves bytes of a former owner where the next buffer will lie.
fn leave_a_past(stream: &Stream<Sim>) {
    let past = stream.allocate(512).unwrap();
    stream.fill(&past, 0, 512, 0x5E).unwrap();
}

#[test]
fn elements_of_every_plain_type_come_back_as_they_went() {
    let (_, stream) = two();
    macro_rules! comes_back {
        ($($elements:expr),*) => {
            $({
                let elements = $elements;
                let buffer = stream.allocate_from(&elements).unwrap();
                assert_eq!(buffer.len(), elements.len() as u64);
                assert_eq!(buffer.buffer().len(), size_of_val(&elements) as u64);
                assert_eq!(stream.download_vec(&buffer).unwrap(), elements);
            })*
        };
    }
    comes_back!(
        [1u8, 2, 3],
        [-1i16; 5],
        [7u32, 8],
        [u64::MAX],
        [1.5f32, -0.0, 3.0],
        [1e300f64; 3],
        [[1u16, 2], [3, 4]]
    );
    comes_back!([f16::from_f32(1.5), f16::MIN, f16::EPSILON], [bf16::from_f32(-2.0); 3]);
}

#[test]
fn lengths_are_those_that_were_asked_for() {
    let (_, stream) = two();
    leave_a_past(&stream);
    let buffer: TypedBuffer<f32, Sim> = stream.allocate_elements(4).unwrap();
    assert_eq!((buffer.len(), buffer.buffer().capacity()), (4, 512));
    assert_eq!(buffer.as_slice().byte_len(), 16);
    assert_eq!(stream.download_vec(&buffer).unwrap().len(), 4);
    for range in [0..5, 4..5, 3..128] {
        let error = buffer.slice(range.clone()).unwrap_err();
        assert_eq!(error, ViewError::Range { start: range.start, end: range.end, len: 4 });
    }
    let mut seen = [0f32; 5];
    let error = stream.download_elements(&buffer, &mut seen).unwrap_err();
    assert!(matches!(error, Error::View(ViewError::Length { given: 5, len: 4 })), "{error}");
    assert_eq!(seen, [0.0; 5], "nothing was read");
    let error = stream.upload_elements(&buffer, &[0.0; 3]).unwrap_err();
    assert_eq!(error.to_string(), "3 elements for a range of 4; take a slice of the same length");
}

#[test]
fn parts_count_from_their_own_start() {
    let (_, stream) = two();
    let _before = stream.allocate(512).unwrap();
    let buffer = stream.allocate_from(&[10u16, 11, 12, 13, 14, 15]).unwrap();
    let tail = buffer.slice(2..).unwrap();
    let middle = tail.slice(1..=2).unwrap();
    assert_eq!(stream.download_vec(&middle).unwrap(), [13, 14]);
    assert_eq!((middle.byte_start(), middle.byte_len(), middle.len()), (6, 4, 2));
    assert_eq!(middle.offset(), buffer.buffer().offset() + 6);
    assert_eq!(middle.address().unwrap(), buffer.address().unwrap() + 6);
    assert!(std::ptr::eq(middle.segment().unwrap(), buffer.buffer().segment().unwrap()));
    assert!(tail.slice(4..).unwrap().is_empty() && tail.slice(..).unwrap().len() == 4);
    assert_eq!(tail.slice(1..5).unwrap_err(), ViewError::Range { start: 1, end: 5, len: 4 });
    #[allow(clippy::reversed_empty_ranges, reason = "this is what is refused")]
    let reversed = tail.slice(3..2).unwrap_err();
    assert_eq!(reversed, ViewError::Range { start: 3, end: 2, len: 4 });
    assert_eq!(tail.slice(..=u64::MAX).unwrap_err(), ViewError::Range { start: 0, end: u64::MAX, len: 4 });
    stream.upload_elements(&middle, &[0, 1]).unwrap();
    stream.clear_elements(&buffer.slice(..1).unwrap()).unwrap();
    assert_eq!(stream.download_vec(&buffer).unwrap(), [0, 11, 12, 0, 1, 15]);
}

#[test]
fn a_cast_checks_length_and_alignment() {
    let (_, stream) = two();
    let buffer = stream.allocate_from(&[1u8, 0, 2, 0, 3, 0, 4]).unwrap();
    let error = buffer.as_slice().cast::<u16>().unwrap_err();
    assert_eq!(error, ViewError::Size { bytes: 7, element_bytes: 2 });
    let error = buffer.slice(1..7).unwrap().cast::<u16>().unwrap_err();
    assert_eq!(error, ViewError::Alignment { alignment: 2, over: 1 });
    let halves = buffer.slice(2..6).unwrap().cast::<u16>().unwrap();
    assert_eq!(stream.download_vec(&halves).unwrap(), [2, 3]);
    // Arrays have the alignment of their elements, so they may begin at any byte.
    assert_eq!(stream.download_vec(&buffer.slice(1..7).unwrap().cast::<[u8; 3]>().unwrap()).unwrap().len(), 2);
    let error = halves.cast::<u32>().unwrap_err();
    assert_eq!(error, ViewError::Alignment { alignment: 4, over: 2 });

    let (error, buffer) = buffer.cast::<u32>().unwrap_err();
    assert_eq!(error, ViewError::Size { bytes: 7, element_bytes: 4 });
    assert_eq!(buffer.len(), 7, "the buffer came back");
    let (_, plain) = Typed::<u16, _>::new(buffer.into_buffer()).unwrap_err();
    assert_eq!(plain.len(), 7);
    let eight = Typed::<f64, _>::new(stream.allocate(8).unwrap()).unwrap();
    assert_eq!(eight.cast::<u16>().unwrap().len(), 4);
}

#[test]
fn a_view_keeps_its_buffer_and_the_last_one_gives_it_back() {
    let (allocator, stream) = two();
    let whole = stream.allocate_from(&[1u32, 2, 3, 4]).unwrap().share();
    let part: SimView<u32> = whole.slice(1..3).unwrap();
    let bytes = part.cast::<u8>().unwrap();
    assert_eq!((whole.len(), part.len(), bytes.len()), (4, 2, 8));
    drop(whole);
    assert_eq!(allocator.memory_allocated(), 512);
    assert_eq!(stream.download_vec(&part).unwrap(), [2, 3]);
    assert_eq!(stream.download_vec(&bytes).unwrap(), [2, 0, 0, 0, 3, 0, 0, 0]);
    let part = part.try_into_buffer().expect_err("there is another view");
    let again = part.clone();
    std::thread::spawn(move || drop((part, bytes))).join().unwrap();
    assert_eq!(allocator.memory_allocated(), 512);
    let buffer = again.try_into_buffer().expect("this is the last view");
    assert_eq!(buffer.len(), 16, "it is the whole buffer");
    drop(buffer);
    assert_eq!(allocator.memory_allocated(), 0);
    assert!(View::new(stream.allocate(3).unwrap()).cast::<u16>().is_err());
    assert_eq!(View::new(stream.allocate(6).unwrap()).slice(2..).unwrap().cast::<u16>().unwrap().len(), 2);
}

#[test]
fn elements_are_copied_between_ranges_of_equal_length() {
    let (_, stream) = two();
    let from = stream.allocate_from(&[1i32, 2, 3]).unwrap();
    let to = stream.allocate_from(&[0i32; 4]).unwrap().share();
    stream.copy_elements(&from.slice(1..).unwrap(), &to.slice(2..).unwrap()).unwrap();
    assert_eq!(stream.download_vec(&to).unwrap(), [0, 0, 2, 3]);
    let error = stream.copy_elements(&from, &to).unwrap_err();
    assert!(matches!(error, Error::View(ViewError::Length { given: 3, len: 4 })), "{error}");
    stream.copy_elements(&&from, &to.slice(..3).unwrap()).unwrap();
    assert_eq!(stream.download_vec(&to).unwrap(), [1, 2, 3, 3]);
}

#[test]
fn a_plain_buffer_has_its_bytes_as_elements() {
    let (_, stream) = two();
    leave_a_past(&stream);
    let buffer = stream.allocate(3).unwrap();
    stream.upload_elements(&buffer, b"abc").unwrap();
    assert_eq!(stream.download_vec(&buffer).unwrap(), b"abc");
    assert_eq!(Slice::of(&buffer).slice(1..).unwrap().byte_len(), 2);
}

#[test]
fn no_elements_need_no_memory_and_too_many_are_refused() {
    let (allocator, stream) = two();
    let none = stream.allocate_from::<f64>(&[]).unwrap();
    assert!(none.is_empty() && none.address().is_none() && none.as_slice().segment().is_none());
    assert_eq!(stream.download_vec(&none).unwrap(), [0_f64; 0]);
    assert!(none.slice(..).unwrap().is_empty() && none.slice(1..).is_err());
    assert_eq!(allocator.memory_allocated(), 0);
    let error = stream.allocate_elements::<f64>(u64::MAX / 4).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn a_typed_buffer_costs_what_the_buffer_costs() {
    assert_eq!(size_of::<TypedBuffer<f32, Sim>>(), size_of::<Buffer<Sim>>());
}
