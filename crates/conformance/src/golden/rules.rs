//! The rules that a sequence of operations has to follow.

use millpond_core::stats::MemoryStats;

use super::{Op, OpKind, SegmentRow};

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Life {
    /// Its number was not used yet.
    #[default]
    Unborn,
    Allocated,
    Freed,
    /// Its allocation failed.
    Failed,
}

/// One more than the highest number of a block. Blocks are numbered by operation, and recordings are short.
const IDS_MAX: u32 = 1 << 24;

/// One more than the highest number of a stream. A replay opens all up to the highest, each of more than 100 KB.
const STREAMS_MAX: u32 = 1024;

/// The states of all blocks so far, and the names of all statistics.
pub(super) struct Rules {
    lives: Vec<Life>,
    keys: Vec<String>,
    begun: bool,
}

impl Default for Rules {
    fn default() -> Self {
        let mut keys: Vec<String> = MemoryStats::default().flat().into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        Self { lives: Vec::new(), keys, begun: false }
    }
}

impl Rules {
    /// Checks the next operation.
    pub(super) fn check(&mut self, op: &Op) -> Result<(), String> {
        for (key, _) in &op.changed {
            if self.keys.binary_search(key).is_err() {
                return Err(format!("unknown statistic {key:?}, expected a key of torch.cuda.memory_stats"));
            }
        }
        if let OpKind::Alloc { stream, .. } | OpKind::RecordStream { stream, .. } | OpKind::Busy { stream } = op.kind
            && stream >= STREAMS_MAX
        {
            return Err(format!("the stream is {stream}, must be below {STREAMS_MAX}"));
        }
        match (&op.kind, self.begun) {
            (OpKind::Begin, true) => return Err("`begin` comes a second time".into()),
            (OpKind::Begin, false) => {
                self.begun = true;
                if let Some(key) = self.keys.iter().find(|key| !op.changed.iter().any(|(name, _)| name == *key)) {
                    return Err(format!("`begin` lacks the statistic {key:?}; it must list all {}", self.keys.len()));
                }
            }
            (_, false) => return Err("expected `begin` before any other operation".into()),
            (OpKind::Alloc { id, oom, .. }, true) => {
                let life = self.life(*id)?;
                if *life != Life::Unborn {
                    return Err(format!("block {id} was allocated before, expected a new number"));
                }
                *life = if oom.is_some() { Life::Failed } else { Life::Allocated };
            }
            (OpKind::Free { id }, true) => *self.allocated(*id)? = Life::Freed,
            (OpKind::RecordStream { id, .. }, true) => {
                self.allocated(*id)?;
            }
            _ => {}
        }
        op.layout.as_deref().map_or(Ok(()), layout)
    }

    fn life(&mut self, id: u32) -> Result<&mut Life, String> {
        if id >= IDS_MAX {
            return Err(format!("the block's number is {id}, must be below {IDS_MAX}"));
        }
        let index = id as usize;
        if index >= self.lives.len() {
            self.lives.resize(index + 1, Life::Unborn);
        }
        Ok(&mut self.lives[index])
    }

    fn allocated(&mut self, id: u32) -> Result<&mut Life, String> {
        let life = self.life(id)?;
        match *life {
            Life::Allocated => Ok(life),
            Life::Unborn => Err(format!("block {id} was not allocated before")),
            Life::Freed => Err(format!("block {id} was freed before")),
            Life::Failed => Err(format!("block {id} does not exist: its allocation failed")),
        }
    }
}

/// Checks that segments are apart in rising order, and that their blocks fill them without gaps.
fn layout(rows: &[SegmentRow]) -> Result<(), String> {
    let mut end = 0;
    for row in rows {
        let SegmentRow { address, total, .. } = *row;
        if address < end {
            return Err(format!("the segment at {address} begins before the end of the one before it, {end}"));
        }
        let Some(next) = address.checked_add(total) else {
            return Err(format!("the segment at {address} of {total} bytes ends beyond 64 bits"));
        };
        end = next;
        if row.blocks.iter().any(|block| block.size == 0) {
            return Err(format!("the segment at {address} has a block of 0 bytes"));
        }
        let sum: u128 = row.blocks.iter().map(|block| u128::from(block.size)).sum();
        if sum != u128::from(total) || row.blocks.is_empty() {
            return Err(format!("the blocks of the segment at {address} hold {sum} bytes, must hold its {total}"));
        }
    }
    Ok(())
}
