//! The waiting line: who gets a lock that becomes free, when, and in what order.

mod asking;
mod cases;
mod cluster;
mod config;
mod databases;
mod foreign;
mod grammar;
mod handoff;
mod info;
mod leaving;
mod overtaking;
mod pauses;
mod propagation;
mod redisson;
mod roles;
mod same_turn;
mod surroundings;
mod telling;
pub mod waiter;
