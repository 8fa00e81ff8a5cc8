//! Transfers: `moves` has the fills and the copies, and `staging` the ring through which bytes of the host go.

use std::ops::{Deref, DerefMut};

use crate::pages::Pages;

mod moves;
mod staging;

/// The transfers: the storey above the pages.
pub(crate) struct Transfers<G> {
    pages: Pages<G>,
}

impl<G> Deref for Transfers<G> {
    type Target = Pages<G>;

    #[inline]
    fn deref(&self) -> &Pages<G> {
        &self.pages
    }
}

impl<G> DerefMut for Transfers<G> {
    fn deref_mut(&mut self) -> &mut Pages<G> {
        &mut self.pages
    }
}

impl<G> Transfers<G> {
    pub(crate) fn new(pages: Pages<G>) -> Transfers<G> {
        Transfers { pages }
    }
}
