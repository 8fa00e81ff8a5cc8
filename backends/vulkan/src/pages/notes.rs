//! Binds that were requested and not yet passed to the driver.

use std::collections::BTreeMap;

use ash::vk;

/// The mapping that is requested for some bytes of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) bytes: u64,
    /// The page; null unmaps what is there.
    pub(crate) memory: vk::DeviceMemory,
    /// The offset in the page at which the mapping begins.
    pub(crate) memory_offset: u64,
}

impl Note {
    /// Returns the part of this note that begins `skip` bytes into it and has `bytes` bytes.
    fn part(self, skip: u64, bytes: u64) -> Note {
        let is_page = self.memory != vk::DeviceMemory::null();
        Note { bytes, memory_offset: self.memory_offset + if is_page { skip } else { 0 }, ..self }
    }
}

/// The newest request for each byte of each range. A later note replaces an earlier one where they overlap: no work
/// uses addresses between two notes, so only the last one counts, and the driver gets binds that do not overlap and may
/// be made in any order.
#[derive(Default, Debug)]
pub(crate) struct Notes {
    ranges: BTreeMap<vk::Buffer, BTreeMap<u64, Note>>,
}

impl Notes {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Notes the mapping at `offset` of a range, instead of what was noted there before.
    pub(crate) fn put(&mut self, range: vk::Buffer, offset: u64, note: Note) {
        let notes = self.ranges.entry(range).or_default();
        let end = offset + note.bytes;
        while let Some((start, old)) = notes.range(..end).next_back().map(|(&start, &old)| (start, old)) {
            let old_end = start + old.bytes;
            if old_end <= offset {
                break;
            }
            notes.remove(&start);
            if old_end > end {
                notes.insert(end, old.part(end - start, old_end - end));
            }
            if start < offset {
                notes.insert(start, old.part(0, offset - start));
                break;
            }
        }
        notes.insert(offset, note);
    }

    /// Returns all notes in the driver's form.
    pub(crate) fn binds(&self) -> Vec<(vk::Buffer, Vec<vk::SparseMemoryBind>)> {
        let bind = |(&offset, note): (&u64, &Note)| {
            vk::SparseMemoryBind::default()
                .resource_offset(offset)
                .size(note.bytes)
                .memory(note.memory)
                .memory_offset(note.memory_offset)
        };
        self.ranges.iter().map(|(&range, notes)| (range, notes.iter().map(bind).collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle;

    use super::*;

    /// Returns the notes of one range as (offset, bytes, page, offset in the page); page 0 means unmapped.
    fn noted(puts: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64, u64)> {
        let (range, mut notes) = (vk::Buffer::from_raw(1), Notes::default());
        for &(offset, bytes, page) in puts {
            notes.put(range, offset, Note { bytes, memory: vk::DeviceMemory::from_raw(page), memory_offset: 0 });
        }
        let all = notes.binds();
        assert_eq!(all.len(), 1);
        all[0].1.iter().map(|b| (b.resource_offset, b.size, b.memory.as_raw(), b.memory_offset)).collect()
    }

    #[test]
    fn what_was_mapped_and_unmapped_again_is_unmapped() {
        assert_eq!(noted(&[(8, 4, 1), (8, 4, 0)]), [(8, 4, 0, 0)]);
    }

    #[test]
    fn a_page_in_the_place_of_another_takes_all_of_it() {
        assert_eq!(noted(&[(8, 4, 0), (8, 4, 2)]), [(8, 4, 2, 0)]);
    }

    #[test]
    fn small_pages_in_the_place_of_a_large_one_leave_the_rest_unmapped() {
        let all = noted(&[(0, 16, 0), (4, 4, 1), (12, 4, 2)]);
        assert_eq!(all, [(0, 4, 0, 0), (4, 4, 1, 0), (8, 4, 0, 0), (12, 4, 2, 0)]);
    }

    #[test]
    fn a_large_note_covers_small_ones_and_cuts_those_at_its_ends() {
        let all = noted(&[(0, 8, 1), (8, 4, 2), (12, 8, 3), (4, 12, 4)]);
        assert_eq!(all, [(0, 4, 1, 0), (4, 12, 4, 0), (16, 4, 3, 4)]);
    }

    #[test]
    fn neighbours_stay_as_they_are() {
        let all = noted(&[(0, 4, 1), (8, 4, 2), (4, 4, 3)]);
        assert_eq!(all, [(0, 4, 1, 0), (4, 4, 3, 0), (8, 4, 2, 0)]);
    }

    #[test]
    fn ranges_do_not_meet() {
        let mut notes = Notes::default();
        let note = Note { bytes: 4, memory: vk::DeviceMemory::null(), memory_offset: 0 };
        notes.put(vk::Buffer::from_raw(1), 0, note);
        notes.put(vk::Buffer::from_raw(2), 0, note);
        assert_eq!(notes.binds().len(), 2);
        notes.clear();
        assert!(notes.is_empty());
    }
}
