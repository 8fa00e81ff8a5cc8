//! Futures of points and of downloads over erased types.

use millpond_any::millpond_sim::{Completion, Sim};
use millpond_any::{AnyDownload, AnyReached, ErrorKind};

use crate::on;

#[test]
fn points_and_downloads_are_awaited() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let allocator = on(&sim);
    let stream = allocator.create_stream().unwrap();
    let view = stream.allocate_from(&[1u16, 2, 3]).unwrap().share();
    sim.busy(stream.id());
    let reached: AnyReached = allocator.when_reached(stream.submit().unwrap());
    assert_eq!(reached.point().stream, stream.id());
    let download: AnyDownload<u16> = stream.download_async(&view.slice(1..).unwrap()).unwrap();
    drop(view);
    pollster::block_on(reached).unwrap();
    assert_eq!(pollster::block_on(download).unwrap(), [2, 3]);
    sim.busy(stream.id());
    pollster::block_on(stream.when_done().unwrap()).unwrap();
    assert_eq!(sim.queued(), 0);
    sim.kill();
    let point = stream.point();
    assert_eq!(pollster::block_on(allocator.when_reached(point)).unwrap_err().kind(), ErrorKind::Lost);
}
