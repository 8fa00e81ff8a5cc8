use std::thread;
use std::time::{Duration, Instant};

use millpond_backend::{Backend, BackendError, Fault, Point, StreamWait, Tick, Transfer};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{CudaError, Misuse};

use crate::lab::{device, finish, give_back, read, segment};

#[test]
fn nothing_outstanding_needs_no_driver() {
    let Some(cuda) = device() else { return };
    let (stream, other) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap());
    let tick = finish(&cuda, stream);
    let before = cuda.fallible_calls();
    for _ in 0..100 {
        assert_eq!(cuda.reached(stream).unwrap(), tick);
        assert_eq!(cuda.wait(Point { stream, tick }).unwrap(), tick);
        StreamWait::wait_for(&cuda, other, Point { stream, tick }).unwrap();
    }
    let marks: Vec<Tick> = (0..100).map(|_| cuda.mark(stream)).collect();
    assert!(marks.iter().all(|mark| *mark == marks[0]), "one tick for all marks: {marks:?}");
    assert_eq!(cuda.fallible_calls(), before);
}

#[test]
fn held_work_is_not_reached_and_marks_before_it_are() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let before = cuda.mark(stream);
    cuda.hold(stream).unwrap();
    let behind = cuda.mark(stream);
    for _ in 0..10 {
        let reached = cuda.reached(stream).unwrap();
        assert!(reached >= before && reached < behind, "{reached} of {before}, {behind} is reached");
    }
    cuda.unhold(stream);
    assert!(cuda.wait(Point { stream, tick: behind }).unwrap() >= behind);
}

#[test]
fn a_wait_opens_a_gate_that_would_hold_it_for_ever() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    cuda.hold(stream).unwrap();
    finish(&cuda, stream);
}

#[test]
fn a_wait_that_sleeps_ends_where_one_that_spins_does() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    assert_eq!(cuda.wait_asleep(Point { stream, tick: Tick::ZERO }).unwrap(), Tick::ZERO);
    cuda.hold(stream).unwrap();
    let tick = cuda.mark(stream);
    assert!(cuda.wait_asleep(Point { stream, tick }).unwrap() >= tick);
    let taken = segment(&cuda);
    cuda.fill(stream, &taken, 0, taken.bytes(), 1).unwrap();
    let tick = cuda.mark(stream);
    let reached = cuda.wait_asleep(Point { stream, tick: Tick(u64::MAX) }).unwrap();
    assert!(reached >= tick && reached < Tick(u64::MAX));
    give_back(&cuda, taken);
}

#[test]
fn a_wait_beyond_the_open_tick_waits_for_all_there_is() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let taken = segment(&cuda);
    cuda.fill(stream, &taken, 0, taken.bytes(), 1).unwrap();
    let tick = cuda.mark(stream);
    let reached = cuda.wait(Point { stream, tick: Tick(u64::MAX) }).unwrap();
    assert!(reached >= tick && reached < Tick(u64::MAX));
    give_back(&cuda, taken);
}

#[test]
fn streams_wait_for_each_other_on_the_device() {
    let Some(cuda) = device() else { return };
    let (writer, reader) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap());
    let taken = segment(&cuda);
    cuda.hold(writer).unwrap();
    cuda.fill(writer, &taken, 0, taken.bytes(), 9).unwrap();
    let written = cuda.mark(writer);
    let point = Point { stream: writer, tick: written };
    StreamWait::wait_for(&cuda, reader, point).unwrap();
    let read_from = cuda.mark(reader);
    assert!(cuda.reached(reader).unwrap() < read_from, "the reader overtook the writer");
    let beyond = Point { stream: writer, tick: Tick(written.0 + 2) };
    let refused = StreamWait::wait_for(&cuda, reader, beyond);
    assert_eq!(refused, Err(CudaError::Misuse(Misuse::NeverMarked { point: beyond, open: written.0 + 1 })));
    cuda.unhold(writer);
    assert_eq!(read(&cuda, reader, &taken, taken.bytes() - 64, 64), [9; 64]);
    finish(&cuda, writer);
    give_back(&cuda, taken);
}

#[test]
fn threads_mark_ask_and_wait_on_one_stream() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let taken = segment(&cuda);
    thread::scope(|scope| {
        for at in 0..4 {
            let (cuda, taken) = (&cuda, &taken);
            scope.spawn(move || follow(cuda, stream, taken, at));
        }
    });
    finish(&cuda, stream);
    give_back(&cuda, taken);
}

/// Queues work, marks it, and checks that the reached tick never falls and never runs ahead.
fn follow(cuda: &Cuda, stream: millpond_backend::StreamId, taken: &millpond_cuda::Segment, at: u64) {
    let mut last = Tick::ZERO;
    for round in 0..200 {
        cuda.fill(stream, taken, at * 4096, 4096, round as u8).unwrap();
        let tick = cuda.mark(stream);
        let reached = cuda.reached(stream).unwrap();
        assert!(reached >= last, "{last} was reached, and now {reached}");
        last = reached;
        if round % 16 == at {
            last = cuda.wait(Point { stream, tick }).unwrap();
            assert!(last >= tick, "{tick} was waited for, and {last} is reached");
        }
        assert!(last <= cuda.mark(stream));
    }
}

#[test]
fn a_lost_device_says_so_to_everybody() {
    let Some(cuda) = device() else { return };
    let stream = cuda.create_stream().unwrap();
    let taken = segment(&cuda);
    let tick = cuda.mark(stream);
    cuda.fail_nth(1, Fault::Lost);
    assert_eq!(cuda.reached(stream).unwrap_err().fault(), Fault::Lost);
    let errors = [
        cuda.reached(stream).unwrap_err(),
        cuda.wait(Point { stream, tick }).unwrap_err(),
        cuda.fill(stream, &taken, 0, 1, 0).unwrap_err(),
        cuda.create_stream().unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, CudaError::Lost { .. }), "{error:?}");
    }
    assert_eq!(cuda.mark(stream), tick);
    give_back(&cuda, taken);
}

/// A driver that launches no kernels says so, as the simulated one does. On others a kernel takes the time that it was
/// told, and work behind it comes after it.
#[test]
fn a_spinner_takes_its_time_or_says_that_there_are_no_kernels() {
    let Some(cuda) = device() else { return };
    let spinner = match cuda.spinner() {
        Ok(spinner) => spinner,
        Err(CudaError::MissingSymbol { symbol }) => {
            assert_eq!(symbol, "cuModuleLoadData");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let stream = cuda.create_stream().unwrap();
    finish(&cuda, stream);
    let (time, count) = (Duration::from_millis(2), 5);
    let began = Instant::now();
    for _ in 0..count {
        spinner.spin(stream, time).unwrap();
    }
    let behind = cuda.mark(stream);
    assert!(cuda.reached(stream).unwrap() < behind, "the kernels are over at once");
    assert!(cuda.wait(Point { stream, tick: behind }).unwrap() >= behind);
    // The device's clock counts in steps of up to a microsecond.
    assert!(began.elapsed() >= (time - Duration::from_micros(2)) * count, "{:?}", began.elapsed());
}
