//! `millpond man`: pages for `man`, made of the same texts as `--help`.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap_mangen::Man;

use crate::failure::Failure;
use crate::files::{self, shown};
use crate::names::suggestion;
use crate::output::Output;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Examples:
  millpond man | man -l -                           the page of millpond
  millpond man replay | man -l -                    that of a command
  millpond man -o ~/.local/share/man/man1           all of them, for `man millpond`";

/// `millpond man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The command whose page is printed; without one it is the page of millpond itself
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    command: Option<String>,
    /// Write the pages of all commands into a folder, which is created if it is not there
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints a page of a command line, or writes all of them.
///
/// # Errors
///
/// Returns [`Failure::Input`] for a command that is not there, and for a file that cannot be written.
pub(crate) fn run(args: &ManArgs, command: clap::Command, output: &mut Output) -> Result<(), Failure> {
    // The generated command `help` would have a page for each command a second time.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    if let Some(folder) = &args.output {
        fs::create_dir_all(folder).map_err(|error| files::cannot(folder, &error))?;
        for of in [&command].into_iter().chain(command.get_subcommands()) {
            let page = Man::new(of.clone());
            let path = folder.join(page.get_filename());
            files::write(&path, &rendered(&page))?;
            output.text(&format!("{}\n", shown(&path)));
        }
        return Ok(());
    }
    let of = match &args.command {
        None => &command,
        Some(name) => command.find_subcommand(name).ok_or_else(|| unknown(name, &command))?,
    };
    output.script(&String::from_utf8_lossy(&rendered(&Man::new(of.clone()))));
    Ok(())
}

fn rendered(page: &Man) -> Vec<u8> {
    let mut text = Vec::new();
    let written: io::Result<()> = page.render(&mut text);
    match written {
        Ok(()) => text,
        Err(error) => panic!("a page is written to memory: {error}"),
    }
}

fn unknown(name: &str, command: &clap::Command) -> Failure {
    let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let meant = suggestion(name, known.iter().copied());
    Failure::Input(format!("no command is called `{name}`; the commands are {}{meant}", known.join(", ")))
}
