//! The wire format, byte for byte.
//!
//! The `redis` crate wants error lines to be UTF-8, and servers quote hostile input in them.

use std::fmt;
use std::io::{self, BufRead};

/// A command: its name and its arguments.
pub type Command = Vec<Vec<u8>>;

/// The longest reply that is taken for real; no command here has a longer one.
const LONGEST: usize = 1 << 30;

/// What a server answers.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// Null, in any of its forms.
    Nil,
    /// An integer.
    Int(i64),
    /// A string, simple or not, or a scalar of RESP3.
    Text(Vec<u8>),
    /// An error's text, which starts with its code.
    Error(Vec<u8>),
    /// An array or a set.
    Array(Vec<Reply>),
    /// A map of RESP3, its keys and values in turn.
    Map(Vec<Reply>),
    /// A message of RESP3 that answers no command.
    Push(Vec<Reply>),
}

impl Reply {
    /// Reads one reply.
    ///
    /// # Errors
    /// When the stream ends or times out, or its bytes are no reply.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Self> {
        let line = read_line(reader)?;
        let (kind, rest) = line.split_first().ok_or_else(|| nonsense(&line))?;
        match kind {
            b'+' | b',' | b'#' | b'(' => Ok(Self::Text(rest.to_vec())),
            b'-' => Ok(Self::Error(rest.to_vec())),
            b':' => number(rest).map(Self::Int),
            b'_' => Ok(Self::Nil),
            b'$' | b'=' => Ok(read_blob(reader, rest)?.map_or(Self::Nil, Self::Text)),
            b'!' => Ok(Self::Error(read_blob(reader, rest)?.unwrap_or_default())),
            b'*' | b'~' => Ok(Self::read_items(reader, rest, 1)?.map_or(Self::Nil, Self::Array)),
            b'%' => Ok(Self::read_items(reader, rest, 2)?.map_or(Self::Nil, Self::Map)),
            b'>' => Ok(Self::Push(Self::read_items(reader, rest, 1)?.unwrap_or_default())),
            _ => Err(nonsense(&line)),
        }
    }

    fn read_items(reader: &mut impl BufRead, length: &[u8], each: usize) -> io::Result<Option<Vec<Self>>> {
        size(length)?.map(|items| (0..items * each).map(|_| Self::read(reader)).collect()).transpose()
    }

    /// An error's code, its first word.
    pub fn code(&self) -> Option<&[u8]> {
        match self {
            Self::Error(text) => text.split(|byte| *byte == b' ').next(),
            _ => None,
        }
    }

    /// Is it a string of these bytes?
    pub fn is_text(&self, text: &[u8]) -> bool {
        matches!(self, Self::Text(own) if own == text)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => write!(f, "null"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "\"{:.200}\"", text.escape_ascii().to_string()),
            Self::Error(text) => write!(f, "error {:.200}", text.escape_ascii().to_string()),
            Self::Array(items) | Self::Map(items) | Self::Push(items) => {
                f.debug_list().entries(items).finish()
            }
        }
    }
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

/// A command from words that need no escaping.
pub fn words(text: &str) -> Command {
    text.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(content) => Ok(content.to_vec()),
        None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(nonsense(&line)),
    }
}

fn read_blob(reader: &mut impl BufRead, length: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = size(length)? else { return Ok(None) };
    let mut blob = vec![0; length + 2];
    reader.read_exact(&mut blob)?;
    match blob.strip_suffix(b"\r\n") {
        Some(content) => Ok(Some(content.to_vec())),
        None => Err(nonsense(&blob)),
    }
}

fn size(digits: &[u8]) -> io::Result<Option<usize>> {
    match number(digits)? {
        -1 => Ok(None),
        n => usize::try_from(n).ok().filter(|n| *n <= LONGEST).map(Some).ok_or_else(|| nonsense(digits)),
    }
}

fn number(digits: &[u8]) -> io::Result<i64> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or_else(|| nonsense(digits))
}

fn nonsense(bytes: &[u8]) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no reply: {}", bytes.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_one_after_another() {
        let mut wire = &b"%1\r\n+a\r\n:-2\r\n-ERR \xff\r\n>1\r\n$-1\r\n*2\r\n_\r\n$2\r\n\r\n\r\n"[..];
        let replies: Vec<Reply> = std::iter::from_fn(|| Reply::read(&mut wire).ok()).collect();
        assert_eq!(
            replies,
            [
                Reply::Map(vec![Reply::Text(b"a".to_vec()), Reply::Int(-2)]),
                Reply::Error(b"ERR \xff".to_vec()),
                Reply::Push(vec![Reply::Nil]),
                Reply::Array(vec![Reply::Nil, Reply::Text(b"\r\n".to_vec())]),
            ]
        );
    }

    #[test]
    fn what_is_no_reply_is_told_apart_from_the_end() {
        for wire in ["?\r\n", "\r\n", ":x\r\n", "$3\r\nabcdef", "+broken\n", "*-2\r\n"] {
            assert_eq!(
                Reply::read(&mut wire.as_bytes()).map_err(|e| e.kind()),
                Err(io::ErrorKind::InvalidData)
            );
        }
        assert_eq!(Reply::read(&mut &b""[..]).map_err(|e| e.kind()), Err(io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        let mut bytes = Vec::new();
        encode(&[b"GET".to_vec(), b"\r\n".to_vec()], &mut bytes);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n");
    }
}
