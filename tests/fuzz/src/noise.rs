//! Bytes that are no command, or one that ends too soon.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::resp::{Command, encode};

/// What is wrong from the start.
const NONSENSE: [&[u8]; 16] = [
    b"*-1\r\n",
    b"*0\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$4\r\nPING",
    b"*2\r\n$9\r\nLOCK.INFO\r\n$2\r\nk1XX",
    b"*2\r\n$9\r\nLOCK.INFO\r\n:1\r\n",
    b"*2\r\n$9\r\nLOCK.INFO\r\n*1\r\n$2\r\nk1\r\n",
    b"*9999999999\r\n",
    b"*1048577\r\n",
    b"*x\r\n",
    b"*2\r\n$9999999999\r\n",
    b"LOCK.INFO \"k1\r\n",
    b"LOCK.ACQUIRE k1 'a' \"10\\x00\"\r\n",
    b"LOCK.ACQUIRE k1 a 1000\r\nLOCK.RELEASE k1 a\r\nLOCK.",
    b"lock.info  k1 \n",
    b"\0\0\0\0\r\n",
];

/// Some noise; often what is left of this command after an accident.
pub fn noise(command: &Command, rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    match rng.random_range(0..4) {
        0 => bytes.extend(*NONSENSE.choose(rng).expect("a list that is not empty")),
        1 => bytes.extend((0..rng.random_range(1..200)).map(|_| rng.random::<u8>())),
        _ => {
            encode(command, &mut bytes);
            // Past this, an accident would only hit the middle of a long argument.
            bytes.truncate(4_096);
            for _ in 0..rng.random_range(1..4) {
                damage(&mut bytes, rng);
            }
        }
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, rng: &mut StdRng) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..4) {
        0 => bytes.truncate(at),
        1 => bytes[at] = rng.random(),
        2 => bytes.insert(at, rng.random()),
        _ => drop(bytes.remove(at)),
    }
}
