//! How a simulated device behaves: when its work completes, and in what order.

/// When queued work completes without an explicit call. In every mode, work of one stream completes in order,
/// device-side waits are honoured, a host wait completes the work that it waits for, and
/// [`Work::Busy`](crate::Work::Busy) ends only by a wait or an explicit completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Completion {
    /// Work completes as soon as it is submitted and no unfinished work is before it.
    #[default]
    Immediate,
    /// Work completes only through [`Sim::complete`](crate::Sim::complete) and the methods like it, and through host
    /// waits.
    Manual,
    /// A few tasks on a few lanes, drawn from the seed, complete at each `reached`, `wait` and
    /// [`Sim::step`](crate::Sim::step).
    Seeded(u64),
}

/// When later work of a stream comes after earlier work of the same stream that touches the same bytes. Where it does
/// not, the two race as work of two streams would. Only unfinished work is considered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamOrder {
    /// Later work always comes after earlier work, as on CUDA.
    #[default]
    Always,
    /// Later work comes after earlier work of the same submission if both touch the bytes through the same segment or
    /// range: barriers are placed automatically for each of those, as in a command encoder of wgpu. Work of a later
    /// submission always comes after work of an earlier one. For devices whose application submits
    /// ([`Closing::Submit`](millpond_backend::Closing::Submit)).
    Tracked,
    /// Later work comes after earlier work if a barrier is placed between them, as in Vulkan.
    /// [`Sim::place_barrier`](crate::Sim::place_barrier) places one over all memory. Fills, copies, uploads and
    /// downloads place one of their own, for the segment or range that they touch and no other; kernels place none.
    Barriers,
}
