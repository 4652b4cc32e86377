//! The command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

/// Looks after distributed locks, over servers that run the lock module.
///
/// Each node is asked by itself. Who holds a majority of them holds the lock.
#[derive(Debug, Parser)]
#[command(
    name = "redlock",
    version,
    after_long_help = "\
Examples:
  export REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  redlock info nightly-report
  redlock release --force nightly-report
  redlock top --match 'nightly-*'

Exit status:
  0    done
  121  unavailable: too few nodes answered
  125  misuse: a bad option or address"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show who holds a lock and who waits for it, on each node
    Info(Info),
    /// Take a lock away from whoever holds it
    Release(Release),
    /// Show the locks held and their lines, again and again
    Top(Top),
    /// Print a completion script for a shell
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page
    Man,
}

/// The nodes to ask.
#[derive(Args, Clone, Debug)]
pub struct Nodes {
    /// The nodes, comma-separated: the same list in the same order for every user of the lock
    ///
    /// Each is a URL, such as redis://user:password@host:port/db, of which all but the host may be left out. One node is
    /// fine; otherwise use an odd number of independent masters.
    #[arg(long, env = "REDLOCK_NODES", value_delimiter = ',', default_value = "redis://127.0.0.1", value_name = "URL,…", hide_env_values = true, value_hint = ValueHint::Url)]
    pub nodes: Vec<String>,
}

/// How output is written.
#[derive(Args, Clone, Copy, Debug)]
pub struct Output {
    /// Write JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// `redlock info`
#[derive(Args, Debug)]
pub struct Info {
    #[command(flatten)]
    pub nodes: Nodes,
    #[command(flatten)]
    pub output: Output,

    /// How many of those who wait to show
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub waiters: u32,

    /// The lock's name
    pub name: String,
}

/// `redlock release`
#[derive(Args, Debug)]
#[command(after_long_help = "\
The holder is told by its next renewal, within a third of its lease; until then it goes on. What it writes
meanwhile is only kept out by a store that checks fencing tokens.")]
pub struct Release {
    #[command(flatten)]
    pub nodes: Nodes,
    #[command(flatten)]
    pub output: Output,

    /// Yes, take it away: a lock can only be released by its holder, or by force
    #[arg(long, required = true)]
    pub force: bool,

    /// The lock's name
    pub name: String,
}

/// `redlock top`
#[derive(Args, Debug)]
#[command(after_long_help = "\
Finds the locks by SCAN over the keys of each node, which takes a while on large ones: narrow it with --match.")]
pub struct Top {
    #[command(flatten)]
    pub nodes: Nodes,
    #[command(flatten)]
    pub output: Output,

    /// Only locks whose names match this glob
    #[arg(long = "match", default_value = "*", value_name = "GLOB")]
    pub pattern: String,

    /// How long between two looks
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub interval: Duration,

    /// Look so many times, then stop; by default until interrupted
    #[arg(long, short = 'l', value_name = "N")]
    pub looks: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
