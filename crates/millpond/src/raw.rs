//! The only module of the library with `unsafe` code: a pointer from buffers to their lane, the value that a lane's
//! latch guards, and driver calls whose contract the core's decisions fulfil. Each subject has a file: [`pointers`],
//! [`latched`], [`calls`], and [`host`] for the bytes of host memory. Buffers as numbers, whose free relies on its
//! caller, are in [`number`]; [`source`] has the segments that other allocators supply.
//!
//! # Why a pointer
//!
//! A buffer must reach its lane when it is dropped, and buffers of different streams must not write to a common cache
//! line. A counted reference to something shared would make all threads write one cache line; a count per lane would
//! cost two atomic operations on every allocation. Instead a lane that has handed out a block keeps the whole allocator
//! alive through one counted reference of its own (`LaneState::keep`). It is taken with the first block and given up,
//! under the lane's lock, only when the user's handles are dropped and the last block has been freed.
//!
//! # What keeps the state alive
//!
//! The state owns its lanes, and is dropped with the last of these counted references to it:
//!
//! - `Handle::state`, one for all handles of the user: `Allocator`, `Stream`, `Pinned`. A borrow of one of them keeps
//!   the state alive for as long as the borrow lasts. When the last handle is dropped, `Handle::drop` marks every lane
//!   as closing, and gives up its own reference after that.
//! - `LaneState::keep` of each lane. `State::find_hit` and `Buffer::empty` set it before the first buffer of the lane
//!   exists, while the requesting stream has a handle; a hit is served only where it is set, and a request that missed
//!   on the hot path goes to `State::miss` only from there. It stays set while the stream has a handle.
//!   `LaneState::let_go` takes it out, which requires the lane's lock, `closing`, no live block and no buffer of 0
//!   bytes. So a `Buffer` of the lane keeps the state alive until it is freed, which is one step under that lock.
//! - The return value of `State::free`: `freed` takes a reference, still under the lock, whenever something remains to
//!   be done with the state after the lock is open. The buffer's drop gives it up last.
//!
//! # After the lock is open
//!
//! A thread that frees a block holds nothing that keeps the state alive once the lane's lock is open, except where
//! `freed` took a reference. From the store in `Guard::drop` on, another thread may free the last block, or drop the
//! last handle, and with it the state and the lane, while the first thread is still returning from `Guard::drop`,
//! `freed`, `free` and `Buffer::drop`. It accesses neither any more, but that is not enough: a reference that is an
//! *argument* of a function must be valid until the function returns, used or not (Stacked Borrows and Tree Borrows
//! call it protected, and LLVM may read through it anywhere). Therefore:
//!
//! - `State::free`, `freed` and `free_nothing` take a `&LaneRef`: a reference into the buffer, which holds a pointer.
//!   The references to state and lane that they derive from it are arguments only of functions that return before the
//!   store (`mark`, `is_plain`, `lock`, the shard's `free`, `let_go`, `kept`), or that run while `freed` holds a
//!   reference of its own (`go_on_from`).
//! - A [`Guard`](latched::Guard) holds pointers, so passing it to `drop` passes no reference to the lane. Its drop
//!   takes what it needs of the latch before the store. The store is `AtomicBool::store(&self)`, whose argument covers
//!   an `UnsafeCell` and nothing else; such bytes are not protected, on which `Arc` in the standard library relies as
//!   well.
//! - `Buffer::drop` borrows only the buffer, which belongs to its owner. A caller further up the stack that borrows the
//!   state has a handle or a live buffer for it.
//!
//! The last reference may be dropped by any thread. The reference count orders that drop after everything that other
//! holders did. What a thread did up to the store that ended its free is ordered by the lane's latch: that store
//! releases, the next closing acquires, and the `let_go` that took the lane's reference out ran under such a closing.
//! The same holds for handles and the lanes that they close.
//!
//! `State::drop` borrows the state mutably, which ends the validity of pointers that were derived from shared borrows
//! (`OwnerRef`). It reaches lanes through its own table, and none of them uses its owner then: no buffer, no stream and
//! no handle is left that could.

#![allow(unsafe_code)]

pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod host;
pub(crate) mod latched;
pub(crate) mod number;
mod pinned;
pub(crate) mod pointers;
pub(crate) mod source;
