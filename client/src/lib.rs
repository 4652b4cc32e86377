//! Typed calls of the lock module's commands on one node, over the [`redis`] crate.
//!
//! This is the layer on which a quorum over several nodes stands: what one node is asked, and what it
//! answers. It keeps no state, opens no connections, and works with the blocking and the async
//! connections of the `redis` crate alike, as each call is a [`redis::Cmd`] and each answer implements
//! [`redis::FromRedisValue`].
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use redis_lock_client::{Acquire, Attempt, Owner, release};
//!
//! # fn main() -> redis::RedisResult<()> {
//! let mut node = redis::Client::open("redis://127.0.0.1")?.get_connection()?;
//! let owner = Owner::unique();
//! match Acquire::new("job", &owner, Duration::from_secs(30)).holds(1).cmd().query(&mut node)? {
//!     Attempt::Granted(hold) => {
//!         println!("write with fencing token {}", hold.token);
//!         release("job", &owner).query::<Option<u64>>(&mut node)?;
//!     }
//!     Attempt::Denied(holder) => println!("taken for another {:?}", holder.lease),
//! }
//! # Ok(())
//! # }
//! ```

mod acquire;
mod calls;
mod info;
mod owner;
pub mod quorum;

pub use acquire::{Acquire, Attempt, Hold, Holder, Lease};
pub use calls::{Renewal, force_release, release, release_all, renew};
pub use info::{HolderInfo, Info, Waiter, info};
pub use owner::Owner;
