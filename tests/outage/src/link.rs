//! The network between a master and its replica, which can be cut: a proxy within this process.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A way to a server. A link that is cut swallows what is sent and closes nothing, as a network that drops
/// packets: that tells the master later than a closed connection that its replica is gone.
#[derive(Debug)]
pub struct Link {
    port: u16,
    wire: Arc<Wire>,
}

#[derive(Debug, Default)]
struct Wire {
    cut: AtomicBool,
    closed: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// A link to the server on port `to`.
    pub fn to(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let wire = Arc::new(Wire::default());
        let shared = Arc::clone(&wire);
        thread::spawn(move || {
            for caller in listener.incoming() {
                if shared.closed.load(Ordering::SeqCst) {
                    return;
                }
                // A caller that could not be connected is hung up on, and calls again.
                let _ = caller.and_then(|caller| shared.connect(caller, to));
            }
        });
        Ok(Self { port, wire })
    }

    /// The port on 127.0.0.1 that leads to the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing gets through, in neither direction.
    pub fn cut(&self) {
        self.wire.cut.store(true, Ordering::SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wire.closed.store(true, Ordering::SeqCst);
        for stream in self.wire.streams().drain(..) {
            // It fails where the other side was first.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Wire {
    fn connect(self: &Arc<Self>, caller: TcpStream, to: u16) -> io::Result<()> {
        let server = TcpStream::connect(("127.0.0.1", to))?;
        self.streams().extend([caller.try_clone()?, server.try_clone()?]);
        self.pump(caller.try_clone()?, server.try_clone()?);
        self.pump(server, caller);
        Ok(())
    }

    fn pump(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream) {
        let wire = Arc::clone(self);
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut chunk) {
                if !wire.is_cut() && to.write_all(&chunk[..length]).is_err() {
                    break;
                }
            }
            // Whether the far side hears of a closed connection is the network's to say, too.
            if !wire.is_cut() {
                let _ = to.shutdown(Shutdown::Both);
            }
        });
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
