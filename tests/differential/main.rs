//! Random histories of locking, played by Redisson's scripts and by the module.
//!
//! [`duel`] plays each history on two keys, one for Redisson and one for the module, and compares
//! what became of them step by step; where the module differs on purpose, [`difference`] says how.
//! [`truce`] plays histories in which both lock the same key, and checks that they exclude, see and
//! wake each other.
//!
//! `REDIS_LOCK_HISTORIES` sets how many histories are played, `REDIS_LOCK_SEED` repeats a run.

mod difference;
mod duel;
mod history;
mod locker;
mod module;
mod redisson;
mod runner;
mod snapshot;
mod stage;
mod truce;
