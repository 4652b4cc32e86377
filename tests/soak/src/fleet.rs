//! The clients, and what each of them waits for.

use std::collections::VecDeque;

use anyhow::{Context as _, bail};

use crate::ask::{Ask, Sent};
use crate::cast::{DATABASES, Lock, Owner};
use crate::connection::{Connection, Farewell};
use crate::resp::{Reply, words};

/// How many clients do what befalls others, and never wait in line nor go.
pub const MEDDLERS: usize = 6;

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its connection, unless it is gone.
    pub connection: Option<Connection>,
    /// The server's number for it.
    pub id: u64,
    /// Its database.
    pub db: u8,
    /// Its requests without a reply.
    pub expected: VecDeque<Sent>,
    /// Somebody has asked the server to kill it.
    pub doomed: bool,
}

/// How a client went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It hung up.
    HungUp(Farewell),
    /// Another client had it killed: whatever the server has told it is known.
    Killed,
}

/// Who stands in a line, as far as is certain.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Its client.
    pub client: usize,
    /// Its request.
    pub serial: u64,
    /// The round in which it was sent.
    pub round: u64,
    /// For which lock.
    pub lock: Lock,
    /// In whose name.
    pub owner: Owner,
}

impl Client {
    fn open(port: u16, db: u8) -> anyhow::Result<Self> {
        let mut connection = Connection::open(port)?;
        let select = words(&format!("SELECT {db}"));
        match &connection.ask_all(&[select, words("CLIENT ID")])?[..] {
            [_, Reply::Int(id)] => {
                let id = id.cast_unsigned();
                Ok(Self { connection: Some(connection), id, db, expected: VecDeque::new(), doomed: false })
            }
            replies => bail!("no client: {replies:?}"),
        }
    }

    /// Must its next reply come at once?
    pub fn owes(&self) -> bool {
        self.doomed || self.expected.front().is_some_and(|sent| !sent.ask.may_wait())
    }

    /// Its request in line, if it has one.
    pub fn waiting(&self) -> Option<&Sent> {
        self.expected.front().filter(|sent| sent.ask.may_wait())
    }

    /// Can it be sent something that is carried out at once?
    pub fn is_idle(&self) -> bool {
        self.connection.is_some() && !self.doomed && !self.expected.iter().any(|sent| sent.ask.may_wait())
    }
}

/// All clients.
#[derive(Debug)]
pub struct Fleet {
    /// The server's port.
    pub port: u16,
    /// The clients; the meddlers come first.
    pub clients: Vec<Client>,
}

impl Fleet {
    /// Connects so many clients, half of them to each database.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn connect(port: u16, count: usize) -> anyhow::Result<Self> {
        let clients = (0..count)
            .map(|number| Client::open(port, (number % usize::from(DATABASES)) as u8))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { port, clients })
    }

    /// Puts new clients in the place of those who are gone.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn replace_the_gone(&mut self) -> anyhow::Result<()> {
        for client in &mut self.clients {
            if client.connection.is_none() {
                *client = Client::open(self.port, client.db).context("a new client")?;
            }
        }
        Ok(())
    }

    /// The number of an idle client, the first from this place on.
    pub fn idle_from(&self, start: usize, among: std::ops::Range<usize>) -> Option<usize> {
        let count = among.len();
        (0..count)
            .map(|step| among.start + (start + step) % count)
            .find(|number| self.clients[*number].is_idle())
    }

    /// Who waits in line.
    pub fn line(&self) -> Vec<Waiter> {
        let waiter = |(client, owner): (usize, &Client)| {
            let sent = owner.waiting()?;
            let Ask::Acquire { lock, owner, .. } = sent.ask else { return None };
            Some(Waiter { client, serial: sent.serial, round: sent.round, lock, owner })
        };
        self.clients.iter().enumerate().filter_map(waiter).collect()
    }

    /// Is that request still without a reply, and its client there?
    pub fn still_waits(&self, waiter: &Waiter) -> bool {
        let client = &self.clients[waiter.client];
        client.connection.is_some()
            && !client.doomed
            && client.expected.front().is_some_and(|sent| sent.serial == waiter.serial)
    }
}
