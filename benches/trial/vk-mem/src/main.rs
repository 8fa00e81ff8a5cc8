//! The trial program on ash and vk-mem: `trial-vk-mem [NUMBER]`, where the number is the device's place in the
//! driver's list.

#[path = "../../ash/engine.rs"]
mod engine;
#[path = "../../ash/future.rs"]
mod future;
mod memory;
#[path = "../../ash/program.rs"]
mod program;
#[path = "../../ash/stream.rs"]
mod stream;

fn main() -> Result<(), String> {
    program::run().map_err(|error| error.to_string())
}
