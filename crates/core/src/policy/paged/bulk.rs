//! Whether single requests take a large part of what is live.
//!
//! Such a request needs much memory in one piece. Where the sizes of requests vary, it has to be gathered from what
//! many others have left, and what is free beside live blocks in large pages can be gathered only in part. Where all
//! blocks are small beside what is live, most requests fit into what one other has left.

/// A divisor: a request is large if it takes more than this part of what is live with it.
const OF_LIVE: u64 = 5;

/// What is known of large requests, in bytes.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    /// The most that was live with a large request.
    with_large: u64,
    /// The most that was live when a request missed last, that request included.
    most: u64,
}

impl Bulk {
    /// Notes a request for this many bytes that missed: how many were live before it, and at most by then, the request
    /// included.
    pub(super) fn note(&mut self, bytes: u64, live: u64, most: u64) {
        self.most = most;
        if bytes > (live + bytes) / OF_LIVE {
            self.with_large = self.with_large.max(live + bytes);
        }
    }

    /// Returns whether there was a large request that still counts: one with which at least half as much was live as at
    /// most by now. The first requests of a program are large beside what is live then, and tell nothing.
    pub(super) fn is_large(&self) -> bool {
        self.most < self.with_large.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes requests with the bytes that are live before them, one behind the other, and returns whether they are
    /// large then.
    fn noted(requests: &[(u64, u64)]) -> bool {
        let (mut bulk, mut most) = (Bulk::default(), 0);
        for &(bytes, live) in requests {
            most = most.max(live + bytes);
            bulk.note(bytes, live, most);
        }
        bulk.is_large()
    }

    #[test]
    fn a_request_of_more_than_a_fifth_is_large() {
        assert!(!noted(&[]));
        assert!(!noted(&[(10, 0), (200, 800)]));
        assert!(noted(&[(10, 0), (210, 790)]));
        assert!(noted(&[(210, 790), (1, 900)]), "and others behind it change nothing");
    }

    #[test]
    fn a_large_request_counts_until_twice_as_much_is_live() {
        assert!(noted(&[(210, 790), (9, 1990)]));
        assert!(!noted(&[(210, 790), (10, 1990)]));
        assert!(!noted(&[(210, 790), (10, 1990), (1, 0)]), "although it was freed since");
        assert!(noted(&[(600, 1400), (210, 790), (10, 1990)]), "the one with the most counts");
    }
}
