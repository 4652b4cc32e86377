//! Holds each reply against the states that its lock was in.

use anyhow::bail;

use crate::ask::Ask;
use crate::cast::{Lock, Owner};
use crate::play::Play;
use crate::resp::Reply;
use crate::segment::{Answer, Segment};
use crate::shadow::{Happening, Hash, Value};
use crate::tally::Tally;
use crate::violation::Violation;

/// How far two readings of the wall clock around one moment may lie apart, in milliseconds.
const SLACK: i64 = 3;

/// By how much a time-out may be late, in milliseconds.
const LATE: u64 = 2000;

/// What is known when a reply is judged.
struct Court<'c> {
    /// Who is handed a lock may be told a little later.
    before: &'c Segment,
    previous: &'c Segment,
    current: &'c Segment,
    tally: &'c mut Tally,
}

/// What a client found out by its replies.
#[derive(Default)]
struct Findings {
    released: Vec<(Lock, Owner)>,
    forced: Vec<Lock>,
    surely_unblocked: Vec<u64>,
    denied_early: Vec<((Lock, Owner), String)>,
}

impl Play {
    /// Judges the replies of this round.
    ///
    /// # Errors
    /// When one tells of what never was.
    pub fn judge_replies(&mut self) -> anyhow::Result<()> {
        let Self { before, previous, current, tally, .. } = self;
        let mut findings = Findings::default();
        let mut court = Court { before, previous, current, tally };
        for answer in &court.current.answers {
            court.judge(answer, &mut findings)?;
        }
        let Findings { released, forced, surely_unblocked, denied_early } = findings;
        self.current.denied_early = denied_early;
        self.current.released.extend(released);
        self.current.forced.extend(forced);
        let serials = surely_unblocked.iter();
        let clients = self.fleet.clients.iter().enumerate();
        let open: Vec<(usize, u64)> =
            clients.filter_map(|(number, client)| Some((number, client.waiting()?.serial))).collect();
        let still = serials.filter_map(|serial| open.iter().find(|(_, open)| open == serial));
        self.current.surely_unblocked.extend(still.copied());
        Ok(())
    }
}

