//! `record_stream:hold`: nobody gets memory that other streams have used before they are done, as on PyTorch's own
//! allocator.

use millpond::{Allocator, Readiness, Stream};
use millpond_backend::Closing;
use millpond_sim::{Completion, Sim};

const MIB: u64 = 1 << 20;
const CONFS: [&str; 4] = [
    "policy:paged,record_stream:hold",
    "policy:paged,growth:tight,record_stream:hold",
    "policy:classic,record_stream:hold",
    "policy:classic,record_stream:wait",
];

struct Scene {
    sim: Sim,
    allocator: Allocator<Sim>,
    own: Stream<Sim>,
    other: Stream<Sim>,
}

/// A device whose work is over once a test says so.
fn scene(conf: &str, limit: u64, closing: Closing) -> Scene {
    let sim = Sim::builder().completion(Completion::Manual).closing(closing).build();
    let allocator = Allocator::builder(sim.clone()).conf(conf).limit(limit).build().unwrap();
    let [own, other] = [(); 2].map(|()| allocator.create_stream().unwrap());
    Scene { sim, allocator, own, other }
}

impl Scene {
    /// Drops a buffer that the other stream works with, and returns where it was.
    fn used_elsewhere(&self, bytes: u64) -> Option<u64> {
        let buffer = self.own.allocate(bytes).unwrap();
        self.other.wait_for(self.own.submit().unwrap()).unwrap();
        buffer.record_stream(&self.other).unwrap();
        self.sim.busy(self.other.id());
        buffer.address()
    }

    fn finish_the_other(&self) {
        self.other.submit().unwrap();
        self.sim.complete_all();
    }
}

/// Shaped like PyTorch's `test_record_stream`: not even its own stream gets the block too soon, and as soon as the
/// other stream is done the block serves the first request.
#[test]
fn its_own_stream_gets_a_block_back_once_the_other_is_done() {
    for (conf, closing) in CONFS.into_iter().flat_map(|conf| [(conf, Closing::Backend), (conf, Closing::Submit)]) {
        for bytes in [16, 3 * MIB] {
            let scene = scene(conf, 1 << 30, closing);
            let before = scene.used_elsewhere(bytes);
            let second = scene.own.allocate(bytes).unwrap();
            assert_ne!(second.address(), before, "{conf}, {closing:?}: it is in use");
            scene.finish_the_other();
            let third = scene.own.allocate(bytes).unwrap();
            assert_eq!(third.address(), before, "{conf}, {closing:?}: {bytes} bytes");
            assert_eq!(scene.allocator.ledger().waiting_bytes, 0, "{conf}, {closing:?}");
        }
    }
}

/// What is freed from then on is held, and no longer once it is turned off. What is held stays so.
#[test]
fn it_is_turned_on_and_off_while_the_allocator_serves() {
    let scene = scene("policy:paged", 1 << 30, Closing::Backend);
    let held = |scene: &Scene| scene.allocator.ledger().waiting_bytes;
    scene.used_elsewhere(MIB);
    assert_eq!(held(&scene), 0);
    assert!(scene.allocator.configure("record_stream:hold").unwrap().kept.is_empty());
    scene.used_elsewhere(2 * MIB);
    assert_eq!(held(&scene), 2 * MIB);
    assert!(scene.allocator.configure("record_stream:wait").unwrap().kept.is_empty());
    scene.used_elsewhere(3 * MIB);
    assert_eq!(held(&scene), 2 * MIB);
    scene.finish_the_other();
    scene.allocator.poll().unwrap();
    scene.allocator.check();
    assert_eq!(held(&scene), 0);
}

/// It counts as active and waiting until then. If nothing else is left, a request waits on the host, and gets memory
/// that nothing uses any more.
#[test]
fn short_of_memory_a_request_waits_on_the_host() {
    for conf in &CONFS[..2] {
        let scene = scene(conf, 4 * MIB, Closing::Backend);
        scene.used_elsewhere(4 * MIB);
        let stats = scene.allocator.stats();
        assert_eq!((stats.allocated_bytes.all.current, stats.active_bytes.all.current), (0, 4 * MIB), "{conf}");
        let ledger = scene.allocator.ledger();
        assert_eq!((ledger.waiting_bytes, ledger.guarded_bytes), (4 * MIB, 0), "{conf}");
        let next = scene.other.allocate(4 * MIB).unwrap();
        assert_eq!(next.readiness(), Readiness::Complete, "{conf}");
        assert_eq!(scene.allocator.memory_reserved(), 4 * MIB, "{conf}");
    }
}

/// Dropped last, the allocator waits for what it holds before the memory goes back.
#[test]
fn what_is_held_goes_back_at_the_end() {
    for conf in CONFS {
        let Scene { sim, allocator, own, other } = scene(conf, 1 << 30, Closing::Backend);
        let buffer = own.allocate(4 * MIB).unwrap();
        buffer.record_stream(&other).unwrap();
        sim.busy(other.id());
        drop(buffer);
        assert_eq!(allocator.ledger().waiting_bytes, 4 * MIB, "{conf}");
        drop((own, other, allocator));
        assert_eq!(sim.violations(), [], "{conf}");
        assert_eq!(sim.held_bytes(), 0, "{conf}");
    }
}
