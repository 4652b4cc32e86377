//! The program `redlock`, over three nodes.
#![cfg(feature = "cli")]

use std::process::{Command, Output};

use redis::cmd;
use redis_lock_testkit::Server;

struct Nodes(Vec<Server>);

impl Nodes {
    fn start() -> Self {
        Self((0..3).map(|_| Server::with_module().start()).collect())
    }

    /// `job` taken for `owner` on the first `count` nodes.
    fn acquire(&self, owner: &str, count: usize) {
        for node in &self.0[..count] {
            cmd("LOCK.ACQUIRE")
                .arg(&["job", owner, "30000"])
                .exec(&mut node.connect())
                .expect("the lock is free");
        }
    }

    /// Runs the program.
    fn redlock(&self, args: &[&str]) -> Output {
        let urls: Vec<_> = self.0.iter().map(|node| format!("redis://127.0.0.1:{}", node.port())).collect();
        Command::new(env!("CARGO_BIN_EXE_redlock"))
            .args(args)
            .env("REDLOCK_NODES", urls.join(","))
            .output()
            .expect("the program runs")
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The output as JSON; an empty value where it is none.
fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

#[test]
fn info_says_who_holds_the_lock_on_each_node() {
    let nodes = Nodes::start();
    nodes.acquire("alice", 2);
    let output = nodes.redlock(&["info", "job"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output).matches("held by alice  holds 1").count(), 2, "{output:?}");
    assert_eq!(text(&output).matches("free").count(), 1, "{output:?}");

    let answer = json(&nodes.redlock(&["info", "--json", "job"]));
    let holders: Vec<_> = (0..3).map(|node| &answer[node]["holder"]["owner"]).collect();
    assert_eq!(holders, [&serde_json::json!("alice"), &serde_json::json!("alice"), &serde_json::Value::Null]);
}

#[test]
fn info_shows_the_nodes_that_do_not_answer() {
    let mut nodes = Nodes::start();
    nodes.0[0].kill();
    let output = nodes.redlock(&["info", "job"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output).matches("no answer: ").count(), 1, "{output:?}");
    nodes.0.iter_mut().for_each(Server::kill);
    assert_eq!(nodes.redlock(&["info", "job"]).status.code(), Some(121));
}

#[test]
fn a_lock_is_released_by_force_alone() {
    let nodes = Nodes::start();
    nodes.acquire("alice", 3);
    assert_eq!(nodes.redlock(&["release", "job"]).status.code(), Some(125));
    assert_eq!(json(&nodes.redlock(&["info", "--json", "job"]))[0]["holder"]["owner"], "alice");
    let answer = json(&nodes.redlock(&["release", "--force", "--json", "job"]));
    assert_eq!([0, 1, 2].map(|node| answer[node]["released"].as_bool()), [Some(true); 3]);
    assert_eq!(text(&nodes.redlock(&["info", "job"])).matches("free").count(), 3);
}

#[test]
fn a_release_is_unavailable_without_a_majority() {
    let mut nodes = Nodes::start();
    nodes.acquire("alice", 3);
    nodes.0[1..].iter_mut().for_each(Server::kill);
    assert_eq!(nodes.redlock(&["release", "--force", "job"]).status.code(), Some(121));
}

#[test]
fn top_shows_the_locks_of_all_nodes_together() {
    let nodes = Nodes::start();
    nodes.acquire("alice", 2);
    cmd("HSET").arg(&["cart", "apples", "3"]).exec(&mut nodes.0[0].connect()).expect("a hash is written");
    let answer = json(&nodes.redlock(&["top", "--looks", "1", "--json"]));
    assert_eq!(answer["locks"].as_array().map(Vec::len), Some(1), "{answer}");
    let lock = &answer["locks"][0];
    assert_eq!((&lock["name"], &lock["holders"][0]["nodes"]), (&"job".into(), &2.into()));
}

#[test]
fn completions_and_the_manual_page_are_generated() {
    let nodes = Nodes(Vec::new());
    assert!(text(&nodes.redlock(&["completions", "bash"])).contains("_redlock()"));
    assert!(text(&nodes.redlock(&["man"])).contains(".TH redlock 1"));
}
