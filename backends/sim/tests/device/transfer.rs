//! Fills, copies, uploads and downloads; host memory; two devices.

use millpond_backend::{Backend, ClassId, Closing, HostMemory, Point, StreamWait, Tick, Transfer};
use millpond_sim::{Completion, Misuse, Sim, SimError};

const KIB: u64 = 1 << 10;
const PINNED: ClassId = ClassId(1);

fn real() -> Sim {
    Sim::new()
}

#[test]
fn bytes_go_round_over_uneven_borders() {
    let sim = real();
    let stream = sim.create_stream().unwrap();
    let [a, b] = [(); 2].map(|()| sim.reserve(ClassId::DEVICE, 300 * KIB).unwrap());
    let data: Vec<u8> = (0..150_001_u32).map(|at| (at % 251) as u8).collect();
    sim.upload(stream, &data, &a, 7).unwrap();
    sim.copy(stream, (&a, 7), (&b, 65_001), data.len() as u64).unwrap();
    sim.fill(stream, &b, 65_001, 10, 9).unwrap();
    let mut seen = vec![1; data.len() + 2];
    sim.download(stream, &b, 65_000, &mut seen).unwrap();
    assert_eq!((seen[0], seen[data.len() + 1]), (0, 0), "neighbours keep their zeros");
    assert_eq!(seen[1..11], [9; 10]);
    assert_eq!(seen[11..=data.len()], data[10..]);
    assert_eq!(sim.calls().transfer, 4);
}

#[test]
fn a_large_fill_costs_no_memory_and_reads_back() {
    let sim = real();
    let stream = sim.create_stream().unwrap();
    let huge = sim.reserve(ClassId::DEVICE, 16 << 30).unwrap();
    sim.fill(stream, &huge, 1, (1 << 30) - 1, 0x5A).unwrap();
    let mut seen = [0; 3];
    sim.download(stream, &huge, (1 << 30) - 2, &mut seen).unwrap();
    assert_eq!(seen, [0x5A, 0x5A, 0]);
    sim.download(stream, &huge, 0, &mut seen).unwrap();
    assert_eq!(seen, [0, 0x5A, 0x5A]);
}

#[test]
fn a_few_bytes_of_a_large_segment_are_kept_and_the_rest_reads_as_zeros() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    let segment = sim.reserve(ClassId::DEVICE, 100 << 30).unwrap();
    sim.upload(stream, &[1, 2, 3], &segment, 90 << 30).unwrap();
    let mut seen = [7; 5];
    sim.download(stream, &segment, (90 << 30) - 1, &mut seen).unwrap();
    assert_eq!(seen, [0, 1, 2, 3, 0]);
}

#[test]
fn the_host_and_the_device_see_the_same_pinned_bytes() {
    let sim = real();
    let stream = sim.create_stream().unwrap();
    let pinned = sim.reserve(PINNED, 4 * KIB).unwrap();
    let device = sim.reserve(ClassId::DEVICE, 4 * KIB).unwrap();
    let host = sim.host_address(&pinned).unwrap();
    assert_eq!(host.addr().get() % 512, 0);
    // SAFETY: the segment has 4096 bytes, is alive, and no work touches it.
    unsafe { host.add(4095).write(0x77) };
    sim.copy(stream, (&pinned, 4000), (&device, 0), 96).unwrap();
    let mut seen = [0; 96];
    sim.download(stream, &device, 0, &mut seen).unwrap();
    assert_eq!((seen[94], seen[95]), (0, 0x77));
    sim.fill(stream, &pinned, 0, 10, 3).unwrap();
    // SAFETY: as above; the fill completed at once.
    assert_eq!(unsafe { host.add(9).read() }, 3);
    assert_eq!(sim.host_address(&pinned), Some(host), "the address is stable");
    assert_eq!(sim.host_address(&device), None);
}

#[test]
fn transfers_run_in_stream_order_and_uploads_are_taken_at_once() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let stream = sim.create_stream().unwrap();
    let segment = sim.reserve(ClassId::DEVICE, 64).unwrap();
    let mut data = [5; 4];
    sim.upload(stream, &data, &segment, 0).unwrap();
    data.fill(6);
    sim.fill(stream, &segment, 2, 1, 8).unwrap();
    assert_eq!(sim.queued(), 2);
    let mut seen = [0; 4];
    sim.download(stream, &segment, 0, &mut seen).unwrap();
    assert_eq!(seen, [5, 5, 8, 5]);
    assert_eq!(data, [6; 4]);
    assert_eq!(sim.queued(), 0);
}

