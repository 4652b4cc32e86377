//! What a command does to a lock: pure decisions from a [`Record`] to an outcome and its writes.

use super::{Lease, MAX_HOLDS, Record, TokenCounter, WallMs};

/// What an acquirer asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The lease, in milliseconds from the grant.
    pub ttl: u64,
    /// The hold count that the owner should have afterwards; one more than now where absent.
    pub holds: Option<u64>,
    /// The least token that the hold must carry; 0 for no demand.
    pub token: u64,
}

/// What must change in the hash. Nothing to write means nothing to propagate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// The owner's new hold count.
    pub holds: Option<u64>,
    /// The new token.
    pub token: Option<u64>,
    /// The new end of the lease.
    pub lease_end: Option<WallMs>,
}

/// Did the grant make the lock held, or deepen a hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The lock was free.
    First,
    /// The owner held it already.
    Again,
}

/// A granted hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// First hold or re-entry.
    pub entry: Entry,
    /// The owner's hold count now.
    pub holds: u64,
    /// The hold's fencing token.
    pub token: u64,
    /// The lease now.
    pub lease: Lease,
    /// What has to be written to make it so.
    pub writes: Writes,
}

/// The outcome of an ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The owner holds the lock.
    Granted(Grant),
    /// Somebody else does.
    Denied {
        /// The present holder's token, 0 where it has none.
        token: u64,
    },
}

/// Why an ACQUIRE that nobody stands against can't be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// One hold more would exceed [`MAX_HOLDS`].
    Holds,
    /// There is no token left.
    Tokens,
}

/// The outcome of a RELEASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The owner does not hold the lock.
    NotHeld,
    /// The owner still holds it, this often.
    Kept {
        /// The hold count now.
        holds: u64,
        /// What has to be written to make it so.
        writes: Writes,
    },
    /// The owner's last hold is gone, but the hash has other owners, put there by hand.
    Left,
    /// The last hold is gone.
    Free,
}

/// Decides an ACQUIRE. `lease` is the lease of the present holder, and only looked at where there is one.
///
/// A re-entry keeps the token (or raises it to the one asked for) and never shortens the lease.
pub fn acquire(
    record: Record,
    lease: Lease,
    ask: Ask,
    now: WallMs,
    tokens: &mut TokenCounter,
) -> Result<Attempt, Exhausted> {
    match record {
        Record::Other { token } => {
            tokens.observe(token);
            Ok(Attempt::Denied { token })
        }
        Record::Free { token: stale } => {
            tokens.observe(stale);
            let token = tokens.next(ask.token).map_err(|_| Exhausted::Tokens)?;
            let holds = ask.holds.unwrap_or(1);
            let end = now.plus(ask.ttl);
            Ok(Attempt::Granted(Grant {
                entry: Entry::First,
                holds,
                token,
                lease: Lease::Until(end),
                writes: Writes { holds: Some(holds), token: Some(token), lease_end: Some(end) },
            }))
        }
        Record::Mine { holds, token, .. } => {
            let wanted = match ask.holds {
                Some(n) => n.max(holds),
                None if holds < MAX_HOLDS => holds + 1,
                None => return Err(Exhausted::Holds),
            };
            let (lease, mut writes) = extend(lease, ask.ttl, token, ask.token, now, tokens);
            writes.holds = (wanted != holds).then_some(wanted);
            let token = writes.token.unwrap_or(token);
            Ok(Attempt::Granted(Grant { entry: Entry::Again, holds: wanted, token, lease, writes }))
        }
    }
}

/// Decides a RENEW: `None` where the owner does not hold the lock, else what to write.
pub fn renew(
    record: Record,
    lease: Lease,
    ttl: u64,
    token_floor: u64,
    now: WallMs,
    tokens: &mut TokenCounter,
) -> Option<Writes> {
    match record {
        Record::Mine { token, .. } => Some(extend(lease, ttl, token, token_floor, now, tokens).1),
        Record::Free { .. } | Record::Other { .. } => None,
    }
}

