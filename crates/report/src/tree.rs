//! What is allocated by the nodes of a tree, of which the largest are kept.

use serde::Serialize;

use crate::series::Series;

/// The most nodes that are kept, without those that stand for smaller ones.
const NODES: usize = 1500;

/// The name of a node that stands for blocks of which nothing is known.
pub(crate) const UNKNOWN: i64 = -1;

/// The blocks of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Weight {
    /// The bytes that are live when the most is live.
    pub(crate) peak_bytes: u128,
    /// The blocks that are live then.
    pub(crate) peak_blocks: u64,
    /// The bytes that are allocated in all.
    pub(crate) all_bytes: u128,
    /// The blocks that are allocated in all.
    pub(crate) all_blocks: u64,
}

impl Weight {
    pub(crate) fn add(&mut self, other: Self) {
        self.peak_bytes += other.peak_bytes;
        self.peak_blocks += other.peak_blocks;
        self.all_bytes += other.all_bytes;
        self.all_blocks += other.all_blocks;
    }
}

/// A tree as parallel lists with an entry for each node. A node comes after its parent, and the first is the root.
///
/// The weight of a node is at least the sum of its children's. What is missing was allocated by the node itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Tree {
    /// The node above each node; the root's is 0.
    pub parents: Series,
    /// The number of the call or label. -1 is the root, and below it the blocks of which nothing is known; -(n + 1)
    /// stands for n nodes that are left out because they are small.
    pub names: Vec<i64>,
    /// The bytes that are live when the most is live.
    pub peak_bytes: Vec<u64>,
    /// The blocks that are live then.
    pub peak_blocks: Vec<u64>,
    /// The bytes that are allocated in all.
    pub all_bytes: Vec<u64>,
    /// The blocks that are allocated in all.
    pub all_blocks: Vec<u64>,
}

impl Tree {
    /// Adds up a tree from what each node has itself, and keeps its largest nodes. `parents` are the nodes above, which
    /// come first; `None` is the root. `unknown` has no node. The names are the numbers of the nodes.
    ///
    /// Costs one pass over the nodes and a selection of the largest.
    pub(crate) fn of(parents: &[Option<usize>], mut weights: Vec<Weight>, unknown: Weight) -> Self {
        let mut all = unknown;
        for (node, parent) in parents.iter().enumerate().rev() {
            let weight = weights[node];
            match parent {
                Some(parent) => weights[*parent].add(weight),
                None => all.add(weight),
            }
        }
        let is_kept = largest(&weights, all);
        let mut tree = Self::default();
        tree.add(0, UNKNOWN, all);
        if unknown.all_blocks > 0 {
            tree.add(0, UNKNOWN, unknown);
        }
        // The places of the nodes in the tree, and what each of them leaves out.
        let mut places = vec![0; weights.len()];
        let mut left_out = vec![(0_i64, Weight::default()); tree.names.len()];
        for (node, weight) in weights.iter().enumerate() {
            let parent = parents[node].map_or(0, |parent| places[parent]);
            if is_kept[node] {
                places[node] = tree.add(parent, node as i64, *weight);
                left_out.push((0, Weight::default()));
            } else if weight.all_blocks > 0 && parents[node].is_none_or(|parent| is_kept[parent]) {
                left_out[parent].0 += 1;
                left_out[parent].1.add(*weight);
            }
        }
        for (parent, (nodes, weight)) in left_out.into_iter().enumerate().filter(|(_, (nodes, _))| *nodes > 0) {
            tree.add(parent, -(nodes + 1), weight);
        }
        tree
    }

    /// Returns the calls or labels that are named.
    pub(crate) fn named(&self) -> impl Iterator<Item = usize> {
        self.names.iter().filter_map(|name| usize::try_from(*name).ok())
    }

    /// Gives each call or label the number that `number` returns.
    pub(crate) fn renumber(&mut self, number: impl Fn(usize) -> usize) {
        for name in &mut self.names {
            if let Ok(old) = usize::try_from(*name) {
                *name = number(old) as i64;
            }
        }
    }

