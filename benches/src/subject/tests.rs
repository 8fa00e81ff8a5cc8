use super::{CLASSIC, EXPANDABLE, Millpond, PAGED, Subject};

#[test]
fn millpond_gives_disjoint_blocks_and_takes_them_back() {
    for variant in [PAGED, CLASSIC, EXPANDABLE] {
        let mut subject = Millpond::new(variant, 2);
        let blocks: Vec<_> = (1..40).map(|n| subject.allocate(n * 70_000, (n % 2) as u16)).collect();
        let mut ranges: Vec<_> = blocks.iter().map(|b| (b.address().expect("not empty"), b.capacity())).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{variant:?}: {ranges:?}");
        blocks.into_iter().for_each(|block| subject.free(block));
        assert_eq!(subject.allocator().memory_allocated(), 0, "{variant:?}");
        subject.allocator().check();
    }
}

#[test]
fn each_variant_runs_its_own_policy() {
    for policy in [PAGED, CLASSIC, EXPANDABLE] {
        assert_eq!(Millpond::new(policy, 0).allocator().settings().policy, policy);
    }
}

#[test]
fn a_sibling_shares_the_allocator_and_not_the_stream() {
    let first = Millpond::new(CLASSIC, 1);
    let mut second = first.sibling();
    let block = second.allocate(1000, 0);
    assert_eq!(first.allocator().memory_allocated(), 1024);
    assert_ne!(first.streams()[0].id(), second.streams()[0].id());
    second.free(block);
}

#[cfg(feature = "peers")]
#[test]
fn the_peers_serve_what_the_workloads_ask() {
    use crate::subject::{Cubecl, Offset};

    let mut offset = Offset::new();
    let (a, b) = (offset.allocate(1, 0), offset.allocate(64 << 20, 0));
    assert_ne!(a.offset, b.offset);
    offset.free(a);
    offset.free(b);
    let mut cubecl = Cubecl::new();
    let (a, b) = (cubecl.allocate(1, 0), cubecl.allocate(64 << 20, 0));
    assert_ne!(a.descriptor(), b.descriptor());
    cubecl.free(a);
    cubecl.free(b);
}
