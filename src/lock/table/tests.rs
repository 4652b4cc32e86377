use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Track(u32, u8, Option<u64>),
    Remove(u32, u8),
    Advance(u64),
    Drain(Option<u32>),
    Swap(u32, u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    let db = || 0..3_u32;
    let name = || 0..30_u8;
    prop_oneof![
        20 => (db(), name(), prop::option::weighted(0.9, 1..10_000_u64))
            .prop_map(|(db, name, ttl)| Step::Track(db, name, ttl)),
        10 => (db(), name()).prop_map(|(db, name)| Step::Remove(db, name)),
        8 => (0..3_000_u64).prop_map(Step::Advance),
        1 => prop::option::of(db()).prop_map(Step::Drain),
        1 => (db(), db()).prop_map(|(a, b)| Step::Swap(a, b)),
    ]
}

type Model = BTreeMap<(u32, u8), Option<u64>>;

fn known(end: Option<u64>) -> Known<'static> {
    let expiry = end.map_or(Expiry::Never, |end| Expiry::At(WallMs(end.cast_signed())));
    let hold = Hold { owner: b"owner", holds: 1, token: 7 };
    Known { term: Term { lease_end: end.map(MonotonicMs), expiry }, hold: Some(hold) }
}

fn key(lock: &TrackedLock) -> (u32, u8) {
    (lock.db, lock.name[0])
}

proptest! {
    #[test]
    fn the_table_keeps_every_lease(steps in prop::collection::vec(any_step(), 1..200)) {
        let mut table = LeaseTable::default();
        let mut model = Model::new();
        let mut told = BTreeSet::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Track(db, name, ttl) => {
                    let end = ttl.map(|ttl| now + ttl);
                    let wake = table.track(db, &[name], known(end), MonotonicMs(now));
                    prop_assert_eq!(wake.is_some(), end.is_some());
                    prop_assert!(wake.is_none_or(|wake| Some(wake.0) <= end));
                    model.insert((db, name), end);
                    told.remove(&(db, name));
                }
                Step::Remove(db, name) => {
                    let removed = table.remove(db, &[name]).map(|term| term.lease_end);
                    let expected = model.remove(&(db, name)).map(|end| end.map(MonotonicMs));
                    prop_assert_eq!(removed, expected);
                    told.remove(&(db, name));
                }
                Step::Advance(by) => {
                    now += by;
                    while let Some(lock) = table.pop_due(MonotonicMs(now)) {
                        prop_assert_eq!(model[&key(&lock)], lock.lease_end.map(|end| end.0));
                        prop_assert!(lock.lease_end <= Some(MonotonicMs(now)));
                        prop_assert!(table.contains(lock.db, &lock.name));
                        prop_assert!(told.insert(key(&lock)), "told twice");
                    }
                    let silent = |(id, end): (&_, &Option<u64>)| told.contains(id) || end.is_none_or(|end| end > now);
                    prop_assert!(model.iter().all(silent));
                }
                Step::Drain(db) => {
                    let mut gone: Vec<_> = table.drain(db).iter().map(key).collect();
                    gone.sort_unstable();
                    let leaves = |id: &(u32, u8)| db.is_none_or(|db| db == id.0);
                    let expected: Vec<_> = model.keys().copied().filter(leaves).collect();
                    prop_assert_eq!(gone, expected);
                    model.retain(|id, _| !leaves(id));
                    told.retain(|id| !leaves(id));
                }
                Step::Swap(a, b) => {
                    let mut gone: Vec<_> = table.swap(a, b).iter().map(key).collect();
                    gone.sort_unstable();
                    let swap = |db| if db == a { b } else if db == b { a } else { db };
                    let after: Model = model.iter().map(|((db, name), end)| ((swap(*db), *name), *end)).collect();
                    let expected: Vec<_> = model.keys().copied().filter(|id| !after.contains_key(id)).collect();
                    prop_assert_eq!(gone, expected);
                    model = after;
                    told = told.iter().map(|(db, name)| (swap(*db), *name)).collect();
                }
            }
            prop_assert_eq!(table.len(), model.len());
            let waiting = model.iter().filter(|(id, _)| !told.contains(*id));
            let first = waiting.filter_map(|(_, end)| *end).min();
            prop_assert_eq!(table.next_wake().is_some(), first.is_some());
            prop_assert!(table.next_wake().map(|wake| wake.0) <= first.map(|end| end.max(now)));
        }
    }
}

