//! Settings that CONFIG GET, SET and REWRITE know, under the module's name.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};

use redis_module::raw;

use super::guard::guarded;
use super::present::present;
use super::{Context, ServerStr, ServerString};

/// A whole number.
pub trait NumberConfig {
    /// The name, without the module's.
    const NAME: &'static CStr;
    /// What the server lets through.
    const RANGE: RangeInclusive<i64>;
    /// The value in force; at registration the default.
    fn get() -> i64;
    /// Puts a value in force.
    fn set(value: i64);
}

/// Yes or no.
pub trait FlagConfig {
    /// The name, without the module's.
    const NAME: &'static CStr;
    /// The value in force; at registration the default.
    fn get() -> bool;
    /// Puts a value in force.
    fn set(value: bool);
}

/// Any bytes.
pub trait TextConfig {
    /// The name, without the module's.
    const NAME: &'static CStr;
    /// The value in force; at registration the default.
    fn get() -> Vec<u8>;
    /// Puts a value in force.
    fn set(value: &[u8]);
}

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

fn status(done: Option<()>) -> c_int {
    if done.is_some() { OK } else { ERR }
}

/// Registers a number.
pub fn register_number<C: NumberConfig>(ctx: Context<'_>) -> bool {
    unsafe extern "C" fn get<C: NumberConfig>(_name: *const c_char, _data: *mut c_void) -> i64 {
        guarded(C::get).unwrap_or(0)
    }
    unsafe extern "C" fn set<C: NumberConfig>(
        _name: *const c_char,
        value: i64,
        _data: *mut c_void,
        _error: *mut *mut raw::RedisModuleString,
    ) -> c_int {
        status(guarded(|| C::set(value)))
    }
    // SAFETY: Presence, Liveness; the server copies the name; the callbacks take no data.
    OK == unsafe {
        let register = present(raw::RedisModule_RegisterNumericConfig);
        register(
            ctx.as_ptr(),
            C::NAME.as_ptr(),
            C::get(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            *C::RANGE.start(),
            *C::RANGE.end(),
            Some(get::<C>),
            Some(set::<C>),
            None,
            ptr::null_mut(),
        )
    }
}

/// Registers a flag.
pub fn register_flag<C: FlagConfig>(ctx: Context<'_>) -> bool {
    unsafe extern "C" fn get<C: FlagConfig>(_name: *const c_char, _data: *mut c_void) -> c_int {
        guarded(C::get).map_or(0, c_int::from)
    }
    unsafe extern "C" fn set<C: FlagConfig>(
        _name: *const c_char,
        value: c_int,
        _data: *mut c_void,
        _error: *mut *mut raw::RedisModuleString,
    ) -> c_int {
        status(guarded(|| C::set(value != 0)))
    }
    // SAFETY: Presence, Liveness; the server copies the name; the callbacks take no data.
    OK == unsafe {
        let register = present(raw::RedisModule_RegisterBoolConfig);
        register(
            ctx.as_ptr(),
            C::NAME.as_ptr(),
            c_int::from(C::get()),
            raw::REDISMODULE_CONFIG_DEFAULT,
            Some(get::<C>),
            Some(set::<C>),
            None,
            ptr::null_mut(),
        )
    }
}

thread_local! {
    /// The server reads the answer of the text getter after it has returned, until the next call.
    static ANSWER: RefCell<Option<ServerString>> = const { RefCell::new(None) };
}

/// Registers a text; its default has no NUL byte.
pub fn register_text<C: TextConfig>(ctx: Context<'_>) -> bool {
    unsafe extern "C" fn get<C: TextConfig>(
        _name: *const c_char,
        _data: *mut c_void,
    ) -> *mut raw::RedisModuleString {
        let value = guarded(|| ServerString::new(&C::get()));
        let answer = value.as_ref().map_or(ptr::null_mut(), |value| value.as_str().as_ptr());
        ANSWER.set(value);
        answer
    }
    unsafe extern "C" fn set<C: TextConfig>(
        _name: *const c_char,
        value: *mut raw::RedisModuleString,
        _data: *mut c_void,
        _error: *mut *mut raw::RedisModuleString,
    ) -> c_int {
        let Some(value) = NonNull::new(value) else { return ERR };
        // SAFETY: the server keeps the value for the length of this call.
        status(guarded(|| C::set(unsafe { ServerStr::new(value) }.bytes())))
    }
    let Ok(default) = CString::new(C::get()) else { return false };
    // SAFETY: Presence, Liveness; the server copies name and default; the callbacks take no data.
    OK == unsafe {
        let register = present(raw::RedisModule_RegisterStringConfig);
        register(
            ctx.as_ptr(),
            C::NAME.as_ptr(),
            default.as_ptr(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            Some(get::<C>),
            Some(set::<C>),
            None,
            ptr::null_mut(),
        )
    }
}

/// Applies what the configuration file says, and the defaults elsewhere: after the last registration.
pub fn load_configs(ctx: Context<'_>) -> bool {
    // SAFETY: Presence, Liveness.
    OK == unsafe { present(raw::RedisModule_LoadConfigs)(ctx.as_ptr()) }
}
