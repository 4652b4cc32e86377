//! A running server and the ways to reach, stop and revive it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::builder::ClockChoice;
use crate::clock::WallClock;
use crate::process::Process;
use crate::{Builder, Version};

/// Below the ports that the kernel hands to outgoing connections, so that a stopped server finds
/// its port free when it comes back; a cluster bus, 10,000 above, stays below them too.
const PORTS: std::ops::Range<u16> = 12_000..22_000;

/// How many ports are tried: others pick from the same range at the same time.
const PORT_ATTEMPTS: usize = 20;

/// No test waits longer than this for one reply: a hanging server fails it.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A server of one's own. See the [crate] for an example.
#[derive(Debug)]
pub struct Server {
    process: Process,
    port: u16,
    version: Version,
    clock: Option<WallClock>,
    arguments: Vec<String>,
    dir: TempDir,
}

impl Server {
    /// A server with the module loaded, to be [configured](Builder) and started.
    pub fn with_module() -> Builder {
        Builder::with_module()
    }

    /// A server as it comes.
    pub fn without_module() -> Builder {
        Builder::bare()
    }

    pub(crate) fn launch(builder: &Builder) -> anyhow::Result<Self> {
        builder.check()?;
        let dir = TempDir::with_prefix("redis-lock-")?;
        let clock = match builder.clock() {
            ClockChoice::OfTheMachine => None,
            ClockChoice::Movable => Some(WallClock::new(dir.path())?),
        };
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()?;
            let place = format!("port {port}\ndir {}\n", dir.path().display());
            fs::write(config_path(&dir), place + &builder.config_file())?;
            match run(&dir, builder.arguments(), port, clock.as_ref()) {
                Ok((process, version)) => {
                    let arguments = builder.arguments().to_vec();
                    return Ok(Self { process, port, version, clock, arguments, dir });
                }
                Err(Failure::PortTaken) => fs::write(log_path(&dir), "")?,
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        bail!("found no free port in {PORTS:?}")
    }

    /// A connection that speaks RESP2.
    #[track_caller]
    pub fn connect(&self) -> Connection {
        self.connect_with(ProtocolVersion::RESP2)
    }

    /// A connection that speaks RESP3.
    #[track_caller]
    pub fn connect_resp3(&self) -> Connection {
        self.connect_with(ProtocolVersion::RESP3)
    }

    #[track_caller]
    fn connect_with(&self, protocol: ProtocolVersion) -> Connection {
        connect(self.port, protocol)
            .unwrap_or_else(|error| panic!("can't connect: {error}\n{}", tail(&self.log())))
    }

    /// A client for this server, RESP2.
    pub fn client(&self) -> Client {
        client(self.port, ProtocolVersion::RESP2).expect("an address of numbers is valid")
    }

    /// The port on 127.0.0.1; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The data directory, which lives as long as this value.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// All that the server has written to its log, over all restarts.
    pub fn log(&self) -> String {
        read_log(&self.dir)
    }

    /// What kind of server this is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// User and system CPU time of all threads of the present process.
    pub fn cpu(&self) -> Duration {
        self.process.cpu().expect("the process runs on a Linux")
    }

    /// Ends the process as a crash would. Its data directory stays.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Shuts the server down in order, without a last RDB; an AOF is flushed.
    pub fn stop(&mut self) {
        if let Ok(mut connection) = connect(self.port, ProtocolVersion::RESP2) {
            // No reply comes from a server that is gone.
            let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").exec(&mut connection);
            self.process.wait_for_end();
        }
        self.kill();
    }

    /// Starts the server again: same port, same folder, and the configuration file as it is now,
    /// with what CONFIG REWRITE may have changed. A running server is stopped first.
    ///
    /// # Panics
    /// When it doesn't come back; the message holds the server's log.
    #[track_caller]
    pub fn restart(&mut self) {
        if !self.process.has_ended() {
            self.stop();
        }
        match run(&self.dir, &self.arguments, self.port, self.clock.as_ref()) {
            Ok((process, _)) => self.process = process,
            Err(Failure::PortTaken) => panic!("port {} is gone", self.port),
            Err(Failure::Other(error)) => panic!("{error:#}"),
        }
    }

    /// Stops the process in its tracks (SIGSTOP): it keeps its connections and answers nobody.
    pub fn freeze(&self) {
        self.process.signal(Signal::STOP).expect("the server is running");
    }

    /// Ends a [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.process.signal(Signal::CONT).expect("the server is running");
    }

