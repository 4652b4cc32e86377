//! A wall clock that can be stepped while the server runs.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

const SHIM: &str = include_str!("clock_shim.c");

/// A library that the loader puts before all others, and the file with the clock's offset.
#[derive(Debug)]
pub(crate) struct WallClock {
    shim: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// A clock that is right, until it is stepped. Its files are in `dir`.
    pub(crate) fn new(dir: &Path) -> anyhow::Result<Self> {
        let clock = Self { shim: dir.join("clock_shim.so"), offset: dir.join("clock-offset") };
        fs::write(&clock.shim, shim()?)?;
        fs::write(&clock.offset, 0_i64.to_ne_bytes())?;
        Ok(clock)
    }

    /// Gives the clock to a process to be.
    pub(crate) fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.shim).env("CLOCK_SHIM_OFFSET", &self.offset);
    }

    /// Steps the clock by so many milliseconds.
    pub(crate) fn step(&self, by_ms: i64) -> anyhow::Result<()> {
        let file = fs::File::options().read(true).write(true).open(&self.offset)?;
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0)?;
        let step_ns = by_ms.checked_mul(1_000_000).context("a step of centuries")?;
        let offset = i64::from_ne_bytes(bytes).checked_add(step_ns).context("a step too many")?;
        // One write of eight aligned bytes: the server sees the old offset or the new one.
        file.write_all_at(&offset.to_ne_bytes(), 0)?;
        Ok(())
    }
}

/// The library, compiled once in each process.
fn shim() -> anyhow::Result<&'static [u8]> {
    static SHIM: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    match SHIM.get_or_init(|| compile().map_err(|error| format!("{error:#}"))) {
        Ok(library) => Ok(library),
        Err(error) => anyhow::bail!("{error}"),
    }
}

fn compile() -> anyhow::Result<Vec<u8>> {
    let dir = TempDir::with_prefix("redis-lock-clock-")?;
    let (source, library) = (dir.path().join("clock_shim.c"), dir.path().join("clock_shim.so"));
    fs::write(&source, SHIM)?;
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&library, &source])
        .output()
        .context("can't run cc, the C compiler")?;
    ensure!(compiler.status.success(), "cc: {}", String::from_utf8_lossy(&compiler.stderr));
    Ok(fs::read(library)?)
}
