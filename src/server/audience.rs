//! Who hears what the module propagates?
//!
//! To propagate a command costs the server more than to execute it, even where nobody listens. So this
//! keeps track of whether anybody may: an append-only file, a replica, a replication backlog that a replica
//! could come back to, a child process that takes a snapshot for one of them, or a cluster (whose slots may
//! be moving away).
//!
//! A listener that comes later needs a snapshot of the data first, and what follows that snapshot. The server
//! takes it by forking, or (SAVE) by itself, and tells of both as it begins. So there is an audience from then
//! on, and a listener misses nothing that its snapshot lacks. A backlog may be there earlier, from when a
//! replica has asked to be synchronized; nobody can ask for what it holds of the time before the snapshot,
//! as no snapshot has a place in it, and the server begins a new history with each backlog.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::Context;
use super::present::present;

/// Who may be listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// Nobody.
    None,
    /// The append-only file, and no replica.
    File,
    /// Anybody.
    Any,
}

thread_local! {
    static AUDIENCE: Cell<Audience> = const { Cell::new(Audience::Any) };
}

impl Context<'_> {
    /// Must what was done be propagated? Outside a command always: there is no other way to count a change.
    pub fn has_audience(self) -> bool {
        AUDIENCE.get() != Audience::None || !self.is_command()
    }

    /// May a replica hear what is propagated?
    pub fn has_replicas(self) -> bool {
        AUDIENCE.get() == Audience::Any
    }

    /// Without an audience: counts a change, for the server to know when a snapshot is due. Within a command
    /// only.
    pub fn count_change(self) {
        debug_assert!(!self.has_audience());
        // The server counts the change; it has nobody to send the command to, or a backlog that nobody reads.
        // SAFETY: Presence, Liveness.
        unsafe { present(raw::RedisModule_ReplicateVerbatim)(self.as_ptr()) };
    }

    /// A child has forked off: it may be the snapshot for a new listener.
    pub(super) fn expect_audience(self) {
        AUDIENCE.set(Audience::Any);
    }

    /// Looks again who is there.
    pub(super) fn survey_audience(self) {
        let replicas = self.is_cluster()
            || self.is_replica()
            || self.has_flag(raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD)
            || self.has_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
            || !self.info_is_zero(c"replication", &[c"connected_slaves", c"repl_backlog_active"]);
        AUDIENCE.set(if replicas {
            Audience::Any
        } else if self.info_is_zero(c"persistence", &[c"aof_enabled"]) {
            Audience::None
        } else {
            Audience::File
        });
    }

    /// Has a section of INFO all these fields, and are all of them 0?
    fn info_is_zero(self, section: &CStr, fields: &[&CStr]) -> bool {
        // SAFETY: Presence, Liveness; what comes back is ours to free.
        let info = unsafe { present(raw::RedisModule_GetServerInfo)(self.as_ptr(), section.as_ptr()) };
        let all_zero = fields.iter().all(|field| {
            let mut error: c_int = 0;
            // SAFETY: Presence; `info` is not freed yet.
            let value = unsafe {
                present(raw::RedisModule_ServerInfoGetFieldSigned)(info, field.as_ptr(), &raw mut error)
            };
            error == raw::REDISMODULE_OK as c_int && value == 0
        });
        // SAFETY: Presence, Liveness; freed once.
        unsafe { present(raw::RedisModule_FreeServerInfo)(self.as_ptr(), info) };
        all_zero
    }
}
