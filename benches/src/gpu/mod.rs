//! The comparison on a real device: this allocator over its backend, the others in processes of their own.
//!
//! Reading order: [`case`] (the operations and the goals), [`task`] (lists as files), [`contest`] (what a subject does
//! in its turn), [`own`] and [`peer`] (the subjects), [`compare`] (rounds), [`page`] (tables).

pub mod case;
pub mod compare;
pub mod contest;
pub mod own;
pub mod page;
pub mod peer;
pub mod task;
