//! The waiting lines: who waits for which lock, in order of arrival.
//!
//! A line only knows who stands in it. That a lock is free, and who gets it, is decided by the hash and by
//! [`super::acquire`]; this says who comes first. To join, to leave from anywhere and to be served take
//! constant time, however many wait.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, hash_table};

use super::arena::Arena;
use super::chain::{Chain, Chains};
use super::index::Index;
use super::name::PackedKey;
use super::wheel::Wheel;
use super::{Ask, MonotonicMs};

/// The lists that a waiter is in: its lock's line, the requests of its owner in that line, all waiters of
/// the node. Each is in order of arrival.
const IN_LINE: usize = 0;
const OF_OWNER: usize = 1;
const OF_NODE: usize = 2;

/// When a crowd larger than this has left for good, the room it took is given back.
const SMALL: usize = 1024;

/// A place in a line. It is never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    id: u32,
    serial: u64,
}

/// Who joins a line.
#[derive(Debug)]
pub struct Newcomer<'a, C> {
    /// In whose name it waits.
    pub owner: &'a [u8],
    /// What it asks for.
    pub ask: Ask,
    /// Until when it waits; `None`: without end.
    pub deadline: Option<MonotonicMs>,
    /// How it is reached.
    pub client: C,
}

/// Who waits.
#[derive(Debug)]
pub struct Waiter<C> {
    line: u32,
    group: u32,
    serial: u64,
    /// What it asks for.
    pub ask: Ask,
    /// When it joined.
    pub since: MonotonicMs,
    /// How it is reached.
    pub client: C,
}

#[derive(Debug)]
struct Line {
    key: PackedKey,
    queue: Chain,
}

/// The requests of one owner in one line.
#[derive(Debug)]
struct Group {
    line: u32,
    owner: Box<[u8]>,
    requests: Chain,
}

/// All lines of this node.
#[derive(Debug)]
pub struct Lines<C> {
    waiters: Arena<Waiter<C>>,
    chains: Chains<3>,
    arrivals: Chain,
    deadlines: Wheel,
    lines: Arena<Line>,
    by_name: Index,
    groups: Arena<Group>,
    by_owner: Index,
    hasher: DefaultHashBuilder,
    serial: u64,
}

impl<C> Default for Lines<C> {
    fn default() -> Self {
        Self {
            waiters: Arena::default(),
            chains: Chains::default(),
            arrivals: Chain::default(),
            deadlines: Wheel::default(),
            lines: Arena::default(),
            by_name: Index::default(),
            groups: Arena::default(),
            by_owner: Index::default(),
            hasher: DefaultHashBuilder::default(),
            serial: 0,
        }
    }
}

impl<C> Lines<C> {
    /// How many wait, for whatever lock.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// When the one joined who waits for the longest time of all.
    pub fn oldest(&self) -> Option<MonotonicMs> {
        Some(self.waiters.get(self.arrivals.first()?)?.since)
    }

    /// The ticket that [`Lines::join`] gives out next.
    pub fn next_ticket(&self) -> Ticket {
        Ticket { id: self.waiters.next_id(), serial: self.serial }
    }

    /// Joins the line for a lock, at its end.
    pub fn join(&mut self, db: u32, name: &[u8], newcomer: Newcomer<'_, C>, now: MonotonicMs) -> Ticket {
        let line = self.find_or_insert_line(db, name);
        let group = self.find_or_insert_group(line, newcomer.owner);
        let ticket = self.next_ticket();
        self.serial += 1;
        let Newcomer { ask, deadline, client, .. } = newcomer;
        let waiter = Waiter { line, group, serial: ticket.serial, ask, since: now, client };
        let id = self.waiters.insert(waiter);
        if let Some(line) = self.lines.get_mut(line) {
            self.chains.append(IN_LINE, &mut line.queue, id);
        }
        if let Some(group) = self.groups.get_mut(group) {
            self.chains.append(OF_OWNER, &mut group.requests, id);
        }
        self.chains.append(OF_NODE, &mut self.arrivals, id);
        match deadline {
            Some(deadline) => {
                self.deadlines.schedule(id, deadline, now);
            }
            None => self.deadlines.park(id),
        }
        ticket
    }

    /// Takes somebody out of its line, wherever it stands; `None` where it has left already.
    pub fn leave(&mut self, ticket: Ticket) -> Option<Waiter<C>> {
        self.get(ticket)?;
        let waiter = self.waiters.remove(ticket.id)?;
        self.deadlines.park(ticket.id);
        self.chains.remove(OF_NODE, &mut self.arrivals, ticket.id);
        self.leave_group(&waiter, ticket.id);
        self.leave_line(&waiter, ticket.id);
        if self.waiters.len() == 0 && self.waiters.reached() > SMALL {
            let deadlines = Wheel::starting_at(self.deadlines.now());
            *self = Self { serial: self.serial, deadlines, ..Self::default() };
        }
        Some(waiter)
    }

    /// Somebody who waits.
    pub fn get(&self, ticket: Ticket) -> Option<&Waiter<C>> {
        let known = (ticket.id as usize) < self.waiters.reached();
        let waiter = known.then(|| self.waiters.get(ticket.id)).flatten()?;
        (waiter.serial == ticket.serial).then_some(waiter)
    }

    /// In whose name somebody waits.
    pub fn owner(&self, ticket: Ticket) -> Option<&[u8]> {
        Some(&self.groups.get(self.get(ticket)?.group)?.owner)
    }

    /// The database and the name of the lock that somebody waits for.
    pub fn lock(&self, ticket: Ticket) -> Option<(u32, &[u8])> {
        Some(self.lines.get(self.get(ticket)?.line)?.key.unpack())
    }