    /// Steps the server's wall clock by so many milliseconds, forwards or backwards, as seen by itself alone.
    ///
    /// # Panics
    /// When it was not built with a [movable clock](Builder::movable_clock).
    #[track_caller]
    pub fn step_clock(&self, by_ms: i64) {
        let clock = self.clock.as_ref().expect("a server with a movable clock");
        clock.step(by_ms).expect("the file is ours");
    }

    /// # Panics
    /// When the server doesn't answer a PING; the message holds the end of its log.
    #[track_caller]
    pub fn assert_alive(&self) {
        let pong = connect(self.port, ProtocolVersion::RESP2)
            .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection));
        if let Err(error) = pong {
            panic!("the server is gone: {error}\n{}", tail(&self.log()));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the server on port {}:\n{}", self.port, tail(&self.log()));
        }
        // Before the folder goes, or the server would write into it once more.
        self.process.kill();
    }
}

/// Why a process did not become a server.
enum Failure {
    PortTaken,
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Starts the process and waits until it, and no stranger on the same port, answers.
fn run(
    dir: &TempDir,
    arguments: &[String],
    port: u16,
    clock: Option<&WallClock>,
) -> Result<(Process, Version), Failure> {
    let before = read_log(dir).len();
    let mut process = Process::spawn(&config_path(dir), arguments, &log_path(dir), clock)?;
    let pid = process.pid();
    if let Some(version) = process.wait_until(|| identify(port, pid)) {
        return Ok((process, version));
    }
    let log = read_log(dir).split_off(before);
    if process.has_ended() && log.contains("Address already in use") {
        return Err(Failure::PortTaken);
    }
    let fate = if process.has_ended() { "ended at once" } else { "does not answer" };
    Err(Failure::Other(anyhow::anyhow!("the server {fate}:\n{log}")))
}

/// The version of the server on `port`, if it is the process `pid` and has loaded its data.
fn identify(port: u16, pid: u32) -> Option<Version> {
    let mut connection = connect(port, ProtocolVersion::RESP2).ok()?;
    redis::cmd("PING").exec(&mut connection).ok()?;
    let info: String = redis::cmd("INFO").arg("server").query(&mut connection).ok()?;
    let ours = info.lines().any(|line| line == format!("process_id:{pid}"));
    ours.then(|| Version::from_info(&info)).flatten()
}

fn client(port: u16, protocol: ProtocolVersion) -> redis::RedisResult<Client> {
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
    let info = address.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(protocol);
    Client::open(info.set_redis_settings(settings))
}

fn connect(port: u16, protocol: ProtocolVersion) -> redis::RedisResult<Connection> {
    let connection = client(port, protocol)?.get_connection_with_timeout(REPLY_TIMEOUT)?;
    connection.set_read_timeout(Some(REPLY_TIMEOUT))?;
    Ok(connection)
}

fn free_port() -> anyhow::Result<u16> {
    (0..1_000)
        .map(|_| rand::random_range(PORTS))
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .with_context(|| format!("found no free port in {PORTS:?}"))
}

fn config_path(dir: &TempDir) -> PathBuf {
    dir.path().join("server.conf")
}

fn log_path(dir: &TempDir) -> PathBuf {
    dir.path().join("server.log")
}

fn read_log(dir: &TempDir) -> String {
    fs::read(log_path(dir))
        .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of a log, where the reason of a failure is.
fn tail(log: &str) -> String {
    const LINES: usize = 60;
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
