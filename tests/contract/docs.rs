//! COMMAND INFO, DOCS, GETKEYS and LIST answer for our commands as for built-in ones.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, FromRedisValue, Value};
use redis_lock_testkit::Flavor;

use crate::helpers::*;

/// A reply of nested maps, whatever protocol they came in.
type Fields = BTreeMap<String, Value>;

#[track_caller]
fn get<T: FromRedisValue>(fields: &Fields, name: &str) -> T {
    let value = fields.get(name).unwrap_or_else(|| panic!("no {name} in {fields:?}"));
    redis::from_redis_value(value.clone()).unwrap()
}

fn command_info(con: &mut Connection, name: &str) -> Vec<Value> {
    let mut replies: Vec<Vec<Value>> = call(con, &format!("COMMAND INFO {name}"));
    replies.remove(0)
}

#[test]
fn command_info_tells_arity_flags_and_key() {
    let (server, mut con) = start();
    for (name, arity, flags) in [
        ("lock.acquire", -4, &["write", "denyoom", "fast", "blocking"][..]),
        ("lock.renew", -4, &["write", "fast"]),
        ("lock.release", -3, &["write", "fast"]),
        ("lock.info", -2, &["readonly", "fast"]),
        ("lock.forcerelease", 2, &["write", "fast"]),
    ] {
        let info = command_info(&mut con, name);
        let (told_name, told_arity): (String, i64) =
            redis::from_redis_value(Value::Array(info[..2].to_vec())).unwrap();
        assert_eq!((told_name.as_str(), told_arity), (name, arity));
        let mut told: BTreeSet<String> = redis::from_redis_value(info[2].clone()).unwrap();
        assert!(told.remove("module"), "{name}");
        assert_eq!(told, flags.iter().map(|flag| (*flag).to_owned()).collect(), "{name}");
        assert_eq!(info[3..6], [Value::Int(1), Value::Int(1), Value::Int(1)], "{name}");
        if server.version().at_least(Flavor::Redis, 7, 2) {
            let categories: BTreeSet<String> = redis::from_redis_value(info[6].clone()).unwrap();
            let own = if name == "lock.info" { "@read" } else { "@write" };
            assert!(categories.contains(own), "{name} is in {categories:?}");
        }
    }
}

#[test]
fn the_key_specs_tell_what_is_done_to_the_key() {
    let (_server, mut con) = start();
    for (name, expected) in [
        ("lock.acquire", &["RW", "access", "update"][..]),
        ("lock.renew", &["RW", "update"]),
        ("lock.release", &["RW", "access", "delete"]),
        ("lock.info", &["RO", "access"]),
        ("lock.forcerelease", &["RM", "delete"]),
    ] {
        let info = command_info(&mut con, name);
        let specs: Vec<Fields> = redis::from_redis_value(info[8].clone()).unwrap();
        assert_eq!(specs.len(), 1, "{name}");
        let mut flags: BTreeSet<String> = get(&specs[0], "flags");
        flags.retain(|flag| flag != "variable_flags");
        assert_eq!(flags, expected.iter().map(|flag| (*flag).to_owned()).collect(), "{name}");
        let begin: Fields = get(&specs[0], "begin_search");
        assert_eq!(get::<String>(&begin, "type"), "index", "{name}");
        assert_eq!(get::<i64>(&get::<Fields>(&begin, "spec"), "index"), 1, "{name}");
    }
}

#[test]
fn command_getkeys_finds_the_key() {
    let (_server, mut con) = start();
    for line in [
        "LOCK.ACQUIRE the-key me 30000 HOLDS 2",
        "LOCK.RENEW the-key me 30000",
        "LOCK.RELEASE the-key me HOLDS 0",
        "LOCK.INFO the-key",
        "LOCK.FORCERELEASE the-key",
    ] {
        assert_eq!(call::<Vec<String>>(&mut con, &format!("COMMAND GETKEYS {line}")), ["the-key"], "{line}");
    }
}

#[test]
fn the_module_is_listed_with_its_five_commands() {
    let (_server, mut con) = start();
    let mut names: Vec<String> = call(&mut con, "COMMAND LIST FILTERBY MODULE lock");
    names.sort_unstable();
    assert_eq!(names, ["lock.acquire", "lock.forcerelease", "lock.info", "lock.release", "lock.renew"]);
    let modules: Vec<Fields> = call(&mut con, "MODULE LIST");
    let ours = modules.iter().find(|module| get::<String>(module, "name") == "lock");
    assert!(get::<i64>(ours.expect("it is listed"), "ver") > 0);
}

fn docs(con: &mut Connection, name: &str) -> Fields {
    let all: Fields = call(con, &format!("COMMAND DOCS {name}"));
    get(&all, name)
}

/// The arguments with their types, and the token in front of those that have one.
fn arguments(docs: &Fields) -> Vec<String> {
    let arguments: Vec<Fields> = get(docs, "arguments");
    let shown = arguments.iter().map(|argument| {
        let word = |name: &str| argument.get(name).map(|_| get::<String>(argument, name));
        let token = word("token").map(|token| format!("{token} ")).unwrap_or_default();
        let flags: Vec<String> = argument.get("flags").map(|_| get(argument, "flags")).unwrap_or_default();
        let optional = if flags.iter().any(|flag| flag == "optional") { "?" } else { "" };
        format!("{token}{}:{}{optional}", get::<String>(argument, "name"), get::<String>(argument, "type"))
    });
    shown.collect()
}

#[test]
fn command_docs_document_every_argument() {
    let (_server, mut con) = start();
    for (name, expected) in [
        (
            "lock.acquire",
            &[
                "key:key",
                "owner:string",
                "ttl:integer",
                "HOLDS holds:integer?",
                "TOKEN token:integer?",
                "BLOCK timeout:integer?",
            ][..],
        ),
        ("lock.renew", &["key:key", "owner:string", "ttl:integer", "TOKEN token:integer?"]),
        ("lock.release", &["key:key", "owner:string", "HOLDS holds:integer?"]),
        ("lock.info", &["key:key", "WAITERS count:integer?"]),
        ("lock.forcerelease", &["key:key"]),
    ] {
        assert_eq!(arguments(&docs(&mut con, name)), expected, "{name}");
    }
}

#[test]
fn command_docs_tell_what_a_command_is_for_and_what_it_costs() {
    let (_server, mut con) = start();
    for name in ["lock.acquire", "lock.renew", "lock.release", "lock.info", "lock.forcerelease"] {
        let docs = docs(&mut con, name);
        assert!(get::<String>(&docs, "summary").len() > 10, "{name}");
        assert!(get::<String>(&docs, "complexity").starts_with("O("), "{name}");
        assert!(!get::<String>(&docs, "since").is_empty(), "{name}");
        assert_eq!(get::<String>(&docs, "module"), "lock", "{name}");
    }
}
