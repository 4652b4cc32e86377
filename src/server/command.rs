//! Commands: their arguments, their registration, and what `COMMAND DOCS` and `COMMAND INFO` say of them.

use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};

use redis_module::raw;

use super::guard::guarded;
use super::present::present;
use super::{Context, ServerStr};

/// A command, as a type of its own, so that the server can be given a function for it.
pub trait Command {
    /// What the server is told of it.
    const SPEC: Spec;
    /// Runs it and replies.
    fn run(ctx: Context<'_>, args: Args<'_>);
}

/// What the server is told of a command. Its first argument is its only key.
#[derive(Debug)]
pub struct Spec {
    /// The name.
    pub name: &'static CStr,
    /// The server's command flags.
    pub flags: &'static CStr,
    /// The ACL categories, from Redis 7.2 on.
    pub categories: &'static CStr,
    /// What it does with the key.
    pub key: KeyUse,
    /// The number of arguments with the command's name; negative for "at least".
    pub arity: i32,
    /// One line that says what it does.
    pub summary: &'static CStr,
    /// The version of the module that it came with.
    pub since: &'static CStr,
    /// The arguments, the key first.
    pub args: &'static [Arg],
}

/// What a command does with its key, in the words of key specifications.
#[derive(Clone, Copy, Debug)]
pub enum KeyUse {
    /// It reads the value and changes it.
    Update,
    /// It changes the value without telling of it.
    BlindUpdate,
    /// It reads the value, and may delete it.
    Delete,
    /// It deletes the value without telling of it.
    BlindDelete,
    /// It reads the value.
    Read,
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name in the grammar.
    pub name: &'static CStr,
    /// Its type.
    pub kind: ArgKind,
    /// The word that announces it.
    pub token: Option<&'static CStr>,
    /// Whether it may be left out.
    pub need: Need,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug)]
pub enum ArgKind {
    /// The key.
    Key,
    /// Any bytes.
    Text,
    /// An integer.
    Integer,
}

/// Whether an argument may be left out.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// It may not.
    Required,
    /// It may.
    Optional,
}

impl Arg {
    /// A required argument.
    pub const fn required(name: &'static CStr, kind: ArgKind) -> Self {
        Self { name, kind, token: None, need: Need::Required }
    }

    /// An optional integer after a word that announces it.
    pub const fn option(name: &'static CStr, token: &'static CStr) -> Self {
        Self { name, kind: ArgKind::Integer, token: Some(token), need: Need::Optional }
    }
}

/// The arguments of a call, the command's name not among them.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [ServerStr<'a>]);

impl<'a> Args<'a> {
    /// The arguments as a slice.
    pub fn as_slice(self) -> &'a [ServerStr<'a>] {
        self.0
    }
}

/// Registers a command; `false` where the server refuses it (the log says why).
pub fn register_command<C: Command>(ctx: Context<'_>) -> bool {
    let spec = C::SPEC;
    let create_status = {
        // SAFETY: Presence, Liveness; the server copies the texts.
        unsafe {
            let create = present(raw::RedisModule_CreateCommand);
            create(ctx.as_ptr(), spec.name.as_ptr(), Some(on_command::<C>), spec.flags.as_ptr(), 1, 1, 1)
        }
    };
    let created = create_status == raw::REDISMODULE_OK as c_int && describe(ctx, &spec);
    if !created {
        ctx.warn(&format!("the server refused the command {:?}", spec.name));
    }
    created
}

unsafe extern "C" fn on_command<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server passes this callback's context and its arguments.
    let (ctx, args) = unsafe { (Context::of_command(ctx), args_of(argv, argc)) };
    if guarded(|| C::run(ctx, args)).is_none() {
        ctx.reply_error(c"ERR the lock module has a bug, see the server's output; please report it");
    }
    raw::REDISMODULE_OK as c_int
}

/// # Safety
/// `argv` holds `argc` strings that live for `'a`, none of them null, the command's name first.
pub(super) unsafe fn args_of<'a>(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Args<'a> {
    let count = usize::try_from(argc).unwrap_or(0).saturating_sub(1);
    // SAFETY: by the caller's word; a ServerStr is transparent over such a pointer.
    Args(unsafe { std::slice::from_raw_parts(argv.add(1).cast_const().cast::<ServerStr<'_>>(), count) })
}

/// Tells the server what it answers to COMMAND. The server copies all of it.
fn describe(ctx: Context<'_>, spec: &Spec) -> bool {
    // SAFETY: Presence, Liveness; the command was registered under this name.
    let command = unsafe { present(raw::RedisModule_GetCommand)(ctx.as_ptr(), spec.name.as_ptr()) };
    let Some(command) = NonNull::new(command) else { return false };
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    // Each list ends with an element that is all zeros.
    let mut key_specs = [key_spec(spec.key), zeroed_key_spec()];
    let mut args: Vec<_> = spec.args.iter().map(raw_arg).chain([NO_ARG]).collect();
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: spec.summary.as_ptr(),
        complexity: c"O(1); O(N) for a hash without a token that N owners of Redisson's could share".as_ptr(),
        since: spec.since.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: spec.arity,
        key_specs: key_specs.as_mut_ptr(),
        args: args.as_mut_ptr(),
    };
    // SAFETY: Presence; `info` and all that it points to outlive the call.
    let described = unsafe { present(raw::RedisModule_SetCommandInfo)(command.as_ptr(), &raw const info) };
    // SAFETY: Presence (servers before 7.2 know no categories of module commands); the text is copied.
    let categorized = unsafe {
        raw::RedisModule_SetCommandACLCategories
            .map_or(raw::REDISMODULE_OK as c_int, |set| set(command.as_ptr(), spec.categories.as_ptr()))
    };
    [described, categorized] == [raw::REDISMODULE_OK as c_int; 2]
}

const NO_ARG: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: ptr::null(),
    type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
    key_spec_index: 0,
    token: ptr::null(),
    summary: ptr::null(),
    since: ptr::null(),
    flags: 0,
    deprecated_since: ptr::null(),
    subargs: ptr::null_mut(),
    display_text: ptr::null(),
};

fn raw_arg(arg: &Arg) -> raw::RedisModuleCommandArg {
    let (type_, key_spec_index) = match arg.kind {
        ArgKind::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 0),
        ArgKind::Text => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, -1),
        ArgKind::Integer => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, -1),
    };
    let flags = match arg.need {
        Need::Required => raw::REDISMODULE_CMD_ARG_NONE,
        Need::Optional => raw::REDISMODULE_CMD_ARG_OPTIONAL,
    };
    raw::RedisModuleCommandArg {
        name: arg.name.as_ptr(),
        type_,
        key_spec_index,
        token: arg.token.map_or(ptr::null(), CStr::as_ptr),
        flags: flags as c_int,
        ..NO_ARG
    }
}

fn key_spec(key: KeyUse) -> raw::RedisModuleCommandKeySpec {
    let flags = match key {
        KeyUse::Update => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyUse::BlindUpdate => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        KeyUse::Delete => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
        }
        KeyUse::BlindDelete => raw::REDISMODULE_CMD_KEY_RM | raw::REDISMODULE_CMD_KEY_DELETE,
        KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
    };
    let mut spec = zeroed_key_spec();
    spec.flags = u64::from(flags);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = 1;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range =
        raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };
    spec
}

fn zeroed_key_spec() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: the structure is made of integers and nullable pointers, for which zeros are valid.
    unsafe { std::mem::zeroed() }
}
