//! Pieces of work that run side by side, and results that come in order.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

/// Runs `work` for each number below `count` on up to `jobs` threads, and passes the results to `each` in the order of
/// the numbers, on the calling thread, as soon as they are known. With one job the calling thread does the work.
///
/// # Panics
///
/// Panics if `work` or `each` does.
pub(crate) fn in_order<T: Send>(
    count: usize,
    jobs: NonZeroUsize,
    work: impl Fn(usize) -> T + Sync,
    mut each: impl FnMut(T),
) {
    let threads = jobs.get().min(count);
    if threads <= 1 {
        (0..count).map(work).for_each(each);
        return;
    }
    let next = AtomicUsize::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < count);
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        for _ in 0..threads {
            let (tell, take, work) = (tell.clone(), &take, &work);
            scope.spawn(move || {
                // Sending fails once the receiver is gone, because `each` has panicked: the rest is left out then.
                while let Some(at) = take()
                    && tell.send((at, work(at))).is_ok()
                {}
            });
        }
        drop(tell);
        let (mut early, mut expected) = (BTreeMap::new(), 0);
        for (at, result) in told {
            early.insert(at, result);
            while let Some(result) = early.remove(&expected) {
                each(result);
                expected += 1;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread::ThreadId;

    use super::*;

    fn jobs(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).expect("a number of jobs")
    }

    #[test]
    fn results_come_in_order_whatever_takes_longest() {
        for number in [1, 2, 3, 64] {
            let (mut seen, done) = (Vec::new(), AtomicUsize::new(0));
            in_order(
                20,
                jobs(number),
                |at| {
                    // The first one ends last, if others can run beside it.
                    while at == 0 && number > 1 && done.load(Ordering::Acquire) < 19 {
                        std::thread::yield_now();
                    }
                    done.fetch_add(1, Ordering::Release);
                    at
                },
                |at| seen.push(at),
            );
            assert_eq!(seen, (0..20).collect::<Vec<_>>(), "{number} jobs");
        }
    }

    #[test]
    fn as_many_run_at_once_as_there_are_jobs() {
        let barrier = Barrier::new(3);
        let mut threads: Vec<ThreadId> = Vec::new();
        let meet = |_| {
            barrier.wait();
            std::thread::current().id()
        };
        in_order(3, jobs(3), meet, |thread| threads.push(thread));
        let here = std::thread::current().id();
        assert!(threads.iter().all(|&thread| thread != here), "{threads:?}");
        in_order(2, jobs(1), |_| std::thread::current().id(), |thread| assert_eq!(thread, here));
    }

    #[test]
    fn nothing_to_do_is_done() {
        in_order(0, jobs(4), |at| at, |at| panic!("{at} was not asked for"));
    }
}
