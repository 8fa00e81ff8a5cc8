//! An engine without a type parameter: its device is an argument of the program.
//!
//! Run it with `cargo run -p millpond-examples --example 11_device_by_name -- vulkan:0`. Without a name it takes the
//! first GPU, or else the simulated device.

use millpond_any::{AnyAllocator, AnyBuffer, AnyError, AnyStream, ErrorKind, devices, open, open_best};

const BYTES: usize = 1 << 20;
const STEPS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let allocator = match std::env::args().nth(1) {
        Some(name) => open(&name, "")?,
        None => {
            for device in devices() {
                println!("{}", device.map_or_else(|why| why.to_string(), |it| format!("{}: {}", it.name, it.label)));
            }
            open_best("")?.allocator
        }
    };
    Ok(run(&allocator)?)
}

/// A stage of the engine: a plain type, which can be kept, sent to a thread and put into a list, whatever its device.
struct Stage {
    stream: AnyStream,
    state: AnyBuffer,
}

impl Stage {
    fn new(allocator: &AnyAllocator) -> Result<Stage, AnyError> {
        let stream = allocator.create_stream()?;
        let state = stream.allocate(BYTES as u64)?;
        stream.fill(&state, 0, BYTES as u64, 0)?;
        Ok(Stage { stream, state })
    }

    /// Takes a batch in through memory of its own, which comes from the cache from the second step on.
    fn step(&self, batch: &[u8]) -> Result<(), AnyError> {
        let input = self.stream.allocate_prepared(batch.len() as u64, || self.stream.submit().map(drop))?;
        self.stream.upload(&input, 0, batch)?;
        Ok(self.stream.copy((&input, 0), (&self.state, 0), batch.len() as u64)?)
    }
}

fn run(allocator: &AnyAllocator) -> Result<(), AnyError> {
    let stage = Stage::new(allocator)?;
    for step in 0..STEPS {
        stage.step(&vec![step as u8; BYTES])?;
    }
    let mut result = vec![0; BYTES];
    stage.stream.download(&stage.state, 0, &mut result)?;
    assert!(result.iter().all(|&byte| usize::from(byte) == STEPS - 1), "the last batch is what is there");

    // A request for more than the device has says what it was about, in the same words on every device.
    allocator.set_limit(Some(allocator.memory_reserved()));
    match stage.stream.allocate(1 << 30).map_err(|error| (error.kind(), error)) {
        Err((ErrorKind::OutOfMemory, error)) => println!("{error}"),
        other => panic!("a request beyond the limit was not refused: {other:?}"),
    }
    println!(
        "{}: {} driver calls in {STEPS} steps",
        allocator.backend().caps().name,
        allocator.driver_activity().calls
    );
    Ok(())
}

#[test]
fn runs() {
    run(&open("sim", "").unwrap()).unwrap();
}
