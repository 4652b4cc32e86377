//! Questions to each node by itself.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisError, RedisResult};

/// How long a node has to connect, and for each answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What one node said, or why it said nothing.
pub struct Said<T> {
    /// The node's address.
    pub node: String,
    /// Its answer.
    pub answer: RedisResult<T>,
}

/// Asks all nodes at once; answers in their order.
pub async fn ask_all<T>(
    urls: &[String],
    question: impl AsyncFn(MultiplexedConnection) -> RedisResult<T>,
) -> Vec<Said<T>> {
    let ask = async |url: &String| Said {
        node: address(url),
        answer: match connect(url).await {
            Ok(node) => question(node).await,
            Err(error) => Err(error),
        },
    };
    join_all(urls.iter().map(ask)).await
}

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The node as it may be shown: without its password.
fn address(url: &str) -> String {
    url.into_connection_info()
        .map_or_else(|_| "a node whose URL is no URL".to_owned(), |info| info.addr().to_string())
}

/// An error, for one line of output.
pub fn cause(error: &RedisError) -> String {
    error.to_string().replace(['\r', '\n'], " ")
}
