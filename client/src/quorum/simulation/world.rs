//! Nodes, clients, and a network that delays, loses, and keeps the order of each connection.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;

use super::Party;
use super::node::{Node, Reply};
use crate::Owner;
use crate::quorum::{Answer, Cause, CauseKind, Event, Lock, Moment, NodeIndex, Terms, Ticket, Transmit};

/// When the other end of a broken connection is told.
const BREAK: Duration = Duration::from_millis(40);

/// No run needs so many steps, unless it goes round in circles.
const MOST: u64 = 3_000_000;

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The longest that a message takes.
    pub delay: Duration,
    /// Of a hundred messages, so many are lost.
    pub loss: u32,
    /// Nodes crash so often, one after another, and forget all.
    pub crashes: Option<Duration>,
    /// The grace of every node.
    pub grace: Duration,
}

/// What each client does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many there are.
    pub clients: usize,
    /// How often each wants the lock.
    pub turns: u32,
    /// The longest time for which it keeps it.
    pub hold: Duration,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Record {
    /// The token of each hold, in order.
    pub tokens: Vec<u64>,
    /// How often each client had the lock.
    pub served: Vec<u32>,
    /// How often the lock was refused, and how often lost.
    pub refusals: u32,
    pub losses: u32,
    /// How often two held it at one time.
    pub double_holds: u32,
    /// Requests to acquire and to release: what the nodes are asked apart from renewals and token rounds.
    pub requests: u64,
    /// Nodes that were not free a lease after the end.
    pub left_behind: usize,
}

/// One lock of one client's, until it is over.
#[derive(Debug)]
struct Course {
    client: usize,
    lock: Lock,
    unanswered: BTreeSet<Ticket>,
    valid_until: Option<Moment>,
    release_at: Option<Moment>,
}

#[derive(Debug)]
enum Happening {
    Arrival(Party, Transmit),
    Answered(Party, NodeIndex, Ticket, Answer),
    Silence(Party, NodeIndex, Ticket),
    Wake(Party),
    Look(NodeIndex),
    Crash(NodeIndex),
}

pub struct World {
    terms: Terms,
    weather: Weather,
    plan: Plan,
    rng: Rng,
    now: Moment,
    agenda: BTreeMap<(Moment, u64), Happening>,
    planned: u64,
    nodes: Vec<Node>,
    courses: Vec<Course>,
    turns_left: Vec<u32>,
    /// When the last message of each connection arrives, there and back.
    lanes: BTreeMap<(usize, NodeIndex, Way), Moment>,
    record: Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    There,
    Back,
}

impl World {
    pub fn new(terms: Terms, weather: Weather, plan: Plan, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let nodes = (0..terms.nodes).map(|_| Node::new(rng.u64(0..50), weather.grace)).collect();
        let mut world = Self {
            terms,
            weather,
            plan,
            rng,
            now: Moment::from_start(Duration::ZERO),
            agenda: BTreeMap::new(),
            planned: 0,
            nodes,
            courses: Vec::new(),
            turns_left: vec![plan.turns; plan.clients],
            lanes: BTreeMap::new(),
            record: Record { served: vec![0; plan.clients], ..Record::default() },
        };
        (0..plan.clients).for_each(|client| world.take_turn(client));
        if let Some(pause) = weather.crashes {
            world.plan_in(pause, Happening::Crash(NodeIndex(0)));
        }
        world
    }

