//! A round of the play: some steps at once, their replies, and a fence in the replication stream.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rand::Rng;
use rand::seq::SliceRandom;
use rustix::event::{PollFd, PollFlags};

use crate::ask::{Ask, Sent};
use crate::cast::{Lock, Owner};
use crate::clock::wall_ms;
use crate::connection::{Connection, Farewell, Line, PATIENCE, wait};
use crate::fleet::{End, Fleet};
use crate::foreign::Trade;
use crate::journal::{Event, Journal};
use crate::resp::words;
use crate::segment::{Answer, Loss, Segment};
use crate::shadow::{FENCE, Happening, Shadow, Value};
use crate::step::{Climate, Deed, Scene, dice};
use crate::stream::Stream;
use crate::tally::Tally;
use crate::violation::Violation;

/// The most steps of a round.
const MOST_STEPS: u64 = 50;

/// How long a line may wait for a free lock.
const SERVICE_LIMIT: Duration = Duration::from_millis(200);

/// The dice of rounds, apart from those of steps.
const ROUNDS: u64 = 1 << 40;

/// All that plays.
#[derive(Debug)]
pub struct Play {
    pub seed: u64,
    pub fleet: Fleet,
    /// Who sets fences and asks after the server's health; its database has no locks.
    pub admin: Connection,
    pub stream: Stream,
    pub shadow: Shadow,
    pub trade: Trade,
    pub journal: Journal,
    pub tally: Tally,
    pub round: u64,
    pub serial: u64,
    pub fence: u64,
    pub previous: Segment,
    pub current: Segment,
    /// The round before the previous.
    pub before: Segment,
    /// When owners were last taken out of a line, as they may be told of it some rounds later.
    pub withdrawals: HashMap<(Lock, Owner), Instant>,
}

