//! `redlock info`: who holds a lock, on each node.

use std::process::ExitCode;

use redis::RedisResult;
use redis_lock_client::{Info, info};
use serde_json::{Value, json};

use crate::args;
use crate::exit;
use crate::nodes::{Said, ask_all, cause};
use crate::show::{lease, text};

/// Asks, and prints.
pub async fn show(args: args::Info) -> ExitCode {
    let said = ask_all(&args.nodes.nodes, async |mut node| -> RedisResult<Info> {
        info(&args.name, args.waiters).query_async(&mut node).await
    })
    .await;
    if args.output.json {
        println!("{}", Value::from_iter(said.iter().map(as_json)));
    } else {
        said.iter().for_each(print);
    }
    if said.iter().any(|said| said.answer.is_ok()) { ExitCode::SUCCESS } else { exit::UNAVAILABLE.into() }
}

fn print(said: &Said<Info>) {
    let node = &said.node;
    let info = match &said.answer {
        Err(error) => return println!("{node:<22} no answer: {}", cause(error)),
        Ok(info) => info,
    };
    match &info.holder {
        None => print!("{node:<22} free"),
        Some(holder) => print!(
            "{node:<22} held by {}  holds {}  lease {}  token {}",
            text(&holder.owner),
            holder.holds,
            lease(holder.lease),
            holder.token
        ),
    }
    if !info.grace.is_zero() {
        print!("  (grace: grants nothing for {:.1} s)", info.grace.as_secs_f64());
    }
    println!();
    for waiter in &info.line {
        println!("{:<22} waits {:.1} s: {}", "", waiter.waited.as_secs_f64(), text(&waiter.owner));
    }
    let more = info.waiters.saturating_sub(info.line.len() as u64);
    if more > 0 {
        println!("{:<22} and {more} more in line", "");
    }
}

fn as_json(said: &Said<Info>) -> Value {
    match &said.answer {
        Err(error) => json!({ "node": said.node, "error": cause(error) }),
        Ok(info) => json!({
            "node": said.node,
            "holder": info.holder.as_ref().map(|holder| json!({
                "owner": text(&holder.owner),
                "holds": holder.holds,
                "lease_ms": crate::show::lease_ms(holder.lease),
                "token": holder.token,
            })),
            "waiters": info.waiters,
            "line": info.line.iter().map(|waiter| json!({
                "owner": text(&waiter.owner),
                "waited_ms": waiter.waited.as_millis() as u64,
            })).collect::<Vec<_>>(),
            "grace_ms": info.grace.as_millis() as u64,
        }),
    }
}
