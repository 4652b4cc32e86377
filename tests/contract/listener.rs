//! A subscriber that can say that nothing more came.

use std::fmt;
use std::time::Duration;

use redis::{Connection, Value, cmd};
use redis_lock_testkit::Server;

/// The channel on which the unlock of `name` is published.
pub fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// A message as it came.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub channel: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Message {
    pub fn new(channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Self {
        Self { channel: channel.as_ref().to_owned(), payload: payload.as_ref().to_owned() }
    }

    /// The one message that says that `name` is free.
    pub fn unlock(name: &str) -> Self {
        Self::new(channel(name), "0")
    }

    fn is_mark(&self) -> bool {
        self.channel == MARKS.as_bytes()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (channel, payload) = (self.channel.escape_ascii(), self.payload.escape_ascii());
        write!(f, "{payload} on {channel:.100}")
    }
}

/// Hears all that is published from its making on.
pub struct Listener {
    subscribed: Connection,
    publisher: Connection,
    id: u64,
    marks: u64,
}

/// Every listener hears the marks of all, and skips those of others.
const MARKS: &str = "marks of listeners";

impl Listener {
    /// Listens to every channel.
    pub fn on(server: &Server) -> Self {
        Self::subscribe(server, &[("PSUBSCRIBE", "*")])
    }

    /// Listens to one sharded channel.
    pub fn on_shard(server: &Server, channel: &str) -> Self {
        Self::subscribe(server, &[("SSUBSCRIBE", channel), ("SUBSCRIBE", MARKS)])
    }

    fn subscribe(server: &Server, subscriptions: &[(&str, &str)]) -> Self {
        let mut subscribed = server.connect();
        for (how, channel) in subscriptions {
            let command = cmd(how).arg(channel).get_packed_command();
            subscribed.send_packed_command(&command).unwrap();
            let confirmed = subscribed.recv_response().unwrap();
            assert!(matches!(confirmed, Value::Array(_)), "{how}: {confirmed:?}");
        }
        let mut publisher = server.connect();
        let id = cmd("CLIENT").arg("ID").query(&mut publisher).unwrap();
        Self { subscribed, publisher, id, marks: 0 }
    }

    /// The next message.
    ///
    /// # Panics
    /// When none comes in time.
    #[track_caller]
    pub fn next(&mut self) -> Message {
        loop {
            let message = self.receive();
            if !message.is_mark() {
                return message;
            }
        }
    }

    /// All that was published up to now and not heard yet: a message of our own marks the end.
    #[track_caller]
    pub fn heard(&mut self) -> Vec<Message> {
        self.marks += 1;
        let mark = Message::new(MARKS, format!("{} {}", self.id, self.marks));
        cmd("PUBLISH").arg(&mark.channel).arg(&mark.payload).exec(&mut self.publisher).unwrap();
        let all = std::iter::repeat_with(|| self.receive()).take_while(|message| *message != mark);
        all.filter(|message| !message.is_mark()).collect()
    }

    #[track_caller]
    fn receive(&mut self) -> Message {
        self.subscribed.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let push = self.subscribed.recv_response().expect("a message comes");
        let mut parts: Vec<Vec<u8>> = redis::from_redis_value(push).expect("a message has parts");
        let payload = parts.pop().expect("a payload");
        Message { channel: parts.pop().expect("a channel"), payload }
    }
}
