//! `millpond completions`: scripts that complete the arguments of the command in a shell.

use clap::ValueEnum;
use clap_complete::Shell as Known;

use crate::failure::Failure;
use crate::output::Output;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Examples:
  millpond completions bash > \\
    ~/.local/share/bash-completion/completions/millpond
  millpond completions zsh > ~/.zfunc/_millpond    with ~/.zfunc in fpath
  millpond completions fish > ~/.config/fish/completions/millpond.fish";

/// `millpond completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// The shells that there are scripts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script of a shell for a command.
///
/// # Errors
///
/// Never: output that cannot be written is told at the end.
pub(crate) fn run(args: &CompletionsArgs, command: &mut clap::Command, output: &mut Output) -> Result<(), Failure> {
    let shell = match args.shell {
        Shell::Bash => Known::Bash,
        Shell::Zsh => Known::Zsh,
        Shell::Fish => Known::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "millpond", &mut script);
    output.script(&String::from_utf8_lossy(&script));
    Ok(())
}
