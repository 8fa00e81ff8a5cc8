//! Who allocates: by call stack and by label, as far as a trace knows them.

use millpond_trace::Details;
use serde::Serialize;

use crate::named::Named;
use crate::owners::Block;
use crate::places::is_library;
use crate::series::Series;
use crate::tree::{Tree, Weight};

/// The most calls that the page has for the blocks of the maps, beyond those of the tree.
const CALLS: usize = 4000;

/// Who allocates the blocks of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Who {
    /// The texts of the frames.
    pub frames: Vec<String>,
    /// A digit for each frame: 1 if it looks like one of a library's, or else 0.
    pub libraries: String,
    /// The frame of each call.
    pub calls: Vec<usize>,
    /// The call above each call, by its number plus one; 0 for none.
    pub callers: Series,
    /// The texts of the labels.
    pub labels: Vec<String>,
    /// Who allocates by call stack, if the trace has any. The names are numbers of calls.
    pub stacks: Option<Tree>,
    /// Who allocates by label, if the trace has any. The names are numbers of labels.
    pub by_label: Option<Tree>,
    /// The call of each of the named blocks, in their order, by its number plus one; 0 where it is not known. Empty if
    /// none is known.
    pub block_calls: Vec<usize>,
    /// The label of each of the named blocks, in the same way.
    pub block_labels: Vec<usize>,
}

impl Who {
    /// Finds who allocates the blocks of a pass. `peak` is the event after which the most is live, and `named` are the
    /// blocks that the maps name.
    ///
    /// Costs one pass over the blocks, one over the tree of calls, and a sort of its nodes.
    pub fn of(blocks: &[Block], peak: usize, details: &Details, named: &Named) -> Self {
        let mut who = Self::default();
        if details.has_stacks() {
            let parents: Vec<_> = details.calls().map(|call| call.caller.map(|caller| caller.index())).collect();
            let (weights, unknown) = weights(blocks, peak, parents.len(), |block| Some(block.stack?.index()));
            who.add_stacks(Tree::of(&parents, weights, unknown), &parents, blocks, details, named);
        }
        if details.has_labels() {
            let count = details.labels().len();
            let (weights, unknown) = weights(blocks, peak, count, |block| Some(block.label?.index()));
            who.add_labels(Tree::of(&vec![None; count], weights, unknown), blocks, details, named);
        }
        who
    }

    /// Adds the tree of calls, with the calls and frames that it and the named blocks have.
    fn add_stacks(
        &mut self,
        mut tree: Tree,
        parents: &[Option<usize>],
        blocks: &[Block],
        details: &Details,
        named: &Named,
    ) {
        let stack_of = |id: &u32| Some(blocks[*id as usize].stack?.index());
        let mut is_shown = vec![false; parents.len()];
        tree.named().for_each(|call| is_shown[call] = true);
        let mut more = CALLS;
        for call in named.ids().iter().filter_map(stack_of) {
            let missing: Vec<usize> = up_from(call, parents).take_while(|call| !is_shown[*call]).collect();
            // A stack is shown as a whole or not at all.
            if missing.len() <= more {
                more -= missing.len();
                missing.into_iter().for_each(|call| is_shown[call] = true);
            }
        }
        let mut numbers = vec![0; parents.len()];
        let mut frames = vec![None; details.frames().len()];
        for (call, (known, parent)) in details.calls().zip(parents).enumerate().filter(|(call, _)| is_shown[*call]) {
            let frame = *frames[known.frame.index()].get_or_insert_with(|| {
                let text = details.frame_text(known.frame);
                self.frames.push(text.to_owned());
                self.libraries.push(if is_library(text) { '1' } else { '0' });
                self.frames.len() - 1
            });
            self.calls.push(frame);
            self.callers.0.push(parent.map_or(0, |parent| numbers[parent] as u64));
            numbers[call] = self.calls.len();
        }
        tree.renumber(|call| numbers[call] - 1);
        self.stacks = Some(tree);
        self.block_calls = named.ids().iter().map(|id| stack_of(id).map_or(0, |call| numbers[call])).collect();
    }

    /// Adds the tree of labels, with the labels that it and the named blocks have.
    fn add_labels(&mut self, mut tree: Tree, blocks: &[Block], details: &Details, named: &Named) {
        let label_of = |id: &u32| Some(blocks[*id as usize].label?.index());
        let mut is_shown = vec![false; details.labels().len()];
        tree.named().chain(named.ids().iter().filter_map(label_of)).for_each(|label| is_shown[label] = true);
        let mut numbers = vec![0; is_shown.len()];
        for (label, text) in details.labels().enumerate().filter(|(label, _)| is_shown[*label]) {
            self.labels.push(text.to_owned());
            numbers[label] = self.labels.len();
        }
        tree.renumber(|label| numbers[label] - 1);
        self.by_label = Some(tree);
        self.block_labels = named.ids().iter().map(|id| label_of(id).map_or(0, |label| numbers[label])).collect();
    }
}

/// Returns a call and those above it.
fn up_from(call: usize, parents: &[Option<usize>]) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(call), |call| parents[*call])
}

/// Returns the blocks of each node, and those without one.
fn weights(
    blocks: &[Block],
    peak: usize,
    nodes: usize,
    node_of: impl Fn(&Block) -> Option<usize>,
) -> (Vec<Weight>, Weight) {
    let (mut weights, mut unknown) = (vec![Weight::default(); nodes], Weight::default());
    for block in blocks {
        let (bytes, is_live) = (u128::from(block.bytes), block.is_live_after(peak));
        let weight = match node_of(block) {
            Some(node) => &mut weights[node],
            None => &mut unknown,
        };
        weight.add(Weight {
            peak_bytes: if is_live { bytes } else { 0 },
            peak_blocks: is_live.into(),
            all_bytes: bytes,
            all_blocks: 1,
        });
    }
    (weights, unknown)
}
