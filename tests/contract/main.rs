//! The contract of the `LOCK.*` commands, each line of it on a real server.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod acl;
mod acquire;
mod clock;
mod cluster;
mod config;
mod docs;
mod editing;
mod events;
mod eviction;
mod failover;
mod field_cases;
mod grace;
mod helpers;
mod hostile;
mod idle;
mod info;
mod kill;
mod listener;
mod loading;
mod memory;
mod notifications;
mod persistence;
mod propagation;
mod redisson;
mod release;
mod renew;
mod replicas;
mod replication;
mod resharding;
mod scripting;
mod stream;
mod tokens;
mod vanishing;
mod waiting;
