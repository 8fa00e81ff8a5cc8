//! What a program does before a request is refused for lack of memory: [`Allocator::on_out_of_memory`].
//!
//! The allocator asks a hook only when its policy has nothing left to try: everything that waits was waited for, and
//! everything cached that could help was released. So a hook costs nothing while requests are served.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, Weak};

use millpond_backend::Backend;

use crate::allocator::Allocator;
use crate::error::OutOfMemory;
use crate::state::State;
use crate::sync::{AtomicBool, Mutex, Ordering};

/// The most rounds of hooks for one request. Each hook is asked once in a round, so a
/// request is tried again at most this many times for each hook. It is bounded so that a hook that asks for a retry and
/// frees nothing does not hang the program.
pub const ROUNDS_MAX: u32 = 8;

/// What a hook answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// It has made room: the request is tried again.
    Retry,
    /// It has nothing to free: the next hook is asked. If every hook passes in one round, the request is refused.
    Pass,
}

/// A request that is about to be refused: the error that it would end with, and how often it was refused before.
///
/// It dereferences to [`OutOfMemory`], whose [`report`](OutOfMemory::report) has the numbers.
#[derive(Clone, Copy, Debug)]
pub struct Shortage<'a> {
    error: &'a OutOfMemory,
    attempt: u32,
}

impl Shortage<'_> {
    /// Returns the number of the attempt that has failed: 1 for the first one.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Deref for Shortage<'_> {
    type Target = OutOfMemory;

    fn deref(&self) -> &OutOfMemory {
        self.error
    }
}

impl fmt::Display for Shortage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// A hook that is registered. It ends when this is dropped, or with the last handle of its allocator.
///
/// A thread that asks the hooks at that moment may call it once more. Whatever the hook owns is dropped after that.
#[must_use = "the hook ends when this is dropped; `keep` has it stay"]
pub struct Registration {
    hooks: Weak<Hooks>,
    number: u64,
}

