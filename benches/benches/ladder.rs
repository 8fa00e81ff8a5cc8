//! Every case with every subject in one process, turn by turn, printed as tables and kept as a record.

use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;

use millpond_benches::case::{CASES, Case, SEED, THREAD_CASES, ThreadCase, threads};
use millpond_benches::measure::{Meter, Timing, measure, measure_threads};
use millpond_benches::options::Options;
use millpond_benches::report::{
    CaseResult, Machine, Run, ThreadResult, case_table, load, record, record_dir, thread_table, today,
};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(misuse) => {
            eprintln!("ladder: {misuse}");
            return ExitCode::from(2);
        }
    };
    match climb(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ladder: {error}");
            ExitCode::FAILURE
        }
    }
}

fn climb(options: Options) -> Result<(), Box<dyn Error>> {
    let cases: Vec<_> = CASES.iter().filter(|case| options.wants(case.name)).collect();
    let thread_cases: Vec<_> = THREAD_CASES.iter().filter(|case| options.wants(case.name)).collect();
    if options.list {
        let names = cases.iter().map(|case| case.name).chain(thread_cases.iter().map(|case| case.name));
        names.for_each(|name| println!("{name}"));
        return Ok(());
    }
    if cases.is_empty() && thread_cases.is_empty() {
        return Err(format!("no case's name contains one of {:?}; --list names them all", options.parts).into());
    }
    let before = load();
    let meter = Meter::new();
    let mut run = Run {
        machine: Machine::this(options.machine),
        date: options.date.unwrap_or_else(today),
        rounds: options.rounds,
        clock_ns: meter.cost_ns(),
        load: [before, None],
        cases: Vec::new(),
        threads: Vec::new(),
    };
    for case in cases {
        let result = climb_case(case, options.rounds, &meter)?;
        println!("{}", case_table(&result));
        run.cases.push(result);
    }
    for case in thread_cases {
        let result = climb_threads(case, options.rounds, threads(run.machine.cores))?;
        println!("{}", thread_table(&result));
        run.threads.push(result);
    }
    run.load[1] = load();
    if options.record {
        println!("recorded in {}", record(&run, &record_dir())?.display());
    }
    Ok(())
}

fn climb_case(case: &Case, rounds: usize, meter: &Meter) -> Result<CaseResult, Box<dyn Error>> {
    let workload = Rc::new(case.pattern.workload(SEED)?);
    let (kinds, mut runners): (Vec<_>, Vec<_>) = case.runners(&workload)?.into_iter().unzip();
    let ops = workload.timed.len();
    let measured = measure(&mut runners, rounds, ops, case.units(&workload), meter);
    Ok(CaseResult { case: *case, ops, subjects: kinds.into_iter().zip(measured).collect() })
}

fn climb_threads(case: &ThreadCase, rounds: usize, threads: &[usize]) -> Result<ThreadResult, Box<dyn Error>> {
    let workloads = case.workloads()?;
    let (kinds, mut teams): (Vec<_>, Vec<_>) = case.teams(&workloads).into_iter().unzip();
    let races = measure_threads(&mut teams, threads, rounds, Timing::USUAL);
    Ok(ThreadResult { case: *case, subjects: kinds.into_iter().zip(races).collect() })
}
