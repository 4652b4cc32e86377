//! What a server really propagates: the commands of its replication stream and of its AOF.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use redis::{Connection, Parser};
use redis_lock_testkit::Server;

use crate::helpers::run;

/// A command as it was propagated.
pub type Propagated = Vec<String>;

/// A replica that only listens.
pub struct Stream {
    socket: BufReader<TcpStream>,
    parser: Parser,
    marks: u64,
}

const MARK: &str = "the-end-of-the-stream";

impl Stream {
    /// Attaches to `server` as a replica does, and skips the data that is there already.
    pub fn attach(server: &Server) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (&socket).write_all(b"PSYNC ? -1\r\n").unwrap();
        let mut stream = Self { socket: BufReader::new(socket), parser: Parser::new(), marks: 0 };
        let answer = stream.line();
        assert!(answer.starts_with("+FULLRESYNC"), "{answer}");
        stream.skip_data();
        stream
    }

    /// Without any REPLCONF the server sends the snapshot with its length in front.
    fn skip_data(&mut self) {
        let length = self.line().trim_start_matches('$').parse().expect("the snapshot's length");
        let copied = io::copy(&mut self.socket.by_ref().take(length), &mut io::sink());
        assert_eq!(copied.expect("the snapshot"), length);
    }

    /// A line with something on it: while the snapshot is made, the server sends line ends.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.socket.read_line(&mut line).expect("the server answers");
            if !line.trim().is_empty() {
                return line.trim().to_owned();
            }
        }
    }

    /// All that was propagated since the last call. A write of our own marks the end.
    pub fn propagated(&mut self, con: &mut Connection) -> Vec<Propagated> {
        self.marks += 1;
        let mark = format!("SET {MARK} {}", self.marks);
        run(con, &mark);
        let mut commands = Vec::new();
        loop {
            let value = self.parser.parse_value(&mut self.socket).expect("a command");
            let command: Propagated = redis::from_redis_value(value).expect("words");
            if command.join(" ") == mark {
                return commands;
            }
            if !is_housekeeping(&command) {
                commands.push(command);
            }
        }
    }
}

/// The commands in the part of the AOF that was written after the start. The server must not have
/// begun another part.
pub fn append_only_file(dir: &Path) -> Vec<Propagated> {
    let path = dir.join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut file = BufReader::new(File::open(path).expect("an AOF"));
    let mut parser = Parser::new();
    let mut commands = Vec::new();
    loop {
        let value = match parser.parse_value(&mut file) {
            Err(end) if end.is_connection_dropped() => return commands,
            command => command.expect("a command"),
        };
        let command: Propagated = redis::from_redis_value(value).expect("words");
        if !is_housekeeping(&command) {
            commands.push(command);
        }
    }
}

fn is_housekeeping(command: &Propagated) -> bool {
    matches!(command[0].to_uppercase().as_str(), "PING" | "SELECT" | "REPLCONF")
}
