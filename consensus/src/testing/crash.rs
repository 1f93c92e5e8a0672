//! A disk that dies at a chosen operation and remembers what it had promised.
//!
//! Writes go to a page cache; a sync makes them durable. At the crash point the operation fails and so does every later one. The synced
//! image survives, plus, if asked for, the oldest of the unsynced writes: a real disk may have written any of them.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

/// When the disk dies. Counted from 1; the operation itself fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Never.
    Never,
    /// At the n-th sync.
    Sync(u64),
    /// At the n-th write, of which half the bytes reach the cache.
    Write(u64),
    /// From the n-th write on the device is full: writes and growth fail, the process lives.
    Full(u64),
}

#[derive(Debug, Default)]
struct State {
    cache: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    syncs: u64,
    writes: u64,
    dead: bool,
}

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

/// A cloneable handle on one simulated disk; see the module.
#[derive(Clone, Debug)]
pub struct CrashDisk {
    state: Arc<Mutex<State>>,
    point: CrashPoint,
}

impl CrashDisk {
    /// An empty disk that dies at `point`.
    pub fn new(point: CrashPoint) -> Self {
        Self { state: Arc::default(), point }
    }

    /// The state after a reboot: the synced image and the `kept` oldest unsynced changes, on a disk that dies at `point`.
    pub fn reboot(&self, kept: usize, point: CrashPoint) -> Self {
        let state = self.state.lock().expect("poisoned");
        let mut image = state.durable.clone();
        state.unsynced.iter().take(kept).for_each(|change| change.apply(&mut image));
        let state = State { cache: image.clone(), durable: image, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), point }
    }

    /// Operations so far, as (syncs, writes).
    pub fn operations(&self) -> (u64, u64) {
        let state = self.state.lock().expect("poisoned");
        (state.syncs, state.writes)
    }

    /// Whether the crash point was reached.
    pub fn is_dead(&self) -> bool {
        self.state.lock().expect("poisoned").dead
    }
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Length(length) => image.resize(*length as usize, 0),
            Self::Write(offset, data) => {
                let start = *offset as usize;
                image[start..start + data.len()].copy_from_slice(data);
            }
        }
    }
}

impl State {
    fn check_alive(&self) -> Result<(), io::Error> {
        if self.dead { Err(io::Error::other("the disk has died")) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cache);
        self.unsynced.push(change);
    }

    fn die(&mut self) -> io::Error {
        self.dead = true;
        io::Error::other("the disk dies")
    }
}

impl StorageBackend for CrashDisk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.state.lock().expect("poisoned").cache.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.state.lock().expect("poisoned");
        state.check_alive()?;
        let start = offset as usize;
        let data = state.cache.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.state.lock().expect("poisoned");
        state.check_alive()?;
        if matches!(self.point, CrashPoint::Full(n) if state.writes >= n) && len > state.cache.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.change(Change::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.state.lock().expect("poisoned");
        state.check_alive()?;
        state.syncs += 1;
        if self.point == CrashPoint::Sync(state.syncs) {
            return Err(state.die());
        }
        let State { cache, durable, unsynced, .. } = &mut *state;
        durable.resize(cache.len(), 0);
        for change in unsynced.drain(..) {
            change.apply(durable);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.state.lock().expect("poisoned");
        state.check_alive()?;
        state.writes += 1;
        let writes = state.writes;
        match self.point {
            CrashPoint::Full(n) if writes >= n => Err(io::ErrorKind::StorageFull.into()),
            CrashPoint::Write(n) if writes == n => {
                state.change(Change::Write(offset, data[..data.len() / 2].to_vec()));
                Err(state.die())
            }
            CrashPoint::Never | CrashPoint::Sync(_) | CrashPoint::Write(_) | CrashPoint::Full(_) => {
                state.change(Change::Write(offset, data.to_vec()));
                Ok(())
            }
        }
    }
}
