//! The cases on one thread under criterion: its statistics, and its comparison with the run before.

use std::rc::Rc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use millpond_benches::case::{CASES, Case, SEED, Unit};
use millpond_benches::subject::Kind;

/// CubeCL takes seconds for a pass, which leaves criterion nothing to sample: the `ladder` measures it.
const TOO_SLOW: Kind = Kind::Cubecl;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots()
        .configure_from_args();
    CASES.iter().for_each(|case| add(&mut criterion, case));
    criterion.final_summary();
}

fn add(criterion: &mut Criterion, case: &Case) {
    let workload = match case.pattern.workload(SEED) {
        Ok(workload) => Rc::new(workload),
        Err(error) => panic!("{}: {error}", case.name),
    };
    let runners = match case.runners(&workload) {
        Ok(runners) => runners,
        Err(error) => panic!("{}: {error}", case.name),
    };
    let mut group = criterion.benchmark_group(case.name);
    group.throughput(Throughput::Elements(case.units(&workload) as u64));
    for (kind, mut runner) in runners {
        if kind != TOO_SLOW {
            let name = match case.unit {
                Unit::Pair => format!("{} (pairs)", kind.name()),
                Unit::Operation => kind.name().into_owned(),
            };
            group.bench_function(name, |b| b.iter_custom(|passes| (0..passes).map(|_| runner.pass()).sum()));
        }
    }
    group.finish();
}
