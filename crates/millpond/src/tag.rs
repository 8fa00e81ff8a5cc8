//! Tags: names of parts of a program, which buffers get that are allocated there.
//!
//! A tag is the label of every buffer that is allocated while it is in force: [`crate::live`] groups by it, the
//! [history](crate::history) and [snapshots](crate::snapshot) name it, and an out-of-memory error names who pins what
//! with it. [`Stream::allocate_labelled`](crate::Stream::allocate_labelled) is an allocation within a tag, so labels
//! and tags are one thing. Tags nest: within `encoder` the tag `layer3` is `encoder/layer3`.
//!
//! A tag belongs to a thread. A future that is awaited may go on on another one: enter tags around what does not await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of a tag or a label in the table of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TagId(u32);

impl TagId {
    /// No tag.
    pub(crate) const NONE: TagId = TagId(0);
    /// The thread's path has changed, and its number was not looked up since.
    const UNKNOWN: TagId = TagId(u32::MAX);
}

/// Every tag and label that was ever noted, by number, and the numbers by name.
struct Table {
    names: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, TagId>,
}

/// The table is the process's, because a thread's tag is known before it is known which allocators it will use. Its
/// lock is taken when a tag is noted for the first time since it was entered, and to read names.
static TABLE: Mutex<Table> = Mutex::new(Table { names: Vec::new(), numbers: BTreeMap::new() });

thread_local! {
    /// The number of the thread's tag. It has no destructor, so that it can be read while the thread ends.
    static CURRENT: Cell<TagId> = const { Cell::new(TagId::NONE) };
    /// The thread's tag: the names of the scopes that it is in, with slashes between them.
    static PATH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns the number of a name, which is added to the table if it is new.
pub(crate) fn number_of(name: &str) -> TagId {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&known) = table.numbers.get(name) {
        return known;
    }
    let name: Arc<str> = Arc::from(name);
    table.names.push(Arc::clone(&name));
    let number = TagId(u32::try_from(table.names.len()).unwrap_or(u32::MAX - 1));
    table.numbers.insert(name, number);
    number
}

/// The names of tags, as they were when it was made.
pub(crate) struct Names(Vec<Arc<str>>);

impl Names {
    pub(crate) fn now() -> Self {
        Self(TABLE.lock().unwrap_or_else(PoisonError::into_inner).names.clone())
    }

    /// Returns the name of a tag; `None` for no tag.
    pub(crate) fn of(&self, tag: TagId) -> Option<Arc<str>> {
        self.0.get((tag.0 as usize).checked_sub(1)?).cloned()
    }
}

/// Returns the number of the tag in force.
#[inline]
pub(crate) fn current() -> TagId {
    let known = CURRENT.get();
    if known == TagId::UNKNOWN { look_up() } else { known }
}

#[cold]
fn look_up() -> TagId {
    let number = PATH.try_with(|path| match path.borrow().as_str() {
        "" => TagId::NONE,
        path => number_of(path),
    });
    let number = number.unwrap_or(TagId::NONE);
    CURRENT.set(number);
    number
}

/// The tag of this thread until it is dropped, from [`tag`]. Scopes end in reverse order; one that ends before the
/// scopes inside it ends those, too.
#[must_use = "the tag is in force until this is dropped"]
#[derive(Debug)]
pub struct TagScope {
    /// The length of the path outside of the scope, in bytes, and the number of the tag there.
    outside: (usize, TagId),
    /// It cannot go to another thread.
    here: PhantomData<*const ()>,
}

/// Sets the tag of this thread, inside its current tag, until the result is dropped. Costs a copy of the name while
/// nothing records it. [`with_tag`] does this for a function.
///
/// The process keeps one copy of each recorded tag forever, so name parts of a program, not each step or request.
///
/// ```
/// let _model = millpond::tag("model");
/// let _layer = millpond::tag("layer3");
/// assert_eq!(millpond::current_tag().as_deref(), Some("model/layer3"));
/// ```
pub fn tag(name: &str) -> TagScope {
    let outside = PATH.try_with(|path| {
        let mut path = path.borrow_mut();
        let len = path.len();
        if len > 0 {
            path.push('/');
        }
        path.push_str(name);
        len
    });
    let scope = TagScope { outside: (outside.unwrap_or(usize::MAX), CURRENT.get()), here: PhantomData };
    CURRENT.set(TagId::UNKNOWN);
    scope
}

/// Runs a function with a tag on this thread, inside its current tag.
///
/// ```
/// use millpond::live::Tracking;
/// use millpond::{Allocator, with_tag};
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// allocator.track_live(Tracking::Labels);
/// let stream = allocator.create_stream()?;
/// let weights = with_tag("layer3", || stream.allocate_labelled("weights", 1 << 20))?;
/// assert_eq!(weights.label().as_deref(), Some("layer3/weights"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_tag<R>(name: &str, work: impl FnOnce() -> R) -> R {
    let _scope = tag(name);
    work()
}

/// Returns the current tag of this thread, with the tags that enclose it; `None` outside of all scopes.
pub fn current_tag() -> Option<Arc<str>> {
    let path = PATH.try_with(|path| Arc::from(path.borrow().as_str())).ok();
    path.filter(|path: &Arc<str>| !path.is_empty())
}

impl Drop for TagScope {
    fn drop(&mut self) {
        let (len, outside) = self.outside;
        let ends = PATH.try_with(|path| {
            let mut path = path.borrow_mut();
            let ends = path.len() > len;
            path.truncate(len);
            ends
        });
        if ends == Ok(true) {
            CURRENT.set(outside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_end_also_by_a_panic() {
        assert_eq!((current_tag(), current()), (None, TagId::NONE));
        let (outer, inner) = with_tag("a", || (current(), with_tag("b/c", current)));
        let names = Names::now();
        assert_eq!((names.of(outer).as_deref(), names.of(inner).as_deref()), (Some("a"), Some("a/b/c")));
        assert_eq!(names.of(TagId::NONE), None);
        let panics = std::panic::catch_unwind(|| with_tag("p", || panic!("within a tag")));
        assert!(panics.is_err() && current_tag().is_none() && current() == TagId::NONE);
        assert_eq!(with_tag("a", || with_tag("b/c", current)), inner, "one number for one name");
    }

    #[test]
    fn a_scope_that_ends_too_early_ends_those_within() {
        let outer = tag("outer");
        let inner = tag("inner");
        assert_eq!(current_tag().as_deref(), Some("outer/inner"));
        drop(outer);
        assert_eq!((current_tag(), current()), (None, TagId::NONE));
        let next = tag("next");
        drop(inner);
        assert_eq!(current_tag().as_deref(), Some("next"));
        drop(next);
        assert_eq!((current_tag(), current()), (None, TagId::NONE));
    }

    #[test]
    fn a_tag_is_of_its_thread() {
        let _here = tag("here");
        assert_eq!(std::thread::spawn(current_tag).join().expect("a thread"), None);
        assert_eq!(current_tag().as_deref(), Some("here"));
    }
}
