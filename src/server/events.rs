//! What the server tells of: keyspace events and server events.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use redis_module::raw;

use super::guard::guarded;
use super::present::present;
use super::{Context, ServerStr};

/// Something happened to a key.
#[derive(Clone, Copy)]
pub struct KeyspaceEvent<'e> {
    /// The event's name, as keyspace notifications publish it.
    pub name: &'e [u8],
    /// The key, in the context's selected database.
    pub key: ServerStr<'e>,
}

/// Something happened to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// Data was loaded, from disk or from a master.
    Loaded,
    /// This node has become a master.
    Promoted,
    /// This node has become a replica.
    Demoted,
    /// A database was emptied, or (`None`) all were.
    Flushed(Option<u32>),
    /// Two databases changed places.
    Swapped(u32, u32),
    /// The server looks after itself, ten times a second or so, by a clock that no one can step.
    Cron,
}

/// Who is told. Handlers must not write: the order of propagation would invert.
pub trait Observer {
    /// A generic command, a string command, an expiry or an eviction touched a key.
    fn keyspace_event(ctx: Context<'_>, event: KeyspaceEvent<'_>);
    /// See [`ServerEvent`].
    fn server_event(ctx: Context<'_>, event: ServerEvent);
}

/// Subscribes. Each class costs every such command of every client a little, so they are as few as can
/// be: hash commands are not among them.
pub fn observe<O: Observer>(ctx: Context<'_>) {
    let classes = raw::REDISMODULE_NOTIFY_GENERIC
        | raw::REDISMODULE_NOTIFY_STRING
        | raw::REDISMODULE_NOTIFY_EXPIRED
        | raw::REDISMODULE_NOTIFY_EVICTED;
    // SAFETY: Presence, Liveness.
    unsafe {
        let subscribe = present(raw::RedisModule_SubscribeToKeyspaceEvents);
        subscribe(ctx.as_ptr(), classes, Some(on_keyspace_event::<O>));
    }
    for id in [
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_PERSISTENCE,
        raw::REDISMODULE_EVENT_REPLICA_CHANGE,
        raw::REDISMODULE_EVENT_CRON_LOOP,
    ] {
        // The data of all of them has version 1.
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: Presence, Liveness.
        unsafe {
            let subscribe = present(raw::RedisModule_SubscribeToServerEvent);
            subscribe(ctx.as_ptr(), event, Some(on_server_event::<O>));
        }
    }
}

unsafe extern "C" fn on_keyspace_event<O: Observer>(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    if let Some(key) = NonNull::new(key) {
        // SAFETY: the server passes a terminated name, a live key name and this callback's context.
        let (ctx, name, key) =
            unsafe { (Context::new(ctx), CStr::from_ptr(event).to_bytes(), ServerStr::new(key)) };
        guarded(|| O::keyspace_event(ctx, KeyspaceEvent { name, key }));
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_server_event<O: Observer>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    // SAFETY: the server passes this callback's context.
    let ctx = unsafe { Context::new(ctx) };
    match (event.id, sub) {
        (raw::REDISMODULE_EVENT_FORK_CHILD, raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN) => {
            ctx.expect_audience()
        }
        // A snapshot that this process takes itself. Those of children were announced as they forked.
        (raw::REDISMODULE_EVENT_PERSISTENCE, raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START) => {
            ctx.survey_audience();
        }
        (
            raw::REDISMODULE_EVENT_PERSISTENCE
            | raw::REDISMODULE_EVENT_FLUSHDB
            | raw::REDISMODULE_EVENT_SWAPDB
            | raw::REDISMODULE_EVENT_CRON_LOOP,
            _,
        ) => {}
        _ => ctx.survey_audience(),
    }
    // SAFETY: the server passes the data that belongs to the event.
    if let Some(event) = unsafe { decode(event.id, sub, data) } {
        guarded(|| O::server_event(ctx, event));
    }
}

/// # Safety
/// `data` points to what the server passes with this event.
unsafe fn decode(id: u64, sub: u64, data: *mut c_void) -> Option<ServerEvent> {
    match (id, sub) {
        (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => {
            Some(ServerEvent::Loaded)
        }
        (
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
        ) => Some(ServerEvent::Promoted),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, _) => Some(ServerEvent::Demoted),
        (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
            // SAFETY: by the caller's word.
            let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
            Some(ServerEvent::Flushed(u32::try_from(info.dbnum).ok()))
        }
        (raw::REDISMODULE_EVENT_SWAPDB, _) => {
            // SAFETY: by the caller's word.
            let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
            Some(ServerEvent::Swapped(info.dbnum_first.unsigned_abs(), info.dbnum_second.unsigned_abs()))
        }
        (raw::REDISMODULE_EVENT_CRON_LOOP, _) => Some(ServerEvent::Cron),
        _ => None,
    }
}
