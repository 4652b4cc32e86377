//! What nobody should send: refused, and the data stays exactly as it was.

use redis::{Cmd, Connection, Value, cmd};
use redis_lock_testkit::Server;

use crate::helpers::*;
use crate::listener::{Listener, Message};

const COMMANDS: [&str; 5] = [
    "LOCK.ACQUIRE KEY me 30000",
    "LOCK.RENEW KEY me 30000",
    "LOCK.RELEASE KEY me",
    "LOCK.INFO KEY",
    "LOCK.FORCERELEASE KEY",
];

/// Asserts that each line is refused with an error that starts so, and that no data changes.
#[track_caller]
fn assert_refused(con: &mut Connection, lines: &[&str], error: &str) {
    let before = Snapshot::take(con);
    for line in lines {
        let refused = refusal(con, line);
        assert!(refused.starts_with(error), "{line}: {refused}");
    }
    assert_eq!(Snapshot::take(con), before);
}

/// As [`assert_refused`], for a plain ERR that names what is wrong.
#[track_caller]
fn assert_refused_naming(con: &mut Connection, lines: &[String], word: &str) {
    let before = Snapshot::take(con);
    for line in lines {
        let refused = refusal(con, line);
        assert!(refused.starts_with("ERR ") && refused.contains(word), "{line}: {refused}");
    }
    assert_eq!(Snapshot::take(con), before);
}

#[test]
fn every_command_refuses_a_key_of_another_type() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    for line in [
        "SET string 1",
        "RPUSH list a b",
        "SADD set a b",
        "ZADD zset 1 a",
        "XADD stream * field value",
        "PFADD hyperloglog a",
    ] {
        run(&mut con, line);
    }
    for key in ["string", "list", "set", "zset", "stream", "hyperloglog"] {
        let lines = COMMANDS.map(|line| line.replace("KEY", key));
        assert_refused(&mut con, &lines.each_ref().map(String::as_str), "WRONGTYPE ");
    }
    assert_eq!(listener.heard(), []);
}

#[test]
fn every_command_refuses_a_hash_that_is_no_lock() {
    let (server, mut con) = start();
    let mut listener = Listener::on(&server);
    const UUID: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586";
    for (key, fields) in [
        ("person", "name Ann age 3".to_owned()),
        ("like-a-hold", "me 1".to_owned()),
        ("mixed", format!("{UUID}:1 1 age 3")),
        ("no-thread", format!("{UUID}: 1")),
        ("no-number", format!("{UUID}:x 1")),
        ("bare-uuid", format!("{UUID} 1")),
        ("no-uuid", "8743c9c0-0795-4907-87fd:1 1".to_owned()),
    ] {
        run(&mut con, &format!("HSET {key} {fields}"));
        let lines = COMMANDS.map(|line| line.replace("KEY", key));
        assert_refused(&mut con, &lines.each_ref().map(String::as_str), "WRONGTYPE ");
    }
    assert_eq!(listener.heard(), []);
}

#[test]
fn a_hold_count_that_is_no_positive_integer_is_refused() {
    let (_server, mut con) = start();
    for count in ["0", "-1", "x", "1.5", "9007199254740992", "99999999999999999999"] {
        run(&mut con, "DEL lock");
        acquire(&mut con, "lock", "me", 30_000);
        run(&mut con, &format!("HSET lock me {count}"));
        let lines =
            ["LOCK.ACQUIRE lock me 30000", "LOCK.ACQUIRE lock me 30000 HOLDS 2", "LOCK.RELEASE lock me"];
        assert_refused(&mut con, &lines, "WRONGTYPE ");
    }
}

#[test]
fn reserved_and_empty_owners_are_refused() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    for key in ["lock", "free"] {
        for owner in ["", "mode", TOKEN_FIELD] {
            let before = Snapshot::take(&mut con);
            for command in [
                cmd("LOCK.ACQUIRE").arg(key).arg(owner).arg(30_000),
                cmd("LOCK.RENEW").arg(key).arg(owner).arg(60_000),
                cmd("LOCK.RELEASE").arg(key).arg(owner),
                cmd("LOCK.RELEASE").arg(key).arg(owner).arg("HOLDS").arg(0),
            ] {
                let refused = refusal_of(&mut con, command);
                assert!(refused.starts_with("BADOWNER "), "{owner}: {refused}");
            }
            assert_eq!(Snapshot::take(&mut con), before);
        }
    }
    assert_eq!(acquire(&mut con, "other", "MODE", 30_000).holds, 1, "only the very word is reserved");
}

