//! The driver's handles of pages, by the numbers that the core gives them.

use millpond_backend::Backend;
use millpond_core::PageId;

use crate::sync::Mutex;

/// A handle that a driver call may be using while the table is not locked.
type SharedPage<B> = std::sync::Arc<<B as Backend>::Page>;

/// All pages of an allocator. The lock is held only while the table is accessed, and never together with another lock.
pub(crate) struct Pages<B: Backend> {
    table: Mutex<Vec<Option<SharedPage<B>>>>,
}

impl<B: Backend> Pages<B> {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::new(Vec::new()) }
    }

    /// Keeps the table locked, to test which operations do not need it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn lock(&self) -> impl Sized + '_ {
        self.table.lock()
    }

    pub(crate) fn put(&self, id: PageId, page: B::Page) {
        let at = id.0 as usize;
        let mut table = self.table.lock();
        if table.len() <= at {
            table.resize_with(at + 1, || None);
        }
        assert!(table[at].is_none(), "page {at} has a handle already");
        table[at] = Some(SharedPage::<B>::new(page));
    }

    pub(crate) fn get(&self, id: PageId) -> SharedPage<B> {
        match self.table.lock().get(id.0 as usize) {
            Some(Some(page)) => SharedPage::<B>::clone(page),
            _ => panic!("page {} has no handle", id.0),
        }
    }

    /// Removes the handle and returns it for its release. The core releases a page only when no plan uses it.
    pub(crate) fn take(&self, id: PageId) -> B::Page {
        let page = self.table.lock().get_mut(id.0 as usize).and_then(Option::take);
        match page.and_then(SharedPage::<B>::into_inner) {
            Some(page) => page,
            None => panic!("page {} has no handle to give up, or it is in use", id.0),
        }
    }
}
