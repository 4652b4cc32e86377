//! The whole course of a lock: wanted, waited for, held, given back.

use std::collections::VecDeque;
use std::time::Duration;

use super::farewell::Farewell;
use super::holding::Holding;
use super::outbox::Outbox;
use super::queue::{Place, Turn};
use super::round::{Outlook, Round};
use super::{Answer, Block, Cause, Event, Moment, NodeIndex, Refusal, Start, Terms, Ticket, Transmit, Wait};
use crate::Owner;

/// A lock that is wanted, held, or being given back.
///
/// The caller passes answers and time in, and after each call sends what [`Lock::poll_transmit`] gives, tells what
/// [`Lock::poll_event`] says, and comes back at [`Lock::poll_timeout`]. Every request gets an answer
/// in the end, if only [`CauseKind::Silent`](super::CauseKind::Silent) after its limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    terms: Terms,
    /// Of which the owner of each round is derived.
    owners: Owner,
    rounds: u64,
    phase: Phase,
    /// When the wait is over; `None` where it has no end, or there is none.
    deadline: Option<Moment>,
    /// Where the line is.
    head: NodeIndex,
    /// Rounds and lines in a row that came to nothing.
    failures: u32,
    /// Those of them, the last ones, in which too few nodes answered, or too late.
    outages: u32,
    farewells: Vec<Farewell>,
    /// The release that the caller asked for.
    release: Option<Farewell>,
    out: Outbox,
    events: VecDeque<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// All nodes are being asked. `Direct` rounds come first, `Confirming` ones after a grant by the head.
    Asking(Round, Kind),
    InLine(Place),
    /// Before the next try.
    Resting(Moment),
    Held(Holding),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Direct,
    Confirming,
}

impl Lock {
    /// Wants the lock. `owners` must be unique: each round has an owner derived of it.
    pub fn start(terms: Terms, owners: Owner, now: Moment) -> Self {
        let deadline = match terms.wait {
            Wait::No | Wait::Forever => None,
            Wait::For(wait) => Some(now + wait),
        };
        let mut lock = Self {
            head: terms.head,
            terms,
            owners,
            rounds: 0,
            phase: Phase::Over,
            deadline,
            failures: 0,
            outages: 0,
            farewells: Vec::new(),
            release: None,
            out: Outbox::default(),
            events: VecDeque::new(),
        };
        match (lock.terms.start, lock.terms.wait) {
            (Start::InLine, Wait::For(_) | Wait::Forever) => lock.join_line(now),
            (Start::Direct, _) | (_, Wait::No) => {
                let owner = lock.fresh_owner();
                lock.ask_all(owner, Kind::Direct, now);
            }
        }
        lock
    }

