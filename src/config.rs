//! The settings as `CONFIG GET`, `SET` and `REWRITE` know them, under `lock.`.

use std::ffi::CStr;
use std::ops::RangeInclusive;

use crate::lock::GracePeriod;
use crate::node;
use crate::server::{
    Context, FlagConfig, NumberConfig, ServerStr, TextConfig, load_configs, register_flag, register_number,
    register_text,
};
use crate::settings::{GRACE_PERIOD_RANGE, MAX_TTL_RANGE, MAX_WAITERS_RANGE, Settings};

/// Puts the module's arguments in force and registers the settings with the server, with the arguments as
/// their defaults: the server applies defaults last, and would undo the arguments otherwise.
pub fn register(ctx: Context<'_>, args: &[ServerStr<'_>]) -> Result<(), String> {
    let args: Vec<_> = args.iter().map(|arg| arg.bytes()).collect();
    let settings = Settings::from_args(&args)?;
    node::with(|node| {
        node.grace_period = GracePeriod::new(settings.grace_period);
        node.settings = settings;
    });
    let registered = register_number::<MaxTtl>(ctx)
        && register_number::<Grace>(ctx)
        && register_number::<MaxWaiters>(ctx)
        && register_text::<ChannelPrefix>(ctx)
        && register_flag::<ShardedPublish>(ctx)
        && load_configs(ctx);
    registered.then_some(()).ok_or_else(|| "the server refused a setting".into())
}

struct MaxTtl;

impl NumberConfig for MaxTtl {
    const NAME: &'static CStr = c"max-ttl";
    const RANGE: RangeInclusive<i64> = MAX_TTL_RANGE;
    fn get() -> i64 {
        node::with(|node| node.settings.max_ttl.cast_signed())
    }
    fn set(value: i64) {
        node::with(|node| node.settings.max_ttl = value.unsigned_abs());
    }
}

struct Grace;

impl NumberConfig for Grace {
    const NAME: &'static CStr = c"grace-period";
    const RANGE: RangeInclusive<i64> = GRACE_PERIOD_RANGE;
    fn get() -> i64 {
        node::with(|node| node.grace_period.length(node.now()).cast_signed())
    }
    fn set(value: i64) {
        node::with(|node| {
            let now = node.now();
            node.grace_period.set(value.unsigned_abs(), now);
        });
    }
}

struct MaxWaiters;

impl NumberConfig for MaxWaiters {
    const NAME: &'static CStr = c"max-waiters";
    const RANGE: RangeInclusive<i64> = MAX_WAITERS_RANGE;
    fn get() -> i64 {
        node::with(|node| node.settings.max_waiters as i64)
    }
    fn set(value: i64) {
        node::with(|node| node.settings.max_waiters = value.unsigned_abs() as usize);
    }
}

struct ChannelPrefix;

impl TextConfig for ChannelPrefix {
    const NAME: &'static CStr = c"channel-prefix";
    fn get() -> Vec<u8> {
        node::with(|node| node.settings.channel_prefix.clone())
    }
    fn set(value: &[u8]) {
        node::with(|node| node.settings.channel_prefix = value.to_vec());
    }
}

struct ShardedPublish;

impl FlagConfig for ShardedPublish {
    const NAME: &'static CStr = c"sharded-publish";
    fn get() -> bool {
        node::with(|node| node.settings.sharded_publish)
    }
    fn set(value: bool) {
        node::with(|node| node.settings.sharded_publish = value);
    }
}
