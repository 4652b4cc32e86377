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
        // SAFETY: Presence, Liveness; the format asks for the checks of a script (S), and one string follows.
        let reply = unsafe {
            let call = present(raw::RedisModule_Call);
            call(self.as_ptr(), c"GETEX".as_ptr(), c"Ss".as_ptr(), key.as_ptr())
        };
        let error = Error::last_os_error();
        match NonNull::new(reply) {
            Some(reply) => {
                // SAFETY: Presence; the reply is ours to free, once.
                unsafe { present(raw::RedisModule_FreeCallReply)(reply.as_ptr()) };
                true
            }
            // An administrator has renamed it: nobody can be asked.
            None => error.raw_os_error() == Some(NO_SUCH_COMMAND),
        }
    }
}
