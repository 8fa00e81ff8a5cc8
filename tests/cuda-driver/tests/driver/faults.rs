//! Planned failures, counts, lost devices.

use cudarc::driver::sys::CUresult;

use crate::aid::{Turn, alloc, fill, free, query, turn, wait};

#[test]
fn the_planned_call_fails_and_only_that_one() {
    let turn = turn();
    turn.control.fail_nth("cuMemAlloc_v2", 2, CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);
    let held = turn.control.held_bytes(0);
    let first = alloc(512).expect("the first is not the second");
    assert_eq!(alloc(512), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(turn.control.held_bytes(0), held + 512, "the failed call had no effect");
    let third = alloc(512).expect("it fails once");
    assert_eq!(turn.control.calls("cuMemAlloc_v2"), 3);
    free(first).and_then(|()| free(third)).expect("freed");
    assert_eq!(turn.control.calls("cuMemFree_v2"), 2);
}

#[test]
fn a_plan_for_any_call_strikes_the_nth() {
    let turn = turn();
    let stream = turn.stream();
    turn.control.fail_any(2, CUresult::CUDA_ERROR_UNKNOWN as u32);
    assert_eq!(query(&stream), Ok(()));
    assert_eq!(query(&stream), Err(CUresult::CUDA_ERROR_UNKNOWN));
    assert_eq!(query(&stream), Ok(()));
}

#[test]
#[should_panic(expected = "has no function cuNothing")]
fn a_plan_for_an_unknown_function_is_a_mistake() {
    let turn = turn();
    turn.control.fail_nth("cuNothing", 1, 2);
}

#[test]
fn a_lost_device_drops_its_work_and_returns_the_code_to_all() {
    let turn = turn();
    let stream = turn.stream();
    let block = alloc(512).expect("memory");
    let gate = turn.control.hold(0, Turn::number(&stream));
    fill(block, 1, 512, &stream).expect("queued");
    let lost = CUresult::CUDA_ERROR_ECC_UNCORRECTABLE;
    turn.control.lose(0, lost as u32);
    assert_eq!([wait(&stream), query(&stream), free(block)], [Err(lost); 3], "none of them waits for the gate");
    drop(gate);
    turn.control.reset();
    assert_eq!(wait(&stream), Ok(()), "healed, and nothing is queued");
    assert_eq!(crate::aid::read(block, 1, &stream), Ok(vec![0]), "the fill was dropped");
    free(block).expect("what was allocated is still there");
}

#[test]
fn a_stopped_call_has_no_effect_until_it_goes_on() {
    let turn = turn();
    let held = turn.control.held_bytes(0);
    let stop = turn.control.stop_nth("cuMemAlloc_v2", 2);
    let context = &turn.context;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            context.bind_to_thread().expect("the context is there");
            (alloc(512), alloc(1024))
        });
        stop.wait();
        assert_eq!(turn.control.held_bytes(0), held + 512, "the second call stands still");
        let third = alloc(2048).expect("only that call is stopped");
        stop.go_on();
        let (first, second) = other.join().expect("it goes on");
        assert_eq!(turn.control.held_bytes(0), held + 512 + 1024 + 2048);
        for address in [first, second, Ok(third)] {
            address.and_then(free).expect("it was allocated");
        }
    });
}
