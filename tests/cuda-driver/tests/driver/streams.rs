//! Streams and events.

use std::ffi::c_void;
use std::sync::mpsc::{Receiver, Sender, channel};

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, result};

use crate::aid::{Turn, alloc, answer, fill, free, query, read, turn, wait};

const NOT_READY: Result<(), CUresult> = Err(CUresult::CUDA_ERROR_NOT_READY);

#[test]
fn an_event_is_ready_when_the_host_lets_its_stream_go_on() {
    unsafe extern "C" fn stay(data: *mut c_void) {
        // SAFETY: the pointer is to what the test keeps alive until the stream is done.
        let (_, receiver) = unsafe { &*data.cast::<(Sender<()>, Receiver<()>)>() };
        receiver.recv().expect("the test sends before it ends");
        let mut count = 0;
        // SAFETY: the pointer is to a local number.
        let refused = unsafe { sys::cuCtxGetDevice(&raw mut count) };
        assert_eq!(refused, CUresult::CUDA_ERROR_NOT_PERMITTED, "the driver must not be called from here");
    }
    let turn = turn();
    let stream = turn.stream();
    let gate = Box::new(channel::<()>());
    let data = (&raw const *gate).cast_mut().cast::<c_void>();
    // SAFETY: the function expects what the pointer points to, and the box outlives the stream's work.
    answer(unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(stay), data) }).expect("queued");
    let event = stream.record_event(None).expect("recorded");
    // SAFETY: the event is alive.
    let ask = || answer(unsafe { sys::cuEventQuery(event.cu_event()) });
    assert_eq!((ask(), query(&stream)), (NOT_READY, NOT_READY));
    gate.0.send(()).expect("the other end is beside it");
    event.synchronize().expect("it goes on");
    assert_eq!(ask(), Ok(()));
    assert_eq!(wait(&stream), Ok(()));
}

#[test]
fn a_stream_waits_for_another_and_no_further() {
    let turn = turn();
    let (first, second, free_running) = (turn.stream(), turn.stream(), turn.stream());
    let block = alloc(4096).expect("memory");
    fill(block, 1, 4096, &first).expect("queued");
    let gate = turn.control.hold(0, Turn::number(&first));
    fill(block, 2, 4096, &first).expect("queued");
    let event = first.record_event(None).expect("recorded");
    second.wait(&event).expect("queued");
    assert_eq!(query(&second), NOT_READY, "it waits");
    assert_eq!(wait(&free_running), Ok(()), "nothing holds this one");
    // A new event on a third stream does not change what the second stream waits for, nor does another record of this
    // event.
    free_running.record_event(None).expect("recorded").synchronize().expect("done");
    event.record(&free_running).expect("recorded again");
    assert_eq!((wait(&free_running), query(&second)), (Ok(()), NOT_READY));
    gate.open();
    assert_eq!(read(block, 4096, &second), Ok(vec![2; 4096]), "the second stream sees the work of the first");
    free(block).expect("freed");
}

#[test]
fn an_event_that_is_recorded_again_has_moved() {
    let turn = turn();
    let (held, free_running, third) = (turn.stream(), turn.stream(), turn.stream());
    let event = held.record_event(None).expect("recorded");
    assert_eq!(wait(&held), Ok(()));
    // SAFETY: the event is alive.
    let ask = || answer(unsafe { sys::cuEventQuery(event.cu_event()) });
    let gate = turn.control.hold(0, Turn::number(&held));
    event.record(&held).expect("recorded again");
    assert_eq!(ask(), NOT_READY, "it was reached where it was before");
    event.record(&free_running).expect("recorded again");
    assert_eq!((wait(&free_running), ask()), (Ok(()), Ok(())), "nothing holds it where it is now");
    third.wait(&event).expect("queued");
    assert_eq!(wait(&third), Ok(()), "the event has left the stream that is held");
    event.record(&held).expect("recorded again");
    third.wait(&event).expect("queued");
    assert_eq!((query(&third), ask()), (NOT_READY, NOT_READY), "it is back there");
    gate.open();
    assert_eq!((wait(&third), ask()), (Ok(()), Ok(())));
}

