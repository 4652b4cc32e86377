//! `redlock top`: the locks held, live.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd, pipe};
use redis_lock_client::{Info, Lease, info};
use serde_json::{Value, json};

use crate::args;
use crate::exit;
use crate::nodes::{Said, ask_all, cause};
use crate::show::{lease, lease_ms, text};

/// How many keys a node looks at before it answers: little enough not to hold up others.
const SCAN_COUNT: u32 = 1_000;

/// Clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The locks held on one node, by their names.
type Locks = Vec<(Vec<u8>, Info)>;

/// A lock, as the nodes see it together.
#[derive(Default)]
struct Row {
    /// By owner: on how many nodes it holds the lock, its longest lease, its highest token.
    holders: BTreeMap<Vec<u8>, Holder>,
    /// The most that wait on any node.
    waiters: u64,
}

struct Holder {
    nodes: usize,
    lease: Lease,
    token: u64,
}

/// Looks and prints until interrupted.
pub async fn watch(args: args::Top) -> ExitCode {
    let mut looks = args.looks;
    loop {
        let said = ask_all(&args.nodes.nodes, async |node| held(node, &args.pattern).await).await;
        let answered = said.iter().filter(|said| said.answer.is_ok()).count();
        let rows = together(&said);
        if args.output.json {
            println!("{}", as_json(&rows, &said));
        } else {
            print(&rows, &said);
        }
        looks = looks.map(|looks| looks.saturating_sub(1));
        if looks == Some(0) {
            return if answered > 0 { ExitCode::SUCCESS } else { exit::UNAVAILABLE.into() };
        }
        tokio::select! {
            () = tokio::time::sleep(args.interval.max(Duration::from_millis(100))) => {}
            _ = tokio::signal::ctrl_c() => return ExitCode::SUCCESS,
        }
    }
}

/// The locks held on a node.
async fn held(mut node: MultiplexedConnection, pattern: &str) -> RedisResult<Locks> {
    let mut locks = Vec::new();
    let mut cursor = 0;
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("hash");
        let (next, names): (u64, Vec<Vec<u8>>) = scan.query_async(&mut node).await?;
        let mut questions = pipe();
        // A hash that is no lock is an error to LOCK.INFO, and no lock to us.
        questions.ignore_errors();
        for name in &names {
            questions.add_command(info(name, 0));
        }
        let infos: Vec<RedisResult<Info>> = questions.query_async(&mut node).await?;
        let named = names.into_iter().zip(infos);
        locks.extend(
            named.filter_map(|(name, info)| Some((name, info.ok().filter(|info| info.holder.is_some())?))),
        );
        cursor = next;
        if cursor == 0 {
            return Ok(locks);
        }
    }
}

fn together(said: &[Said<Locks>]) -> BTreeMap<Vec<u8>, Row> {
    let mut rows: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    for (name, info) in said.iter().filter_map(|said| said.answer.as_ref().ok()).flatten() {
        let row = rows.entry(name.clone()).or_default();
        row.waiters = row.waiters.max(info.waiters);
        let Some(seen) = &info.holder else { continue };
        let holder =
            row.holders.entry(seen.owner.clone()).or_insert(Holder { nodes: 0, lease: seen.lease, token: 0 });
        holder.nodes += 1;
        holder.token = holder.token.max(seen.token);
        holder.lease = longer(holder.lease, seen.lease);
    }
    rows
}

fn longer(first: Lease, second: Lease) -> Lease {
    match (first, second) {
        (Lease::Left(first), Lease::Left(second)) => Lease::Left(first.max(second)),
        _ => Lease::Endless,
    }
}

fn print(rows: &BTreeMap<Vec<u8>, Row>, said: &[Said<Locks>]) {
    let mut page = String::new();
    if stdout().is_terminal() {
        page.push_str(CLEAR);
    }
    let nodes = said.len();
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    page.push_str(&format!("{now}  {} locks held on {nodes} nodes\n", rows.len()));
    for said in said {
        if let Err(error) = &said.answer {
            page.push_str(&format!("{} does not answer: {}\n", said.node, cause(error)));
        }
    }
    page.push_str(&format!(
        "{:<24} {:>7} {:>10} {:>7} {:>17}  OWNER\n",
        "LOCK", "NODES", "LEASE", "WAITING", "TOKEN"
    ));
    for (name, row) in rows {
        for (owner, holder) in &row.holders {
            page.push_str(&format!(
                "{:<24} {:>7} {:>10} {:>7} {:>17}  {}\n",
                text(name),
                format!("{}/{nodes}", holder.nodes),
                lease(holder.lease),
                row.waiters,
                holder.token,
                text(owner)
            ));
        }
    }
    let mut out = stdout().lock();
    // Nobody is left to be told that the reader has gone.
    let _ = out.write_all(page.as_bytes()).and_then(|()| out.flush());
}

fn as_json(rows: &BTreeMap<Vec<u8>, Row>, said: &[Said<Locks>]) -> Value {
    let silent = said.iter().filter_map(|said| Some((&said.node, said.answer.as_ref().err()?)));
    json!({
        "nodes": said.len(),
        "silent": silent.map(|(node, error)| json!({ "node": node, "error": cause(error) })).collect::<Vec<_>>(),
        "locks": rows.iter().map(|(name, row)| json!({
            "name": text(name),
            "waiters": row.waiters,
            "holders": row.holders.iter().map(|(owner, holder)| json!({
                "owner": text(owner),
                "nodes": holder.nodes,
                "lease_ms": lease_ms(holder.lease),
                "token": holder.token,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}