impl Registration {
    /// Has the hook stay for as long as the allocator has a handle.
    pub fn keep(mut self) {
        self.hooks = Weak::new();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(hooks) = self.hooks.upgrade() {
            hooks.remove(self.number);
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({})", self.number)
    }
}

type Hook = dyn Fn(&Shortage<'_>) -> Answer + Send + Sync;

/// The hooks of an allocator, in the order of their registration.
pub(crate) struct Hooks {
    any: AtomicBool,
    inner: Mutex<Registered>,
}

#[derive(Default)]
struct Registered {
    next: u64,
    all: Vec<(u64, Arc<Hook>)>,
}

impl Hooks {
    pub(crate) fn new() -> Self {
        Self { any: AtomicBool::new(false), inner: Mutex::new(Registered::default()) }
    }

    /// Returns whether there is a hook.
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn add(self: &Arc<Self>, hook: Arc<Hook>) -> Registration {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.all.push((number, hook));
        self.any.store(true, Ordering::Relaxed);
        Registration { hooks: Arc::downgrade(self), number }
    }

    fn remove(&self, number: u64) {
        let mut inner = self.inner.lock();
        let at = inner.all.iter().position(|&(known, _)| known == number);
        let removed = at.map(|at| inner.all.remove(at));
        self.any.store(!inner.all.is_empty(), Ordering::Relaxed);
        drop(inner);
        // What it owns may be buffers, whose drop takes other locks.
        drop(removed);
    }

    /// Ends all hooks.
    pub(crate) fn end(&self) {
        if self.is_any() {
            let ended = std::mem::take(&mut self.inner.lock().all);
            self.any.store(false, Ordering::Relaxed);
            drop(ended);
        }
    }
}

/// The questions of one request to the hooks that there were when it was to be refused first.
pub(crate) struct Appeals {
    hooks: Vec<Arc<Hook>>,
    /// The number of the hook that is asked next.
    next: usize,
    round: u32,
    /// Whether a hook of this round has asked for a retry.
    retried: bool,
    attempt: u32,
}

impl Appeals {
    pub(crate) fn to(hooks: &Hooks) -> Self {
        let hooks = hooks.inner.lock().all.iter().map(|(_, hook)| Arc::clone(hook)).collect();
        Self { hooks, next: 0, round: 1, retried: false, attempt: 0 }
    }

    /// Asks hooks until one answers that the request be tried again. Returns whether one does. The caller holds no
    /// lock.
    pub(crate) fn ask<B: Backend>(&mut self, of: &State<B>, error: &OutOfMemory) -> bool {
        self.attempt += 1;
        let _inside = Inside::of(of);
        loop {
            if self.next == self.hooks.len() {
                if !self.retried || self.round == ROUNDS_MAX {
                    return false;
                }
                (self.next, self.round, self.retried) = (0, self.round + 1, false);
            }
            let hook = &self.hooks[self.next];
            self.next += 1;
            if hook(&Shortage { error, attempt: self.attempt }) == Answer::Retry {
                self.retried = true;
                return true;
            }
        }
    }
}

thread_local! {
    /// The addresses of the allocators whose hooks run on this thread, the innermost last.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A mark that hooks of an allocator run on this thread, until it is dropped.
struct Inside;

impl Inside {
    fn of<B: Backend>(state: &State<B>) -> Self {
        // A thread that is ending has no list: there a hook could ask for memory without end, and does not.
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().push(ptr::from_ref(state).addr()));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

/// Returns whether a hook of an allocator runs on this thread.
pub(crate) fn is_in_hook_of<B: Backend>(state: &State<B>) -> bool {
    let address = ptr::from_ref(state).addr();
    INSIDE.try_with(|inside| inside.borrow().contains(&address)).unwrap_or(false)
}

impl<B: Backend> Allocator<B> {
    /// Calls `hook` before a request is refused for lack of memory. It may free buffers, shrink a cache of the
    /// program's, or raise the limit, and has the request tried again with [`Answer::Retry`].
    ///
    /// Hooks are called in the order of registration, on the thread of the request, with no lock held. After one asks
    /// for a retry the request is tried again from the start. If it would still be refused, the next hooks are called,
    /// and after the last one the first again. The request is refused, with
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), after a round in which every hook passes, or after
    /// [`ROUNDS_MAX`] rounds. So
    /// a hook does best to free at least [`Report::short_bytes`](crate::Report::short_bytes) in one call.
    ///
    /// - Several threads may be short of memory at once: a hook may run in several threads at the same time.
    /// - Every request of the allocator asks, on any stream and in any pool; not
    ///   [`allocate_cached`](crate::Stream::allocate_cached), which is not refused. A cache of page-locked memory has
    ///   hooks of its own.
    /// - Inside a hook, a request of the same allocator is served if the cache has a block at once. Otherwise it is the
    ///   error [`Error::InHook`](crate::Error::InHook), also with `allocate_prepared`. `allocate_cached` works
    ///   there in full. Frees, `empty_cache` and `trim` work as always. A hook must not wait for another thread that
    ///   requests memory.
    /// - A hook that panics passes its panic to the caller of the request. Nothing is allocated, and the allocator
    ///   stays usable.
    /// - A sink receives the request once, with what each attempt does, and a refusal at the end only.
    ///
    /// A hook that owns buffers keeps no memory for ever: it ends with the last handle of the allocator. But one that
    /// owns an [`Allocator`] or a [`Stream`](crate::Stream) is such a handle. So drop the registration, or have it
    /// own a `Weak` reference to the part of the program that has the handle.
    ///
    /// RMM's `failure_callback_resource_adaptor` asks one callback, again and again for as long as it returns true.
    /// PyTorch's `attach_out_of_memory_observer` is called on a refusal, and cannot prevent it; its
    /// `FreeMemoryCallback` may, and is asked before the driver is.
    ///
    /// Costs nothing until a request is to be refused, which then takes a report for each attempt: a look at each
    /// block.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use millpond::Allocator;
    /// use millpond::hooks::Answer;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::builder(Sim::new()).limit(64 << 20).build()?;
    /// let stream = allocator.create_stream()?;
    /// // Results that could be computed again.
    /// let results = Arc::new(Mutex::new(vec![stream.allocate(20 << 20)?, stream.allocate(20 << 20)?]));
    /// let spilled = Arc::clone(&results);
    /// let _hook = allocator.on_out_of_memory(move |_shortage| match spilled.lock().unwrap().pop() {
    ///     Some(_buffer) => Answer::Retry,
    ///     None => Answer::Pass,
    /// });
    /// let buffer = stream.allocate(40 << 20)?;
    /// assert_eq!(results.lock().unwrap().len(), 1, "one had to go");
    /// # drop(buffer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_out_of_memory(&self, hook: impl Fn(&Shortage<'_>) -> Answer + Send + Sync + 'static) -> Registration {
        self.state().hooks.add(Arc::new(hook))
    }
}