    /// A request to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.take()
    }

    /// Something that the caller is to be told.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Lock::handle_timeout`] is to be called, at the latest.
    pub fn poll_timeout(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Asking(..) | Phase::Over => None,
            Phase::InLine(place) => {
                Some(self.give_up().map_or(place.timeout(), |end| end.min(place.timeout())))
            }
            Phase::Resting(until) => Some(*until),
            Phase::Held(holding) => Some(holding.timeout()),
        }
    }

    /// Is nothing held, wanted, or on its way back any more?
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.farewells.is_empty() && self.release.is_none()
    }

    /// Takes a node's answer.
    pub fn handle_answer(&mut self, now: Moment, from: NodeIndex, ticket: Ticket, answer: &Answer) {
        let is_ours = match &mut self.phase {
            Phase::Asking(round, _) => round.handle_answer(from, ticket, answer),
            Phase::Held(holding) => holding.handle_answer(from, ticket, answer),
            Phase::InLine(place) => {
                let turn = place.handle_answer(&self.terms, from, ticket, answer);
                if let Some(turn) = turn {
                    return self.take_turn(turn, now);
                }
                false
            }
            Phase::Resting(_) | Phase::Over => false,
        };
        if is_ours {
            self.judge(from, now);
        } else {
            self.part(from, ticket, answer);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Moment) {
        let give_up = self.give_up();
        match &mut self.phase {
            Phase::InLine(_) if give_up.is_some_and(|end| end <= now) => {
                self.take_turn(Turn::Denied { left: None }, now);
            }
            Phase::InLine(place) => place.handle_timeout(&self.terms, now, &mut self.out),
            Phase::Resting(until) if *until <= now => self.join_line(now),
            Phase::Held(holding) => {
                let event = holding.handle_timeout(&self.terms, now, &mut self.out);
                self.tell_holder(event);
            }
            Phase::Resting(_) | Phase::Asking(..) | Phase::Over => {}
        }
    }

    /// Asks for a lease of this length from now. Told by [`Event::Extended`], [`Event::NotExtended`] or
    /// [`Event::Lost`], unless the lock is not held.
    pub fn extend(&mut self, now: Moment, ttl: Duration) {
        if let Phase::Held(holding) = &mut self.phase {
            holding.extend(ttl, &self.terms, now, &mut self.out);
        }
    }

    /// Gives the lock back, or gives up wanting it. Told by [`Event::Released`].
    pub fn release(&mut self) {
        let farewell = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Held(holding) => Farewell::everywhere(holding.owner, &self.terms, &mut self.out),
            Phase::Asking(round, _) => round.into_farewell(&self.terms, &mut self.out),
            Phase::InLine(place) => place.into_farewell(&self.terms, &mut self.out),
            Phase::Resting(_) | Phase::Over => Farewell::begin(self.owners.clone(), &self.terms),
        };
        self.release = Some(farewell);
        self.report_release();
    }

    fn ask_all(&mut self, owner: Owner, kind: Kind, now: Moment) {
        let block = match kind {
            Kind::Direct => Block::No,
            Kind::Confirming => Block::For(self.terms.node_patience()),
        };
        let round = Round::begin(owner, &self.terms, block, now, &mut self.out);
        self.phase = Phase::Asking(round, kind);
    }

    fn join_line(&mut self, now: Moment) {
        let owner = self.fresh_owner();
        let place = Place::join(owner, self.head, &self.terms, self.deadline, now, &mut self.out);
        self.phase = Phase::InLine(place);
    }

    /// Something was answered: how does the round or the renewal stand?
    fn judge(&mut self, from: NodeIndex, now: Moment) {
        // Who wants to wait need not hear the others: they will say the same, or be in doubt.
        let head_decides = from == self.head && self.may_wait(now);
        match &mut self.phase {
            Phase::Asking(round, kind) => match round.judge(&self.terms, &mut self.out) {
                Outlook::Won => self.win(now),
                Outlook::Failed(refusal) => self.fail(refusal, now),
                Outlook::Open if head_decides && *kind == Kind::Direct && round.is_denied_by(from) => {
                    self.say_farewell();
                    self.join_line(now);
                }
                Outlook::Open => {}
            },
            Phase::Held(holding) => {
                let event = holding.judge(&self.terms, now, &mut self.out);
                self.tell_holder(event);
            }
            Phase::InLine(_) | Phase::Resting(_) | Phase::Over => {}
        }
    }

    fn win(&mut self, now: Moment) {
        let Phase::Asking(round, _) = std::mem::replace(&mut self.phase, Phase::Over) else { return };
        if self.terms.valid_until(round.began, self.terms.ttl) <= now {
            let elapsed = now.since(round.began);
            self.farewells.push(round.into_farewell(&self.terms, &mut self.out));
            return self.retry(Refusal::TooLate { elapsed }, now);
        }
        let holding = round.into_holding(&self.terms);
        self.events.push_back(Event::Held { token: holding.token, valid_until: holding.valid_until });
        self.phase = Phase::Held(holding);
    }

    fn fail(&mut self, refusal: Refusal, now: Moment) {
        let mut is_direct = false;
        if let Phase::Asking(round, Kind::Direct) = &self.phase {
            // The line is at the first node that answers.
            let mut order = self.terms.order();
            self.head = order.find(|node| !round.has_failed(*node)).unwrap_or(self.terms.head);
            is_direct = true;
        }
        self.say_farewell();
        if is_direct && self.may_wait(now) && matches!(refusal, Refusal::Busy { .. }) {
            self.join_line(now);
        } else {
            self.retry(refusal, now);
        }
    }

    fn take_turn(&mut self, turn: Turn, now: Moment) {
        match turn {
            Turn::Waiting => {}
            Turn::First => {
                let Phase::InLine(place) = std::mem::replace(&mut self.phase, Phase::Over) else { return };
                // The head is asked again: its lease began when it granted, and that may be long ago.
                self.ask_all(place.owner, Kind::Confirming, now);
            }
            Turn::Denied { left } => {
                self.say_farewell();
                // Before its time is up, somebody has taken the request out of the line by hand.
                self.retry(Refusal::Busy { left, causes: Vec::new() }, now);
            }
            Turn::Astray(cause) => {
                self.say_farewell();
                let from = self.head;
                self.head = NodeIndex((from.0 + 1) % self.terms.nodes);
                match cause {
                    Some(cause) => self.leave_silent_head(from, cause, now),
                    None => self.join_line(now),
                }
            }
        }
    }

    /// The next node takes over the line, unless a whole turn of them was silent.
    fn leave_silent_head(&mut self, head: NodeIndex, cause: Cause, now: Moment) {
        self.failures += 1;
        if (self.failures as usize).is_multiple_of(self.terms.nodes) {
            self.retry(Refusal::Unavailable { causes: vec![(head, cause)] }, now);
        } else {
            self.join_line(now);
        }
    }

    /// Something came to nothing: tries again after a pause, where there is time.
    fn retry(&mut self, refusal: Refusal, now: Moment) {
        self.failures += 1;
        match refusal {
            Refusal::Unavailable { .. } | Refusal::TooLate { .. } => self.outages += 1,
            Refusal::Busy { .. } => self.outages = 0,
        }
        if !self.may_wait(now) || self.outages >= self.terms.retry.outages.max(1) {
            return self.refuse(refusal);
        }
        let pause = self.terms.retry.pause(self.failures, self.owners.seed().wrapping_add(self.rounds));
        self.phase = Phase::Resting(now + pause);
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.phase = Phase::Over;
        self.events.push_back(Event::Refused(refusal));
    }

    fn tell_holder(&mut self, event: Option<Event>) {
        let Some(event) = event else { return };
        if matches!(event, Event::Lost(_)) {
            self.say_farewell();
        }
        self.events.push_back(event);
    }

    /// Whatever is under way is over, and given back.
    fn say_farewell(&mut self) {
        let farewell = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Asking(round, _) => round.into_farewell(&self.terms, &mut self.out),
            Phase::InLine(place) => place.into_farewell(&self.terms, &mut self.out),
            Phase::Held(holding) => Farewell::everywhere(holding.owner, &self.terms, &mut self.out),
            Phase::Resting(_) | Phase::Over => return,
        };
        self.farewells.push(farewell);
        self.farewells.retain(|farewell| !farewell.is_over());
    }

    fn part(&mut self, from: NodeIndex, ticket: Ticket, answer: &Answer) {
        if let Some(release) = &mut self.release
            && release.handle_answer(from, ticket, answer, &mut self.out)
        {
            return self.report_release();
        }
        for farewell in &mut self.farewells {
            if farewell.handle_answer(from, ticket, answer, &mut self.out) {
                break;
            }
        }
        self.farewells.retain(|farewell| !farewell.is_over());
    }

    /// The caller is told once a majority has confirmed; the rest goes on as any other farewell.
    fn report_release(&mut self) {
        let Some(outcome) = self.release.as_ref().and_then(Farewell::outcome) else { return };
        self.events.push_back(Event::Released(outcome));
        self.farewells.extend(self.release.take().filter(|release| !release.is_over()));
    }

    /// When the wait is given up, should the head not say so itself.
    fn give_up(&self) -> Option<Moment> {
        self.deadline.map(|deadline| deadline + self.terms.node_limit)
    }

    fn may_wait(&self, now: Moment) -> bool {
        match self.terms.wait {
            Wait::No => false,
            Wait::Forever => true,
            Wait::For(_) => self.deadline.is_some_and(|deadline| now < deadline),
        }
    }

    fn fresh_owner(&mut self) -> Owner {
        let owner = self.owners.nth(self.rounds);
        self.rounds += 1;
        owner
    }
}
