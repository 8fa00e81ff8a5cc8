//! Setting and taking the sinks that are told events.

use millpond_backend::Backend;

use crate::allocator::Allocator;
use crate::events::Sink;

impl<B: Backend> Allocator<B> {
    /// Passes every [event](crate::events::Event) to the sink from now on. An allocator has at most one sink of each
    /// type: returns the one that is replaced. While there is a sink, every operation takes a lock that all streams
    /// share.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond::events::{Event, Sink};
    /// use millpond_sim::Sim;
    ///
    /// #[derive(Default)]
    /// struct Largest(u64);
    ///
    /// impl Sink for Largest {
    ///     fn event(&mut self, event: &Event) {
    ///         if let Event::Grant { requested, .. } = *event {
    ///             self.0 = self.0.max(requested);
    ///         }
    ///     }
    /// }
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// allocator.set_sink(Largest::default());
    /// drop(allocator.create_stream()?.allocate(1000)?);
    /// assert_eq!(allocator.take_sink::<Largest>().map(|sink| sink.0), Some(1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_sink<S: Sink>(&self, sink: S) -> Option<S> {
        self.state().sinks.set(sink)
    }

    /// Removes the sink of a type and returns it; `None` if there is none. It receives no more events.
    pub fn take_sink<S: Sink>(&self) -> Option<S> {
        self.state().sinks.take()
    }
}
