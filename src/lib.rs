//! Distributed locks as native commands of Redis and Valkey.
//!
//! * [`module`] — registers all that follows.
//! * [`config`], [`report`] — `CONFIG … lock.*` and `INFO lock`.
//! * [`watch`] — what others do to a lock's key, and what happens to the node and to those who wait.
//! * [`commands`] — `LOCK.ACQUIRE`, `LOCK.RENEW`, `LOCK.RELEASE`, `LOCK.FORCERELEASE`, `LOCK.INFO`: one
//!   file each.
//! * [`turn`] — the timer: leases that end, waits that end, the grace, and the end of a turn of the event loop.
//! * [`waiting`] — the waiting lines at work: joining, and handing a free lock to the first.
//! * [`keeping`] — keeps leases to the time that really passes, and held locks from losing their keys.
//! * [`lock_key`] — a lock as the hash at a key, as the commands use it: opened, written and propagated.
//! * [`leases`] — when a lease begins, moves and ends; the one place where a lock becomes free.
//! * [`unlocks`] — counts unlocks, and publishes them to whoever waits elsewhere.
//! * [`lock_hash`] — what the hash at a key says about a lock.
//! * [`node`] — what this node knows: leases, lines, tokens, settings, counts, and what waits for the end of the turn.
//! * [`clock`] — reads the machine's clocks.
//! * [`settings`], [`metrics`] — what an operator sets, and what happened so far.
//! * [`answer`] — the reply of an ACQUIRE, at once or after a wait.
//! * [`refusal`] — why a command was refused, and what the client is told.
//! * [`lock`] — what a lock is and what each command does to it, in plain Rust: start here.
//! * [`server`] — the server's module API behind safe types, and the only unsafe code.
//!
//! Each uses only what stands below it in this list.
#![deny(unsafe_code)]

mod answer;
mod clock;
mod commands;
mod config;
mod keeping;
mod leases;
mod lock;
mod lock_hash;
mod lock_key;
mod metrics;
mod module;
mod node;
mod refusal;
mod report;
#[allow(unsafe_code, reason = "the thin layer over the server's C API")]
mod server;
mod settings;
mod turn;
mod unlocks;
mod waiting;
mod watch;

use std::ffi::c_int;

/// Everything is allocated by the server, so that its memory figures are true. A test has no server.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

/// The entry point that the server looks up by this name.
#[allow(unsafe_code, reason = "the symbol's name is the server's; nothing else bears it")]
#[allow(non_snake_case, reason = "the server's spelling")]
#[unsafe(no_mangle)]
pub extern "C" fn RedisModule_OnLoad(ctx: server::LoadContext, argv: server::LoadArgs, argc: c_int) -> c_int {
    server::on_load::<module::Lock>(ctx, argv, argc)
}

/// The exit point that the server looks up by this name.
#[allow(unsafe_code, reason = "the symbol's name is the server's; nothing else bears it")]
#[allow(non_snake_case, reason = "the server's spelling")]
#[unsafe(no_mangle)]
pub extern "C" fn RedisModule_OnUnload(ctx: server::LoadContext) -> c_int {
    server::on_unload::<module::Lock>(ctx)
}
