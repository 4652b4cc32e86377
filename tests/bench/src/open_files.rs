//! How many connections a process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Has this process, and servers that it starts from now on, open this many files if it may, and
/// says how many it is.
pub fn allow(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    // Only root may raise the hard limit.
    let steps = [hard.max(wanted), hard];
    let raised = steps.into_iter().find(|&hard| {
        let new = Rlimit { current: Some(wanted.min(hard)), maximum: Some(hard) };
        setrlimit(Resource::Nofile, new).is_ok()
    });
    raised.map_or(limit.current.unwrap_or(u64::MAX), |hard| hard.min(wanted))
}
