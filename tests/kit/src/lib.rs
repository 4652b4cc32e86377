//! Real servers for tests.
//!
//! Each [`Server`] is a process of its own on a free port of 127.0.0.1, with a temporary folder as
//! its data directory. It is ready for commands when [`Builder::start`] returns, and gone, folder
//! included, when it is dropped.
//!
//! ```no_run
//! use redis_lock_testkit::Server;
//!
//! let server = Server::with_module().config("appendonly", "yes").start();
//! let reply: Vec<i64> = redis::cmd("LOCK.ACQUIRE")
//!     .arg(&["orders", "worker-1", "30000"])
//!     .query(&mut server.connect())
//!     .expect("a lock nobody holds is granted");
//! assert_eq!(reply[0], 1);
//! ```
//!
//! Two environment variables choose what is tested: `REDIS_LOCK_SERVER`, the server's command
//! (`redis-server`, or a script that ends in `exec`), and `REDIS_LOCK_MODULE`, the module's file
//! (the workspace's release build).

mod builder;
mod clock;
mod eventually;
mod process;
mod server;
mod version;

pub use builder::{Builder, module_path};
pub use eventually::eventually;
pub use server::Server;
pub use version::{Flavor, Version};
