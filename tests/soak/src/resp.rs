//! The wire format, read from a buffer that may end anywhere.

use std::fmt;

/// What a server answers, or (an array of texts) sends to its replicas.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// Null.
    Nil,
    /// An integer.
    Int(i64),
    /// A string, simple or not.
    Text(Vec<u8>),
    /// An error's text, which starts with its code.
    Error(Vec<u8>),
    /// An array.
    Array(Vec<Reply>),
}

/// Bytes that are no reply.
#[derive(Debug)]
pub struct Nonsense(String);

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no reply: {}", self.0)
    }
}

impl std::error::Error for Nonsense {}

impl Reply {
    /// Reads one reply and says how long it is; `None` where the input ends before it does.
    ///
    /// # Errors
    /// When the bytes are no reply.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, Nonsense> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let line = &input[..end];
        let after = end + 2;
        let nonsense = || Nonsense(line.escape_ascii().to_string());
        let Some((kind, rest)) = line.split_first() else { return Err(nonsense()) };
        let number = || {
            let digits = std::str::from_utf8(rest).ok();
            digits.and_then(|digits| digits.parse::<i64>().ok()).ok_or_else(nonsense)
        };
        Ok(match kind {
            b'+' => Some((Self::Text(rest.to_vec()), after)),
            b'-' => Some((Self::Error(rest.to_vec()), after)),
            b':' => Some((Self::Int(number()?), after)),
            b'$' => match usize::try_from(number()?) {
                Err(_) => Some((Self::Nil, after)),
                Ok(length) => {
                    let end = after + length + 2;
                    input.get(after..end).map(|blob| (Self::Text(blob[..length].to_vec()), end))
                }
            },
            b'*' => match usize::try_from(number()?) {
                Err(_) => Some((Self::Nil, after)),
                Ok(count) => Self::parse_items(input, after, count)?,
            },
            _ => return Err(nonsense()),
        })
    }

    fn parse_items(input: &[u8], start: usize, count: usize) -> Result<Option<(Self, usize)>, Nonsense> {
        let mut items = Vec::with_capacity(count);
        let mut at = start;
        for _ in 0..count {
            let Some((item, length)) = Self::parse(&input[at..])? else { return Ok(None) };
            items.push(item);
            at += length;
        }
        Ok(Some((Self::Array(items), at)))
    }

    /// The text of a string.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Is it an error with this code?
    pub fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error(text) if text.starts_with(code.as_bytes()))
    }

    /// The integers of an array of nothing else.
    pub fn integers<const N: usize>(&self) -> Option<[i64; N]> {
        let Self::Array(items) = self else { return None };
        let numbers: Option<Vec<i64>> = items
            .iter()
            .map(|item| match item {
                Self::Int(number) => Some(*number),
                _ => None,
            })
            .collect();
        numbers?.try_into().ok()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => write!(f, "null"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{:.200}", text.escape_ascii().to_string()),
            Self::Error(text) => write!(f, "error {:.200}", text.escape_ascii().to_string()),
            Self::Array(items) => f.debug_list().entries(items).finish(),
        }
    }
}

/// A command: its name and its arguments.
pub type Command = Vec<Vec<u8>>;

/// A command from words that need no escaping.
pub fn words(text: &str) -> Command {
    text.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// The bytes of a command as clients send it.
pub fn encode(command: &[Vec<u8>], into: &mut Vec<u8>) {
    into.extend(format!("*{}\r\n", command.len()).bytes());
    for word in command {
        into.extend(format!("${}\r\n", word.len()).bytes());
        into.extend(word);
        into.extend(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_when_all_of_it_is_there() {
        let wire = b"*4\r\n:-2\r\n$-1\r\n$2\r\n\r\n\r\n-ERR x\r\n";
        for cut in 0..wire.len() {
            assert!(matches!(Reply::parse(&wire[..cut]), Ok(None)), "cut at {cut}");
        }
        let whole = Reply::parse(&[wire, &b":1"[..]].concat());
        let items =
            vec![Reply::Int(-2), Reply::Nil, Reply::Text(b"\r\n".to_vec()), Reply::Error(b"ERR x".to_vec())];
        assert!(matches!(whole, Ok(Some((Reply::Array(array), length)))
            if array == items && length == wire.len()));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        assert!(Reply::parse(b"?\r\n").is_err());
        assert!(Reply::parse(b":x\r\n").is_err());
        assert!(Reply::parse(b"\r\n").is_err());
    }
}
