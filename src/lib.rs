//! Distributed locks as native commands of Redis and Valkey.
mod lock;
