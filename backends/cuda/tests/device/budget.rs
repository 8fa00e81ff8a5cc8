//! The free memory of a device, and the holders of the rest.

use millpond::Allocator;
use millpond_backend::{Backend, Budget, ClassId};

use crate::lab::{BYTES, device};

/// The bytes that other tests of this process and other processes may take or give back between two readings.
const NOISE: u64 = 1 << 30;

#[test]
fn the_parts_of_what_is_used_add_up() {
    let Some(cuda) = device() else { return };
    let allocator = Allocator::new(cuda.clone());
    let buffer = allocator.create_stream().unwrap().allocate(BYTES).unwrap();
    let usage = allocator.memory_usage().unwrap().expect("CUDA reports what is free");
    let parts = usage.parts();
    assert_eq!(usage.reserved_bytes, cuda.held_bytes(), "{usage:?}");
    assert_eq!(parts.iter().map(|(_, bytes)| bytes).sum::<u64>(), usage.total_bytes - usage.free_bytes, "{usage:?}");
    let summary = allocator.memory_summary(true);
    for (name, _) in parts {
        assert!(summary.contains(name), "no {name}: {summary}");
    }
    eprintln!("{summary}");
    drop(buffer);
}

#[test]
fn taken_memory_is_not_free() {
    let Some(cuda) = device() else { return };
    let budget = || Budget::budget(&cuda, ClassId::DEVICE).unwrap();
    let before = budget();
    let taken = cuda.reserve(ClassId::DEVICE, 3 * NOISE).unwrap();
    let after = budget();
    assert!(after.free_bytes + 2 * NOISE <= before.free_bytes, "{before:?}, and then {after:?}");
    assert_eq!(after.total_bytes, before.total_bytes);
    if let Some(own) = after.process_bytes {
        assert!(own >= cuda.held_bytes(), "{own} bytes of this process, which holds {}", cuda.held_bytes());
    }
    // SAFETY: no work touches it.
    unsafe { cuda.release(taken) };
}

/// The bytes in use agree with `nvidia-smi`. Simulated devices are unknown to the management library.
#[cfg(feature = "nvml")]
#[test]
fn what_is_used_is_what_the_management_library_says() {
    let Some(cuda) = device() else { return };
    match cuda.nvml_used_bytes() {
        Ok(told) => {
            let budget = Budget::budget(&cuda, ClassId::DEVICE).unwrap();
            let used = budget.total_bytes - budget.free_bytes;
            assert!(used.abs_diff(told) <= 4 * NOISE, "{used} bytes are used here, and {told} there");
            eprintln!("in use: {used} bytes by the driver, {told} by NVML; {budget:?}");
        }
        Err(error) => {
            assert!(crate::machine::IS_SIMULATED || !millpond_conformance::required("nvml"), "{error}");
            eprintln!("SKIPPED: {error}");
        }
    }
}