    /// Does anybody wait for this lock?
    pub fn stands(&self, db: u32, name: &[u8]) -> bool {
        self.waiters.len() > 0 && self.find_line(db, name).is_some()
    }

    /// How many wait for this lock.
    pub fn len(&self, db: u32, name: &[u8]) -> u32 {
        self.find_line(db, name).map_or(0, |line| line.queue.len())
    }

    /// The first in the line for this lock.
    pub fn first(&self, db: u32, name: &[u8]) -> Option<Ticket> {
        self.ticket(self.find_line(db, name)?.queue.first()?)
    }

    /// The first in that line who waits in this owner's name.
    pub fn first_of(&self, db: u32, name: &[u8], owner: &[u8]) -> Option<Ticket> {
        let line = self.find_line_id(db, name)?;
        let group = self.groups.get(self.find_group(line, owner)?)?;
        self.ticket(group.requests.first()?)
    }

    /// The owners in line for this lock, in order, and since when each waits.
    pub fn queue(&self, db: u32, name: &[u8]) -> impl Iterator<Item = (&[u8], MonotonicMs)> {
        let queue = self.find_line(db, name).map(|line| line.queue).unwrap_or_default();
        self.chains.walk(IN_LINE, queue).filter_map(|id| {
            let waiter = self.waiters.get(id)?;
            Some((&*self.groups.get(waiter.group)?.owner, waiter.since))
        })
    }

    /// Somebody whose time is up by `now`, the earliest first. It stays in line, but does not come up again.
    pub fn pop_due(&mut self, now: MonotonicMs) -> Option<Ticket> {
        let id = self.deadlines.pop_due(now)?;
        self.ticket(id)
    }

    /// When [`Lines::pop_due`] has to be called next, at the latest.
    pub fn next_wake(&self) -> Option<MonotonicMs> {
        self.deadlines.next_wake()
    }

    /// The first line at or behind this place among all lines: the place behind it, and its lock.
    pub fn line_from(&self, place: u32) -> Option<(u32, u32, &[u8])> {
        (place..self.lines.reached() as u32).find_map(|id| {
            let (db, name) = self.lines.get(id)?.key.unpack();
            Some((id + 1, db, name))
        })
    }

    fn ticket(&self, id: u32) -> Option<Ticket> {
        Some(Ticket { id, serial: self.waiters.get(id)?.serial })
    }

    fn find_line_id(&self, db: u32, name: &[u8]) -> Option<u32> {
        let is = |id| self.lines.get(id).is_some_and(|line| line.key.unpack() == (db, name));
        self.by_name.find(self.hasher.hash_one((db, name)), is)
    }

    fn find_line(&self, db: u32, name: &[u8]) -> Option<&Line> {
        self.lines.get(self.find_line_id(db, name)?)
    }

    fn find_or_insert_line(&mut self, db: u32, name: &[u8]) -> u32 {
        let (lines, hasher) = (&self.lines, &self.hasher);
        let place = self.by_name.entry(
            hasher.hash_one((db, name)),
            |id| lines.get(id).is_some_and(|line| line.key.unpack() == (db, name)),
            |id| hasher.hash_one(lines.get(id).map(|line| line.key.unpack()).unwrap_or_default()),
        );
        match place {
            hash_table::Entry::Occupied(found) => *found.get(),
            hash_table::Entry::Vacant(place) => {
                let line = Line { key: PackedKey::new(db, name), queue: Chain::default() };
                *place.insert(self.lines.insert(line)).get()
            }
        }
    }

    fn find_group(&self, line: u32, owner: &[u8]) -> Option<u32> {
        let is = |id| self.groups.get(id).is_some_and(|group| (group.line, &*group.owner) == (line, owner));
        self.by_owner.find(self.hasher.hash_one((line, owner)), is)
    }

    fn find_or_insert_group(&mut self, line: u32, owner: &[u8]) -> u32 {
        let (groups, hasher) = (&self.groups, &self.hasher);
        let place = self.by_owner.entry(
            hasher.hash_one((line, owner)),
            |id| groups.get(id).is_some_and(|group| (group.line, &*group.owner) == (line, owner)),
            |id| hasher.hash_one(groups.get(id).map(|group| (group.line, &*group.owner)).unwrap_or_default()),
        );
        match place {
            hash_table::Entry::Occupied(found) => *found.get(),
            hash_table::Entry::Vacant(place) => {
                let group = Group { line, owner: owner.into(), requests: Chain::default() };
                *place.insert(self.groups.insert(group)).get()
            }
        }
    }

    fn leave_group(&mut self, waiter: &Waiter<C>, id: u32) {
        let Some(group) = self.groups.get_mut(waiter.group) else { return };
        self.chains.remove(OF_OWNER, &mut group.requests, id);
        if group.requests.len() == 0 {
            let hash = self.hasher.hash_one((group.line, &*group.owner));
            self.by_owner.remove(hash, |id| id == waiter.group);
            self.groups.remove(waiter.group);
        }
    }

    fn leave_line(&mut self, waiter: &Waiter<C>, id: u32) {
        let Some(line) = self.lines.get_mut(waiter.line) else { return };
        self.chains.remove(IN_LINE, &mut line.queue, id);
        if line.queue.len() == 0 {
            let hash = self.hasher.hash_one(line.key.unpack());
            self.by_name.remove(hash, |id| id == waiter.line);
            self.lines.remove(waiter.line);
        }
    }
}

#[cfg(test)]
mod tests;