/// Decides a RELEASE of one hold, or down to `keep` holds. It never adds one.
pub fn release(record: Record, keep: Option<u64>) -> Released {
    let Record::Mine { holds, others, .. } = record else {
        return Released::NotHeld;
    };
    match keep.unwrap_or(holds - 1).min(holds) {
        0 if others > 0 => Released::Left,
        0 => Released::Free,
        left => Released::Kept {
            holds: left,
            writes: Writes { holds: (left != holds).then_some(left), ..Writes::default() },
        },
    }
}

/// The longer of two leases and the higher of two tokens, and what has to be written for them.
fn extend(
    lease: Lease,
    ttl: u64,
    token: u64,
    token_floor: u64,
    now: WallMs,
    tokens: &mut TokenCounter,
) -> (Lease, Writes) {
    tokens.observe(token);
    tokens.observe(token_floor);
    let lease_end = lease.is_outlived_by(now, ttl).then(|| now.plus(ttl));
    let writes = Writes { holds: None, token: (token_floor > token).then_some(token_floor), lease_end };
    (lease_end.map_or(lease, Lease::Until), writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: WallMs = WallMs(1_000_000);

    fn ask(ttl: u64) -> Ask {
        Ask { ttl, holds: None, token: 0 }
    }

    fn mine(holds: u64) -> Record {
        Record::Mine { holds, token: 5, others: 0 }
    }

    fn granted(record: Record, lease: Lease, ask: Ask) -> Grant {
        match acquire(record, lease, ask, NOW, &mut TokenCounter::default()) {
            Ok(Attempt::Granted(grant)) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    #[test]
    fn a_shorter_nested_lease_does_not_cut_the_outer_one() {
        let outer = Lease::Until(NOW.plus(60_000));
        let grant = granted(mine(1), outer, ask(1_000));
        assert_eq!((grant.holds, grant.token, grant.lease), (2, 5, outer));
        assert_eq!(grant.writes, Writes { holds: Some(2), ..Writes::default() });
    }

    #[test]
    fn a_retry_with_holds_changes_nothing() {
        let lease = Lease::Until(NOW.plus(9_000));
        let retry = Ask { ttl: 9_000, holds: Some(1), token: 0 };
        let grant = granted(mine(1), lease, retry);
        assert_eq!((grant.holds, grant.token, grant.writes), (1, 5, Writes::default()));
    }

    #[test]
    fn holds_never_lowers_a_count() {
        let lease = Lease::Until(NOW.plus(9_000));
        let lower = Ask { ttl: 1, holds: Some(2), token: 0 };
        assert_eq!(granted(mine(3), lease, lower).holds, 3);
    }

    #[test]
    fn a_denied_call_raises_no_token() {
        let mut tokens = TokenCounter::default();
        tokens.seed(100);
        let asked = Ask { token: 900, ..ask(1) };
        let attempt = acquire(Record::Other { token: 7 }, Lease::Endless, asked, NOW, &mut tokens);
        assert_eq!(attempt, Ok(Attempt::Denied { token: 7 }));
        assert_eq!(tokens.last(), 100);
    }

    #[test]
    fn the_last_hold_count_is_a_named_refusal() {
        let full = mine(MAX_HOLDS);
        let refused = acquire(full, Lease::Endless, ask(1), NOW, &mut TokenCounter::default());
        assert_eq!(refused, Err(Exhausted::Holds));
    }

    #[test]
    fn an_endless_lease_stays_endless() {
        let mine = mine(1);
        assert_eq!(granted(mine, Lease::Endless, ask(1)).lease, Lease::Endless);
        let renewed = renew(mine, Lease::Endless, 1, 0, NOW, &mut TokenCounter::default());
        assert_eq!(renewed, Some(Writes::default()));
    }

    fn any_record() -> impl Strategy<Value = Record> {
        prop_oneof![
            (0..1_u64 << 50).prop_map(|token| Record::Free { token }),
            (1..=MAX_HOLDS, 0..1_u64 << 50, 0..2_usize).prop_map(|(holds, token, others)| Record::Mine {
                holds,
                token,
                others
            }),
            (0..1_u64 << 50).prop_map(|token| Record::Other { token }),
        ]
    }

    fn any_lease() -> impl Strategy<Value = Lease> {
        prop_oneof![
            1 => Just(Lease::Endless),
            9 => (-10..100_000_i64).prop_map(|left| Lease::Until(WallMs(NOW.0 + left))),
        ]
    }

    fn ends_no_earlier(after: Lease, before: Lease) -> bool {
        match (after, before) {
            (Lease::Endless, _) => true,
            (Lease::Until(after), Lease::Until(before)) => after >= before,
            (Lease::Until(_), Lease::Endless) => false,
        }
    }

    proptest! {
        #[test]
        fn an_acquire_excludes_and_never_takes_away(
            record in any_record(), lease in any_lease(), ttl in 1..200_000_u64,
            holds in prop::option::of(1..=MAX_HOLDS), token in 0..1_u64 << 50, seed in 0..1_u64 << 50,
        ) {
            let mut tokens = TokenCounter::default();
            tokens.seed(seed);
            let before = tokens.last();
            let attempt = acquire(record, lease, Ask { ttl, holds, token }, NOW, &mut tokens);
            match (record, attempt) {
                (Record::Other { token }, Ok(Attempt::Denied { token: told })) => prop_assert_eq!(token, told),
                (Record::Free { token: stale }, Ok(Attempt::Granted(grant))) => {
                    prop_assert!(grant.token > before && grant.token > stale && grant.token >= token);
                    prop_assert_eq!(grant.holds, holds.unwrap_or(1));
                    prop_assert_eq!(grant.lease, Lease::Until(NOW.plus(ttl)));
                    prop_assert_eq!(tokens.last(), grant.token);
                }
                (Record::Mine { holds: held, token: kept, .. }, Ok(Attempt::Granted(grant))) => {
                    prop_assert_eq!(grant.holds, holds.map_or(held + 1, |n| n.max(held)));
                    prop_assert_eq!(grant.token, kept.max(token));
                    prop_assert!(ends_no_earlier(grant.lease, lease));
                    prop_assert!(ends_no_earlier(grant.lease, Lease::Until(NOW.plus(ttl))));
                    prop_assert!(tokens.last() >= grant.token);
                }
                (Record::Mine { holds: MAX_HOLDS, .. }, Err(Exhausted::Holds)) => prop_assert!(holds.is_none()),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn a_renewal_only_lengthens(record in any_record(), lease in any_lease(), ttl in 1..200_000_u64) {
            let writes = renew(record, lease, ttl, 0, NOW, &mut TokenCounter::default());
            prop_assert_eq!(writes.is_some(), matches!(record, Record::Mine { .. }));
            if let Some(end) = writes.and_then(|writes| writes.lease_end) {
                prop_assert_eq!(end, NOW.plus(ttl));
                prop_assert!(ends_no_earlier(Lease::Until(end), lease));
            }
        }

        #[test]
        fn a_release_never_adds_a_hold(record in any_record(), keep in prop::option::of(0..=MAX_HOLDS)) {
            match (record, release(record, keep)) {
                (Record::Mine { holds, others, .. }, Released::Free | Released::Left) => {
                    prop_assert_eq!(keep.unwrap_or(holds - 1), 0);
                    prop_assert_eq!(release(record, keep) == Released::Left, others > 0);
                }
                (Record::Mine { holds, .. }, Released::Kept { holds: left, writes }) => {
                    prop_assert_eq!(left, keep.unwrap_or(holds - 1).min(holds));
                    prop_assert_eq!(writes.holds, (left != holds).then_some(left));
                }
                (_, outcome) => prop_assert_eq!(outcome, Released::NotHeld),
            }
        }
    }
}