#[test]
fn the_legacy_stream_is_ordered_against_blocking_streams_only() {
    let turn = turn();
    let mut blocking = std::ptr::null_mut();
    // SAFETY: the pointer is to a local pointer.
    answer(unsafe { sys::cuStreamCreate(&raw mut blocking, 0) }).expect("a blocking stream");
    let apart = turn.stream();
    let block = alloc(512).expect("memory");
    let gate = turn.control.hold(0, blocking as usize);
    // SAFETY: the simulator checks the range.
    answer(unsafe { sys::cuMemsetD8Async(block, 7, 512, std::ptr::null_mut()) }).expect("queued");
    // SAFETY: the legacy stream is always there.
    let legacy = || answer(unsafe { sys::cuStreamQuery(std::ptr::null_mut()) });
    assert_eq!(legacy(), NOT_READY, "it waits for the blocking stream");
    assert_eq!(read(block, 512, &apart).map(|bytes| bytes[0]), Ok(0), "this one does not wait");
    gate.open();
    // SAFETY: as above.
    answer(unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) }).expect("done");
    assert_eq!(read(block, 512, &apart), Ok(vec![7; 512]));
    free(block).expect("freed");
    // SAFETY: the stream was created above.
    answer(unsafe { sys::cuStreamDestroy_v2(blocking) }).expect("destroyed");
}

#[test]
fn handles_are_used_again_and_numbers_are_not() {
    let turn = turn();
    let number = |stream| {
        let mut number = 0;
        // SAFETY: the pointer is to a local number; the stream is alive.
        answer(unsafe { sys::cuStreamGetId(stream, &raw mut number) }).map(|()| number)
    };
    let first = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
    let first_number = number(first).expect("a number");
    let gate = turn.control.hold(0, first as usize);
    // SAFETY: the stream is not used any more.
    unsafe { result::stream::destroy(first) }.expect("destroyed, though its work is not done");
    assert_eq!(number(first), Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED), "as real drivers do, unless they crash");
    let second = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
    assert_eq!(second, first, "the handle is used again");
    assert_ne!(number(second).expect("a number"), first_number);
    // SAFETY: the stream is alive.
    assert_eq!(answer(unsafe { sys::cuStreamQuery(second) }), Ok(()), "what the first has queued is not its own");
    gate.open();
    // SAFETY: the stream is not used any more.
    unsafe { result::stream::destroy(second) }.expect("destroyed");
}

#[test]
fn time_passes_between_events() {
    let turn = turn();
    let stream = turn.stream();
    let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream.record_event(timing).expect("recorded");
    let gate = turn.control.hold(0, Turn::number(&stream));
    let end = stream.record_event(timing).expect("recorded");
    start.synchronize().expect("nothing holds it");
    // SAFETY: the events are alive.
    let ask = || unsafe { result::event::elapsed(start.cu_event(), end.cu_event()) }.map_err(|error| error.0);
    assert_eq!(ask(), Err(CUresult::CUDA_ERROR_NOT_READY));
    std::thread::sleep(std::time::Duration::from_millis(2));
    gate.open();
    end.synchronize().expect("done");
    let elapsed = ask().expect("both are reached");
    assert!(elapsed >= 2.0, "{elapsed} ms");
}

#[test]
fn a_thread_has_no_context_until_it_sets_one() {
    let turn = turn();
    let context = std::sync::Arc::clone(&turn.context);
    std::thread::spawn(move || {
        assert_eq!(alloc(512), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
        context.bind_to_thread().expect("the context is alive");
        free(alloc(512).expect("memory")).expect("freed");
        let second = CudaContext::new(1).expect("a second device");
        drop(second);
        assert_eq!(alloc(512), Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED), "it was current and has ended");
    })
    .join()
    .expect("the thread's checks hold");
}
