//! Loads the module: registers commands, settings, INFO and observers.

use std::ffi::CStr;

use crate::commands;
use crate::config;
use crate::node::{self, Node, Role, Topology};
use crate::report::LockInfo;
use crate::server::{Context, Loader, ServerStr, Verdict, observe, register_info};
use crate::turn;
use crate::watch::{self, Watch};

/// The module.
pub struct Lock;

impl Loader for Lock {
    const NAME: &'static CStr = c"lock";
    const VERSION: i32 = 1;

    fn load(ctx: Context<'_>, args: &[ServerStr<'_>]) -> Verdict {
        // A module that was unloaded and is loaded again finds the old state in its memory.
        node::with(|node| *node = Node::default());
        node::with_words(|_| ());
        match set_up(ctx, args) {
            Ok(()) => Verdict::Accept,
            Err(reason) => {
                ctx.warn(&format!("the lock module was not loaded: {reason}"));
                Verdict::Refuse
            }
        }
    }

    fn unload(ctx: Context<'_>) -> Verdict {
        turn::forget(ctx);
        Verdict::Accept
    }
}

fn set_up(ctx: Context<'_>, args: &[ServerStr<'_>]) -> Result<(), String> {
    for command in [c"HSET", c"HDEL", c"DEL", c"PEXPIREAT", c"PUBLISH"] {
        if !ctx.knows_command(command) {
            let reason = "it propagates what it does with this command, but the server does not know it";
            return Err(format!("{reason}: {command:?} (see rename-command in the server's configuration)"));
        }
    }
    if !commands::register_all(ctx) {
        return Err("the server refused a command".into());
    }
    config::register(ctx, args)?;
    register_info::<LockInfo>(ctx);
    observe::<Watch>(ctx);
    let role = if ctx.is_replica() { Role::Replica } else { Role::Master };
    let topology = if ctx.is_cluster() { Topology::Cluster } else { Topology::Standalone };
    node::with(|node| {
        (node.role, node.topology) = (role, topology);
        if role == Role::Master {
            node.begin_grace();
        }
    });
    watch::take_stock(ctx);
    turn::settle(ctx);
    Ok(())
}
