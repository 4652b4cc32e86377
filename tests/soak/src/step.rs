//! Chooses what is done next.

use std::collections::HashSet;
use std::ops::Range;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::ask::{Ask, Form};
use crate::cast::{Lock, OWNERS, Owner};
use crate::connection::Farewell;
use crate::fleet::{Fleet, MEDDLERS, Waiter};
use crate::foreign::{self, Trade};
use crate::resp::words;
use crate::shadow::Shadow;

/// Something that is done to the server.
#[derive(Debug)]
pub enum Deed {
    /// A client sends these in one go.
    Send(usize, Vec<Ask>),
    /// A client hangs up.
    HangUp(usize, Farewell),
}

/// May anybody pause writes, or be unblocked, in this round? Some servers unblock by CLIENT UNBLOCK also whom
/// they only make wait for the end of a pause, so one excludes the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Climate {
    /// Clients may be unblocked.
    Usual,
    /// Writes may be paused.
    Pauses,
}

/// What a choice depends on.
#[derive(Debug)]
pub struct Scene<'s> {
    pub fleet: &'s Fleet,
    pub shadow: &'s Shadow,
    pub trade: &'s Trade,
    pub climate: Climate,
    pub number: u64,
}

/// The dice for one step: those of a step do not depend on how earlier steps went.
pub fn dice(seed: u64, number: u64) -> StdRng {
    StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number)
}

