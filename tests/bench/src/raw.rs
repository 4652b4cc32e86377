//! A client that costs next to nothing: commands are encoded once, sent many times, and the
//! replies are only counted.

use std::io::{self, Read, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, ensure};
use redis::{Parser, Value};

/// What a command has to answer for the measurement to mean anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Ok,
    /// A null.
    Null,
    /// Exactly this integer.
    Integer(i64),
    /// An integer above zero: a TTL.
    Positive,
    /// Some string.
    Text,
    /// LOCK.ACQUIRE's array, with this number of holds.
    Holds(i64),
}

impl Reply {
    fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Ok, Value::Okay) | (Self::Null, Value::Nil) => true,
            (Self::Text, Value::BulkString(_)) => true,
            (Self::Integer(expected), Value::Int(actual)) => expected == *actual,
            (Self::Positive, Value::Int(actual)) => *actual > 0,
            (Self::Holds(expected), Value::Array(parts)) => parts.first() == Some(&Value::Int(expected)),
            _ => false,
        }
    }
}

/// Commands on the wire, in pieces: the next is sent when the last has been answered.
#[derive(Clone, Debug)]
pub struct Batch {
    pieces: Vec<Piece>,
    limit: Limit,
}

/// When a piece is complete.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Bytes(usize),
    Commands(usize),
}

#[derive(Clone, Debug)]
struct Piece {
    bytes: Vec<u8>,
    replies: Vec<Reply>,
}

/// Many of the server's own reads (16 kB), so that it seldom waits for the next piece, and few
/// enough that the replies don't pile up.
const PIPELINE: usize = 256 * 1024;

impl Batch {
    /// Commands that are sent without waiting for the replies.
    pub fn pipelined() -> Self {
        Self { pieces: Vec::new(), limit: Limit::Bytes(PIPELINE) }
    }

    /// So many commands at a time, the next when all of these have been answered.
    pub fn at_a_time(commands: usize) -> Self {
        Self { pieces: Vec::new(), limit: Limit::Commands(commands) }
    }

    /// Adds a command and what it has to answer.
    pub fn push(&mut self, args: &[&str], reply: Reply) {
        let command = redis::Cmd::new().arg(args).get_packed_command();
        match self.pieces.last_mut() {
            Some(piece) if !piece.is_complete(self.limit) => piece.push(command, reply),
            _ => self.pieces.push(Piece { bytes: command, replies: vec![reply] }),
        }
    }
}

impl Piece {
    fn is_complete(&self, limit: Limit) -> bool {
        match limit {
            Limit::Bytes(bytes) => self.bytes.len() >= bytes,
            Limit::Commands(commands) => self.replies.len() >= commands,
        }
    }

    fn push(&mut self, command: Vec<u8>, reply: Reply) {
        self.bytes.extend(command);
        self.replies.push(reply);
    }
}

/// A batch that has been sent once and so is known to work.
#[derive(Clone, Debug)]
pub struct Rehearsed(Vec<(Vec<u8>, usize)>);

/// One connection for pipelined batches.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    buffer: Box<[u8]>,
}

impl RawConnection {
    /// Connects to the server on this port of 127.0.0.1.
    pub fn open(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 256 * 1024].into() })
    }

    /// Sends the batch and compares each reply with the expected one.
    pub fn send(&mut self, batch: &Batch) -> anyhow::Result<()> {
        for piece in &batch.pieces {
            self.send_piece(piece)?;
        }
        Ok(())
    }

    /// As [`send`](Self::send); also learns how long the replies are.
    pub fn rehearse(&mut self, batch: Batch) -> anyhow::Result<Rehearsed> {
        let mut rehearsed = Vec::with_capacity(batch.pieces.len());
        for piece in batch.pieces {
            let lines = self.send_piece(&piece)?;
            rehearsed.push((piece.bytes, lines));
        }
        Ok(Rehearsed(rehearsed))
    }

    /// Returns the number of lines of the replies.
    fn send_piece(&mut self, piece: &Piece) -> anyhow::Result<usize> {
        self.stream.write_all(&piece.bytes)?;
        let mut source = LineCounter { source: &self.stream, lines: 0 };
        let mut parser = Parser::new();
        for (index, reply) in piece.replies.iter().enumerate() {
            let value = parser.parse_value(&mut source)?;
            ensure!(reply.fits(&value), "command {index} of a batch answered {value:?} instead of {reply:?}");
        }
        Ok(source.lines)
    }

    /// Sends the batch and waits for the last reply.
    ///
    /// A reply's number of lines doesn't depend on the numbers in it, so counting line ends finds
    /// the last one without parsing any.
    pub fn run(&mut self, batch: &Rehearsed) -> anyhow::Result<()> {
        for (bytes, lines) in &batch.0 {
            self.stream.write_all(bytes)?;
            let mut missing = *lines;
            while missing > 0 {
                let length = self.stream.read(&mut self.buffer)?;
                ensure!(length > 0, "the server closed the connection");
                missing = missing
                    .checked_sub(count_lines(&self.buffer[..length]))
                    .context("more replies than commands")?;
            }
        }
        Ok(())
    }
}

struct LineCounter<'a> {
    source: &'a TcpStream,
    lines: usize,
}

impl Read for LineCounter<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.lines += count_lines(&buffer[..length]);
        Ok(length)
    }
}

fn count_lines(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_resp() {
        let mut batch = Batch::pipelined();
        batch.push(&["GET", "k"], Reply::Text);
        assert_eq!(batch.pieces[0].bytes, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }

    #[test]
    fn only_a_pipeline_sends_the_next_command_with_the_last() {
        for (mut batch, pieces) in [(Batch::pipelined(), 1), (Batch::at_a_time(1), 2)] {
            batch.push(&["PING"], Reply::Text);
            batch.push(&["PING"], Reply::Text);
            assert_eq!(batch.pieces.len(), pieces);
        }
    }

    #[test]
    fn a_denied_lock_is_not_taken_for_a_granted_one() {
        let denied = Value::Array(vec![Value::Int(0), Value::Int(9), Value::Int(7)]);
        assert!(!Reply::Holds(1).fits(&denied));
        assert!(Reply::Holds(0).fits(&denied));
    }
}