impl Play {
    /// Plays a round of at most so many steps.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn play_round(&mut self, most: u64) -> anyhow::Result<()> {
        let mut rng = dice(self.seed, ROUNDS + self.round);
        let climate = if rng.random_ratio(1, 10) { Climate::Pauses } else { Climate::Usual };
        let steps = rng.random_range(1..=MOST_STEPS).min(most);
        let mut outbox: BTreeMap<usize, Vec<Ask>> = BTreeMap::new();
        let mut leavers: Vec<(usize, Farewell)> = Vec::new();
        for _ in 0..steps {
            self.choose(climate, &mut outbox, &mut leavers);
        }
        self.send(outbox, &leavers, &mut rng)?;
        if rng.random_ratio(1, 8) {
            std::thread::sleep(Duration::from_micros(rng.random_range(200..4000)));
        }
        self.await_replies()?;
        self.set_fence()?;
        if climate == Climate::Pauses {
            // All were made to wait, and went on in an order of the server's.
            self.set_fence()?;
        }
        self.settle_lines()?;
        self.settle_grants()?;
        self.judge()?;
        self.fleet.replace_the_gone()
    }

    fn choose(
        &mut self,
        climate: Climate,
        outbox: &mut BTreeMap<usize, Vec<Ask>>,
        leavers: &mut Vec<(usize, Farewell)>,
    ) {
        let number = self.tally.steps;
        self.tally.steps += 1;
        let Self { fleet, shadow, trade, .. } = self;
        let scene = Scene { fleet, shadow, trade, climate, number };
        for deed in scene.choose(&mut dice(self.seed, number)) {
            match deed {
                Deed::Send(client, asks) => {
                    for ask in asks {
                        self.note_sent(client, &ask);
                        outbox.entry(client).or_default().push(ask);
                    }
                }
                Deed::HangUp(client, how) => {
                    if !self.fleet.clients[client].doomed && !leavers.iter().any(|(who, _)| *who == client) {
                        leavers.push((client, how));
                    }
                }
            }
        }
    }

    fn note_sent(&mut self, client: usize, ask: &Ask) {
        self.serial += 1;
        let wall = wall_ms();
        let sent =
            Sent { serial: self.serial, round: self.round, wall, at: Instant::now(), ask: ask.clone() };
        self.journal.note(self.round, wall, Some(client), Event::Sent(ask.clone()));
        self.current.expect(ask);
        self.fleet.clients[client].expected.push_back(sent);
        match ask {
            Ask::Kill { id } => {
                if let Some(victim) = self.fleet.clients.iter_mut().find(|client| client.id == *id) {
                    victim.doomed = true;
                    for sent in &victim.expected {
                        self.current.left.extend(sent.ask.wants());
                    }
                }
            }
            Ask::Unblock { id, .. } => {
                if let Some(victim) = self.fleet.clients.iter().find(|client| client.id == *id) {
                    for sent in &victim.expected {
                        self.current.left.extend(sent.ask.wants());
                    }
                }
            }
            Ask::Foreign { .. } => self.tally.foreign += 1,
            Ask::Exec(_) => self.tally.transactions += 1,
            Ask::Script(_) => self.tally.scripts += 1,
            Ask::Plain(command) if command.get(1).is_some_and(|word| word == b"PAUSE") => {
                self.tally.pauses += 1;
            }
            _ => {}
        }
    }

    /// Sends everything, and hangs up, in an order by chance.
    fn send(
        &mut self,
        mut outbox: BTreeMap<usize, Vec<Ask>>,
        leavers: &[(usize, Farewell)],
        rng: &mut impl Rng,
    ) -> anyhow::Result<()> {
        let mut order: Vec<usize> = outbox.keys().copied().collect();
        order.extend(leavers.iter().map(|(client, _)| *client).filter(|client| !outbox.contains_key(client)));
        order.shuffle(rng);
        for number in order {
            if let Some(connection) = &mut self.fleet.clients[number].connection {
                for ask in outbox.remove(&number).unwrap_or_default() {
                    connection.push(&ask.command());
                }
                // Who is killed already does not listen any more.
                let _ = connection.flush();
            }
            let leaver = leavers.iter().find(|(client, _)| *client == number);
            if let Some((_, how)) = leaver
                && !self.fleet.clients[number].doomed
            {
                self.hang_up(number, *how)?;
            }
        }
        Ok(())
    }

    fn hang_up(&mut self, number: usize, how: Farewell) -> anyhow::Result<()> {
        self.read(number)?;
        if let Some(connection) = self.fleet.clients[number].connection.take() {
            connection.hang_up(how)?;
            self.lose(number, End::HungUp(how));
            self.tally.hung_up += 1;
        }
        Ok(())
    }

    fn lose(&mut self, number: usize, end: End) {
        let sent: Vec<Sent> = self.fleet.clients[number].expected.drain(..).collect();
        for sent in &sent {
            self.current.left.extend(sent.ask.wants());
            self.current.expect(&sent.ask);
        }
        let asks = sent.iter().map(|sent| sent.ask.clone()).collect();
        self.journal.note(self.round, wall_ms(), Some(number), Event::Gone(end, asks));
        self.current.losses.push(Loss { end, sent });
    }

    /// Reads until all have answered who have to.
    pub fn await_replies(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        let mut limit = Duration::ZERO;
        loop {
            self.read_ready(limit)?;
            limit = Duration::from_secs(1);
            let clients = &self.fleet.clients;
            let late =
                clients.iter().enumerate().find(|(_, client)| client.connection.is_some() && client.owes());
            let Some((number, client)) = late else { return Ok(()) };
            ensure!(
                since.elapsed() < PATIENCE,
                "client {number} ({}) gets no reply to {:?}",
                if client.doomed { "killed" } else { "alive" },
                client.expected.front()
            );
        }
    }

    /// Reads what has arrived, or waits until something does.
    pub fn read_ready(&mut self, limit: Duration) -> anyhow::Result<()> {
        let open = self.fleet.clients.iter().enumerate();
        let open: Vec<_> = open.filter_map(|(n, c)| Some((n, c.connection.as_ref()?))).collect();
        let mut fds: Vec<_> =
            open.iter().map(|(_, c)| PollFd::from_borrowed_fd(c.as_fd(), PollFlags::IN)).collect();
        wait(&mut fds, limit)?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ready: Vec<usize> =
            open.iter().zip(&fds).filter(|(_, fd)| is_ready(fd)).map(|((number, _), _)| *number).collect();
        ready.into_iter().try_for_each(|number| self.read(number))
    }

    /// Reads what has arrived for a client.
    fn read(&mut self, number: usize) -> anyhow::Result<()> {
        let client = &mut self.fleet.clients[number];
        let Some(connection) = &mut client.connection else { return Ok(()) };
        let line = connection.receive()?;
        let (at, wall) = (Instant::now(), wall_ms());
        while let Some(reply) = connection.next()? {
            let Some(sent) = client.expected.pop_front() else {
                bail!("EXTRA REPLY: client {number} is told {reply:?}, and has asked for nothing");
            };
            self.journal.note(self.round, wall, Some(number), Event::Got(sent.ask.clone(), reply.clone()));
            self.current.note_reply(&sent.ask, &reply);
            self.current.answers.push(Answer { client: number, sent, reply, at, wall });
        }
        if line == Line::Closed {
            ensure!(client.doomed, "client {number} was cut off, and nobody had it killed");
            client.connection = None;
            self.lose(number, End::Killed);
            self.tally.killed += 1;
        }
        Ok(())
    }

    /// Has the stream read up to now. No client is read meanwhile, so that the stream is ahead of them.
    pub fn set_fence(&mut self) -> anyhow::Result<()> {
        self.fence += 1;
        let reply = self.admin.ask(&words(&format!("SET {FENCE} {}", self.fence)))?;
        ensure!(reply.text() == Some(b"OK"), "the fence: {reply:?}");
        let since = Instant::now();
        loop {
            for change in self.stream.changes()? {
                self.take_in(change)?;
            }
            if self.shadow.fence == self.fence {
                return Ok(());
            }
            ensure!(since.elapsed() < PATIENCE, "the replication stream stands still");
            wait(&mut [PollFd::new(&self.stream.connection, PollFlags::IN)], PATIENCE)?;
        }
    }

    fn take_in(&mut self, change: Vec<Vec<u8>>) -> anyhow::Result<()> {
        let applied = self.shadow.apply(&change);
        let here = change.get(1).and_then(|name| {
            Lock::all_in(0).find(|lock| lock.name() == *name).map(|lock| lock.in_db(self.shadow.db().min(1)))
        });
        let lock = applied.as_ref().ok().copied().flatten().or(here);
        self.journal.note(self.round, wall_ms(), None, Event::Change(lock, change));
        match (applied, lock) {
            (Err(error), Some(lock)) => Err(Violation::of(lock, format!("{error:#}")).into()),
            (applied, _) => applied.map(drop),
        }
    }

    /// Waits until everybody was told of its grant, or has had it taken back.
    fn settle_grants(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        let mut is_late = false;
        // What is still not told then is judged as any other.
        while self.is_grant_untold() && since.elapsed() < SERVICE_LIMIT {
            is_late = true;
            self.read_ready(Duration::from_micros(200))?;
            self.await_replies()?;
            self.set_fence()?;
        }
        if is_late {
            self.tally.told_late += 1;
            self.tally.latest_telling = self.tally.latest_telling.max(since.elapsed());
        }
        Ok(())
    }

    fn is_grant_untold(&self) -> bool {
        self.shadow.happened.iter().any(|happening| match happening {
            Happening::Granted { lock, owner, token } => {
                self.shadow.value(*lock).has_token(*token)
                    && !self.current.told.contains(token)
                    && (self.is_in_line(*lock, *owner) || !self.current.is_confirmed((*lock, *owner)))
                    && !self.current.may_have_lost_reply((*lock, *owner))
            }
            _ => false,
        })
    }

    fn is_in_line(&self, lock: Lock, owner: Owner) -> bool {
        self.fleet.line().iter().any(|waiter| (waiter.lock, waiter.owner) == (lock, owner))
    }

    /// Waits until no line stands before a free lock.
    fn settle_lines(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        let mut is_first = true;
        while let Some(lock) = self.line_before_a_free_lock() {
            if std::mem::take(&mut is_first) {
                self.tally.unsettled += 1;
            }
            if since.elapsed() > SERVICE_LIMIT {
                let info = Ask::Info { lock }.command();
                let told =
                    self.admin.ask_all(&[words(&format!("SELECT {}", lock.db())), info, words("SELECT 2")]);
                let text = format!(
                    "LOST WAKE-UP: a line stands before a free lock for {:?}: {:?}; LOCK.INFO: {told:?}",
                    since.elapsed(),
                    self.shadow.value(lock)
                );
                return Err(Violation::of(lock, text).into());
            }
            self.read_ready(Duration::from_millis(1))?;
            self.await_replies()?;
            self.set_fence()?;
        }
        if !is_first {
            self.tally.slowest_service = self.tally.slowest_service.max(since.elapsed());
        }
        Ok(())
    }

    fn line_before_a_free_lock(&self) -> Option<Lock> {
        let now = wall_ms();
        let free = |lock: &Lock| match self.shadow.value(*lock) {
            Value::Absent | Value::Alien(_) => true,
            Value::Lock(hash) => hash.end.is_some_and(|end| end < now - 1),
        };
        self.fleet.line().into_iter().map(|waiter| waiter.lock).find(free)
    }

    fn judge(&mut self) -> anyhow::Result<()> {
        let (visited, happened) = self.shadow.cut();
        self.current.visited = visited;
        self.current.happened = happened;
        self.judge_replies().context(self.round)?;
        self.judge_previous().context(self.round)?;
        let now = Instant::now();
        self.withdrawals.extend(self.current.withdrawn.iter().map(|place| (*place, now)));
        let line = self.fleet.line();
        self.tally.most_waiting = self.tally.most_waiting.max(line.len());
        self.tally.rounds += 1;
        self.round += 1;
        let next = Segment { round: self.round, line, ..Segment::default() };
        self.previous = std::mem::replace(&mut self.current, next);
        Ok(())
    }
}