#[test]
fn wrong_arity_gets_the_servers_text() {
    let (_server, mut con) = start();
    let before = Snapshot::take(&mut con);
    for line in [
        "LOCK.ACQUIRE",
        "LOCK.ACQUIRE lock",
        "LOCK.ACQUIRE lock me",
        "LOCK.RENEW lock me",
        "LOCK.RELEASE lock",
        "LOCK.INFO",
        "LOCK.FORCERELEASE",
        "LOCK.FORCERELEASE lock lock",
    ] {
        let name = line.split(' ').next().unwrap().to_lowercase();
        let expected = format!("wrong number of arguments for '{name}' command");
        let refused = refusal(&mut con, line).to_lowercase();
        assert!(refused.starts_with("err ") && refused.contains(&expected), "{line}: {refused}");
    }
    assert_eq!(Snapshot::take(&mut con), before);
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    let lines = [
        "LOCK.ACQUIRE lock me 30000 NX",
        "LOCK.ACQUIRE lock me 30000 HOLDS",
        "LOCK.ACQUIRE lock me 30000 TOKEN",
        "LOCK.ACQUIRE lock me 30000 HOLDS 1 HOLDS 1",
        "LOCK.ACQUIRE lock me 30000 TOKEN 1 TOKEN 1",
        "LOCK.ACQUIRE lock me 30000 HOLDS 1 TOKEN",
        "LOCK.ACQUIRE lock me 30000 HOLDS 1 2",
        "LOCK.RENEW lock me 60000 HOLDS 1",
        "LOCK.RENEW lock me 60000 TOKEN",
        "LOCK.RENEW lock me 60000 TOKEN 1 TOKEN 1",
        "LOCK.RELEASE lock me TOKEN 1",
        "LOCK.RELEASE lock me HOLDS",
        "LOCK.RELEASE lock me HOLDS 0 HOLDS 0",
        "LOCK.RELEASE lock me 0",
    ]
    .map(str::to_owned);
    assert_refused_naming(&mut con, &lines, "syntax");
}

/// Numbers that no option takes, in the ways that parsers get them wrong.
const NO_NUMBERS: [&str; 16] = [
    "-1",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "18446744073709551617",
    "99999999999999999999999999999999",
    "1.5",
    "1e3",
    "0x10",
    "+1",
    "01",
    "1x",
    "x",
    "١",
    "NaN",
];

#[test]
fn a_ttl_is_an_integer_from_1_to_the_longest_lease() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    for ttl in NO_NUMBERS.into_iter().chain(["0", "86400001", "9223372036854775807"]) {
        let lines = ["lock me", "lock you", "free me"]
            .map(|who| [format!("LOCK.ACQUIRE {who} {ttl}"), format!("LOCK.RENEW {who} {ttl}")])
            .concat();
        assert_refused_naming(&mut con, &lines, "ttl");
    }
    assert_eq!(acquire(&mut con, "longest", "me", 86_400_000).ttl, 86_400_000);
    assert_eq!(acquire(&mut con, "shortest", "me", 1).holds, 1);
}

#[test]
fn holds_is_an_integer_from_1_or_0_to_53_bits() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    for holds in NO_NUMBERS.into_iter().chain(["9007199254740992", "9223372036854775807"]) {
        let lines = [
            format!("LOCK.ACQUIRE lock me 30000 HOLDS {holds}"),
            format!("LOCK.ACQUIRE free me 30000 HOLDS {holds}"),
            format!("LOCK.RELEASE lock me HOLDS {holds}"),
            format!("LOCK.RELEASE free me HOLDS {holds}"),
        ];
        assert_refused_naming(&mut con, &lines, "HOLDS");
    }
    assert_refused_naming(&mut con, &["LOCK.ACQUIRE lock me 30000 HOLDS 0".to_owned()], "HOLDS");
}

#[test]
fn token_is_an_integer_from_1_to_53_bits() {
    let (_server, mut con) = start();
    acquire(&mut con, "lock", "me", 30_000);
    for token in NO_NUMBERS.into_iter().chain(["0", "9007199254740992", "9223372036854775807"]) {
        let lines = [
            format!("LOCK.ACQUIRE lock me 30000 TOKEN {token}"),
            format!("LOCK.ACQUIRE free me 30000 TOKEN {token}"),
            format!("LOCK.RENEW lock me 60000 TOKEN {token}"),
        ];
        assert_refused_naming(&mut con, &lines, "TOKEN");
    }
}

#[test]
fn an_empty_argument_is_no_number() {
    let (_server, mut con) = start();
    let before = Snapshot::take(&mut con);
    for command in [
        cmd("LOCK.ACQUIRE").arg(&["lock", "me", ""]),
        cmd("LOCK.ACQUIRE").arg(&["lock", "me", "30000", "HOLDS", ""]),
        cmd("LOCK.ACQUIRE").arg(&["lock", "me", "30000", ""]),
        cmd("LOCK.RELEASE").arg(&["lock", "me", "HOLDS", ""]),
    ] {
        assert!(refusal_of(&mut con, command).starts_with("ERR "));
    }
    assert_eq!(Snapshot::take(&mut con), before);
}

