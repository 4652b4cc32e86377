//! One connection whose replies are read one at a time, when they come.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, ensure};
use redis::Value;
use redis_lock_testkit::Server;

use crate::resp::split_reply;

/// The name of the Unix socket in the data directory of a server that was told to have one.
pub const SOCKET: &str = "server.sock";

/// A connection to the server.
#[derive(Debug)]
pub struct Peer {
    /// A file only in that it is read and written so.
    socket: File,
    /// What has been read and belongs to no reply that was taken.
    input: Vec<u8>,
}

impl Peer {
    /// Connects to the server's port.
    pub fn over_tcp(server: &Server) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
        stream.set_nodelay(true)?;
        Ok(Self::new(stream.into()))
    }

    /// Connects to the server's [`SOCKET`]: there are only 2^16 ports.
    pub fn over_unix_socket(server: &Server) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(server.dir().join(SOCKET))?;
        Ok(Self::new(stream.into()))
    }

    fn new(socket: OwnedFd) -> Self {
        Self { socket: socket.into(), input: Vec::new() }
    }

    /// Sends a command.
    pub fn send(&self, command: &[&str]) -> anyhow::Result<()> {
        self.send_packed(&packed(command))
    }

    /// Sends a command that has been [packed].
    pub fn send_packed(&self, command: &[u8]) -> anyhow::Result<()> {
        Ok((&self.socket).write_all(command)?)
    }

    /// Sends a command and waits for the reply.
    pub fn ask(&mut self, command: &[&str]) -> anyhow::Result<Value> {
        self.send(command)?;
        self.receive()
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> anyhow::Result<Value> {
        loop {
            if let Some(reply) = self.take()? {
                return Ok(reply);
            }
            self.read()?;
        }
    }

    /// Reads once; waits where nothing is there.
    pub fn read(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; 4_096];
        let length = (&self.socket).read(&mut buffer).context("can't read a reply")?;
        ensure!(length > 0, "the server closed the connection");
        self.input.extend_from_slice(&buffer[..length]);
        Ok(())
    }

    /// The next reply, where it has been read in full.
    pub fn take(&mut self) -> anyhow::Result<Option<Value>> {
        let Some((reply, rest)) = split_reply(&self.input)? else {
            return Ok(None);
        };
        let taken = self.input.len() - rest.len();
        self.input.drain(..taken);
        if self.input.is_empty() {
            // A hundred thousand of them would add up.
            self.input = Vec::new();
        }
        Ok(Some(reply))
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A command on the wire.
pub fn packed(command: &[&str]) -> Vec<u8> {
    redis::Cmd::new().arg(command).get_packed_command()
}

/// The first integer of an array, as LOCK.ACQUIRE's hold count.
pub fn first_integer(reply: &Value) -> anyhow::Result<i64> {
    match reply {
        Value::Array(parts) => match parts.first() {
            Some(Value::Int(number)) => Ok(*number),
            _ => anyhow::bail!("{reply:?} does not begin with an integer"),
        },
        _ => anyhow::bail!("{reply:?} is no array"),
    }
}
