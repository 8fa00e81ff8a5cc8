//! One line per case, number of threads and subject.

use std::fmt::Write;

use super::Run;
use crate::case::{THREADS, Unit};
use crate::measure::Spread;

const HEAD: &str = "date,machine,case,threads,subject,unit,rounds,median_ns,min_ns,lower_quartile_ns,upper_quartile_ns,\
                    cold_ns,times_paged,cpu_ns,op_p50_ns,op_p99_ns,op_p999_ns,op_max_ns,driver_calls\n";

/// Returns a run as comma-separated values. Times are nanoseconds per unit, those of single operations in the columns
/// that begin with `op`; fields are empty where nothing was measured. `times_paged` is the ratio to the case's first
/// subject, `cpu_ns` processor time, where several threads ran, and `driver_calls` the mean over the passes that count.
/// No field needs quotes.
pub fn csv(run: &Run) -> String {
    let mut out = String::from(HEAD);
    let mut line = |words: [&str; 4], spread: &Spread, rest: &str| {
        let [case, threads, subject, unit] = words;
        let Spread { count, min, lower, median, upper } = spread;
        let (date, machine) = (&run.date, &run.machine.name);
        let times = format!("{median:.2},{min:.2},{lower:.2},{upper:.2}");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{date},{machine},{case},{threads},{subject},{unit},{count},{times},{rest}");
    };
    for result in &run.cases {
        let unit = match result.case.unit {
            Unit::Pair => "pair",
            Unit::Operation => "operation",
        };
        let own = &result.subjects[0].1;
        for (kind, measured) in &result.subjects {
            let single = measured
                .latency
                .map_or_else(|| ",,,".to_owned(), |l| format!("{:.1},{:.1},{:.1},{:.1}", l.p50, l.p99, l.p999, l.max));
            let calls = measured.driver_calls.map_or_else(String::new, |calls| format!("{calls:.2}"));
            let rest = format!("{:.2},{:.3},,{single},{calls}", measured.cold_ns, measured.times(own));
            line([result.case.name, "1", &kind.name(), unit], &measured.spread(), &rest);
        }
    }
    for result in &run.threads {
        for (kind, races) in &result.subjects {
            for (threads, races) in THREADS.iter().zip(races) {
                let wall = Spread::of(races.wall_ns.clone());
                let rest = races.cpu_median().map_or_else(|| ",,,,,,,".to_owned(), |cpu| format!(",,{cpu:.2},,,,,"));
                line([result.case.name, &threads.to_string(), &kind.name(), "operation"], &wall, &rest);
            }
        }
    }
    out
}
