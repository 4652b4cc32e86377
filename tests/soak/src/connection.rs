//! A connection that never lets its caller wait, but where it says so.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

use crate::resp::{Command, Reply, encode};

/// How long a server may take for one reply; more is a hang.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Is the other end still there?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// As far as is known.
    Open,
    /// The other end has hung up.
    Closed,
}

/// A way to hang up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// In order (FIN).
    Close,
    /// Abruptly (RST).
    Reset,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
    parsed: usize,
    chunk: Box<[u8]>,
}

impl Connection {
    /// Connects to a server on this machine.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, output: Vec::new(), input: Vec::new(), parsed: 0, chunk: vec![0; 16 << 10].into() })
    }

    /// Has a command sent with the next [`flush`](Self::flush).
    pub fn push(&mut self, command: &Command) {
        encode(command, &mut self.output);
    }

    /// Sends in one go what was pushed.
    ///
    /// # Errors
    /// When the other end is gone, or takes nothing for too long.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut rest = &self.output[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.stream, PollFlags::OUT)];
                    wait(&mut fds, PATIENCE)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        Ok(())
    }

    /// Takes in what has arrived.
    ///
    /// # Errors
    /// When the system fails; that the other end has hung up is none.
    pub fn receive(&mut self) -> io::Result<Line> {
        self.input.drain(..self.parsed);
        self.parsed = 0;
        loop {
            match self.stream.read(&mut self.chunk) {
                Ok(0) => return Ok(Line::Closed),
                Ok(length) => self.input.extend_from_slice(&self.chunk[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Line::Open),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => return Ok(Line::Closed),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// The next reply among what has arrived.
    ///
    /// # Errors
    /// When the bytes are no reply.
    pub fn next(&mut self) -> anyhow::Result<Option<Reply>> {
        let parsed = Reply::parse(&self.input[self.parsed..])?;
        Ok(parsed.map(|(reply, length)| {
            self.parsed += length;
            reply
        }))
    }

    /// The bytes that have arrived and were not read, to be read in another way: answers how many were.
    pub fn take_raw(&mut self, read: impl FnOnce(&[u8]) -> usize) {
        self.parsed += read(&self.input[self.parsed..]);
    }

    /// Waits for one reply.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait_for_reply(&mut self) -> anyhow::Result<Reply> {
        loop {
            if let Some(reply) = self.next()? {
                return Ok(reply);
            }
            self.wait_for_bytes()?;
        }
    }

    /// Waits until something arrives.
    ///
    /// # Errors
    /// When nothing does, or the other end hangs up.
    pub fn wait_for_bytes(&mut self) -> anyhow::Result<()> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        if wait(&mut fds, PATIENCE)? == 0 {
            bail!("the server does not answer");
        }
        if self.receive()? == Line::Closed && self.input.len() == self.parsed {
            bail!("the server has hung up");
        }
        Ok(())
    }

    /// Sends commands and waits for their replies.
    ///
    /// # Errors
    /// When one doesn't come.
    pub fn ask_all(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Reply>> {
        commands.iter().for_each(|command| self.push(command));
        self.flush()?;
        commands.iter().map(|_| self.wait_for_reply()).collect()
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// When it doesn't come.
    pub fn ask(&mut self, command: &Command) -> anyhow::Result<Reply> {
        self.ask_all(std::slice::from_ref(command))?.pop().context("no reply")
    }

    /// Hangs up.
    ///
    /// # Errors
    /// When the system fails.
    pub fn hang_up(self, how: Farewell) -> io::Result<()> {
        if how == Farewell::Reset {
            set_socket_linger(&self.stream, Some(Duration::ZERO))?;
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until one of these is ready: how many are.
///
/// # Errors
/// When the system fails.
pub fn wait(fds: &mut [PollFd<'_>], limit: Duration) -> io::Result<usize> {
    let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    match poll(fds, Some(&limit)) {
        Ok(ready) => Ok(ready),
        Err(rustix::io::Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
