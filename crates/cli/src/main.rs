//! The command `millpond`. This file parses, dispatches and turns failures into exit codes.

mod args;
mod commands;
mod conditions;
mod devices;
mod failure;
mod files;
mod headings;
mod interrupt;
mod names;
mod output;
mod quantity;
mod recognise;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::{Args, Command};
use crate::output::{Format, Output};

fn main() -> ExitCode {
    interrupt::watch();
    let args = Args::from_arg_matches(&args::command().get_matches());
    let Args { format, json, wide, command } = args.unwrap_or_else(|error| error.exit());
    let mut output = Output::new(if json { Format::Json } else { format }, wide);
    let result = match command {
        Command::Devices => commands::devices::run(&mut output),
        Command::Replay(args) => commands::replay::run(&args, &mut output),
        Command::Bench(args) => commands::bench::run(&args, &mut output),
        Command::Import(args) => commands::import::run(&args, &mut output),
        Command::Diff(args) => commands::diff::run(&args, &mut output),
        Command::Compare(args) => commands::compare::run(&args, &mut output),
        Command::Report(args) => commands::report::run(&args, &mut output),
        Command::Golden(args) => commands::golden::run(&args, &mut output),
        Command::Sameness(args) => commands::sameness::run(&args, &mut output),
        Command::Conformance(args) => commands::conformance::run(&args, &mut output),
        Command::Tune(args) => commands::tune::run(&args, &mut output),
        Command::Man(args) => commands::man::run(&args, args::command(), &mut output),
        Command::Completions(args) => commands::completions::run(&args, &mut args::command(), &mut output),
    };
    // What was printed before a failure is shown before it, and a full disk is not reported as success.
    match result.and(output.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&format!("error: {failure}"));
            failure.exit_code()
        }
    }
}