impl Scene<'_> {
    /// What is done in a step.
    pub fn choose(&self, rng: &mut StdRng) -> Vec<Deed> {
        let meddlers = 0..MEDDLERS;
        let all = 0..self.fleet.clients.len();
        match rng.random_range(0..1000) {
            0..380 => self.one(rng, MEDDLERS..all.end, Self::acquire),
            380..600 => self.one(rng, all, |scene, lock, rng| scene.release(lock, rng)),
            600..650 => self.one(rng, all, Self::renew),
            650..665 => self.one(rng, all, |_, lock, _| Ask::Force { lock }),
            665..695 => self.one(rng, all, |_, lock, _| Ask::Info { lock }),
            695..745 => self.one(rng, all, |scene, lock, rng| scene.trade.edit(lock, rng)),
            745..785 => self.one(rng, all, Self::redisson),
            785..815 => self.transaction(rng, all),
            815..840 => self.one(rng, all, |scene, lock, rng| Ask::Script(scene.several(lock, rng))),
            840..880 => self.hang_up(rng),
            880..900 => self.befall_anybody(rng),
            900..960 => self.race(rng),
            960..990 => self.acquire_and_more(rng, MEDDLERS..all.end),
            990..997 => self.stall(rng, meddlers),
            _ => self.pause(rng, meddlers),
        }
    }

    fn one(
        &self,
        rng: &mut StdRng,
        among: Range<usize>,
        ask: impl Fn(&Self, Lock, &mut StdRng) -> Ask,
    ) -> Vec<Deed> {
        let Some(client) = self.idle(rng, among) else { return Vec::new() };
        let lock = self.lock(client, rng);
        vec![Deed::Send(client, vec![ask(self, lock, rng)])]
    }

    fn idle(&self, rng: &mut StdRng, among: Range<usize>) -> Option<usize> {
        self.fleet.idle_from(rng.random_range(0..among.len()), among)
    }

    /// Some locks are more in demand than others.
    fn lock(&self, client: usize, rng: &mut StdRng) -> Lock {
        let number = rng.random_range(0..8).min(rng.random_range(0..8));
        Lock::new(self.fleet.clients[client].db, number)
    }

    fn owner(rng: &mut StdRng) -> Owner {
        Owner(rng.random_range(0..OWNERS))
    }

    /// Mostly who holds the lock.
    fn holder(&self, lock: Lock, rng: &mut StdRng) -> Owner {
        let stranger = Self::owner(rng);
        let mostly = rng.random_ratio(9, 10);
        self.shadow.value(lock).holder().filter(|_| mostly).unwrap_or(stranger)
    }

    fn ttl(rng: &mut StdRng) -> i64 {
        match rng.random_range(0..10) {
            0..4 => rng.random_range(1..=100),
            4..8 => rng.random_range(100..=1000),
            _ => rng.random_range(1000..=4000),
        }
    }

    fn acquire(&self, lock: Lock, rng: &mut StdRng) -> Ask {
        let block = match rng.random_range(0..10) {
            0..2 => None,
            2..5 => Some(rng.random_range(1..=50)),
            5..8 => Some(rng.random_range(200..=5000)),
            _ => Some(0),
        };
        let holds = rng.random_ratio(1, 5).then(|| rng.random_range(1..=3));
        Ask::Acquire { lock, owner: Self::owner(rng), ttl: Self::ttl(rng), holds, block }
    }

    fn release(&self, lock: Lock, rng: &mut StdRng) -> Ask {
        let waiting: Vec<Owner> =
            self.fleet.line().iter().filter(|w| w.lock == lock).map(|w| w.owner).collect();
        let (keep, owner) = match rng.random_range(0..10) {
            0..7 => (None, self.holder(lock, rng)),
            7 => (Some(rng.random_range(1..=2)), self.holder(lock, rng)),
            8 => (Some(0), self.holder(lock, rng)),
            _ => (Some(0), waiting.choose(rng).copied().unwrap_or_else(|| self.holder(lock, rng))),
        };
        Ask::Release { lock, owner, keep }
    }

    fn renew(&self, lock: Lock, rng: &mut StdRng) -> Ask {
        Ask::Renew { lock, owner: self.holder(lock, rng), ttl: Self::ttl(rng) / 2 + 1 }
    }

    fn redisson(&self, lock: Lock, rng: &mut StdRng) -> Ask {
        if rng.random_ratio(1, 2) {
            foreign::redisson_acquire(lock, Self::owner(rng), Self::ttl(rng) / 4 + 1)
        } else {
            foreign::redisson_unlock(lock, self.holder(lock, rng), self.number)
        }
    }

    /// What a transaction or a script may consist of.
    fn several(&self, lock: Lock, rng: &mut StdRng) -> Vec<Ask> {
        (0..rng.random_range(1..=3))
            .map(|_| match rng.random_range(0..6) {
                0 => self.acquire(lock, rng),
                1 | 2 => self.release(lock, rng),
                3 => self.renew(lock, rng),
                4 => Ask::Force { lock },
                _ => self.trade.edit(lock, rng),
            })
            .collect()
    }

    fn transaction(&self, rng: &mut StdRng, among: Range<usize>) -> Vec<Deed> {
        let Some(client) = self.idle(rng, among) else { return Vec::new() };
        let parts = self.several(self.lock(client, rng), rng);
        let queued = parts.iter().map(|part| Ask::Queued(Box::new(part.clone())));
        let asks = std::iter::once(Ask::Multi).chain(queued).chain([Ask::Exec(parts.clone())]).collect();
        vec![Deed::Send(client, asks)]
    }

    /// A waiting request with another behind it, which is carried out when the wait is over.
    fn acquire_and_more(&self, rng: &mut StdRng, among: Range<usize>) -> Vec<Deed> {
        let Some(client) = self.idle(rng, among) else { return Vec::new() };
        let lock = self.lock(client, rng);
        let ask = self.acquire(lock, rng);
        let Ask::Acquire { owner, .. } = ask else { return Vec::new() };
        let keep = rng.random_ratio(1, 2).then_some(0);
        vec![Deed::Send(client, vec![ask, Ask::Release { lock, owner, keep }])]
    }

    fn hang_up(&self, rng: &mut StdRng) -> Vec<Deed> {
        let client = rng.random_range(MEDDLERS..self.fleet.clients.len());
        let how = if rng.random_ratio(1, 2) { Farewell::Close } else { Farewell::Reset };
        let there = self.fleet.clients[client].connection.is_some() && !self.fleet.clients[client].doomed;
        if there { vec![Deed::HangUp(client, how)] } else { Vec::new() }
    }

    fn befall_anybody(&self, rng: &mut StdRng) -> Vec<Deed> {
        let Some(meddler) = self.idle(rng, 0..MEDDLERS) else { return Vec::new() };
        let victim = rng.random_range(MEDDLERS..self.fleet.clients.len());
        vec![Deed::Send(meddler, self.befall(victim, rng).into_iter().collect())]
    }

    /// What takes a client out of its line.
    fn befall(&self, victim: usize, rng: &mut StdRng) -> Option<Ask> {
        let client = &self.fleet.clients[victim];
        if client.connection.is_none() || client.doomed {
            return None;
        }
        let (id, serial) = (client.id, client.waiting().map(|sent| sent.serial));
        match rng.random_range(0..3) {
            0 => Some(Ask::Kill { id }),
            _ if self.climate == Climate::Pauses => None,
            1 => Some(Ask::Unblock { client: victim, id, serial, form: Form::Timeout }),
            _ => Some(Ask::Unblock { client: victim, id, serial, form: Form::Error }),
        }
    }

    /// In one write a lock becomes free and something befalls those who are first in line for it.
    fn race(&self, rng: &mut StdRng) -> Vec<Deed> {
        let Some(meddler) = self.idle(rng, 0..MEDDLERS) else { return Vec::new() };
        let db = self.fleet.clients[meddler].db;
        let mut line = self.fleet.line();
        line.retain(|waiter| waiter.lock.db() == db);
        let Some(Waiter { lock, .. }) = line.choose(rng).copied() else { return Vec::new() };
        line.retain(|waiter| waiter.lock == lock);
        line.sort_by_key(|waiter| waiter.serial);
        let mut asks = vec![match rng.random_range(0..8) {
            0..4 => Ask::Release { lock, owner: self.holder(lock, rng), keep: Some(0) },
            4 | 5 => Ask::Force { lock },
            _ => self.trade.edit(lock, rng),
        }];
        let mut deeds = Vec::new();
        for waiter in line.iter().take(rng.random_range(1..=3)) {
            match rng.random_range(0..8) {
                0 => deeds.push(Deed::HangUp(waiter.client, Farewell::Close)),
                1 => asks.push(Ask::Release { lock, owner: waiter.owner, keep: Some(0) }),
                2 => asks.push(Ask::Renew { lock, owner: waiter.owner, ttl: Self::ttl(rng) }),
                3 => asks.push(Ask::Release { lock, owner: waiter.owner, keep: None }),
                _ => asks.extend(self.befall(waiter.client, rng)),
            }
        }
        // Twice killed is once too often.
        let mut killed = HashSet::new();
        asks.retain(|ask| !matches!(ask, Ask::Kill { id } if !killed.insert(*id)));
        if rng.random_ratio(1, 4) && asks.len() > 1 {
            asks.swap(0, 1);
        }
        deeds.push(Deed::Send(meddler, asks));
        deeds
    }

    /// The server does nothing for a moment, so that all that comes meanwhile is done in one turn.
    fn stall(&self, rng: &mut StdRng, among: Range<usize>) -> Vec<Deed> {
        let Some(client) = self.idle(rng, among) else { return Vec::new() };
        vec![Deed::Send(client, vec![Ask::Plain(words("DEBUG SLEEP 0.002"))])]
    }

    fn pause(&self, rng: &mut StdRng, among: Range<usize>) -> Vec<Deed> {
        let ms = rng.random_range(1..=10);
        if self.climate == Climate::Usual {
            return Vec::new();
        }
        let Some(client) = self.idle(rng, among) else { return Vec::new() };
        vec![Deed::Send(client, vec![Ask::Plain(words(&format!("CLIENT PAUSE {ms} WRITE")))])]
    }
}
