//! A connection, and the transaction that may be open on it.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::resp::{Command, Reply, encode};

/// A server that is silent for longer hangs.
const SILENCE: Duration = Duration::from_secs(30);

/// A connection.
#[derive(Debug)]
pub struct Link {
    reader: BufReader<TcpStream>,
    /// The commands queued since MULTI.
    queued: Option<Vec<Command>>,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self { reader: BufReader::new(stream), queued: None })
    }

    /// Sends commands in one go, and waits for their replies. Pushes are read past.
    ///
    /// # Errors
    /// When the connection ends or the server is silent.
    pub fn ask_all(&mut self, commands: &[Command]) -> io::Result<Vec<Reply>> {
        let mut bytes = Vec::new();
        for command in commands {
            encode(command, &mut bytes);
        }
        self.reader.get_mut().write_all(&bytes)?;
        commands.iter().map(|_| self.next_reply()).collect()
    }

    /// As [`ask_all`](Self::ask_all), for one command.
    ///
    /// # Errors
    /// When the connection ends or the server is silent.
    pub fn ask(&mut self, command: &Command) -> io::Result<Reply> {
        self.tell(command)?;
        self.next_reply()
    }

    /// Sends a command that has no reply but pushes.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn tell(&mut self, command: &Command) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(command, &mut bytes);
        self.reader.get_mut().write_all(&bytes)
    }

    /// Sends bytes that may be anything, then says no more, and waits until the server hangs up.
    ///
    /// # Errors
    /// When the server is silent.
    pub fn blurt(mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.reader.get_mut();
        // The server may hang up in the middle.
        if stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write)).is_err() {
            return Ok(());
        }
        match self.reader.read_to_end(&mut Vec::new()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn next_reply(&mut self) -> io::Result<Reply> {
        loop {
            match Reply::read(&mut self.reader)? {
                Reply::Push(_) => {}
                reply => return Ok(reply),
            }
        }
    }

    /// What was executed with this reply: nothing yet where it was queued, and all that was queued
    /// where it is an EXEC.
    pub fn executed(&mut self, command: Command, reply: Reply) -> Vec<(Command, Reply)> {
        let is = |name: &str| command.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()));
        match (&mut self.queued, &reply) {
            (Some(queued), Reply::Text(text)) if text == b"QUEUED" => {
                queued.push(command);
                return Vec::new();
            }
            (Some(_), Reply::Array(_)) if is("EXEC") => {
                let queued = self.queued.take().unwrap_or_default();
                let Reply::Array(replies) = reply else { return Vec::new() };
                return queued.into_iter().zip(replies).collect();
            }
            (Some(_), _) if is("EXEC") && (reply == Reply::Nil || reply.code() == Some(b"EXECABORT")) => {
                self.queued = None;
            }
            (Some(_), Reply::Text(_)) if is("DISCARD") || is("RESET") => self.queued = None,
            (None, Reply::Text(_)) if is("MULTI") => self.queued = Some(Vec::new()),
            _ => {}
        }
        vec![(command, reply)]
    }
}
