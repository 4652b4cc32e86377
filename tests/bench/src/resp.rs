//! Replies as they come off the wire, a part at a time.

use anyhow::{Context as _, bail};
use redis::Value;

/// The first reply and what follows it, once it is there in full.
///
/// An error of the server is an error here: no measurement expects one.
pub fn split_reply(input: &[u8]) -> anyhow::Result<Option<(Value, &[u8])>> {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return Ok(None);
    };
    let (line, rest) = (input[..end].trim_ascii_end(), &input[end + 1..]);
    let (kind, line) = line.split_first().context("an empty line for a reply")?;
    let text = str::from_utf8(line)?;
    Ok(match kind {
        b':' => Some((Value::Int(text.parse()?), rest)),
        b'+' if text == "OK" => Some((Value::Okay, rest)),
        b'+' => Some((Value::SimpleString(text.to_owned()), rest)),
        b'$' => split_string(text.parse()?, rest),
        b'*' => split_array(text.parse()?, rest)?,
        b'-' => bail!("the server answered {text:?}"),
        _ => bail!("{:?} is no reply", String::from_utf8_lossy(input)),
    })
}

fn split_string(length: i64, input: &[u8]) -> Option<(Value, &[u8])> {
    let Ok(length) = usize::try_from(length) else {
        return Some((Value::Nil, input));
    };
    let (string, rest) = input.split_at_checked(length)?;
    let rest = rest.get(b"\r\n".len()..)?;
    Some((Value::BulkString(string.to_vec()), rest))
}

fn split_array(length: i64, input: &[u8]) -> anyhow::Result<Option<(Value, &[u8])>> {
    let Ok(length) = usize::try_from(length) else {
        return Ok(Some((Value::Nil, input)));
    };
    let mut rest = input;
    let mut parts = Vec::with_capacity(length);
    while parts.len() < length {
        let Some((part, after)) = split_reply(rest)? else {
            return Ok(None);
        };
        parts.push(part);
        rest = after;
    }
    Ok(Some((Value::Array(parts), rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n:0\r\n+OK\r\n";

    #[test]
    fn a_reply_is_split_off_when_its_last_byte_is_there() {
        let complete = MESSAGE.len() - b"+OK\r\n".len();
        for length in 0..complete {
            assert_eq!(split_reply(&MESSAGE[..length]).expect("well formed so far"), None);
        }
        let parts =
            vec![Value::BulkString(b"message".to_vec()), Value::BulkString(b"c".to_vec()), Value::Int(0)];
        let (reply, rest) = split_reply(MESSAGE).expect("well formed").expect("complete");
        assert_eq!((reply, rest), (Value::Array(parts), &b"+OK\r\n"[..]));
        assert_eq!(split_reply(rest).expect("well formed"), Some((Value::Okay, &b""[..])));
    }

    #[test]
    fn nothing_and_the_empty_string_differ() {
        assert_eq!(split_reply(b"$-1\r\n").expect("well formed"), Some((Value::Nil, &b""[..])));
        let empty = Value::BulkString(Vec::new());
        assert_eq!(split_reply(b"$0\r\n\r\n").expect("well formed"), Some((empty, &b""[..])));
    }

    #[test]
    fn an_error_is_one() {
        let error = split_reply(b"-LINEFULL no room\r\n").expect_err("an error");
        assert!(error.to_string().contains("LINEFULL"));
    }
}
