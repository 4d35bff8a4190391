//! Mail between threads: an unbounded channel, and the wake-up of the engine that reads it.
//!
//! A reactor without an engine (none of its connections has come yet) blocks on the channel
//! itself.

use std::sync::atomic::{fence, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{unbounded, Receiver, Sender};

use crate::engine::Wake;
use crate::service::Incoming;
use crate::stats::ReactorStats;

/// What a reactor can be sent.
#[derive(Debug)]
pub(crate) enum Mail<M> {
    /// For the service.
    Message(M),
    /// A connection that another reactor accepted.
    Connection(Incoming),
    /// Stop accepting, finish what is in flight within the time given, end.
    Drain(Duration),
    /// Tell what you hold.
    Stats(Sender<ReactorStats>),
}

/// Sends mail to one reactor. Cloning gives another handle to the same reactor.
pub struct Address<M> {
    sender: Sender<Mail<M>>,
    waker: Arc<OnceLock<Arc<dyn Wake>>>,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Address {
            sender: self.sender.clone(),
            waker: Arc::clone(&self.waker),
        }
    }
}

impl<M> std::fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({} unread)", self.sender.len())
    }
}

impl<M> Address<M> {
    /// Sends the service a message. Gives it back if the reactor has ended.
    pub fn send(&self, message: M) -> Result<(), M> {
        self.post(Mail::Message(message))
            .map_err(|mail| match mail {
                Mail::Message(message) => message,
                Mail::Connection(_) | Mail::Drain(_) | Mail::Stats(_) => {
                    unreachable!("the mail that was sent comes back")
                }
            })
    }

    pub(crate) fn post(&self, mail: Mail<M>) -> Result<(), Mail<M>> {
        self.sender.send(mail).map_err(|error| error.0)?;
        // Pairs with the fence in `wake_by`: either this thread sees the waker, or the reactor
        // sees the mail before it first sleeps.
        fence(Ordering::SeqCst);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
        Ok(())
    }
}

/// The reactor's end.
pub struct Mailbox<M> {
    receiver: Receiver<Mail<M>>,
    waker: Arc<OnceLock<Arc<dyn Wake>>>,
}

impl<M> std::fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mailbox({} unread)", self.receiver.len())
    }
}

impl<M> Mailbox<M> {
    /// Has mail wake the engine from now on. What came before must be looked for.
    pub(crate) fn wake_by(&self, waker: Arc<dyn Wake>) {
        // A mailbox belongs to one reactor, which calls this once.
        let _ = self.waker.set(waker);
        fence(Ordering::SeqCst);
    }

    /// The next piece of mail, if there is one.
    pub(crate) fn take(&self) -> Option<Mail<M>> {
        self.receiver.try_recv().ok()
    }

    /// Waits for mail, blocking the thread. `None`: nobody is left who could send any.
    pub(crate) fn wait(&self) -> Option<Mail<M>> {
        self.receiver.recv().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }
}

impl<M> Drop for Mailbox<M> {
    /// Nobody serves the connections that are still in it: their clients are to know.
    fn drop(&mut self) {
        while let Some(mail) = self.take() {
            if let Mail::Connection(incoming) = mail {
                crate::sys::close(incoming.fd);
            }
        }
    }
}

/// A mailbox and an address for it.
#[must_use]
pub fn mailbox<M>() -> (Address<M>, Mailbox<M>) {
    let (sender, receiver) = unbounded();
    let waker = Arc::new(OnceLock::new());
    (
        Address {
            sender,
            waker: Arc::clone(&waker),
        },
        Mailbox { receiver, waker },
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn mail_is_kept_in_order_and_wakes_once_there_is_a_waker() {
        let (address, mailbox) = mailbox();
        assert_eq!(address.send(1), Ok(()));
        let counter = Arc::new(Counter(AtomicUsize::new(0)));
        let waker: Arc<dyn Wake> = Arc::clone(&counter) as Arc<dyn Wake>;
        mailbox.wake_by(waker);
        assert_eq!(address.clone().send(2), Ok(()));
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        let numbers: Vec<_> = std::iter::from_fn(|| mailbox.take()).collect();
        assert!(matches!(numbers[..], [Mail::Message(1), Mail::Message(2)]));
        drop(mailbox);
        assert_eq!(address.send(3), Err(3));
    }
}
