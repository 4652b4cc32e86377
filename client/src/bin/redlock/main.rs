//! `redlock`: distributed locks, for operators.

mod args;
mod exit;
mod info;
mod nodes;
mod release;
mod show;
mod top;

use std::io::{self, stdout};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let status = if error.use_stderr() { exit::MISUSE.into() } else { ExitCode::SUCCESS };
            let _ = error.print();
            return status;
        }
    };
    let outcome = match cli.command {
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "redlock", &mut stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => {
            clap_mangen::Man::new(Cli::command()).render(&mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Info(args) => on_runtime(info::show(args)),
        Command::Release(args) => on_runtime(release::release(args)),
        Command::Top(args) => on_runtime(top::watch(args)),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("redlock: {error}");
        exit::MISUSE.into()
    })
}

fn on_runtime(task: impl Future<Output = ExitCode>) -> io::Result<ExitCode> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(task))
}
