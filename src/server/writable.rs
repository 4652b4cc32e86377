//! May this node write now?

use std::io::Error;
use std::ptr::NonNull;

use redis_module::raw;

use super::present::present;
use super::{Context, ServerStr};

/// `ENOENT`: there is no such command.
const NO_SUCH_COMMAND: i32 = 2;

impl Context<'_> {
    /// Are writes paused (`CLIENT PAUSE`, a coordinated failover)? Outside a command, a write then ends
    /// the server.
    pub fn writes_paused(self) -> bool {
        // SAFETY: Presence (where it is absent, the server knows no such pause).
        unsafe { raw::RedisModule_AvoidReplicaTraffic.is_some_and(|paused| paused() != 0) }
    }

    /// Would the server let a script write to this key, which does not exist? It would not without enough
    /// replicas, while it can't persist, or where the key's slot is another node's.
    ///
    /// A command of ours that writes need not ask: the server has refused it then.
    pub fn accepts_writes(self, key: ServerStr<'_>) -> bool {
        // GETEX counts as a write, and without options changes nothing.
        // SAFETY: Presence, Liveness; the format asks for the checks of a script (S) and for errors as replies
        // (E; without it Valkey 9 reads through a null pointer when it refuses), and one string follows.
        let reply = unsafe {
            let call = present(raw::RedisModule_Call);
            call(self.as_ptr(), c"GETEX".as_ptr(), c"SEs".as_ptr(), key.as_ptr())
        };
        // An administrator may have renamed the command: then nobody can be asked.
        let is_unknown = Error::last_os_error().raw_os_error() == Some(NO_SUCH_COMMAND);
        let Some(reply) = NonNull::new(reply) else { return is_unknown };
        // SAFETY: Presence; the reply is not freed yet.
        let kind = unsafe { present(raw::RedisModule_CallReplyType)(reply.as_ptr()) };
        let accepts = kind != raw::REDISMODULE_REPLY_ERROR as i32 || is_unknown || is_wrong_type(reply);
        // SAFETY: Presence; the reply is ours to free, once.
        unsafe { present(raw::RedisModule_FreeCallReply)(reply.as_ptr()) };
        accepts
    }
}

/// Was the command executed, and found no string?
fn is_wrong_type(error: NonNull<raw::RedisModuleCallReply>) -> bool {
    let mut length = 0;
    // SAFETY: Presence; the text of an error is as long as is said, and lives as long as the reply.
    unsafe {
        let start = present(raw::RedisModule_CallReplyStringPtr)(error.as_ptr(), &raw mut length);
        !start.is_null() && std::slice::from_raw_parts(start.cast::<u8>(), length).starts_with(b"WRONGTYPE")
    }
}
