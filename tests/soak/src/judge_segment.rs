//! Holds what the replication stream told of a round against the replies that are known a round later.

use std::time::Duration;

use crate::cast::{Lock, Owner};
use crate::fleet::Waiter;
use crate::play::Play;
use crate::segment::Segment;
use crate::shadow::{Happening, Hash};
use crate::violation::Violation;

/// By when somebody is told that it was taken out of a line.
const TOLD_BY: Duration = Duration::from_millis(50);

impl Play {
    /// Judges the grants and the ends of holds of the previous round.
    ///
    /// # Errors
    /// When a promise was broken.
    pub fn judge_previous(&mut self) -> anyhow::Result<()> {
        let previous = std::mem::take(&mut self.previous);
        for happening in &previous.happened {
            match happening {
                Happening::Granted { lock, owner, token } => {
                    self.tally.grants += 1;
                    self.judge_order(&previous, *lock, *owner)?;
                    self.judge_telling(&previous, (*lock, *owner), *token)?;
                }
                Happening::Ended { lock, hash, by } => self.judge_end(&previous, *lock, hash, *by)?,
                Happening::Deepened { .. } | Happening::Carried | Happening::Copied => {}
            }
        }
        self.judge_releases(&previous)?;
        self.judge_unblocked(&previous)?;
        for (place, text) in &previous.denied_early {
            // The withdrawal's own reply may have been read later; or the hold was carried to another name
            // before its owner gave it back.
            let carried = previous.happened.iter().any(|happening| matches!(happening, Happening::Carried));
            let rounds = [&previous, &self.current];
            let elsewhere = carried
                && rounds.iter().any(|round| round.withdrawn.iter().any(|(_, owner)| *owner == place.1));
            let lately = self.withdrawals.get(place).is_some_and(|at| at.elapsed() < TOLD_BY);
            if !self.current.withdrawn.contains(place) && !lately && !elsewhere {
                return Err(Violation::of(place.0, text.clone()).into());
            }
        }
        self.before = previous;
        self.judge_waits()
    }

    /// Nobody who came later, or never stood in line, overtakes who has waited all the time.
    fn judge_order(&mut self, segment: &Segment, lock: Lock, owner: Owner) -> anyhow::Result<()> {
        let line = || segment.line.iter().filter(|waiter| waiter.lock == lock);
        let others = line().filter(|waiter| waiter.owner != owner && self.fleet.still_waits(waiter));
        let Some(first) = others.min_by_key(|waiter| waiter.round).copied() else { return Ok(()) };
        self.tally.order_checked += 1;
        if line().any(|own: &Waiter| own.owner == owner && own.round <= first.round) {
            return Ok(());
        }
        let text = format!(
            "OVERTAKING in round {}: {owner:?} is granted the lock before {first:?}, who still waits",
            segment.round
        );
        Err(Violation::of(lock, text).into())
    }

    /// Somebody is told of each grant, unless the reply was lost with a connection whose end the server could
    /// not know of before.
    fn judge_telling(&mut self, segment: &Segment, place: (Lock, Owner), token: i64) -> anyhow::Result<()> {
        if segment.told.contains(&token) || self.current.told.contains(&token) {
            return Ok(());
        }
        if segment.may_have_lost_reply(place) {
            self.tally.reply_lost += 1;
            return Ok(());
        }
        if segment.is_confirmed(place) {
            self.tally.confirmed += 1;
            return Ok(());
        }
        // Taken back at once, or withdrawn, or deleted in the same turn.
        if !self.shadow.has_token(token) {
            self.tally.taken_back += 1;
            return Ok(());
        }
        // Somebody has copied the hash to another name in the very turn of the grant.
        if segment.happened.iter().any(|happening| matches!(happening, Happening::Copied)) {
            self.tally.copied += 1;
            return Ok(());
        }
        let text = format!(
            "ORPHAN in round {}: {:?} is granted the lock with token {token}, and nobody was told",
            segment.round, place.1
        );
        Err(Violation::of(place.0, text).into())
    }

    /// A hold ends with its lease, or because somebody wanted that.
    fn judge_end(&self, segment: &Segment, lock: Lock, hash: &Hash, by: i64) -> anyhow::Result<()> {
        if hash.end.is_some_and(|end| end <= by) || segment.touched.contains(&lock) {
            return Ok(());
        }
        let rounds = [segment, &self.current];
        let wanted = hash.owners.keys().any(|owner| {
            let place = (lock, *owner);
            rounds.iter().any(|round| round.released.contains(&place))
                // It may have been taken back, or the reply to its release have been lost.
                || segment.left.contains(&place)
                || self.before.left.contains(&place)
        });
        let lost = segment.losses.iter().flat_map(|loss| &loss.sent).any(|sent| sent.ask.concerns(lock));
        if wanted || lost || rounds.iter().any(|round| round.forced.contains(&lock)) {
            return Ok(());
        }
        let text = format!(
            "TAKEN AWAY in round {}: {hash:?} was deleted by {by}, and nobody has released it",
            segment.round
        );
        Err(Violation::of(lock, text).into())
    }

    /// Each release that freed a lock shows in the stream.
    fn judge_releases(&self, segment: &Segment) -> anyhow::Result<()> {
        for (lock, owner) in &segment.released {
            let ended = |happening: &Happening| match happening {
                Happening::Ended { lock: here, hash, .. } => here == lock && hash.owners.contains_key(owner),
                _ => false,
            };
            // Its end may have been in the round before: this reply was read late.
            if !segment.happened.iter().any(ended) && !self.before.happened.iter().any(ended) {
                let text = format!("NOT RELEASED in round {}: {owner:?} is told so", segment.round);
                return Err(Violation::of(*lock, text).into());
            }
        }
        Ok(())
    }

    /// Who was unblocked has got a reply.
    fn judge_unblocked(&self, segment: &Segment) -> anyhow::Result<()> {
        for (client, serial) in &segment.surely_unblocked {
            let open = self.fleet.clients[*client].expected.front();
            if let Some(sent) = open.filter(|sent| sent.serial == *serial) {
                let lock = sent.ask.wants()[0].0;
                let text = format!("NO REPLY: client {client} was unblocked in round {}", segment.round);
                return Err(Violation::of(lock, text).into());
            }
        }
        Ok(())
    }
}
