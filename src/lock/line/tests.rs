use super::*;
use proptest::prelude::*;
use proptest::sample::Index as Pick;
use std::collections::BTreeSet;

mod handoff;

const DBS: [u32; 2] = [0, 200];
const NAMES: [&[u8]; 3] = [b"", b"a", b"a\0"];
const OWNERS: [&[u8]; 3] = [b"x", b"\0", b"xy"];

fn ask(ttl: u64) -> Ask {
    Ask { ttl, holds: None, token: 0 }
}

/// What the model knows of somebody who waits. The client is the number of its request.
#[derive(Clone, Debug)]
struct Known {
    ticket: Ticket,
    client: usize,
    lock: (u32, &'static [u8]),
    owner: &'static [u8],
    since: u64,
    deadline: Option<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Join(usize, usize, usize, Option<u64>),
    /// One leaves, by a ticket that may long be stale.
    Leave(Pick),
    /// One of those who wait leaves.
    LeaveLine(Pick),
    /// A ticket that nobody got.
    Forge(u32, u64),
    Advance(u64),
    LeaveAll,
}

fn any_step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![0..20_u64, 0..1_000_u64, 0..1_u64 << 50];
    let wait = prop::option::weighted(0.7, wait);
    prop_oneof![
        40 => (0..DBS.len(), 0..NAMES.len(), 0..OWNERS.len(), wait)
            .prop_map(|(db, name, owner, wait)| Step::Join(db, name, owner, wait)),
        10 => any::<Pick>().prop_map(Step::Leave),
        20 => any::<Pick>().prop_map(Step::LeaveLine),
        2 => (0..3_000_u32, prop_oneof![0..40_u64, any::<u64>()]).prop_map(|(id, serial)| Step::Forge(id, serial)),
        10 => prop_oneof![0..30_u64, 0..1_500_u64].prop_map(Step::Advance),
        1 => Just(Step::LeaveAll),
    ]
}

/// The lines beside a plain list of all who wait, in order of arrival.
#[derive(Default)]
struct Pair {
    lines: Lines<usize>,
    model: Vec<Known>,
    /// Every ticket that was ever given out.
    given: Vec<Ticket>,
    /// The clients whose time was up.
    told: Vec<usize>,
    now: u64,
}

