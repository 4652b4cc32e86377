//! Unloading the module and loading it again, under a server that goes on.

use anyhow::{Context as _, bail, ensure};
use rand::Rng;

use crate::campaign::Campaign;
use crate::counts::Counts;
use crate::fleet::PROBE;
use crate::grammar::{FOREIGN, LOCKS, Rule, STATES, sequence};
use crate::link::Link;
use crate::resp::{Reply, words};

/// One batch in so many begins with it.
const RARELY: u32 = 8;

/// How many lines are sent while the module is away.
const ABSENCE: usize = 20;

/// Locks that the module has on record, but no timer for.
const ENDLESS: &[Rule] = &[(1, "LOCK.ACQUIRE $key $owner 5; PERSIST $key")];

/// How a server knows the module.
const NAME: &[u8] = b"lock";

/// The module, as far as a server needs to know it to load it.
#[derive(Debug)]
pub struct Module {
    path: Vec<u8>,
}

impl Module {
    /// Asks a server that has loaded it.
    ///
    /// # Errors
    /// When it has not.
    pub fn of(control: &mut Link) -> anyhow::Result<Self> {
        let Reply::Array(modules) = control.ask(&words("MODULE LIST"))? else {
            bail!("MODULE LIST is no array")
        };
        let ours = modules.iter().find(|module| fact(module, "name") == Some(NAME));
        let path =
            ours.and_then(|module| fact(module, "path")).context("the server names no file of the module")?;
        Ok(Self { path: path.to_vec() })
    }
}

fn fact<'m>(module: &'m Reply, name: &str) -> Option<&'m [u8]> {
    let Reply::Array(facts) = module else { return None };
    let at = facts.iter().position(|word| word.is_text(name.as_bytes()))?;
    match facts.get(at + 1)? {
        Reply::Text(value) => Some(value),
        _ => None,
    }
}

impl Campaign {
    /// Now and then, takes the module away for some lines and brings it back.
    ///
    /// # Errors
    /// When it doesn't come back.
    pub fn swap_module(&mut self) -> anyhow::Result<()> {
        if !self.rng.random_ratio(1, RARELY) {
            return Ok(());
        }
        // Servers keep pointers to a client's queued commands and to its last one: no client may
        // remember a command of a module that is gone.
        self.fleet.reconnect()?;
        self.leave_no_timer()?;
        let unload = vec![b"MODULE".to_vec(), b"UNLOAD".to_vec(), NAME.to_vec()];
        let load = vec![b"MODULE".to_vec(), b"LOAD".to_vec(), self.module.path.clone()];
        let unloaded = self.fleet.ask_all(PROBE, &[unload])?;
        if !unloaded.is_some_and(|replies| replies[0].is_text(b"OK")) {
            // A foreign command has given one of the locks a lease, so the timer stands.
            return Ok(());
        }
        for _ in 0..ABSENCE {
            let rules = if self.rng.random_ratio(1, 4) {
                LOCKS
            } else {
                [STATES, FOREIGN][self.rng.random_range(0..2)]
            };
            let commands = sequence(rules, &mut self.rng, &self.given);
            self.fleet.ask_all(PROBE, &commands)?;
        }
        self.fleet.reconnect()?;
        let loaded = self.fleet.ask_all(PROBE, &[load])?.context("the server hung up on MODULE LOAD")?;
        ensure!(loaded[0].is_text(b"OK"), "the module doesn't load again: {loaded:?}");
        self.tally.swaps += 1;
        // It counts from zero, and its tokens from the clock, which a client's TOKEN may have outrun.
        self.counts = Counts::default();
        self.last_token = 0;
        Ok(())
    }
    /// A server does not unload a module whose timer stands: ends all leases but endless ones.
    fn leave_no_timer(&mut self) -> anyhow::Result<()> {
        let mut commands = vec![words("FLUSHALL"), words("LOCK.ACQUIRE k1 a 5")];
        for _ in 0..ABSENCE {
            commands.extend(sequence(ENDLESS, &mut self.rng, &self.given));
        }
        self.fleet.ask_all(PROBE, &commands)?;
        self.fleet.ask_all(PROBE, &[words("DEBUG SLEEP 0.01")])?;
        self.fleet.ask_all(PROBE, &[words("PING")])?;
        Ok(())
    }
}
