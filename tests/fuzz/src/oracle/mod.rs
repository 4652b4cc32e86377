//! What the contract says, written down a second time: how a key and a command have to end.

mod key;
mod request;
mod shape;
mod verdict;

pub use key::{Content, Key};
pub use shape::{check_shape, first_hold};
pub use verdict::{Case, judge};
