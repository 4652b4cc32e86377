//! The commands, one file each: the grammar, a typed request, `parse`, `apply`, the reply.

mod acquire;
mod force_release;
mod info;
mod options;
mod release;
mod renew;

use crate::server::{Context, register_command};

/// Registers all commands; `false` where the server refuses one.
pub fn register_all(ctx: Context<'_>) -> bool {
    register_command::<acquire::Acquire<'_>>(ctx)
        && register_command::<renew::Renew<'_>>(ctx)
        && register_command::<release::Release<'_>>(ctx)
        && register_command::<force_release::ForceRelease<'_>>(ctx)
        && register_command::<info::Info<'_>>(ctx)
}