impl Court<'_> {
    fn judge(&mut self, answer: &Answer, findings: &mut Findings) -> anyhow::Result<()> {
        let Answer { sent, reply, .. } = answer;
        match &sent.ask {
            Ask::Exec(parts) | Ask::Script(parts) => {
                let Reply::Array(replies) = reply else { bail!("{:?} is told {reply:?}", sent.ask) };
                if parts.len() != replies.len() {
                    bail!("{:?} is told {reply:?}", sent.ask);
                }
                for (part, reply) in parts.iter().zip(replies) {
                    self.judge_part(answer, part, reply, findings)?;
                }
                Ok(())
            }
            ask => self.judge_part(answer, ask, reply, findings),
        }
    }

    fn judge_part(
        &mut self,
        answer: &Answer,
        ask: &Ask,
        reply: &Reply,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let fine = match (ask, reply) {
            (Ask::Acquire { lock, owner, .. }, _) => {
                self.judge_acquire(answer, ask, (*lock, *owner), reply, findings)?;
                true
            }
            (
                Ask::Release { lock, .. }
                | Ask::Renew { lock, .. }
                | Ask::Force { lock }
                | Ask::Info { lock },
                Reply::Error(text),
            ) => text.starts_with(b"WRONGTYPE") && self.was(*lock, |value| matches!(value, Value::Alien(_))),
            (Ask::Release { lock, owner, .. }, Reply::Int(left)) => {
                if *left == 0 {
                    findings.released.push((*lock, *owner));
                }
                self.was_lock(*lock, |hash| match hash.owners.get(owner) {
                    Some(holds) => *left == 0 || left == holds,
                    None => false,
                })
            }
            (Ask::Release { lock, owner, .. }, Reply::Nil)
            | (Ask::Renew { lock, owner, .. }, Reply::Int(0)) => {
                self.was_not_held_by(*lock, *owner, answer.wall)
            }
            (Ask::Renew { lock, owner, .. }, Reply::Int(1)) => {
                self.was_lock(*lock, |hash| hash.owners.contains_key(owner))
            }
            (Ask::Force { lock }, Reply::Int(1)) => {
                findings.forced.push(*lock);
                self.was_lock(*lock, |hash| !hash.owners.is_empty())
            }
            (Ask::Force { lock }, Reply::Int(0)) => self.was_free(*lock, answer.wall),
            (Ask::Info { lock }, Reply::Array(fields)) => self.judge_info(*lock, fields, answer.wall),
            (Ask::Kill { .. }, reply) => *reply == Reply::Int(1),
            (Ask::Unblock { serial, .. }, Reply::Int(done)) => {
                if *done == 1 {
                    findings.surely_unblocked.extend(serial);
                }
                matches!(done, 0 | 1)
            }
            (Ask::Plain(_) | Ask::Multi, reply) => reply.text() == Some(b"OK"),
            (Ask::Queued(_), reply) => reply.text() == Some(b"QUEUED"),
            (Ask::Foreign { .. }, _) => true,
            _ => false,
        };
        if fine { Ok(()) } else { Err(self.unfounded(ask, reply).into()) }
    }

    fn unfounded(&self, ask: &Ask, reply: &Reply) -> Violation {
        let text = format!("UNFOUNDED REPLY: {ask:?} is told {reply:?}");
        match Lock::all().find(|lock| ask.concerns(*lock)) {
            Some(lock) => Violation::of(lock, format!("{text}; it was {:?}", self.states(lock))),
            None => Violation::of_none(text),
        }
    }

    /// Judges the reply to an ACQUIRE.
    fn judge_acquire(
        &mut self,
        answer: &Answer,
        ask: &Ask,
        (lock, owner): (Lock, Owner),
        reply: &Reply,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let sent = &answer.sent;
        let waited = sent.ask.may_wait();
        match (reply, reply.integers()) {
            (_, Some([holds @ (1..), ttl, token])) => {
                let began = sent.wall - SLACK..=answer.wall + SLACK;
                // Part of a grant was taken back, or would have been, had the lock not been deleted meanwhile.
                let is_less = [self.before, self.previous, self.current]
                    .iter()
                    .any(|segment| segment.left.contains(&(lock, owner)));
                let is_it = |hash: &Hash| {
                    hash.owners
                        .get(&owner)
                        .is_some_and(|on_record| holds == *on_record || (is_less && holds < *on_record))
                        && hash.token == token
                        && hash.end.is_none_or(|end| began.contains(&(end - ttl)))
                };
                if !self.was_lock(lock, is_it) {
                    return Err(self.unfounded(ask, reply).into());
                }
                self.tally.handoffs += u64::from(waited && sent.round < self.current.round);
            }
            (_, Some([0, ttl, token])) => {
                let stood = match token {
                    // Who was unblocked after it was handed the lock is told nothing of what came of that.
                    0 if ttl == 0 => self.was_free(lock, answer.wall) || self.was_unblocked(answer.client),
                    _ => self.was_lock(lock, |hash| hash.token == token),
                };
                if !stood && !self.told_of_another_place(token) {
                    return Err(self.unfounded(ask, reply).into());
                }
                self.tally.denials += 1;
                if waited {
                    self.judge_end_of_wait(answer, (lock, owner), findings);
                }
            }
            (Reply::Error(text), _) if text.starts_with(b"WRONGTYPE") => {
                if !self.was(lock, |value| matches!(value, Value::Alien(_))) {
                    return Err(self.unfounded(ask, reply).into());
                }
                self.tally.wrong_type += 1;
            }
            _ if reply.is_error("UNBLOCKED") && waited && self.was_unblocked(answer.client) => {
                self.tally.unblocked += 1;
            }
            _ => return Err(self.unfounded(ask, reply).into()),
        }
        Ok(())
    }

    /// A hold that was carried to another name before its owner was told, and that was withdrawn there, is
    /// told of that place.
    fn told_of_another_place(&self, token: i64) -> bool {
        let carried = [self.before, self.previous, self.current]
            .iter()
            .flat_map(|segment| &segment.happened)
            .any(|happening| matches!(happening, Happening::Carried));
        carried && (token == 0 || Lock::all().any(|lock| self.was_lock(lock, |hash| hash.token == token)))
    }

    fn was_unblocked(&self, client: usize) -> bool {
        [self.before, self.previous, self.current].iter().any(|segment| segment.unblocked.contains(&client))
    }

    /// A request in line was denied: when its time was up, or because somebody took it out.
    fn judge_end_of_wait(&mut self, answer: &Answer, place: (Lock, Owner), findings: &mut Findings) {
        let sent = &answer.sent;
        let Ask::Acquire { block: Some(block), .. } = sent.ask else { return };
        let waited = answer.at.duration_since(sent.at);
        if self.was_unblocked(answer.client) {
            self.tally.unblocked += 1;
        } else if block > 0 && waited.as_millis() as u64 >= block {
            let late = waited.saturating_sub(std::time::Duration::from_millis(block));
            self.tally.timeouts += 1;
            self.tally.latest_timeout = self.tally.latest_timeout.max(late);
        } else if [self.before, self.previous, self.current]
            .iter()
            .any(|segment| segment.withdrawn.contains(&place))
        {
            self.tally.withdrawn += 1;
        } else {
            let text = format!("EARLY DENIAL after {waited:?} of {:?}: {:?}", sent.ask, answer.reply);
            findings.denied_early.push((place, text));
        }
    }

    fn judge_info(&self, lock: Lock, fields: &[Reply], wall: i64) -> bool {
        match fields {
            [_, state, _, Reply::Nil, _, Reply::Int(0), _, Reply::Int(-2), _, Reply::Int(0), ..] => {
                state.text() == Some(b"free") && self.was_free(lock, wall)
            }
            [
                _,
                state,
                _,
                Reply::Text(owner),
                _,
                Reply::Int(holds),
                _,
                Reply::Int(_),
                _,
                Reply::Int(token),
                ..,
            ] => {
                let owner = Owner::of_name(owner);
                state.text() == Some(b"held")
                    && self.was_lock(lock, |hash| {
                        let count = owner.and_then(|owner| hash.owners.get(&owner));
                        count == Some(holds) && hash.token == *token
                    })
            }
            _ => false,
        }
    }

    /// The states that a reply of this round may tell of.
    fn states(&self, lock: Lock) -> Vec<&Value> {
        [self.before, self.previous, self.current]
            .iter()
            .flat_map(|segment| segment.visited.get(lock.index()).into_iter().flatten())
            .collect()
    }

    fn was(&self, lock: Lock, is: impl Fn(&Value) -> bool) -> bool {
        self.states(lock).into_iter().any(is)
    }

    fn was_lock(&self, lock: Lock, is: impl Fn(&Hash) -> bool) -> bool {
        self.was(lock, |value| matches!(value, Value::Lock(hash) if is(hash)))
    }

    fn was_free(&self, lock: Lock, wall: i64) -> bool {
        self.was(lock, |value| *value == Value::Absent || value.end().is_some_and(|end| end <= wall))
    }

    fn was_not_held_by(&self, lock: Lock, owner: Owner, wall: i64) -> bool {
        self.was_free(lock, wall)
            || self.was(lock, |value| match value {
                Value::Lock(hash) => !hash.owners.contains_key(&owner),
                _ => false,
            })
    }
}

impl Play {
    /// Nobody in line waits for longer than it wanted to.
    ///
    /// # Errors
    /// When somebody does.
    pub fn judge_waits(&self) -> anyhow::Result<()> {
        for waiter in self.fleet.line() {
            let Some(sent) = self.fleet.clients[waiter.client].waiting() else { continue };
            let Ask::Acquire { block: Some(block @ 1..), .. } = sent.ask else { continue };
            let waited = sent.at.elapsed();
            if waited.as_millis() as u64 > block + LATE {
                let text =
                    format!("NO TIME-OUT after {waited:?} of {:?} (client {})", sent.ask, waiter.client);
                return Err(Violation::of(waiter.lock, text).into());
            }
        }
        Ok(())
    }
}