/// Takes, denies, shows and releases a lock with these bytes.
fn assert_works_with(server: &Server, key: &[u8], owner: &[u8]) {
    let mut con = server.connect();
    let mut listener = Listener::on(server);
    assert_eq!(acquire(&mut con, key, owner, 30_000).holds, 1);
    assert_eq!(acquire(&mut con, key, owner, 30_000).holds, 2);
    assert_eq!(acquire(&mut con, key, [owner, b"x"].concat(), 30_000).holds, 0);
    assert_eq!(renew(&mut con, key, owner, 60_000), 1);
    assert_eq!(info(&mut con, key).owner.as_deref(), Some(owner));
    assert_eq!(cmd("HGET").arg(key).arg(owner).query(&mut con), Ok(2));
    assert_eq!(release(&mut con, key, [owner, b"x"].concat()), None);
    assert_eq!(release(&mut con, key, owner), Some(1));
    assert_eq!(release_to(&mut con, key, owner, 0), Some(0));
    assert_eq!(cmd("EXISTS").arg(key).query(&mut con), Ok(0));
    let wrapped = !key.contains(&b'{');
    let channel = if wrapped { [b"{", key, b"}"].concat() } else { key.to_vec() };
    let channel = [b"redisson_lock__channel:".as_slice(), &channel].concat();
    assert_eq!(listener.heard(), [Message::new(channel, "0")]);
    server.assert_alive();
}

#[test]
fn names_and_owners_are_any_bytes() {
    let (server, _) = start();
    let odd: [&[u8]; 12] = [
        b"\0",
        b"a\0b",
        b"\xff\xfe\xfd",
        b"\xc3\x28",
        "🔒".as_bytes(),
        "\u{202e}drawkcab".as_bytes(),
        b" ",
        b"\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"%s%n%d",
        b"{}{}",
        b"'\"\\$(true)`",
    ];
    for bytes in odd {
        assert_works_with(&server, bytes, b"me");
        assert_works_with(&server, b"lock", bytes);
        assert_works_with(&server, bytes, bytes);
    }
}

#[test]
fn owners_that_differ_after_a_nul_byte_are_two() {
    let (_server, mut con) = start();
    assert_eq!(acquire(&mut con, "lock", b"me\0one", 30_000).holds, 1);
    assert_eq!(acquire(&mut con, "lock", b"me\0two", 30_000).holds, 0);
    assert_eq!(acquire(&mut con, "lock", b"me", 30_000).holds, 0);
    assert_eq!(release(&mut con, "lock", b"me\0two"), None);
}

#[test]
fn an_empty_name_is_a_name() {
    let (server, _) = start();
    assert_works_with(&server, b"", b"me");
}

#[test]
fn names_and_owners_may_have_a_megabyte() {
    let (server, mut con) = start();
    let big = vec![b'n'; 1 << 20];
    assert_works_with(&server, &big, b"me");
    assert_works_with(&server, b"lock", &big);
    assert_works_with(&server, &big, &big);
    let mut listener = Listener::on(&server);
    acquire(&mut con, &big, "me", 50);
    assert_eq!(listener.next().channel.len(), big.len() + "redisson_lock__channel:{}".len());
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
}

#[test]
fn a_megabyte_in_place_of_a_number_or_an_option_is_refused() {
    let (server, mut con) = start();
    let big = "9".repeat(1 << 20);
    let lines = [
        format!("LOCK.ACQUIRE lock me {big}"),
        format!("LOCK.ACQUIRE lock me 30000 {big} 1"),
        format!("LOCK.ACQUIRE lock me 30000 HOLDS {big}"),
        format!("LOCK.RENEW lock me {big}"),
        format!("LOCK.RELEASE lock me HOLDS {big}"),
    ];
    for line in lines {
        assert!(refusal(&mut con, &line).starts_with("ERR "));
    }
    server.assert_alive();
}

#[test]
fn thousands_of_arguments_are_refused() {
    let (server, mut con) = start();
    for name in ["LOCK.ACQUIRE", "LOCK.RENEW", "LOCK.RELEASE", "LOCK.INFO", "LOCK.FORCERELEASE"] {
        let command: &mut Cmd = &mut cmd(name);
        for _ in 0..50_000 {
            command.arg("1");
        }
        assert!(refusal_of(&mut con, command).starts_with("ERR "));
    }
    assert_eq!(call::<i64>(&mut con, "DBSIZE"), 0);
    server.assert_alive();
}

#[test]
fn inside_a_transaction_only_the_refused_command_fails() {
    let (_server, mut con) = start();
    run(&mut con, "SET string 1");
    for line in
        ["MULTI", "LOCK.ACQUIRE string me 30000", "LOCK.ACQUIRE lock me 30000", "LOCK.RENEW lock me 0"]
    {
        run(&mut con, line);
    }
    con.send_packed_command(&command("EXEC").get_packed_command()).unwrap();
    let Value::Array(replies) = con.recv_response().unwrap() else { panic!("no array") };
    assert!(matches!(replies[0], Value::ServerError(_)));
    assert!(matches!(replies[1], Value::Array(_)));
    assert!(matches!(replies[2], Value::ServerError(_)));
    assert_held(&mut con, "lock", "me");
}
