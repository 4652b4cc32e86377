//! Which server answers: behaviour that differs between them is asked for by version.

use std::fmt;

/// The two families of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Redis itself.
    Redis,
    /// Valkey, forked from Redis 7.2.
    Valkey,
}

/// A server's version, as far as tests care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Redis or Valkey.
    pub flavor: Flavor,
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

/// The Redis that Valkey was forked from.
const FORKED_FROM: (u32, u32) = (7, 2);

impl Version {
    /// Whether this server can do what came with version `major.minor` of `flavor`.
    ///
    /// A Valkey can do what Redis 7.2 could; a Redis can do nothing that came with Valkey.
    pub fn at_least(self, flavor: Flavor, major: u32, minor: u32) -> bool {
        let own = match (self.flavor, flavor) {
            (Flavor::Valkey, Flavor::Redis) => FORKED_FROM,
            (Flavor::Redis, Flavor::Valkey) => return false,
            _ => (self.major, self.minor),
        };
        own >= (major, minor)
    }

    /// Reads the `server` section of INFO.
    pub(crate) fn from_info(info: &str) -> Option<Self> {
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let (flavor, number) = match field("valkey_version") {
            Some(number) => (Flavor::Valkey, number),
            None => (Flavor::Redis, field("redis_version")?),
        };
        let mut parts = number.split('.').map_while(|part| part.trim().parse().ok());
        Some(Self { flavor, major: parts.next()?, minor: parts.next()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}.{}", self.flavor, self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valkey_is_told_from_the_redis_it_claims_to_be() {
        let info = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        let version = Version::from_info(info).expect("it is well formed");
        assert_eq!(version.to_string(), "Valkey 9.1");
        assert!(version.at_least(Flavor::Redis, 7, 2));
        assert!(!version.at_least(Flavor::Redis, 7, 4));
        assert!(version.at_least(Flavor::Valkey, 8, 5));
    }

    #[test]
    fn a_redis_is_no_valkey() {
        let version = Version::from_info("redis_version:8.0.6\r\n").expect("it is well formed");
        assert!(version.at_least(Flavor::Redis, 7, 4));
        assert!(!version.at_least(Flavor::Redis, 8, 2));
        assert!(!version.at_least(Flavor::Valkey, 7, 2));
    }
}