#[test]
fn a_download_submits_what_it_needs() {
    let sim = Sim::builder().closing(Closing::Submit).build();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    let segment = sim.reserve(ClassId::DEVICE, 64).unwrap();
    sim.fill(a, &segment, 0, 64, 4).unwrap();
    StreamWait::wait_for(&sim, b, Point { stream: a, tick: sim.mark(a) }).unwrap();
    let mut seen = [0; 2];
    sim.download(b, &segment, 0, &mut seen).unwrap();
    assert_eq!(seen, [4; 2]);
    assert_eq!((sim.mark(a), sim.mark(b)), (Tick(2), Tick(2)), "both streams were submitted");
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_download_in_a_circle_fails_instead_of_hanging() {
    let sim = Sim::builder().closing(Closing::Submit).build();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    let segment = sim.reserve(ClassId::DEVICE, 64).unwrap();
    StreamWait::wait_for(&sim, a, Point { stream: b, tick: Tick(1) }).unwrap();
    StreamWait::wait_for(&sim, b, Point { stream: a, tick: Tick(1) }).unwrap();
    let answer = sim.download(a, &segment, 0, &mut [0; 1]);
    assert_eq!(answer, Err(SimError::Circle { point: Point { stream: a, tick: Tick(1) } }));
}

#[test]
fn bad_ranges_are_refused() {
    let sim = real();
    let stream = sim.create_stream().unwrap();
    let segment = sim.reserve(ClassId::DEVICE, 100).unwrap();
    let out = |offset, bytes| {
        Err(SimError::Misuse(Misuse::OutOfRange { call: None, role: None, offset, bytes, segment_bytes: 100 }))
    };
    assert_eq!(sim.fill(stream, &segment, 99, 2, 0), out(99, 2));
    assert_eq!(sim.fill(stream, &segment, u64::MAX, 2, 0), out(u64::MAX, 2));
    assert_eq!(sim.upload(stream, &[0; 101], &segment, 0), out(0, 101));
    assert!(matches!(
        sim.copy(stream, (&segment, 0), (&segment, 9), 10),
        Err(SimError::Misuse(Misuse::Overlap { .. }))
    ));
    assert_eq!(sim.copy(stream, (&segment, 0), (&segment, 10), 10), Ok(()));
    assert_eq!(sim.fill(stream, &segment, 100, 0, 0), Ok(()), "nothing at the end is inside");
    let poor = Sim::builder().transfer(false).build();
    assert!(poor.transfer().is_none());
    assert!(matches!(poor.fill(stream, &segment, 0, 1, 0), Err(SimError::Misuse(Misuse::Unsupported { .. }))));
}

#[test]
fn copies_cross_from_one_device_to_another() {
    let (near, far) = (real(), real());
    let (on_near, on_far) = (near.create_stream().unwrap(), far.create_stream().unwrap());
    let here = near.reserve(ClassId::DEVICE, 64).unwrap();
    let there = far.reserve(ClassId::DEVICE, 64).unwrap();
    near.upload(on_near, b"downstream", &here, 0).unwrap();
    near.copy(on_near, (&here, 0), (&there, 20), 10).unwrap();
    let mut seen = [0; 10];
    far.download(on_far, &there, 20, &mut seen).unwrap();
    assert_eq!(&seen, b"downstream");
}

#[test]
fn what_is_not_kept_is_not_read() {
    let sim = Sim::builder().keep_contents(false).build();
    let stream = sim.create_stream().unwrap();
    let [a, b] = [(); 2].map(|()| sim.reserve(ClassId::DEVICE, 64 << 30).unwrap());
    assert!(!a.is_kept());
    sim.upload(stream, &[7; 100], &a, 0).unwrap();
    sim.fill(stream, &a, 0, 32 << 30, 9).unwrap();
    sim.copy(stream, (&a, 0), (&b, 0), 64 << 20).unwrap();
    let mut seen = [3; 8];
    let error = sim.download(stream, &b, 0, &mut seen).unwrap_err();
    assert_eq!(error, SimError::NotKept { call: "download", bytes: 8 });
    assert!(error.to_string().contains("build it with keep_contents(true)"), "{error}");
    assert!(error.to_string().contains("without contents=none"), "{error}");
    assert_eq!((seen, sim.download(stream, &b, 0, &mut [])), ([3; 8], Ok(())), "the host's bytes are as they were");

    // Nor through memory that is kept, the host's or another device's.
    let (pinned, kept) = (sim.reserve(PINNED, 64).unwrap(), Sim::new());
    let far = kept.reserve(ClassId::DEVICE, 64).unwrap();
    let on_far = kept.create_stream().unwrap();
    assert_eq!((pinned.is_kept(), far.is_kept()), (true, true));
    let refused = Err(SimError::NotKept { call: "copy", bytes: 5 });
    assert_eq!(sim.copy(stream, (&a, 0), (&pinned, 0), 5), refused);
    assert_eq!(kept.copy(on_far, (&a, 0), (&far, 0), 5), refused);
    assert_eq!(kept.download(on_far, &a, 0, &mut seen), Err(SimError::NotKept { call: "download", bytes: 8 }));

    // The host's own memory is kept, and may be read.
    sim.fill(stream, &pinned, 0, 64, 4).unwrap();
    sim.copy(stream, (&pinned, 0), (&a, 0), 64).unwrap();
    sim.download(stream, &pinned, 0, &mut seen).unwrap();
    assert_eq!(seen, [4; 8]);
    assert_eq!(sim.violations(), []);
}

#[test]
fn work_on_bytes_that_are_not_kept_is_watched() {
    let sim = Sim::builder().keep_contents(false).completion(Completion::Manual).build();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    let segment = sim.reserve(ClassId::DEVICE, 4 * KIB).unwrap();
    sim.upload(a, &[1; 64], &segment, 0).unwrap();
    sim.fill(b, &segment, 63, 10, 2).unwrap();
    assert_eq!((sim.queued(), sim.violations().len()), (2, 1), "{:?}", sim.violations());
    sim.synchronize();
    assert_eq!(sim.queued(), 0);
}
