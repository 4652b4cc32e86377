//! Loading and unloading.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::guard::guarded;
use super::present::present;
use super::{Context, ServerStr};

/// May the module be loaded, or unloaded?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Accept,
    /// It may not; the log says why.
    Refuse,
}

impl Verdict {
    fn status(self) -> c_int {
        match self {
            Self::Accept => raw::REDISMODULE_OK as c_int,
            Self::Refuse => raw::REDISMODULE_ERR as c_int,
        }
    }
}

/// The module, as far as loading goes.
pub trait Loader {
    /// Its name.
    const NAME: &'static CStr;
    /// Its version, as a plain number.
    const VERSION: i32;
    /// Registers everything. `args` are the arguments of the load directive.
    fn load(ctx: Context<'_>, args: &[ServerStr<'_>]) -> Verdict;
    /// Lets go of what the server does not.
    fn unload(ctx: Context<'_>) -> Verdict;
}

/// The context pointer of the entry points: only the server can make one.
#[repr(transparent)]
pub struct LoadContext(*mut raw::RedisModuleCtx);

/// The argument vector of the entry point: only the server can make one.
#[repr(transparent)]
pub struct LoadArgs(*mut *mut raw::RedisModuleString);

/// The body of `RedisModule_OnLoad`.
pub fn on_load<L: Loader>(ctx: LoadContext, argv: LoadArgs, argc: c_int) -> c_int {
    // Nothing may allocate before this, as the server is the allocator.
    // SAFETY: the server passes its context; this fills in the function pointers.
    let ready = unsafe {
        raw::Export_RedisModule_Init(ctx.0, L::NAME.as_ptr(), L::VERSION, raw::REDISMODULE_APIVER_1 as c_int)
    };
    if ready != raw::REDISMODULE_OK as c_int {
        return ready;
    }
    // SAFETY: the server passes this callback's context.
    let ctx = unsafe { Context::new(ctx.0) };
    let count = usize::try_from(argc).unwrap_or(0);
    let args = if count == 0 {
        &[]
    } else {
        // SAFETY: the server passes `argc` live strings, none of them null; a ServerStr is transparent
        // over such a pointer.
        unsafe { std::slice::from_raw_parts(argv.0.cast_const().cast::<ServerStr<'_>>(), count) }
    };
    let missing = missing_functions();
    if !missing.is_empty() {
        log_missing(ctx, &missing);
        return Verdict::Refuse.status();
    }
    // SAFETY: present, as just checked. Commands say themselves what they have changed, so that a denied
    // one does not fail others' WATCH.
    unsafe {
        present(raw::RedisModule_SetModuleOptions)(
            ctx.as_ptr(),
            raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int,
        );
    }
    ctx.survey_audience();
    guarded(|| L::load(ctx, args)).unwrap_or(Verdict::Refuse).status()
}

/// The body of `RedisModule_OnUnload`.
pub fn on_unload<L: Loader>(ctx: LoadContext) -> c_int {
    // SAFETY: the server passes this callback's context.
    let ctx = unsafe { Context::new(ctx.0) };
    guarded(|| L::unload(ctx)).unwrap_or(Verdict::Refuse).status()
}

fn log_missing(ctx: Context<'_>, missing: &[&str]) {
    if !missing.contains(&"Log") {
        let line =
            format!("this server is too old for the lock module (Redis 7.0 is the oldest): {missing:?}");
        ctx.warn(&line);
    }
}

/// The functions that this layer calls and the server lacks. Those with a stand-in are not looked at.
pub(super) fn missing_functions() -> Vec<&'static str> {
    // SAFETY: the pointers are written once, before this, on this thread.
    let functions = unsafe {
        [
            probe("BlockClientOnKeys", raw::RedisModule_BlockClientOnKeys),
            probe("Call", raw::RedisModule_Call),
            probe("CallReplyStringPtr", raw::RedisModule_CallReplyStringPtr),
            probe("CallReplyType", raw::RedisModule_CallReplyType),
            probe("CloseKey", raw::RedisModule_CloseKey),
            probe("CreateCommand", raw::RedisModule_CreateCommand),
            probe("CreateString", raw::RedisModule_CreateString),
            probe("CreateStringFromLongLong", raw::RedisModule_CreateStringFromLongLong),
            probe("CreateTimer", raw::RedisModule_CreateTimer),
            probe("DeleteKey", raw::RedisModule_DeleteKey),
            probe("Free", raw::RedisModule_Free),
            probe("FreeCallReply", raw::RedisModule_FreeCallReply),
            probe("FreeServerInfo", raw::RedisModule_FreeServerInfo),
            probe("FreeString", raw::RedisModule_FreeString),
            probe("GetAbsExpire", raw::RedisModule_GetAbsExpire),
            probe("GetBlockedClientPrivateData", raw::RedisModule_GetBlockedClientPrivateData),
            probe("GetClientId", raw::RedisModule_GetClientId),
            probe("GetCommand", raw::RedisModule_GetCommand),
            probe("GetCommandKeys", raw::RedisModule_GetCommandKeys),
            probe("GetContextFlags", raw::RedisModule_GetContextFlags),
            probe("GetServerInfo", raw::RedisModule_GetServerInfo),
            probe("GetSelectedDb", raw::RedisModule_GetSelectedDb),
            probe("GetUsedMemoryRatio", raw::RedisModule_GetUsedMemoryRatio),
            probe("HashGet", raw::RedisModule_HashGet),
            probe("HashSet", raw::RedisModule_HashSet),
            probe("InfoAddFieldULongLong", raw::RedisModule_InfoAddFieldULongLong),
            probe("InfoAddSection", raw::RedisModule_InfoAddSection),
            probe("KeyType", raw::RedisModule_KeyType),
            probe("LoadConfigs", raw::RedisModule_LoadConfigs),
            probe("Log", raw::RedisModule_Log),
            probe("Milliseconds", raw::RedisModule_Milliseconds),
            probe("NotifyKeyspaceEvent", raw::RedisModule_NotifyKeyspaceEvent),
            probe("OpenKey", raw::RedisModule_OpenKey),
            probe("PublishMessage", raw::RedisModule_PublishMessage),
            probe("PublishMessageShard", raw::RedisModule_PublishMessageShard),
            probe("RegisterBoolConfig", raw::RedisModule_RegisterBoolConfig),
            probe("RegisterInfoFunc", raw::RedisModule_RegisterInfoFunc),
            probe("RegisterNumericConfig", raw::RedisModule_RegisterNumericConfig),
            probe("RegisterStringConfig", raw::RedisModule_RegisterStringConfig),
            probe("Replicate", raw::RedisModule_Replicate),
            probe("ReplicateVerbatim", raw::RedisModule_ReplicateVerbatim),
            probe("ReplyWithArray", raw::RedisModule_ReplyWithArray),
            probe("ReplyWithError", raw::RedisModule_ReplyWithError),
            probe("ReplyWithLongLong", raw::RedisModule_ReplyWithLongLong),
            probe("ReplyWithMap", raw::RedisModule_ReplyWithMap),
            probe("ReplyWithNull", raw::RedisModule_ReplyWithNull),
            probe("ReplyWithStringBuffer", raw::RedisModule_ReplyWithStringBuffer),
            probe("Scan", raw::RedisModule_Scan),
            probe("ScanCursorCreate", raw::RedisModule_ScanCursorCreate),
            probe("ScanCursorDestroy", raw::RedisModule_ScanCursorDestroy),
            probe("ScanKey", raw::RedisModule_ScanKey),
            probe("SelectDb", raw::RedisModule_SelectDb),
            probe("ServerInfoGetFieldSigned", raw::RedisModule_ServerInfoGetFieldSigned),
            probe("SetAbsExpire", raw::RedisModule_SetAbsExpire),
            probe("SetCommandInfo", raw::RedisModule_SetCommandInfo),
            probe("SetDisconnectCallback", raw::RedisModule_SetDisconnectCallback),
            probe("SetModuleOptions", raw::RedisModule_SetModuleOptions),
            probe("SignalModifiedKey", raw::RedisModule_SignalModifiedKey),
            probe("StopTimer", raw::RedisModule_StopTimer),
            probe("StringPtrLen", raw::RedisModule_StringPtrLen),
            probe("StringToLongLong", raw::RedisModule_StringToLongLong),
            probe("SubscribeToKeyspaceEvents", raw::RedisModule_SubscribeToKeyspaceEvents),
            probe("SubscribeToServerEvent", raw::RedisModule_SubscribeToServerEvent),
            probe("UnblockClient", raw::RedisModule_UnblockClient),
            probe("ValueLength", raw::RedisModule_ValueLength),
            probe("WrongArity", raw::RedisModule_WrongArity),
        ]
    };
    functions.into_iter().filter(|(_, present)| !present).map(|(name, _)| name).collect()
}

/// Is a function pointer filled in?
fn probe<F>(name: &'static str, function: Option<F>) -> (&'static str, bool) {
    (name, function.is_some())
}
