//! Many clients that want one lock, each of them a state machine: it waits, releases at once what
//! it is granted, and waits again.

use anyhow::{bail, ensure};
use redis::{Connection, Value};
use redis_lock_testkit::Server;

use crate::contender::{LEASE, OWNER};
use crate::line::{FOREVER, calls, owner, waiters};
use crate::peer::{Peer, first_integer, packed};
use crate::redisson::Redisson;
use crate::swarm::{Heard, Swarm};

/// The lock.
const NAME: &str = "orders:contended";

/// What a reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This client holds the lock.
    Granted(usize),
    /// This client has given it back.
    Released(usize),
    /// Nothing that others need to know.
    Progress,
}

/// A way in which many clients wait for one lock.
pub trait Race {
    /// All connections.
    fn swarm(&mut self) -> &mut Swarm;
    /// Has a client ask for the lock.
    fn join(&mut self, client: usize) -> anyhow::Result<()>;
    /// Has the holder give it back.
    fn release(&mut self, client: usize) -> anyhow::Result<()>;
    /// Takes a reply to whom it concerns.
    fn heed(&mut self, heard: &Heard) -> anyhow::Result<Event>;
    /// How many clients wait.
    fn waiting(&mut self) -> anyhow::Result<usize>;
    /// Gives back the lock that was taken when the race was set up.
    fn open_the_gate(&mut self) -> anyhow::Result<()>;
    /// How many commands the clients have sent so far, by the server's account.
    fn commands(&mut self) -> anyhow::Result<u64>;
}

/// Where a client of the module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InLine,
    Releasing,
}

/// The clients wait in the module's line.
pub struct LineRace {
    swarm: Swarm,
    control: Connection,
    places: Vec<Place>,
    acquires: Vec<Vec<u8>>,
    releases: Vec<Vec<u8>>,
}

impl LineRace {
    /// Takes the lock, so that nobody gets it before all are there.
    pub fn start(server: &Server, clients: usize) -> anyhow::Result<Self> {
        let mut control = server.connect();
        redis::cmd("LOCK.ACQUIRE").arg(&[NAME, OWNER, LEASE]).exec(&mut control)?;
        let acquire = |client| packed(&["LOCK.ACQUIRE", NAME, &owner(client), LEASE, "BLOCK", FOREVER]);
        let release = |client| packed(&["LOCK.RELEASE", NAME, &owner(client)]);
        Ok(Self {
            swarm: Swarm::connect(server, clients, Peer::over_tcp)?,
            control,
            places: vec![Place::Releasing; clients],
            acquires: (0..clients).map(acquire).collect(),
            releases: (0..clients).map(release).collect(),
        })
    }
}

impl Race for LineRace {
    fn swarm(&mut self) -> &mut Swarm {
        &mut self.swarm
    }

    fn join(&mut self, client: usize) -> anyhow::Result<()> {
        self.places[client] = Place::InLine;
        self.swarm.send_packed(client, &self.acquires[client])
    }

    fn release(&mut self, client: usize) -> anyhow::Result<()> {
        self.places[client] = Place::Releasing;
        self.swarm.send_packed(client, &self.releases[client])
    }

    fn heed(&mut self, heard: &Heard) -> anyhow::Result<Event> {
        let Heard { peer, reply, .. } = heard;
        match self.places[*peer] {
            Place::InLine => {
                ensure!(first_integer(reply)? == 1, "a waiter was told {reply:?}");
                Ok(Event::Granted(*peer))
            }
            Place::Releasing => {
                ensure!(*reply == Value::Int(0), "a release answered {reply:?}");
                Ok(Event::Released(*peer))
            }
        }
    }

    fn waiting(&mut self) -> anyhow::Result<usize> {
        waiters(&mut self.control, NAME)
    }

    fn open_the_gate(&mut self) -> anyhow::Result<()> {
        Ok(redis::cmd("LOCK.RELEASE").arg(&[NAME, OWNER]).exec(&mut self.control)?)
    }

    fn commands(&mut self) -> anyhow::Result<u64> {
        Ok(calls(&mut self.control, &["lock.acquire", "lock.release"])?.iter().sum())
    }
}

