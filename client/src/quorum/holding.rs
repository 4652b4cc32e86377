//! A lock that is held: renewal, repair, and loss.

use std::time::Duration;

use super::outbox::Outbox;
use super::{Answer, Block, Cause, Event, Loss, Moment, NodeIndex, Renewal, Request, Terms, Ticket};
use crate::Owner;

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// Who holds it.
    pub owner: Owner,
    /// The fencing token, known to a majority.
    pub token: u64,
    /// Until when it is held for sure.
    pub valid_until: Moment,
    members: Vec<Member>,
    campaign: Option<Campaign>,
    next_renewal: Option<Moment>,
    /// An extension that has to wait for the renewal under way.
    wanted: Option<Duration>,
}

/// What we have on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// It has not answered yet.
    Asked(Ticket),
    /// Our hold, which has never lapsed there.
    Ours,
    /// Our hold since a little while. It counts from the next renewal on: another may have held the lock there
    /// in between.
    Joining,
    /// Nothing, as far as we know.
    Strange,
}

/// A renewal under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Campaign {
    began: Moment,
    ttl: Duration,
    asked_by: AskedBy,
    votes: Vec<Vote>,
    is_decided: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AskedBy {
    Watchdog,
    Caller,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Vote {
    Asked(Ticket),
    Renewed,
    NotHeld,
    Repairing(Ticket),
    Done,
    Failed(Cause),
}

impl Holding {
    /// A lock that was just won.
    pub fn begin(
        owner: Owner,
        token: u64,
        members: Vec<Member>,
        began: Moment,
        valid_until: Moment,
        terms: &Terms,
    ) -> Self {
        let next_renewal = match terms.renewal {
            Renewal::Watchdog => Some(began + terms.beat()),
            Renewal::Fixed => None,
        };
        Self { owner, token, valid_until, members, campaign: None, next_renewal, wanted: None }
    }

    /// When something has to be done next.
    pub fn timeout(&self) -> Moment {
        self.next_renewal.map_or(self.valid_until, |renewal| renewal.min(self.valid_until))
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, terms: &Terms, now: Moment, out: &mut Outbox) -> Option<Event> {
        if now >= self.valid_until {
            return Some(Event::Lost(Loss::Expired { causes: self.causes() }));
        }
        if self.next_renewal.is_some_and(|renewal| renewal <= now) {
            self.next_renewal = Some(now + terms.beat());
            if self.campaign.as_ref().is_none_or(|campaign| campaign.is_decided) {
                self.renew(terms.ttl, AskedBy::Watchdog, terms, now, out);
            }
        }
        None
    }

    /// Asks for a lease of this length from now.
    pub fn extend(&mut self, ttl: Duration, terms: &Terms, now: Moment, out: &mut Outbox) {
        if self.campaign.as_ref().is_some_and(|campaign| !campaign.is_decided) {
            self.wanted = Some(ttl);
        } else {
            self.renew(ttl, AskedBy::Caller, terms, now, out);
        }
    }

    fn renew(&mut self, ttl: Duration, asked_by: AskedBy, terms: &Terms, now: Moment, out: &mut Outbox) {
        for member in self.members.iter_mut().filter(|member| **member == Member::Joining) {
            *member = Member::Ours;
        }
        let request = Request::Renew { ttl, least_token: Some(self.token) };
        let ask = |node| Vote::Asked(out.put(NodeIndex(node), &self.owner, request, Some(terms.node_limit)));
        let votes = (0..terms.nodes).map(ask).collect();
        self.campaign = Some(Campaign { began: now, ttl, asked_by, votes, is_decided: false });
    }

    /// Takes an answer; `false` if it belongs to something else.
    pub fn handle_answer(&mut self, from: NodeIndex, ticket: Ticket, answer: &Answer) -> bool {
        let Some(member) = self.members.get_mut(from.0) else { return false };
        if *member == Member::Asked(ticket) {
            *member = match answer {
                Answer::Granted { .. } | Answer::Renewed => Member::Ours,
                _ => Member::Strange,
            };
            return true;
        }
        let Some(vote) = self.campaign.as_mut().and_then(|campaign| campaign.votes.get_mut(from.0)) else {
            return false;
        };
        let asked = match vote {
            Vote::Asked(asked) | Vote::Repairing(asked) => *asked,
            _ => return false,
        };
        if asked != ticket {
            return false;
        }
        *vote = match (&*vote, answer) {
            (Vote::Asked(_), Answer::Renewed) => Vote::Renewed,
            (Vote::Asked(_), Answer::NotHeld) => Vote::NotHeld,
            (Vote::Repairing(_), Answer::Granted { .. }) => {
                *member = Member::Joining;
                Vote::Done
            }
            (_, Answer::Failed(cause)) => Vote::Failed(cause.clone()),
            _ => Vote::Done,
        };
        true
    }

    /// How the renewal stands, after an answer.
    pub fn judge(&mut self, terms: &Terms, now: Moment, out: &mut Outbox) -> Option<Event> {
        let mut campaign = self.campaign.take()?;
        let event = self.count(&mut campaign, terms, now, out);
        let is_decided = campaign.is_decided;
        self.campaign = Some(campaign);
        if is_decided
            && !matches!(event, Some(Event::Lost(_)))
            && let Some(ttl) = self.wanted.take()
        {
            self.renew(ttl, AskedBy::Caller, terms, now, out);
        }
        event
    }

    fn count(
        &mut self,
        campaign: &mut Campaign,
        terms: &Terms,
        now: Moment,
        out: &mut Outbox,
    ) -> Option<Event> {
        let votes = campaign.votes.iter().zip(&self.members);
        let renewed =
            votes.filter(|(vote, member)| **vote == Vote::Renewed && **member == Member::Ours).count();
        let number = |wanted: fn(&Vote) -> bool| campaign.votes.iter().filter(|vote| wanted(vote)).count();
        let open = number(|vote| matches!(vote, Vote::Asked(_)));
        let lost = number(|vote| *vote == Vote::NotHeld);
        let stands = renewed >= terms.quorum();
        let mut event = None;
        if !campaign.is_decided {
            campaign.is_decided = true;
            if stands {
                self.valid_until = self.valid_until.max(terms.valid_until(campaign.began, campaign.ttl));
                let valid_until = self.valid_until;
                event = Some(match campaign.asked_by {
                    AskedBy::Watchdog => Event::Renewed { valid_until },
                    AskedBy::Caller => Event::Extended { valid_until },
                });
            } else if lost > terms.nodes - terms.quorum() {
                event = Some(Event::Lost(Loss::Taken));
            } else if renewed + open < terms.quorum() {
                self.hurry(terms, now);
                event = (campaign.asked_by == AskedBy::Caller)
                    .then(|| Event::NotExtended { causes: causes(campaign) });
            } else {
                campaign.is_decided = false;
            }
        }
        if stands {
            self.settle(campaign, terms, now, out);
        }
        event
    }

    /// A renewal has failed: the next one is due soon.
    fn hurry(&mut self, terms: &Terms, now: Moment) {
        let soon = now + terms.beat() / 4;
        self.next_renewal = self.next_renewal.map(|renewal| renewal.min(soon));
    }

    /// A majority that never lost the lock stands: others may join it.
    fn settle(&mut self, campaign: &mut Campaign, terms: &Terms, now: Moment, out: &mut Outbox) {
        if now >= self.valid_until {
            return;
        }
        for (node, (vote, member)) in campaign.votes.iter_mut().zip(&mut self.members).enumerate() {
            match vote {
                Vote::Renewed if *member != Member::Ours => {
                    *member = Member::Joining;
                    *vote = Vote::Done;
                }
                Vote::NotHeld => {
                    *member = Member::Strange;
                    let ask = Request::Acquire {
                        ttl: campaign.ttl,
                        least_token: Some(self.token),
                        block: Block::No,
                    };
                    *vote =
                        Vote::Repairing(out.put(NodeIndex(node), &self.owner, ask, Some(terms.node_limit)));
                }
                _ => {}
            }
        }
    }

    fn causes(&self) -> Vec<(NodeIndex, Cause)> {
        self.campaign.as_ref().map(causes).unwrap_or_default()
    }
}

fn causes(campaign: &Campaign) -> Vec<(NodeIndex, Cause)> {
    let failed = campaign.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
        Vote::Failed(cause) => Some((NodeIndex(node), cause.clone())),
        _ => None,
    });
    failed.collect()
}
