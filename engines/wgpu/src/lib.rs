//! A wgpu device whose buffers are Millpond's, for engines that take a device and a queue of wgpu 30.
//!
//! An engine that is given [`Lent::device`] and [`Lent::queue`] creates its buffers as before, with
//! `Device::create_buffer`. A storage buffer then is a block of a Millpond segment, and dropping it gives the block
//! back to the cache. The engine needs no change and no fork: wgpu 30 has a feature `custom`, with which a device, a
//! queue and their objects can be values of another crate, and these are.
//!
//! ```no_run
//! use millpond::Allocator;
//! use millpond_lent::Lent;
//! use millpond_wgpu::Wgpu;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lent = Lent::new(Allocator::new(Wgpu::open(0)?))?;
//! let (device, queue) = (lent.device(), lent.queue()); // for the engine
//! # drop((device, queue));
//! println!("{}", lent.allocator().expect("it was made with one").memory_summary(true));
//! # Ok(())
//! # }
//! ```
//!
//! # What is lent, and what is not
//!
//! A buffer becomes a block if its usages are among [`LENT`]: storage, copies and indirect dispatches. Buffers that the
//! host maps, uniforms, and buffers that are mapped when they are created are wgpu's own, as before. If Millpond has no
//! memory for a block, wgpu is asked for the buffer, so that the engine gets wgpu's error where it expects one.
//!
//! # What is checked
//!
//! A block ends where the buffer was asked to end, and has the usages that were asked for. A call beyond either raises
//! wgpu's own validation error, in the error scope or the handler where wgpu would raise it. For that the call is made
//! on a buffer of wgpu's with the same size and usages, which exists only then.
//!
//! Fresh buffers read as zero, as wgpu promises. A block is cleared before its first use, unless the first use is a
//! `Queue::write_buffer` to all of it. [`Lent::writes_first`] saves the clears for engines that need none.
//!
//! # When memory is used again
//!
//! All blocks are of one stream of Millpond, and all work goes to the one queue of wgpu. A block goes back when the
//! buffer is dropped and everything that was recorded with it is submitted: bind groups, passes and encoders keep the
//! blocks that they name. Later owners use the memory in later submits, so no wait is needed. `Queue::write_buffer`
//! writes before the next submit and so after all work of the former owner. An engine that records and submits in one
//! order gets memory back sooner with [`Lent::in_order`].
//!
//! # What is different from wgpu's own device
//!
//! - **Compute only.** Textures, samplers, render pipelines and acceleration structures panic.
//! - **One usage per segment and dispatch.** wgpu looks at whole buffers, and a segment is one. An engine that binds
//!   some buffers read-only and others read-write needs an allocator of the class
//!   [`EXCLUSIVE`](millpond_wgpu::EXCLUSIVE) with the policy `direct`. CubeCL declares all bindings read-write.
//! - **`PollType::Wait` waits for the newest submit**, also where an earlier one is named.
//! - **Without a handler of the engine's**, errors outside of scopes go to the handler that the device had before: a
//!   device that the backend has opened notes them ([`Wgpu::errors`](millpond_wgpu::Wgpu::errors)). Errors of a submit
//!   panic, as all do with wgpu.
//! - **An indirect dispatch is two**: one thread fetches the arguments from the block first. Pipeline statistics count
//!   it.
//! - **Callbacks must not submit**, nor write to a part of a fresh buffer with the queue: they run within submits.
//! - **`Buffer::destroy` has no effect on a block**, which goes back when the buffer is dropped.

#![allow(unsafe_code)] // Functions that wgpu declares unsafe, passed on.

mod arguments;
mod buffer;
mod count;
mod device;
mod encoder;
mod error;
mod fresh;
mod home;
mod objects;
mod pass;
mod queue;
mod refused;
mod scopes;

pub use count::Counts;
pub use error::LentError;
pub use home::{LENT, Lent};
