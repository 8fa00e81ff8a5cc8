//! Draws the chart of the front page from a committed record: `cargo run -p millpond-benches --bin chart`.

use std::error::Error;
use std::fs;
use std::path::Path;

use millpond_benches::chart;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::write(root.join(chart::PICTURE), chart::make(&root)?)?;
    println!("{} shows {}", chart::PICTURE, chart::RECORD);
    Ok(())
}
