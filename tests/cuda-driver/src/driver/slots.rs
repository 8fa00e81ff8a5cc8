//! Handles, which are used again when the objects that they stood for are gone, as drivers do.

/// Objects by handle. The handle that was freed last is used again first, so that stale handles are detected.
pub(crate) struct Slots<T> {
    /// The first handle. Each set of objects has handles of its own.
    base: u64,
    things: Vec<Option<T>>,
    free: Vec<usize>,
}

/// The distance between two handles: they look like pointers.
const STEP: u64 = 64;

impl<T> Slots<T> {
    pub(crate) const fn new(base: u64) -> Slots<T> {
        Slots { base, things: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, thing: T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.things.push(None);
            self.things.len() - 1
        });
        self.things[slot] = Some(thing);
        self.base + slot as u64 * STEP
    }

    fn slot(&self, handle: u64) -> Option<usize> {
        let offset = handle.checked_sub(self.base).filter(|offset| offset.is_multiple_of(STEP))?;
        Some((offset / STEP) as usize).filter(|slot| *slot < self.things.len())
    }

    pub(crate) fn get(&self, handle: u64) -> Option<&T> {
        self.things[self.slot(handle)?].as_ref()
    }

    /// Returns whether an object of this handle has gone.
    pub(crate) fn is_stale(&self, handle: u64) -> bool {
        self.slot(handle).is_some_and(|slot| self.things[slot].is_none())
    }

    pub(crate) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let slot = self.slot(handle)?;
        self.things[slot].as_mut()
    }

    pub(crate) fn remove(&mut self, handle: u64) -> Option<T> {
        let slot = self.slot(handle)?;
        let thing = self.things[slot].take()?;
        self.free.push(slot);
        Some(thing)
    }

    pub(crate) fn len(&self) -> u64 {
        (self.things.len() - self.free.len()) as u64
    }

    /// Removes all that match, and returns them.
    pub(crate) fn drain(&mut self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let handles = (0..self.things.len()).filter(|slot| self.things[*slot].as_ref().is_some_and(&matches));
        let handles: Vec<u64> = handles.map(|slot| self.base + slot as u64 * STEP).collect();
        handles.into_iter().filter_map(|handle| self.remove(handle)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_used_again_and_a_stale_one_is_not_found() {
        let mut slots = Slots::new(0x1000);
        let (first, second) = (slots.insert('a'), slots.insert('b'));
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!((slots.get(first), slots.is_stale(first), slots.is_stale(second)), (None, true, false));
        assert!(!slots.is_stale(second + 64));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.insert('c'), first);
        assert_eq!((slots.get(first), slots.get(second), slots.get(second + 1)), (Some(&'c'), Some(&'b'), None));
        assert_eq!(slots.drain(|thing| *thing == 'b'), ['b']);
        assert_eq!(slots.len(), 1);
    }
}
