//! Clients that wait for their reply.
//!
//! They are blocked on the key, so that in Cluster the server redirects them when its slot has left. The
//! server's own wake-ups of such clients (a list at the key, say) are not made use of.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::rc::Rc;

use redis_module::raw;

use super::command::args_of;
use super::guard::guarded;
use super::present::present;
use super::{Args, Context, ServerStr};

/// What becomes of a client that waits.
pub trait Waiting: Sized + 'static {
    /// By what it is known to whoever lets it wait.
    type Ticket: Copy;
    /// What it is told in the end.
    type Answer;
    /// What is to be known where an answer did not reach it.
    type Receipt;
    /// Replies with the answer, just before the server sends all replies. Must not write.
    fn answer(ctx: Context<'_>, answer: Self::Answer);
    /// `CLIENT UNBLOCK` ends the wait: replies. Must not write. `args` are those of its command.
    fn give_up(ctx: Context<'_>, args: Args<'_>, ticket: Self::Ticket);
    /// The client is gone, or has got an error from the server. Must not write.
    fn gone(ctx: Context<'_>, ticket: Self::Ticket);
    /// The client went in between [`Blocked::resume`] and the reply. Must not write.
    fn missed(ctx: Context<'_>, receipt: Self::Receipt);
}

struct Seat<W: Waiting> {
    /// The server's handle; `None` once the client waits no more.
    handle: Cell<Option<NonNull<raw::RedisModuleBlockedClient>>>,
    ticket: W::Ticket,
    answer: Cell<Option<W::Answer>>,
    receipt: Cell<Option<W::Receipt>>,
}

/// A client that waits for its reply, or has gone meanwhile.
pub struct Blocked<W: Waiting>(Rc<Seat<W>>);

impl<W: Waiting> Blocked<W> {
    /// Lets the client of the running command wait; `None` where it must not, see
    /// [`Context::may_block`].
    pub fn block(ctx: Context<'_>, key: ServerStr<'_>, ticket: W::Ticket) -> Option<Self> {
        if !ctx.may_block() {
            return None;
        }
        let (handle, answer, receipt) = (Cell::new(None), Cell::new(None), Cell::new(None));
        let seat = Rc::new(Seat { handle, ticket, answer, receipt });
        let data = Rc::into_raw(Rc::clone(&seat)).cast_mut().cast::<c_void>();
        let mut keys = [key.as_ptr()];
        // SAFETY: Presence, Liveness; the server takes a reference of its own to the key, and hands `data`
        // to the callbacks only, last of all to `on_free`, which gives that reference to the seat back.
        let handle = unsafe {
            let block = present(raw::RedisModule_BlockClientOnKeys);
            let count = keys.len() as c_int;
            block(
                ctx.as_ptr(),
                Some(on_key),
                Some(on_timeout::<W>),
                Some(on_free::<W>),
                0,
                keys.as_mut_ptr(),
                count,
                data,
            )
        };
        if handle.is_null() {
            // Valkey refuses some clients, such as one that is subscribed (RESP3).
            // SAFETY: the server has kept nothing, so this reference is still ours to give back.
            drop(unsafe { Rc::from_raw(data.cast_const().cast::<Seat<W>>()) });
            return None;
        }
        // SAFETY: Presence; the handle is fresh.
        unsafe { present(raw::RedisModule_SetDisconnectCallback)(handle, Some(on_disconnect::<W>)) };
        seat.handle.set(NonNull::new(handle));
        Some(Self(seat))
    }

    /// Does the client still wait?
    pub fn is_there(&self) -> bool {
        self.0.handle.get().is_some()
    }

    /// Ends the wait with an answer, unless the client has gone.
    ///
    /// To be called when no command of another client can run any more in this turn of the event loop:
    /// after `CLIENT UNBLOCK` the client would get no reply, or two. (Threads that read commands run some even then; where a
    /// client goes by one, the receipt comes back by [`Waiting::missed`].)
    pub fn resume(self, answer: W::Answer, receipt: Option<W::Receipt>) {
        if let Some(handle) = self.0.handle.take() {
            self.0.answer.set(Some(answer));
            self.0.receipt.set(receipt);
            // SAFETY: Presence; a handle lives until the server is told to end the wait, or says by a callback
            // that it has ended; both take it out of the seat.
            unsafe { present(raw::RedisModule_UnblockClient)(handle.as_ptr(), ptr::null_mut()) };
        }
    }
}

impl<W: Waiting> Drop for Blocked<W> {
    fn drop(&mut self) {
        debug_assert!(self.0.handle.get().is_none(), "a client was left without an answer");
    }
}

impl<W: Waiting> std::fmt::Debug for Blocked<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Blocked").field(&self.0.handle.get()).finish()
    }
}

/// # Safety
/// The context is that of a callback for a client blocked by [`Blocked::block`] with the same `W`.
unsafe fn seat_of<'c, W: Waiting>(ctx: *mut raw::RedisModuleCtx) -> Option<&'c Seat<W>> {
    // SAFETY: Presence, Liveness.
    let data = unsafe { present(raw::RedisModule_GetBlockedClientPrivateData)(ctx) };
    // SAFETY: by the caller's word it is the reference that `block` made, not yet given back.
    unsafe { data.cast::<Seat<W>>().as_ref() }
}

/// A list or such was put at the key: no reason to wake anybody.
unsafe extern "C" fn on_key(
    _ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    raw::REDISMODULE_ERR as c_int
}

/// The wait ends: by [`Blocked::resume`], where the server calls this too, or by `CLIENT UNBLOCK`.
unsafe extern "C" fn on_timeout<W: Waiting>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server calls this for a client of ours.
    let Some(seat) = (unsafe { seat_of::<W>(ctx) }) else { return raw::REDISMODULE_ERR as c_int };
    if seat.handle.take().is_some() {
        // SAFETY: the server passes this callback's context, and the arguments of the command that blocked.
        let (ctx, args) = unsafe { (Context::new(ctx), args_of(argv, argc)) };
        guarded(|| W::give_up(ctx, args, seat.ticket));
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_disconnect<W: Waiting>(
    ctx: *mut raw::RedisModuleCtx,
    _handle: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the server calls this for a client of ours.
    let Some(seat) = (unsafe { seat_of::<W>(ctx) }) else { return };
    if seat.handle.take().is_some() {
        // SAFETY: the server passes this callback's context.
        guarded(|| W::gone(unsafe { Context::new(ctx) }, seat.ticket));
    }
}

/// The server is done with the wait, and about to send replies: if the client is still there, it gets its answer.
unsafe extern "C" fn on_free<W: Waiting>(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    // SAFETY: the server gives back, once, the reference that `block` made.
    let seat = unsafe { Rc::from_raw(data.cast_const().cast::<Seat<W>>()) };
    // SAFETY: Presence, Liveness; without a client the answer is 0.
    let is_there = unsafe { present(raw::RedisModule_GetClientId)(ctx) } != 0;
    // SAFETY: the server passes this callback's context.
    let ctx = unsafe { Context::new(ctx) };
    guarded(|| match (seat.answer.take(), seat.receipt.take()) {
        (Some(answer), _) if is_there => W::answer(ctx, answer),
        (_, Some(receipt)) => W::missed(ctx, receipt),
        _ => {}
    });
}
