//! What a server is started with.

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::Server;

/// A server to be: bare or with the module, with its directives.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder starts nothing until `start`"]
pub struct Builder {
    module: Option<PathBuf>,
    module_args: Vec<String>,
    directives: Vec<(String, String)>,
    clock: ClockChoice,
    arguments: Vec<String>,
}

/// Whose wall clock the server sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClockChoice {
    #[default]
    OfTheMachine,
    Movable,
}

/// Quiet and quick defaults; a test's own directives come later in the file and win.
const DEFAULTS: &str = "\
bind 127.0.0.1
save \"\"
enable-debug-command yes
repl-diskless-sync-delay 0
shutdown-timeout 0
";

impl Builder {
    pub(crate) fn bare() -> Self {
        Self::default()
    }

    pub(crate) fn with_module() -> Self {
        Self { module: Some(module_path()), ..Self::default() }
    }

    /// Adds an argument pair to the module's line, such as `max-ttl 1000`.
    pub fn module_arg(mut self, name: &str, value: &str) -> Self {
        self.module_args.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Adds a directive of the server, as a line of its configuration file.
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.directives.push((directive.to_owned(), value.to_owned()));
        self
    }

    /// Gives the server a wall clock that [`Server::step_clock`] moves.
    pub fn movable_clock(mut self) -> Self {
        self.clock = ClockChoice::Movable;
        self
    }

    /// Adds an argument of the server's command line, such as `--sentinel`.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    pub(crate) fn clock(&self) -> ClockChoice {
        self.clock
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When it can't be started; the message holds the server's log.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// As [`start`](Self::start), for tests of a server that ought to refuse to start.
    ///
    /// # Errors
    /// When the server ends before it answers, or doesn't answer in time; the error holds its log.
    pub fn try_start(self) -> anyhow::Result<Server> {
        Server::launch(&self)
    }

    /// The configuration file, but for the port and the folder.
    pub(crate) fn config_file(&self) -> String {
        let mut file = DEFAULTS.to_owned();
        if let Some(module) = &self.module {
            let _ = write!(file, "loadmodule {}", quoted(&module.to_string_lossy()));
            for arg in &self.module_args {
                let _ = write!(file, " {}", quoted(arg));
            }
            file.push('\n');
        }
        for (directive, value) in &self.directives {
            let value = if value.is_empty() { "\"\"" } else { value };
            let _ = writeln!(file, "{directive} {value}");
        }
        file
    }

    /// Fails early, and with advice, where the module was never built.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match &self.module {
            Some(path) if !path.is_file() => anyhow::bail!(
                "no module at {}: run `cargo build --release`, or name the file in REDIS_LOCK_MODULE",
                path.display()
            ),
            _ => Ok(()),
        }
    }
}

/// The command that starts a server.
pub(crate) fn server_command() -> PathBuf {
    env::var_os("REDIS_LOCK_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// The module under test.
pub fn module_path() -> PathBuf {
    env::var_os("REDIS_LOCK_MODULE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libredis_lock.so"),
        PathBuf::from,
    )
}

/// An argument as the configuration file spells it.
fn quoted(arg: &str) -> String {
    format!("\"{}\"", arg.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_the_configuration_file() {
        assert_eq!(quoted(r#"a "b" \c"#), r#""a \"b\" \\c""#);
    }

    #[test]
    fn an_empty_value_is_spelled_out() {
        let file = Builder::bare().config("requirepass", "").config_file();
        assert!(file.ends_with("requirepass \"\"\n"));
    }
}
