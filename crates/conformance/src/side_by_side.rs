//! Pieces of work that run side by side.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

/// Runs `work` for each number on some threads, and passes each result to `tell` when it is known. No further numbers
/// are taken after `tell` returns a break.
///
/// # Panics
///
/// Panics if `work` or `tell` does.
pub(crate) fn run<T: Send>(
    numbers: Range<u64>,
    threads: NonZeroUsize,
    work: impl Fn(u64) -> T + Sync,
    tell: impl FnMut(T) -> ControlFlow<()>,
) {
    let next = AtomicU64::new(numbers.start);
    let (sender, ended) = channel();
    thread::scope(|scope| {
        for _ in 0..threads.get() {
            let (sender, next, work, end) = (sender.clone(), &next, &work, numbers.end);
            scope.spawn(move || {
                let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&number| number < end);
                while let Some(number) = take() {
                    // The receiver is dropped: the remaining numbers need not run.
                    if sender.send(work(number)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        // This drops the receiver after a break, so that the threads find it closed and stop.
        let _ = ended.into_iter().try_for_each(tell);
    });
}

/// Runs `work` for each number below `count` on up to `jobs` threads, and passes the results to `each` in the order of
/// the numbers, as soon as they are known. With one job the calling thread does the work.
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
    if jobs.get() == 1 {
        (0..count).map(work).for_each(each);
        return;
    }
    let (mut early, mut expected) = (BTreeMap::new(), 0);
    let numbered = |number| (number, work(number as usize));
    run(0..count as u64, jobs, numbered, |(number, result)| {
        early.insert(number, result);
        while let Some(result) = early.remove(&expected) {
            each(result);
            expected += 1;
        }
        ControlFlow::Continue(())
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
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
