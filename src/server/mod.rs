//! The server's module API behind safe types: the only place with `unsafe` code.
//!
//! It goes to the raw API, because `redis-module`'s own safe layer takes no NUL bytes in hash fields,
//! no names that are not UTF-8, and costs half as much again on the hot path. It knows nothing of
//! how locks work. What holds for every block below:
//!
//! * **Presence.** The server fills in the function pointers before it loads the module, and
//!   [`load::missing_functions`] refuses the load where one is absent that has no stand-in.
//! * **Liveness.** A [`Context`] and all that borrows from it live within one callback, during which the
//!   server keeps the context, the arguments and open keys alive. The lifetimes say so.
//! * **One thread.** The server calls back on its main thread only.
//! * **One handle.** A key is open once at a time while it is written to, and is closed before anybody is
//!   notified of it, so that no handle outlives its value.
//! * **Unwinding.** Each callback runs in [`guard::guarded`], so that no panic crosses into C.

mod audience;
mod command;
mod config;
mod context;
mod events;
mod guard;
mod info;
mod job;
mod key;
mod load;
mod present;
mod scan;
mod seat;
mod string;
mod timer;
mod writable;

pub use command::{Arg, ArgKind, Args, Command, KeyUse, Spec, register_command};
pub use config::{
    FlagConfig, NumberConfig, TextConfig, load_configs, register_flag, register_number, register_text,
};
pub use context::{Context, Publication};
pub use events::{KeyspaceEvent, Observer, ServerEvent, observe};
pub use info::{InfoSection, InfoSource, register_info};
pub use job::{Job, after_this};
pub use key::{Access, FieldValue, Key};
pub use load::{LoadArgs, LoadContext, Loader, Verdict, on_load, on_unload};
pub use scan::for_each_hash;
pub use seat::{Blocked, Waiting};
pub use string::{ServerStr, ServerString};
pub use timer::{Alarm, Timer};
