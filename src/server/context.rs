//! The context of a callback: replies, propagation, notifications, and questions to the server.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::io::{Error, ErrorKind};
use std::marker::PhantomData;

use redis_module::raw;

use super::present::present;
use super::{ServerStr, ServerString};

/// Which kind of channel a message goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// A channel of the whole server or cluster, as with `PUBLISH`.
    Global,
    /// A channel of the cluster's slot, as with `SPUBLISH`.
    Sharded,
}

/// Where a callback runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Command,
    Elsewhere,
}

/// What the server hands to a callback, valid while that runs.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    raw: *mut raw::RedisModuleCtx,
    place: Place,
    call: PhantomData<&'c raw::RedisModuleCtx>,
}

impl<'c> Context<'c> {
    /// # Safety
    /// `raw` is the context of a callback that runs for `'c`.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, place: Place::Elsewhere, call: PhantomData }
    }

    /// # Safety
    /// `raw` is the context of a command that runs for `'c`.
    pub(super) unsafe fn of_command(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, place: Place::Command, call: PhantomData }
    }

    /// Is this the context of a command?
    pub fn is_command(self) -> bool {
        self.place == Place::Command
    }

    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// The number of the selected database.
    pub fn db(self) -> u32 {
        // SAFETY: Presence, Liveness.
        let db = unsafe { present(raw::RedisModule_GetSelectedDb)(self.raw) };
        db.unsigned_abs()
    }

    /// Selects a database; `false` where there is none of this number.
    pub fn select(self, db: u32) -> bool {
        let Ok(db) = c_int::try_from(db) else { return false };
        // SAFETY: Presence, Liveness.
        let status = unsafe { present(raw::RedisModule_SelectDb)(self.raw, db) };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Replies with an integer, or adds it to an open array or map.
    pub fn reply_integer(self, value: i64) {
        // SAFETY: Presence, Liveness.
        unsafe { present(raw::RedisModule_ReplyWithLongLong)(self.raw, value) };
    }

    /// Replies with bytes.
    pub fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: Presence, Liveness; the server copies `len` bytes from a slice of that length.
        unsafe {
            present(raw::RedisModule_ReplyWithStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len())
        };
    }

    /// Replies with null.
    pub fn reply_null(self) {
        // SAFETY: Presence, Liveness.
        unsafe { present(raw::RedisModule_ReplyWithNull)(self.raw) };
    }

    /// Opens an array; its elements are the replies that follow.
    pub fn reply_array(self, elements: usize) {
        let elements = c_long::try_from(elements).unwrap_or(c_long::MAX);
        // SAFETY: Presence, Liveness.
        unsafe { present(raw::RedisModule_ReplyWithArray)(self.raw, elements) };
    }

    /// Opens a map (with RESP2 a flat array); its keys and values are the replies that follow.
    pub fn reply_map(self, pairs: u16) {
        // SAFETY: Presence, Liveness.
        unsafe { present(raw::RedisModule_ReplyWithMap)(self.raw, c_long::from(pairs)) };
    }

    /// Replies with an error; its first word is the error's code.
    pub fn reply_error(self, error: &CStr) {
        // SAFETY: Presence, Liveness; the server copies the text.
        unsafe { present(raw::RedisModule_ReplyWithError)(self.raw, error.as_ptr()) };
    }

    /// Replies with the server's usual text for a wrong number of arguments.
    pub fn reply_wrong_arity(self) {
        // SAFETY: Presence, Liveness.
        unsafe { present(raw::RedisModule_WrongArity)(self.raw) };
    }

    /// Sends a command to the replicas and the append-only file, and counts one change.
    pub fn propagate(self, command: &CStr, args: &[ServerStr<'_>]) {
        self.replicate(command, c"v", args);
    }

    /// Sends a command to the replicas alone.
    pub fn propagate_to_replicas(self, command: &CStr, args: &[ServerStr<'_>]) {
        self.replicate(command, c"vA", args);
    }

    /// The format's `v` stands for a vector of strings and its length.
    fn replicate(self, command: &CStr, format: &CStr, args: &[ServerStr<'_>]) {
        let vector: *const ServerStr<'_> = args.as_ptr();
        // SAFETY: Presence, Liveness; a ServerStr is transparent over the pointer that `v` expects, and
        // the server takes references of its own to the strings.
        unsafe {
            let replicate = present(raw::RedisModule_Replicate);
            replicate(self.raw, command.as_ptr(), format.as_ptr(), vector, args.len());
        }
    }

    /// Does the server know this command by its own name? (`rename-command` may have taken it away.)
    pub fn knows_command(self, command: &CStr) -> bool {
        let argument = ServerString::new(command.to_bytes());
        let mut argv = [argument.as_str().as_ptr(); 4];
        let mut keys = 0;
        // SAFETY: Presence, Liveness; the vector holds as many strings as is said.
        let found = unsafe {
            let get = present(raw::RedisModule_GetCommandKeys);
            get(self.raw, argv.as_mut_ptr(), argv.len() as c_int, &mut keys)
        };
        if found.is_null() {
            return Error::last_os_error().kind() != ErrorKind::NotFound;
        }
        // SAFETY: Presence; the server made the array for us to free.
        unsafe { present(raw::RedisModule_Free)(found.cast()) };
        true
    }

    /// Publishes a message to the subscribers of this node (and, in Cluster, of the others).
    pub fn publish(self, kind: Publication, channel: ServerStr<'_>, message: ServerStr<'_>) {
        // SAFETY: Presence, Liveness.
        unsafe {
            let publish = match kind {
                Publication::Global => present(raw::RedisModule_PublishMessage),
                Publication::Sharded => present(raw::RedisModule_PublishMessageShard),
            };
            publish(self.raw, channel.as_ptr(), message.as_ptr());
        }
    }

    /// Tells the subscribers of keyspace events of the module class (`d`).
    pub fn notify(self, event: &CStr, key: ServerStr<'_>) {
        // SAFETY: Presence, Liveness; the server does not keep the event's name.
        unsafe {
            let notify = present(raw::RedisModule_NotifyKeyspaceEvent);
            notify(self.raw, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.as_ptr());
        }
    }

    /// Tells those who watch or track a key that it has changed.
    pub fn signal_modified(self, key: ServerStr<'_>) {
        // SAFETY: Presence, Liveness.
        unsafe { present(raw::RedisModule_SignalModifiedKey)(self.raw, key.as_ptr()) };
    }

    /// Is this node a replica?
    pub fn is_replica(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    /// Does this node run in cluster mode?
    pub fn is_cluster(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// May the client of this command be kept waiting? Not in a transaction, a script, or wherever blocking is
    /// denied.
    pub fn may_block(self) -> bool {
        const DENIED: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !self.has_flag(DENIED)
    }

    /// Is this flag set, or any of these?
    pub(super) fn has_flag(self, flag: u32) -> bool {
        // SAFETY: Presence, Liveness.
        let flags = unsafe { present(raw::RedisModule_GetContextFlags)(self.raw) };
        flags & flag as c_int != 0
    }

    /// The part of `maxmemory` that is used, above 1 where it is exceeded; 0 where there is no limit.
    pub fn used_memory_ratio(self) -> f32 {
        // SAFETY: Presence.
        unsafe { present(raw::RedisModule_GetUsedMemoryRatio)() }
    }

    /// The wall clock in microseconds since the Unix epoch, as of the start of the present command: by
    /// this the server itself judges whether a key has expired.
    pub fn wall_clock_us(self) -> i64 {
        // SAFETY: Presence (7.0.15 has no cached clock).
        unsafe {
            match raw::RedisModule_CachedMicroseconds {
                Some(cached) => cached(),
                None => present(raw::RedisModule_Milliseconds)() * 1000,
            }
        }
    }

    /// Writes a warning to the server's log. NUL bytes end it.
    pub fn warn(self, line: &str) {
        let length = c_int::try_from(line.len()).unwrap_or(c_int::MAX);
        let text: *const c_char = line.as_ptr().cast();
        // SAFETY: Presence, Liveness; the line is an argument, never the format, and the precision bounds
        // how far it is read.
        unsafe {
            let log = present(raw::RedisModule_Log);
            log(self.raw, c"warning".as_ptr(), c"%.*s".as_ptr(), length, text);
        }
    }
}