#[test]
fn a_crowd_that_leaves_gives_its_room_back() {
    let mut table = LeaseTable::default();
    let name = |n: u64| n.to_be_bytes();
    for n in 0..100_000 {
        table.track(0, &name(n), known(Some(n + 1)), MonotonicMs(0));
    }
    for n in 1..100_000 {
        assert_eq!(table.remove(0, &name(n)).and_then(|term| term.lease_end), Some(MonotonicMs(n + 1)));
    }
    assert!(table.entries.reached() <= SMALL, "room for {} locks", table.entries.reached());
    assert_eq!(table.pop_due(MonotonicMs(1)).map(|lock| lock.name), Some(name(0).into()));
}

#[derive(Clone, Debug)]
enum Change {
    Track(u8, u8, u64),
    Recount(u8, u64),
    Lose(u8),
    Mend(u8),
    Remove(u8),
    Swap,
}

fn any_change() -> impl Strategy<Value = Change> {
    let name = || 0..8_u8;
    prop_oneof![
        8 => (name(), 0..3_u8, 1..400_u64).prop_map(|(name, owner, holds)| Change::Track(name, owner, holds)),
        3 => (name(), 1..400_u64).prop_map(|(name, holds)| Change::Recount(name, holds)),
        6 => name().prop_map(Change::Lose),
        3 => name().prop_map(Change::Mend),
        3 => name().prop_map(Change::Remove),
        1 => Just(Change::Swap),
    ]
}

/// What a lock in the model has: its owner, its holds and its expiry.
type ModelLock = (u8, u64, Expiry);

proptest! {
    #[test]
    fn the_table_knows_who_holds_and_whose_keys_are_lost(changes in prop::collection::vec(any_change(), 1..150)) {
        let mut table = LeaseTable::default();
        let mut model = BTreeMap::<u8, ModelLock>::new();
        let mut db = 0;
        let there = Expiry::At(WallMs(500));
        for change in changes {
            match change {
                Change::Track(name, owner, holds) => {
                    let term = Term { lease_end: Some(MonotonicMs(500)), expiry: there };
                    let hold = Hold { owner: &[owner], holds, token: 7 };
                    table.track(db, &[name], Known { term, hold: Some(hold) }, MonotonicMs(0));
                    model.insert(name, (owner, holds, there));
                }
                Change::Recount(name, holds) => {
                    table.recount(db, &[name], holds);
                    model.entry(name).and_modify(|lock| lock.1 = holds);
                }
                Change::Lose(name) => {
                    table.set_expiry(db, &[name], Expiry::KeyLost);
                    model.entry(name).and_modify(|lock| lock.2 = Expiry::KeyLost);
                }
                Change::Mend(name) => {
                    table.set_expiry(db, &[name], there);
                    model.entry(name).and_modify(|lock| lock.2 = there);
                }
                Change::Remove(name) => {
                    table.remove(db, &[name]);
                    model.remove(&name);
                }
                Change::Swap => {
                    table.swap(0, 1);
                    db = 1 - db;
                }
            }
            for (name, (owner, holds, expiry)) in &model {
                let term = Term { lease_end: Some(MonotonicMs(500)), expiry: *expiry };
                let hold = Some(Hold { owner: &[*owner], holds: *holds, token: 7 });
                prop_assert_eq!(table.get(db, &[*name]), Some(Known { term, hold }));
                prop_assert_eq!(table.get(1 - db, &[*name]), None);
            }
            let expected: BTreeSet<_> =
                model.iter().filter(|(_, lock)| lock.2 == Expiry::KeyLost).map(|(name, _)| *name).collect();
            let mut lost = BTreeSet::new();
            for _ in 0..table.lost_keys() {
                let Some((at, name)) = table.first_lost().map(|(at, name)| (at, name.to_vec())) else { break };
                prop_assert_eq!(at, db);
                lost.insert(name[0]);
                table.postpone_lost(at, &name);
            }
            prop_assert_eq!(lost, expected);
        }
    }
}
