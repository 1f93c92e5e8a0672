//! The thread that forks children.
//!
//! The kernel kills a child when the thread that forked it ends, not when the process does. Threads of a runtime come and go, so one
//! thread forks all children of a pool. It starts with the first child, and ends with the pool.

use std::io;
use std::process::Command as StdCommand;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A child to fork.
struct Fork {
    command: StdCommand,
    /// The runtime that waits for the child's end.
    runtime: Handle,
    forked: oneshot::Sender<io::Result<Child>>,
}

/// Forks children on a thread of its own.
#[derive(Debug, Default)]
pub struct Starter {
    forks: Mutex<Option<Sender<Fork>>>,
}

impl Starter {
    /// Starts a program. It is killed when its handle is dropped.
    pub async fn start(&self, command: StdCommand) -> io::Result<Child> {
        let (sender, receiver) = oneshot::channel();
        let fork = Fork { command, runtime: Handle::current(), forked: sender };
        let ended = || io::Error::other("the thread that starts children has ended");
        self.forks()?.send(fork).map_err(|_| ended())?;
        receiver.await.map_err(|_| ended())?
    }

    /// The way to the thread, which starts if it does not run yet.
    fn forks(&self) -> io::Result<Sender<Fork>> {
        let mut forks = self.forks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(forks) = &*forks {
            return Ok(forks.clone());
        }
        let (sender, receiver) = mpsc::channel::<Fork>();
        let thread = std::thread::Builder::new().name("sql-starter".to_owned());
        thread.spawn(move || receiver.into_iter().for_each(Fork::carry_out))?;
        Ok(forks.insert(sender).clone())
    }
}

impl Fork {
    fn carry_out(self) {
        let _entered = self.runtime.enter();
        let child = Command::from(self.command).kill_on_drop(true).spawn();
        // A caller that went away does not take the child, which is killed then.
        let _ = self.forked.send(child);
    }
}