    /// Plays it to the end, and a lease beyond it.
    pub fn run(mut self) -> Record {
        while let Some(((at, _), happening)) = self.agenda.pop_first() {
            assert!(self.planned < MOST, "it never ends: {happening:?} at {at:?}, {:?}", self.record);
            self.now = at;
            self.happen(happening);
        }
        self.now = self.now + self.terms.ttl * 2;
        let now = self.now;
        self.record.left_behind =
            self.nodes.iter_mut().filter_map(|node| (!node.is_free(now)).then_some(())).count();
        self.record.left_behind += self.courses.iter().filter(|course| !course.lock.is_over()).count();
        self.record.requests = self.nodes.iter().map(|node| node.requests).sum();
        self.record
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival(party, transmit) => {
                let node = transmit.to;
                let replies = self.nodes[node.0].handle(self.now, party, &transmit);
                self.send_back(node, replies);
            }
            Happening::Answered(party, from, ticket, answer) => self.hear(party, from, ticket, &answer),
            Happening::Silence(party, node, ticket) => {
                self.nodes[node.0].forget(party, ticket);
                let answer = Answer::Failed(Cause::new(CauseKind::Silent, "silence"));
                self.hear(party, node, ticket, &answer);
            }
            Happening::Wake(party) => self.wake(party),
            Happening::Look(node) => {
                let replies = self.nodes[node.0].handle_timeout(self.now);
                self.send_back(node, replies);
            }
            Happening::Crash(node) => {
                let replies = self.nodes[node.0].crash(self.now);
                self.send_back(node, replies);
                if let (Some(pause), true) =
                    (self.weather.crashes, self.turns_left.iter().any(|left| *left > 0))
                {
                    self.plan_in(pause, Happening::Crash(NodeIndex((node.0 + 1) % self.nodes.len())));
                }
            }
        }
    }

    fn take_turn(&mut self, client: usize) {
        if self.turns_left[client] == 0 {
            return;
        }
        self.turns_left[client] -= 1;
        let owners = Owner::from_random(u128::from(self.rng.u64(..)) << 64 | u128::from(self.rng.u64(..)));
        let lock = Lock::start(self.terms.clone(), owners, self.now);
        self.courses.push(Course {
            client,
            lock,
            unanswered: BTreeSet::new(),
            valid_until: None,
            release_at: None,
        });
        self.attend(self.courses.len() - 1);
    }

    fn hear(&mut self, party: Party, from: NodeIndex, ticket: Ticket, answer: &Answer) {
        let course = &mut self.courses[party];
        if course.unanswered.remove(&ticket) {
            course.lock.handle_answer(self.now, from, ticket, answer);
            self.attend(party);
        }
    }

    fn wake(&mut self, party: Party) {
        let now = self.now;
        let course = &mut self.courses[party];
        if course.release_at.take_if(|at| *at <= now).is_some() {
            course.valid_until = None;
            course.lock.release();
        } else {
            course.lock.handle_timeout(now);
        }
        self.attend(party);
    }

    /// Does what a lock wants to be done.
    fn attend(&mut self, party: Party) {
        while let Some(transmit) = self.courses[party].lock.poll_transmit() {
            self.send(party, transmit);
        }
        while let Some(event) = self.courses[party].lock.poll_event() {
            self.notice(party, &event);
        }
        let course = &self.courses[party];
        for at in course.lock.poll_timeout().into_iter().chain(course.release_at) {
            let at = at.max(self.now + Duration::from_nanos(1));
            self.plan_at(at, Happening::Wake(party));
        }
    }

    fn notice(&mut self, party: Party, event: &Event) {
        let (now, client) = (self.now, self.courses[party].client);
        match event {
            Event::Held { token, valid_until } => {
                let others =
                    self.courses.iter().filter(|course| course.valid_until.is_some_and(|until| until > now));
                self.record.double_holds += u32::from(others.count() > 0);
                self.record.tokens.push(*token);
                self.record.served[client] += 1;
                let hold = Duration::from_micros(self.rng.u64(0..=self.plan.hold.as_micros() as u64));
                let course = &mut self.courses[party];
                course.valid_until = Some(*valid_until);
                course.release_at = Some(now + hold);
            }
            Event::Renewed { valid_until } | Event::Extended { valid_until } => {
                let course = &mut self.courses[party];
                course.valid_until = course.valid_until.map(|_| *valid_until);
            }
            Event::NotExtended { .. } => {}
            Event::Refused(_) => {
                self.record.refusals += 1;
                self.take_turn(client);
            }
            Event::Lost(_) => {
                self.record.losses += 1;
                self.courses[party].valid_until = None;
                self.courses[party].release_at = None;
                self.take_turn(client);
            }
            Event::Released(_) => self.take_turn(client),
        }
    }

    fn send(&mut self, party: Party, transmit: Transmit) {
        let (node, ticket) = (transmit.to, transmit.ticket);
        self.courses[party].unanswered.insert(ticket);
        let is_lost = self.is_lost();
        if let Some(limit) = transmit.limit.or(is_lost.then_some(BREAK)) {
            self.plan_in(limit, Happening::Silence(party, node, ticket));
        }
        if !is_lost {
            let at = self.arrival(self.courses[party].client, node, Way::There);
            self.plan_at(at, Happening::Arrival(party, transmit));
        }
    }

    fn send_back(&mut self, node: NodeIndex, replies: Vec<Reply>) {
        for Reply { party, ticket, answer } in replies {
            if self.is_lost() {
                self.plan_in(BREAK, Happening::Silence(party, node, ticket));
            } else {
                let at = self.arrival(self.courses[party].client, node, Way::Back);
                self.plan_at(at, Happening::Answered(party, node, ticket, answer));
            }
        }
        if let Some(at) = self.nodes[node.0].timeout(self.now) {
            self.plan_at(at.max(self.now), Happening::Look(node));
        }
    }

    fn is_lost(&mut self) -> bool {
        self.rng.u32(0..100) < self.weather.loss
    }

    fn arrival(&mut self, client: usize, node: NodeIndex, way: Way) -> Moment {
        let delay = Duration::from_micros(self.rng.u64(1..=self.weather.delay.as_micros() as u64));
        let last = self.lanes.entry((client, node, way)).or_insert(self.now);
        *last = (*last).max(self.now + delay);
        *last
    }

    fn plan_in(&mut self, time: Duration, happening: Happening) {
        self.plan_at(self.now + time, happening);
    }

    fn plan_at(&mut self, at: Moment, happening: Happening) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), happening);
    }
}