impl Pair {
    fn join(&mut self, lock: (u32, &'static [u8]), owner: &'static [u8], wait: Option<u64>) {
        let client = self.given.len();
        let deadline = wait.map(|wait| self.now + wait);
        let newcomer = Newcomer { owner, ask: ask(1), deadline: deadline.map(MonotonicMs), client };
        let announced = self.lines.next_ticket();
        let ticket = self.lines.join(lock.0, lock.1, newcomer, MonotonicMs(self.now));
        assert_eq!(ticket, announced);
        assert!(!self.given.contains(&ticket), "given out twice");
        self.given.push(ticket);
        self.model.push(Known { ticket, client, lock, owner, since: self.now, deadline });
    }

    fn leave(&mut self, ticket: Ticket) {
        let place = self.model.iter().position(|known| known.ticket == ticket);
        let expected = place.map(|place| self.model.remove(place).client);
        assert_eq!(self.lines.leave(ticket).map(|waiter| waiter.client), expected);
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let mut last = 0;
        while let Some(ticket) = self.lines.pop_due(MonotonicMs(self.now)) {
            let known = self.model.iter().find(|known| known.ticket == ticket).expect("it still waits");
            let deadline = known.deadline.expect("it does not wait without end");
            assert!(last <= deadline && deadline <= self.now, "{last} {deadline} {}", self.now);
            assert!(!self.told.contains(&known.client), "told twice");
            self.told.push(known.client);
            last = deadline;
        }
        assert!(self.alarms().all(|deadline| deadline > self.now));
    }

    /// When those are due who were not told yet.
    fn alarms(&self) -> impl Iterator<Item = u64> {
        let untold = self.model.iter().filter(|known| !self.told.contains(&known.client));
        untold.filter_map(|known| known.deadline)
    }

    fn check(&self) {
        let Self { lines, model, .. } = self;
        assert_eq!(lines.waiting(), model.len());
        assert_eq!(lines.oldest().map(|since| since.0), model.first().map(|known| known.since));
        let (wake, alarm) = (lines.next_wake().map(|wake| wake.0), self.alarms().min());
        assert_eq!(wake.is_some(), alarm.is_some());
        assert!(wake <= alarm);
        for db in DBS {
            for name in NAMES {
                self.check_line(db, name);
            }
        }
        for known in model {
            assert_eq!(lines.get(known.ticket).map(|waiter| waiter.client), Some(known.client));
            assert_eq!(lines.owner(known.ticket), Some(known.owner));
            assert_eq!(lines.lock(known.ticket), Some(known.lock));
        }
        let strangers = self.given.iter().filter(|ticket| model.iter().all(|known| known.ticket != **ticket));
        for ticket in strangers {
            assert!(lines.get(*ticket).is_none());
            assert_eq!((lines.owner(*ticket), lines.lock(*ticket)), (None, None));
        }
        let locks: BTreeSet<_> = model.iter().map(|known| known.lock).collect();
        let swept = sweep(lines);
        assert_eq!(swept.len(), locks.len());
        assert_eq!(swept.into_iter().collect::<BTreeSet<_>>(), locks);
        // Nothing is kept of a line or an owner that has gone.
        assert_eq!((lines.lines.len(), lines.by_name.len()), (locks.len(), locks.len()));
        let groups = model.iter().map(|known| (known.lock, known.owner)).collect::<BTreeSet<_>>().len();
        assert_eq!((lines.groups.len(), lines.by_owner.len()), (groups, groups));
    }

    fn check_line(&self, db: u32, name: &[u8]) {
        let lines = &self.lines;
        let line: Vec<_> = self.model.iter().filter(|known| known.lock == (db, name)).collect();
        let queue: Vec<_> = lines.queue(db, name).map(|(owner, since)| (owner, since.0)).collect();
        assert_eq!(queue, line.iter().map(|known| (known.owner, known.since)).collect::<Vec<_>>());
        assert_eq!(lines.len(db, name) as usize, line.len());
        assert_eq!(lines.stands(db, name), !line.is_empty());
        assert_eq!(lines.first(db, name), line.first().map(|known| known.ticket));
        for owner in OWNERS {
            let first = line.iter().find(|known| known.owner == owner);
            assert_eq!(lines.first_of(db, name, owner), first.map(|known| known.ticket));
        }
    }
}

fn sweep<C>(lines: &Lines<C>) -> Vec<(u32, &[u8])> {
    let mut place = 0;
    let next = || {
        let (behind, db, name) = lines.line_from(place)?;
        assert!(behind > place, "the sweep stands still");
        place = behind;
        Some((db, name))
    };
    std::iter::from_fn(next).collect()
}

proptest! {
    #[test]
    fn the_lines_are_in_order_of_arrival(
        start in 0..1_u64 << 40, crowd in any::<bool>(), steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let mut pair = Pair { now: start, ..Pair::default() };
        if crowd {
            // So many that their room is given back, once the last of them has left.
            for n in 0..=SMALL {
                pair.join((DBS[0], NAMES[n % 3]), OWNERS[n / 3 % 3], Some(n as u64));
            }
            for n in 1..=SMALL {
                pair.leave(pair.given[n]);
            }
        }
        for step in steps {
            match step {
                Step::Join(db, name, owner, wait) => pair.join((DBS[db], NAMES[name]), OWNERS[owner], wait),
                Step::Leave(pick) if !pair.given.is_empty() => pair.leave(*pick.get(&pair.given)),
                Step::LeaveLine(pick) if !pair.model.is_empty() => pair.leave(pick.get(&pair.model).ticket),
                Step::Leave(_) | Step::LeaveLine(_) => {}
                Step::Forge(id, serial) => pair.leave(Ticket { id, serial }),
                Step::Advance(by) => pair.advance(by),
                Step::LeaveAll => {
                    while let Some(known) = pair.model.last() {
                        pair.leave(known.ticket);
                    }
                }
            }
            pair.check();
        }
    }
}

/// Joins a hundred thousand to the lines of some locks, in the name of some owners.
fn crowd(lines: &mut Lines<u32>, locks: u32, owners: u32) -> Vec<Ticket> {
    let join = |client: u32| {
        let (name, owner) = ((client % locks).to_be_bytes(), (client % owners).to_be_bytes());
        let deadline = Some(MonotonicMs(u64::from(client) + 10));
        let newcomer = Newcomer { owner: &owner, ask: ask(1), deadline, client };
        lines.join(0, &name, newcomer, MonotonicMs(5))
    };
    (0..100_000).map(join).collect()
}

fn assert_empty_and_small(lines: &Lines<u32>) {
    assert_eq!((lines.waiting(), lines.oldest(), lines.next_wake()), (0, None, None));
    assert_eq!(sweep(lines), []);
    let reached = [lines.waiters.reached(), lines.lines.reached(), lines.groups.reached()];
    assert!(reached.iter().all(|room| *room <= SMALL), "room for {reached:?}");
}

#[test]
fn a_crowd_that_leaves_gives_its_room_back() {
    for (locks, owners) in [(1, 1), (1, 100_000), (100_000, 1), (317, 1_001)] {
        let mut lines = Lines::default();
        let tickets = crowd(&mut lines, locks, owners);
        assert_eq!(lines.waiting(), 100_000);
        assert_eq!(lines.len(0, &0_u32.to_be_bytes()), 100_000_u32.div_ceil(locks));
        // From the middle, from the end, and from the front.
        let (front, back) = tickets.split_at(50_000);
        for ticket in front.iter().skip(1).step_by(2).chain(back.iter().rev()).chain(front.iter().step_by(2))
        {
            assert!(lines.leave(*ticket).is_some());
        }
        assert_empty_and_small(&lines);
        assert!(tickets.iter().all(|ticket| lines.leave(*ticket).is_none()));
    }
}

#[test]
fn a_crowd_whose_time_is_up_leaves_in_order_and_the_next_one_is_on_time() {
    let mut lines = Lines::default();
    crowd(&mut lines, 7, 11);
    for expected in 0..100_000 {
        let ticket = lines.pop_due(MonotonicMs(1_000_000)).expect("all are due");
        assert_eq!(lines.leave(ticket).map(|waiter| waiter.client), Some(expected));
    }
    assert_eq!(lines.pop_due(MonotonicMs(1_000_000)), None);
    assert_empty_and_small(&lines);
    let late = Newcomer { owner: b"x", ask: ask(1), deadline: Some(MonotonicMs(1_000_070)), client: 1 };
    let ticket = lines.join(0, b"a", late, MonotonicMs(1_000_001));
    assert_eq!(lines.pop_due(MonotonicMs(1_000_069)), None);
    assert_eq!(lines.pop_due(MonotonicMs(1_000_070)), Some(ticket));
    assert_eq!(lines.pop_due(MonotonicMs(2_000_000)), None);
    assert_eq!(lines.first(0, b"a"), Some(ticket));
}

#[test]
fn the_first_of_a_crowd_of_one_owner_comes_first() {
    let mut lines = Lines::default();
    let tickets = crowd(&mut lines, 1, 1);
    let (name, owner) = (0_u32.to_be_bytes(), 0_u32.to_be_bytes());
    for ticket in tickets {
        assert_eq!(lines.first(0, &name), Some(ticket));
        assert_eq!(lines.first_of(0, &name, &owner), Some(ticket));
        assert!(lines.leave(ticket).is_some());
    }
    assert_empty_and_small(&lines);
}

#[test]
fn lines_of_one_name_and_one_owner_are_told_apart_by_their_database() {
    let mut lines = Lines::default();
    let newcomer = |client| Newcomer { owner: b"x", ask: ask(1), deadline: None, client };
    let tickets: Vec<_> = (0..100_000).map(|db| lines.join(db, b"a", newcomer(db), MonotonicMs(0))).collect();
    for (db, ticket) in (0..).zip(tickets) {
        assert_eq!((lines.len(db, b"a"), lines.first(db, b"a")), (1, Some(ticket)));
        assert_eq!(lines.first_of(db, b"a", b"x"), Some(ticket));
        assert!(lines.leave(ticket).is_some());
    }
    assert_empty_and_small(&lines);
}