/// Where a client of Redisson's kind is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It has asked for the lock.
    Trying,
    /// The same, and since then an unlock was published: it will have to ask again.
    TryingAndWoken,
    /// It waits for a message.
    Parked,
    Unlocking,
    RemovingLatch,
}

/// The clients subscribe to the unlock channel and try again at each message.
///
/// Each is a process of its own, as in a fleet of workers. They stay subscribed all the time; a
/// Redisson client would subscribe and unsubscribe at each wait, two commands more.
pub struct PublishRace {
    /// First the clients' connections for commands, then those for messages.
    swarm: Swarm,
    control: Connection,
    commands: Redisson,
    steps: Vec<Step>,
    acquires: Vec<Vec<u8>>,
}

impl PublishRace {
    /// Takes the lock, so that nobody gets it before all are there.
    pub fn start(server: &Server, clients: usize) -> anyhow::Result<Self> {
        let mut control = server.connect();
        let commands = Redisson::new(server, NAME)?;
        let [command, args @ ..] = commands.acquire(OWNER);
        redis::cmd(command).arg(&args).exec(&mut control)?;
        let mut swarm = Swarm::connect(server, 2 * clients, Peer::over_tcp)?;
        for subscription in clients..2 * clients {
            swarm.send(subscription, &["SUBSCRIBE", commands.channel()])?;
        }
        swarm.expect(clients, |_| Ok(()))?;
        let acquires = (0..clients).map(|client| packed(&commands.acquire(&owner(client)))).collect();
        Ok(Self { swarm, control, commands, steps: vec![Step::RemovingLatch; clients], acquires })
    }

    fn heed_message(&mut self, client: usize) -> anyhow::Result<Event> {
        match self.steps[client] {
            Step::Parked => self.join(client)?,
            Step::Trying => self.steps[client] = Step::TryingAndWoken,
            Step::TryingAndWoken | Step::Unlocking | Step::RemovingLatch => {}
        }
        Ok(Event::Progress)
    }

    fn latch(&self, client: usize) -> String {
        // One for each client is enough: it is gone before the client's next unlock.
        self.commands.latch(client as u64)
    }
}

impl Race for PublishRace {
    fn swarm(&mut self) -> &mut Swarm {
        &mut self.swarm
    }

    fn join(&mut self, client: usize) -> anyhow::Result<()> {
        self.steps[client] = Step::Trying;
        self.swarm.send_packed(client, &self.acquires[client])
    }

    fn release(&mut self, client: usize) -> anyhow::Result<()> {
        self.steps[client] = Step::Unlocking;
        self.swarm.send(client, &self.commands.unlock(&owner(client), &self.latch(client)))
    }

    fn heed(&mut self, heard: &Heard) -> anyhow::Result<Event> {
        let client = heard.peer;
        if let Some(subscriber) = client.checked_sub(self.steps.len()) {
            return self.heed_message(subscriber);
        }
        match (self.steps[client], &heard.reply) {
            (Step::Trying | Step::TryingAndWoken, Value::Nil) => return Ok(Event::Granted(client)),
            (Step::Trying, Value::Int(_)) => self.steps[client] = Step::Parked,
            (Step::TryingAndWoken, Value::Int(_)) => self.join(client)?,
            (Step::Unlocking, Value::Int(1)) => {
                self.steps[client] = Step::RemovingLatch;
                self.swarm.send(client, &["DEL", &self.latch(client)])?;
            }
            (Step::RemovingLatch, Value::Int(1)) => return Ok(Event::Released(client)),
            (step, reply) => bail!("{reply:?} is no answer to a client that is {step:?}"),
        }
        Ok(Event::Progress)
    }

    fn waiting(&mut self) -> anyhow::Result<usize> {
        Ok(self.steps.iter().filter(|step| **step == Step::Parked).count())
    }

    fn open_the_gate(&mut self) -> anyhow::Result<()> {
        let latch = self.commands.latch(u64::MAX);
        let [command, args @ ..] = self.commands.unlock(OWNER, &latch);
        Ok(redis::cmd(command).arg(&args).exec(&mut self.control)?)
    }

    /// The unlock script's own DEL counts as a call too, hence half of them.
    fn commands(&mut self) -> anyhow::Result<u64> {
        let calls = calls(&mut self.control, &["evalsha", "del"])?;
        Ok(calls[0] + calls[1] / 2)
    }
}