    fn add(&mut self, parent: usize, name: i64, weight: Weight) -> usize {
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        self.parents.0.push(parent as u64);
        self.names.push(name);
        self.peak_bytes.push(bytes(weight.peak_bytes));
        self.peak_blocks.push(weight.peak_blocks);
        self.all_bytes.push(bytes(weight.all_bytes));
        self.all_blocks.push(weight.all_blocks);
        self.names.len() - 1
    }
}

/// Returns which nodes are kept: those with the largest share of what is live at the peak, or of all that is allocated.
/// The node above has no smaller share and comes first, so it is kept as well.
fn largest(weights: &[Weight], all: Weight) -> Vec<bool> {
    let share = |weight: &Weight| {
        let part = |bytes: u128, of: u128| bytes as f64 / of.max(1) as f64;
        part(weight.peak_bytes, all.peak_bytes).max(part(weight.all_bytes, all.all_bytes))
    };
    let mut nodes: Vec<(f64, usize)> = weights.iter().map(share).zip(0..).filter(|(share, _)| *share > 0.0).collect();
    nodes.sort_unstable_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
    let mut is_kept = vec![false; weights.len()];
    for (_, node) in nodes.iter().take(NODES) {
        is_kept[*node] = true;
    }
    is_kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(bytes: u64) -> Weight {
        Weight { peak_bytes: bytes.into(), peak_blocks: 1, all_bytes: u128::from(bytes) * 2, all_blocks: 2 }
    }

    /// Checks that no node has less than its children, and that the root's children have all that the root has.
    fn check(tree: &Tree) {
        for bytes in [&tree.peak_bytes, &tree.peak_blocks, &tree.all_bytes, &tree.all_blocks] {
            let mut sums = vec![0; bytes.len()];
            for (node, (parent, own)) in tree.parents.0.iter().zip(bytes).enumerate().skip(1) {
                assert!((*parent as usize) < node, "a node comes after its parent");
                sums[*parent as usize] += own;
            }
            assert_eq!(sums[0], bytes[0], "the root allocates nothing itself");
            assert!(sums.iter().zip(bytes).all(|(sum, own)| sum <= own), "{tree:?}");
        }
    }

    #[test]
    fn a_node_has_what_those_below_it_have() {
        let parents = [None, Some(0), Some(1), Some(0), None];
        let weights = [0, 10, 20, 30, 5].map(|bytes| if bytes > 0 { weight(bytes) } else { Weight::default() });
        let tree = Tree::of(&parents, weights.into(), weight(7));
        check(&tree);
        assert_eq!(tree.names, [-1, -1, 0, 1, 2, 3, 4]);
        assert_eq!(tree.parents.0, [0, 0, 0, 2, 3, 2, 0]);
        assert_eq!(tree.peak_bytes, [72, 7, 60, 30, 20, 30, 5]);
        assert_eq!(tree.all_blocks, [10, 2, 6, 4, 2, 2, 2]);
    }

    #[test]
    fn small_nodes_are_one() {
        // A root with many children, each with two below it.
        let count = 2000;
        let mut parents = vec![None];
        let mut weights = vec![weight(1)];
        for child in 0..count {
            let at = parents.len();
            parents.extend([Some(0), Some(at), Some(at)]);
            weights.extend([weight(1), weight(child + 1), weight(1)]);
        }
        let tree = Tree::of(&parents, weights, Weight::default());
        check(&tree);
        assert_eq!(tree.named().count(), NODES);
        let merged: i64 = tree.names[1..].iter().filter(|name| **name < UNKNOWN).map(|name| -name - 1).sum();
        assert!(tree.names.len() <= 2 * NODES + 2 && merged > 1000, "{merged}");
    }

    #[test]
    fn more_than_a_number_holds_is_the_largest_number() {
        let huge = Weight { peak_bytes: u128::from(u64::MAX), peak_blocks: 1, ..weight(1) };
        let tree = Tree::of(&[None, None], vec![huge, huge], Weight::default());
        assert_eq!(tree.peak_bytes, [u64::MAX; 3]);
    }
}
