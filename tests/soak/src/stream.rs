//! The replication stream, as a replica without data sees it: every change of every lock, in order.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::connection::{Connection, Line};
use crate::resp::{Command, Reply, words};

/// A master lets a replica go that it has not heard of for a minute.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// A connection on which a master sends its changes.
#[derive(Debug)]
pub struct Stream {
    /// The connection.
    pub connection: Connection,
    heard_of: Instant,
}

impl Stream {
    /// Follows a master. It should hold nothing yet, as its snapshot is thrown away.
    ///
    /// # Errors
    /// When it does not take us for a replica.
    pub fn follow(port: u16) -> anyhow::Result<Self> {
        let mut connection = Connection::open(port)?;
        connection.ask(&words(&format!("REPLCONF listening-port {port}")))?;
        let answer = connection.ask(&words("PSYNC ? -1"))?;
        ensure!(answer.text().is_some_and(|text| text.starts_with(b"FULLRESYNC")), "PSYNC: {answer:?}");
        let size = loop {
            if let Some(header) = take_header(&mut connection) {
                break header.strip_prefix(b"$").map(<[u8]>::to_vec).context("no snapshot")?;
            }
            connection.wait_for_bytes()?;
        };
        let mut left: usize = std::str::from_utf8(&size)?.parse().context("a snapshot of unknown size")?;
        while left > 0 {
            connection.take_raw(|bytes| {
                let read = bytes.len().min(left);
                left -= read;
                read
            });
            if left > 0 {
                connection.wait_for_bytes()?;
            }
        }
        let mut stream = Self { connection, heard_of: Instant::now() };
        stream.give_sign_of_life()?;
        Ok(stream)
    }

    /// The changes that have arrived.
    ///
    /// # Errors
    /// When the master has hung up, or sends what is no command.
    pub fn changes(&mut self) -> anyhow::Result<Vec<Command>> {
        if self.heard_of.elapsed() > SIGN_OF_LIFE {
            self.give_sign_of_life()?;
        }
        if self.connection.receive()? == Line::Closed {
            bail!("the master has cut the replication stream");
        }
        let mut changes = Vec::new();
        while let Some(reply) = self.connection.next()? {
            let Reply::Array(items) = reply else { bail!("no command in the stream: {reply:?}") };
            let words = items.into_iter().map(|item| match item {
                Reply::Text(word) => Ok(word),
                other => bail!("no word in the stream: {other:?}"),
            });
            changes.push(words.collect::<anyhow::Result<Command>>()?);
        }
        Ok(changes)
    }

    fn give_sign_of_life(&mut self) -> anyhow::Result<()> {
        self.heard_of = Instant::now();
        self.connection.push(&words("REPLCONF ACK 0"));
        Ok(self.connection.flush()?)
    }
}

/// The line that announces the snapshot; line feeds before it only keep the connection up.
fn take_header(connection: &mut Connection) -> Option<Vec<u8>> {
    let mut header = None;
    connection.take_raw(|bytes| {
        let blank = bytes.iter().take_while(|byte| **byte == b'\n').count();
        match bytes[blank..].windows(2).position(|pair| pair == b"\r\n") {
            Some(end) => {
                header = Some(bytes[blank..blank + end].to_vec());
                blank + end + 2
            }
            None => blank,
        }
    });
    header
}
