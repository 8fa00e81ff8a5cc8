//! Virtual memory: mapping, aliasing, the errors of each call.

use millpond_backend::{Backend, ClassId, PageCaps, StreamId, Transfer, VirtualMemory};
use millpond_sim::{Access, Misuse, Page, Segment, Sim, SimError, Violation};

const MIB: u64 = 1 << 20;
const DEVICE: ClassId = ClassId::DEVICE;

fn device() -> (Sim, StreamId) {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    (sim, stream)
}

fn map(sim: &Sim, range: &Segment, offset: u64, page: &Page) -> Result<(), SimError> {
    // SAFETY: the simulated device checks the target and the aliasing itself.
    unsafe { sim.map(range, offset, page, StreamId(0)) }
}

fn unmap(sim: &Sim, range: &Segment, offset: u64, page: &Page) {
    // SAFETY: the simulated device records a violation if work still touches the addresses.
    unsafe { sim.unmap(range, offset, page, StreamId(0)) }
}

#[test]
fn two_addresses_of_a_page_show_the_same_bytes() {
    let (sim, stream) = device();
    let page = sim.create_page(DEVICE, 2 * MIB).unwrap();
    let [old, new] = [(); 2].map(|()| sim.reserve_range(DEVICE, 8 * MIB).unwrap());
    map(&sim, &old, 0, &page).unwrap();
    sim.upload(stream, b"water", &old, 100).unwrap();
    map(&sim, &new, 6 * MIB, &page).unwrap();
    let mut seen = [0; 5];
    sim.download(stream, &new, 6 * MIB + 100, &mut seen).unwrap();
    assert_eq!(&seen, b"water");
    unmap(&sim, &old, 0, &page);
    assert!(matches!(sim.fill(stream, &old, 100, 1, 0), Err(SimError::Misuse(Misuse::Unmapped { .. }))));
    sim.download(stream, &new, 6 * MIB + 100, &mut seen).unwrap();
    assert_eq!(&seen, b"water", "data outlives the old address");
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_transfer_crosses_the_border_of_two_pages() {
    let (sim, stream) = device();
    let range = sim.reserve_range(DEVICE, 6 * MIB).unwrap();
    let small = sim.create_page(DEVICE, 2 * MIB).unwrap();
    let large = sim.create_page(DEVICE, 4 * MIB).unwrap();
    map(&sim, &range, 0, &large).unwrap();
    map(&sim, &range, 4 * MIB, &small).unwrap();
    let data: Vec<u8> = (0..200).collect();
    sim.upload(stream, &data, &range, 4 * MIB - 100).unwrap();
    let mut seen = vec![0; 200];
    sim.download(stream, &range, 4 * MIB - 100, &mut seen).unwrap();
    assert_eq!(seen, data);
    sim.download(stream, &range, 4 * MIB, &mut seen[..100]).unwrap();
    assert_eq!(seen[..100], data[100..]);
}

#[test]
fn bad_maps_are_refused_and_change_nothing() {
    let sim = Sim::builder().pages(Some(PageCaps::new(2 * MIB).with_aliasing(false))).build();
    sim.create_stream().unwrap();
    let range = sim.reserve_range(DEVICE, 8 * MIB).unwrap();
    let page = sim.create_page(DEVICE, 4 * MIB).unwrap();
    let other = sim.create_page(DEVICE, 4 * MIB).unwrap();
    let segment = sim.reserve(DEVICE, 8 * MIB).unwrap();
    assert!(matches!(map(&sim, &range, MIB, &page), Err(SimError::Misuse(Misuse::Misaligned { value: MIB, .. }))));
    assert!(matches!(map(&sim, &range, 6 * MIB, &page), Err(SimError::Misuse(Misuse::OutOfRange { .. }))));
    assert!(matches!(map(&sim, &segment, 0, &page), Err(SimError::Misuse(Misuse::NotARange { .. }))));
    map(&sim, &range, 2 * MIB, &page).unwrap();
    for offset in [0, 2 * MIB, 4 * MIB] {
        assert!(
            matches!(map(&sim, &range, offset, &other), Err(SimError::Misuse(Misuse::AlreadyMapped { .. }))),
            "at {offset}"
        );
    }
    unmap(&sim, &range, 2 * MIB, &page);
    map(&sim, &range, 0, &page).unwrap();
    assert!(matches!(map(&sim, &range, 4 * MIB, &page), Err(SimError::NoAliasing { .. })));
    map(&sim, &range, 4 * MIB, &other).unwrap();
}

#[test]
fn pages_come_in_multiples_of_the_granularity_and_from_the_device_only() {
    let (sim, _) = device();
    assert!(matches!(sim.create_page(DEVICE, 3 * MIB), Err(SimError::Misuse(Misuse::Misaligned { .. }))));
    assert!(matches!(sim.reserve_range(DEVICE, MIB), Err(SimError::Misuse(Misuse::Misaligned { .. }))));
    assert!(matches!(sim.create_page(DEVICE, 0), Err(SimError::Misuse(Misuse::Empty { .. }))));
    assert!(matches!(
        sim.create_page(ClassId(1), 2 * MIB),
        Err(SimError::Misuse(Misuse::NoPages { class: ClassId(1) }))
    ));
    let poor = Sim::builder().pages(None).build();
    assert!(poor.virtual_memory().is_none() && poor.caps().pages.is_none());
    assert!(matches!(poor.create_page(DEVICE, 2 * MIB), Err(SimError::Misuse(Misuse::Unsupported { .. }))));
}

#[test]
fn unmapping_under_running_work_is_seen_and_poisons_the_bytes() {
    let (sim, stream) = device();
    let range = sim.reserve_range(DEVICE, 4 * MIB).unwrap();
    let page = sim.create_page(DEVICE, 2 * MIB).unwrap();
    map(&sim, &range, 0, &page).unwrap();
    map(&sim, &range, 2 * MIB, &page).unwrap();
    let elsewhere = sim.reserve_range(DEVICE, 4 * MIB).unwrap();
    map(&sim, &elsewhere, 2 * MIB, &page).unwrap();
    sim.busy(stream);
    sim.use_range(stream, &range, 2 * MIB + 64, 32, Access::Read);
    unmap(&sim, &range, 0, &page);
    unmap(&sim, &elsewhere, 2 * MIB, &page);
    assert_eq!(sim.violations(), [], "the other addresses are not in use");
    unmap(&sim, &range, 2 * MIB, &page);
    let address = range.address() + 2 * MIB + 64;
    assert!(matches!(sim.violations()[..], [Violation::UnmappedInUse { address: at, bytes: 32, .. }] if at == address));
    sim.synchronize();
    map(&sim, &range, 0, &page).unwrap();
    let mut seen = [0; 34];
    sim.download(stream, &range, 63, &mut seen).unwrap();
    assert_eq!((seen[0], seen[33]), (0, 0));
    assert!(seen[1..33].iter().all(|byte| *byte == millpond_sim::POISON));
}

#[test]
fn releasing_what_is_mapped_or_in_use_is_seen() {
    let (sim, stream) = device();
    let range = sim.reserve_range(DEVICE, 4 * MIB).unwrap();
    let [first, second] = [(); 2].map(|()| sim.create_page(DEVICE, 2 * MIB).unwrap());
    map(&sim, &range, 0, &first).unwrap();
    map(&sim, &range, 2 * MIB, &second).unwrap();
    sim.busy(stream);
    sim.use_range(stream, &range, 0, 16, Access::Write);
    let address = range.address();
    // SAFETY: breaks the contract on purpose; the simulated device only records it.
    unsafe {
        sim.release_page(first);
        sim.release_range(range);
    }
    let seen = sim.violations();
    assert!(matches!(seen[0], Violation::UnmappedInUse { .. }), "{}", seen[0]);
    assert_eq!(seen[1], Violation::ReleasedMapped { address, bytes: 2 * MIB });
    assert!(matches!(seen[2], Violation::ReleasedInUse { bytes: 16, .. }), "{}", seen[2]);
    assert_eq!(seen[3], Violation::ReleasedMapped { address: address + 2 * MIB, bytes: 2 * MIB });
    assert_eq!(seen.len(), 4);
    sim.synchronize();
    // SAFETY: nothing maps the page and no work is left.
    unsafe { sim.release_page(second) };
    assert_eq!(sim.violations().len(), 4);
}

#[test]
fn a_kernel_on_unmapped_addresses_is_seen() {
    let (sim, stream) = device();
    let range = sim.reserve_range(DEVICE, 4 * MIB).unwrap();
    let page = sim.create_page(DEVICE, 2 * MIB).unwrap();
    map(&sim, &range, 0, &page).unwrap();
    sim.use_range(stream, &range, 0, 2 * MIB, Access::Write);
    assert_eq!(sim.violations(), []);
    sim.use_range(stream, &range, 2 * MIB - 1, 2, Access::Read);
    assert!(matches!(sim.violations()[..], [Violation::TouchesUnmapped { bytes: 2, .. }]));
}
