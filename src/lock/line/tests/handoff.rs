//! The lines together with the decisions on a lock: who must hold it, whatever happens.

use super::*;
use crate::lock::{
    Attempt, Entry, Grant, Lease, MAX_HOLDS, Record, Released, TokenCounter, WallMs, Writes, acquire,
    release, renew,
};
use std::collections::BTreeMap;

const LOCKS: [(u32, &[u8]); 2] = [(0, b"a"), (3, b"a")];
/// Who takes locks with scripts of its own, and waits in no line.
const FOREIGN: u8 = 9;

type Owner = u8;

/// An event, mostly on one of the [`LOCKS`].
#[derive(Clone, Debug)]
enum Event {
    /// With `BLOCK` where there is a timeout; 0 is without end.
    Acquire {
        lock: usize,
        owner: Owner,
        ask: Ask,
        block: Option<u64>,
    },
    Renew(usize, Owner, u64),
    Release(usize, Owner, Option<u64>),
    Force(usize),
    /// A script that knows of no line puts its owner there.
    Seize(usize),
    /// The client of some request goes away, perhaps long after the answer.
    Die(Pick),
    /// Time goes by, and what is due happens.
    Advance(u64),
    /// Time goes by, and nobody has looked yet what is due.
    Lapse(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let (lock, owner) = (|| 0..LOCKS.len(), || 0..4_u8);
    let holds = prop_oneof![6 => Just(None), 2 => (1..4_u64).prop_map(Some), 1 => Just(Some(MAX_HOLDS))];
    let token = prop_oneof![4 => Just(0), 1 => 1_000..2_000_u64];
    let any_ask = (1..200_u64, holds, token).prop_map(|(ttl, holds, token)| Ask { ttl, holds, token });
    let block = prop_oneof![1 => Just(None), 2 => Just(Some(0)), 4 => (1..300_u64).prop_map(Some)];
    let keep = prop_oneof![2 => Just(None), 2 => Just(Some(0)), 1 => (1..3_u64).prop_map(Some)];
    prop_oneof![
        30 => (lock(), owner(), any_ask, block)
            .prop_map(|(lock, owner, ask, block)| Event::Acquire { lock, owner, ask, block }),
        3 => (lock(), owner(), 1..300_u64).prop_map(|(lock, owner, ttl)| Event::Renew(lock, owner, ttl)),
        10 => (lock(), owner(), keep).prop_map(|(lock, owner, keep)| Event::Release(lock, owner, keep)),
        2 => lock().prop_map(Event::Force),
        1 => lock().prop_map(Event::Seize),
        6 => any::<Pick>().prop_map(Event::Die),
        6 => (0..150_u64).prop_map(Event::Advance),
        3 => (0..150_u64).prop_map(Event::Lapse),
    ]
}

/// The hash in the keyspace.
#[derive(Debug, Default)]
struct Hash {
    holds: BTreeMap<Owner, u64>,
    token: u64,
    lease_end: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Granted,
    Denied,
    /// There was no hold count left.
    Refused,
    /// Its client went away.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    lock: usize,
    owner: Owner,
    ask: Ask,
    deadline: Option<u64>,
    ticket: Option<Ticket>,
    end: Option<End>,
}

/// A node with its own clock. Requests are numbered in order of arrival.
#[derive(Debug, Default)]
struct Node {
    now: u64,
    lines: Lines<usize>,
    hashes: BTreeMap<usize, Hash>,
    tokens: TokenCounter,
    /// The greatest token so far.
    greatest: u64,
    requests: Vec<Request>,
}

impl Node {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Acquire { lock, owner, ask, block } => self.acquire(lock, owner, ask, block),
            Event::Renew(lock, owner, ttl) => self.renew(lock, owner, ttl),
            Event::Release(lock, owner, keep) => self.release(lock, owner, keep),
            Event::Force(lock) => {
                self.hashes.remove(&lock);
                self.serve(lock);
            }
            Event::Seize(lock) => {
                let holds = BTreeMap::from([(FOREIGN, 1)]);
                self.hashes.insert(lock, Hash { holds, token: 0, lease_end: self.now + 30 });
            }
            Event::Die(_) if self.requests.is_empty() => {}
            Event::Die(pick) => self.die(pick.index(self.requests.len())),
            Event::Advance(by) => self.advance(by),
            Event::Lapse(by) => self.now += by,
        }
    }

    fn acquire(&mut self, lock: usize, owner: Owner, ask: Ask, block: Option<u64>) {
        self.settle(lock);
        let deadline = block.filter(|timeout| *timeout > 0).map(|timeout| self.now + timeout);
        let number = self.requests.len();
        self.requests.push(Request { lock, owner, ask, deadline, ticket: None, end: None });
        if block.is_none() || !matches!(self.read(lock, owner).0, Record::Other { .. }) {
            return self.attempt(number);
        }
        let (db, name) = LOCKS[lock];
        let newcomer = Newcomer { owner: &[owner], ask, deadline: deadline.map(MonotonicMs), client: number };
        self.requests[number].ticket = Some(self.lines.join(db, name, newcomer, MonotonicMs(self.now)));
    }

    fn renew(&mut self, lock: usize, owner: Owner, ttl: u64) {
        self.settle(lock);
        let (record, lease) = self.read(lock, owner);
        if let Some(writes) = renew(record, lease, ttl, 0, self.wall(), &mut self.tokens) {
            self.write(lock, owner, writes);
        }
    }

    fn release(&mut self, lock: usize, owner: Owner, keep: Option<u64>) {
        self.settle(lock);
        match release(self.read(lock, owner).0, keep) {
            Released::NotHeld => {}
            Released::Kept { writes, .. } => self.write(lock, owner, writes),
            Released::Free => drop(self.hashes.remove(&lock)),
            Released::Left => panic!("two owners"),
        }
        if keep == Some(0) {
            while let Some(ticket) = self.first_of(lock, owner) {
                self.leave(ticket, End::Denied);
            }
        }
        self.serve(lock);
    }

    fn die(&mut self, number: usize) {
        let Request { ticket: Some(ticket), end, .. } = self.requests[number] else { return };
        match end {
            None => self.leave(ticket, End::Gone),
            Some(_) => assert!(self.lines.leave(ticket).is_none()),
        }
    }

    fn advance(&mut self, by: u64) {
        let target = self.now + by;
        self.turn();
        while let Some(next) = self.next_wake().filter(|next| *next <= target) {
            self.now = self.now.max(next);
            self.turn();
        }
        self.now = target;
        assert!(self.waiting().filter_map(|request| request.deadline).all(|deadline| deadline > target));
    }

    fn next_wake(&self) -> Option<u64> {
        let lease_ends = self.hashes.values().map(|hash| hash.lease_end);
        lease_ends.chain(self.lines.next_wake().map(|wake| wake.0)).min()
    }

    /// A turn of the event loop: leases end, then time-outs are told.
    fn turn(&mut self) {
        for lock in 0..LOCKS.len() {
            self.settle(lock);
        }
        while let Some(ticket) = self.lines.pop_due(MonotonicMs(self.now)) {
            self.leave(ticket, End::Denied);
        }
    }

    /// Takes note of a lease's end, as every command on the lock does first.
    fn settle(&mut self, lock: usize) {
        if self.hashes.get(&lock).is_some_and(|hash| hash.lease_end <= self.now) {
            self.hashes.remove(&lock);
        }
        self.serve(lock);
    }

    /// While the lock is free, it goes to the first in line.
    fn serve(&mut self, lock: usize) {
        let (db, name) = LOCKS[lock];
        while !self.hashes.contains_key(&lock)
            && let Some(first) = self.lines.first(db, name)
        {
            self.take(first);
            let holder = self.hashes.get(&lock).and_then(|hash| hash.holds.keys().next().copied());
            while let Some(other) = holder.and_then(|holder| self.first_of(lock, holder)) {
                self.take(other);
            }
        }
    }

    fn take(&mut self, ticket: Ticket) {
        let waiter = self.lines.leave(ticket).expect("the first in line waits");
        self.attempt(waiter.client);
    }

    fn leave(&mut self, ticket: Ticket, end: End) {
        let waiter = self.lines.leave(ticket).expect("it waits");
        self.finish(waiter.client, end);
    }

    fn attempt(&mut self, number: usize) {
        let Request { lock, owner, ask, .. } = self.requests[number];
        let (record, lease) = self.read(lock, owner);
        let end = match acquire(record, lease, ask, self.wall(), &mut self.tokens) {
            Ok(Attempt::Granted(grant)) => {
                self.check_grant(number, grant);
                self.write(lock, owner, grant.writes);
                End::Granted
            }
            Ok(Attempt::Denied { .. }) => End::Denied,
            Err(_) => End::Refused,
        };
        self.finish(number, end);
    }

    fn finish(&mut self, number: usize, end: End) {
        assert_eq!(self.requests[number].end.replace(end), None, "answered twice");
    }

    fn check_grant(&self, number: usize, grant: Grant) {
        let Request { lock, ask, .. } = self.requests[number];
        assert!(grant.token >= ask.token);
        match grant.entry {
            Entry::First => {
                assert!(grant.token > self.greatest);
                assert_eq!(grant.lease, Lease::Until(self.wall().plus(ask.ttl)));
                let mut earlier = self.requests[..number].iter();
                assert!(earlier.all(|request| request.lock != lock || request.end.is_some()), "overtaken");
            }
            Entry::Again => assert!(grant.token >= self.hashes[&lock].token),
        }
    }

    fn read(&self, lock: usize, owner: Owner) -> (Record, Lease) {
        let Some(hash) = self.hashes.get(&lock) else {
            return (Record::Free { token: 0 }, Lease::Endless);
        };
        let record = match hash.holds.get(&owner) {
            Some(holds) => Record::Mine { holds: *holds, token: hash.token, others: hash.holds.len() - 1 },
            None => Record::Other { token: hash.token },
        };
        (record, Lease::Until(WallMs(hash.lease_end as i64)))
    }

    fn write(&mut self, lock: usize, owner: Owner, writes: Writes) {
        let hash = self.hashes.entry(lock).or_default();
        if let Some(holds) = writes.holds {
            hash.holds.insert(owner, holds);
        }
        hash.token = writes.token.unwrap_or(hash.token);
        if let Some(end) = writes.lease_end {
            hash.lease_end = end.0 as u64;
        }
        self.greatest = self.greatest.max(hash.token);
    }

    fn first_of(&self, lock: usize, owner: Owner) -> Option<Ticket> {
        self.lines.first_of(LOCKS[lock].0, LOCKS[lock].1, &[owner])
    }

    fn waiting(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.end.is_none())
    }

    fn wall(&self) -> WallMs {
        WallMs(self.now as i64)
    }

    fn check(&self) {
        for (lock, (db, name)) in LOCKS.into_iter().enumerate() {
            match self.hashes.get(&lock) {
                Some(hash) => {
                    assert_eq!(hash.holds.len(), 1, "not one owner: {hash:?}");
                    let holder = *hash.holds.keys().next().expect("one");
                    assert_eq!(self.first_of(lock, holder), None, "the holder waits for itself");
                }
                None => assert!(!self.lines.stands(db, name), "somebody waits for a free lock"),
            }
            let waiting =
                self.requests.iter().filter(|request| request.lock == lock && request.end.is_none());
            assert!(
                self.lines
                    .queue(db, name)
                    .map(|(owner, _)| owner[0])
                    .eq(waiting.map(|request| request.owner))
            );
        }
        let waiting = self.requests.iter().filter(|request| request.end.is_none()).count();
        assert_eq!(self.lines.waiting(), waiting);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_lock_goes_from_owner_to_owner_in_order_of_arrival(
        events in prop::collection::vec(any_event(), 1..200),
    ) {
        let mut node = Node { now: 1, ..Node::default() };
        node.tokens.seed(1_000);
        for event in events {
            node.happen(event);
            node.check();
        }
        while node.lines.waiting() > 0 {
            let before = node.lines.waiting();
            for lock in 0..LOCKS.len() {
                node.happen(Event::Force(lock));
                node.check();
            }
            prop_assert!(node.lines.waiting() < before, "no grant");
        }
        prop_assert!(node.requests.iter().all(|request| request.end.is_some()), "somebody was forgotten");
    }
}
