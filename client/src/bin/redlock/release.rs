//! `redlock release --force`: takes a lock away.

use std::process::ExitCode;

use redis::RedisResult;
use redis_lock_client::force_release;
use serde_json::{Value, json};

use crate::args;
use crate::exit;
use crate::nodes::{Said, ask_all, cause};

/// Releases on all nodes, and says what came of it on each.
pub async fn release(args: args::Release) -> ExitCode {
    let said = ask_all(&args.nodes.nodes, async |mut node| -> RedisResult<bool> {
        force_release(&args.name).query_async(&mut node).await
    })
    .await;
    if args.output.json {
        println!("{}", Value::from_iter(said.iter().map(as_json)));
    } else {
        said.iter().for_each(print);
    }
    let silent = said.iter().filter(|said| said.answer.is_err()).count();
    // With so many left, a holder keeps no majority.
    if said.len() - silent > said.len() / 2 { ExitCode::SUCCESS } else { exit::UNAVAILABLE.into() }
}

fn print(said: &Said<bool>) {
    let node = &said.node;
    match &said.answer {
        Ok(true) => println!("{node:<22} released"),
        Ok(false) => println!("{node:<22} was free"),
        Err(error) => println!("{node:<22} no answer: {}", cause(error)),
    }
}

fn as_json(said: &Said<bool>) -> Value {
    match &said.answer {
        Ok(was_held) => json!({ "node": said.node, "released": was_held }),
        Err(error) => json!({ "node": said.node, "error": cause(error) }),
    }
}
