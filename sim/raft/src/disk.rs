//! A disk in memory that keeps what was synced, and of what was written since as much as chance wants.

use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_sim::engine::Lost;
use tidemark_sim::rng::Rng;

#[derive(Debug, Default)]
struct State {
    cache: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// Takes no operation any more.
    dead: bool,
    /// Dies after this number of further writes.
    writes_left: Option<u64>,
    full: bool,
}

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Change {
    /// Of a write that is torn, half.
    fn apply(&self, image: &mut Vec<u8>, torn: bool) {
        match self {
            Change::Length(length) => image.resize(*length as usize, 0),
            Change::Write(offset, data) => {
                let start = *offset as usize;
                let len = if torn { data.len() / 2 } else { data.len() };
                image[start..start + len].copy_from_slice(&data[..len]);
            }
        }
    }
}

/// A cloneable handle on one disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("a writer panicked")
    }

    /// The machine stops: this handle takes nothing any more, and what is left is on the disk that is returned.
    pub fn crash(&self, rng: &mut Rng) -> (Disk, Lost) {
        let mut state = self.state();
        state.dead = true;
        let unsynced = std::mem::take(&mut state.unsynced);
        let kept = rng.below(unsynced.len() as u64 + 1) as usize;
        let torn = kept < unsynced.len() && rng.per_10k(5_000);
        let mut image = std::mem::take(&mut state.durable);
        unsynced[..kept].iter().for_each(|change| change.apply(&mut image, false));
        if torn {
            unsynced[kept].apply(&mut image, true);
        }
        let left = State { cache: image.clone(), durable: image, ..State::default() };
        (Disk(Arc::new(Mutex::new(left))), Lost { writes: unsynced.len() - kept, torn })
    }

    pub fn fail_after(&self, writes: u64) {
        self.state().writes_left = Some(writes);
    }

    pub fn fill(&self, full: bool) {
        self.state().full = full;
    }

    /// Does as it should from here on, unless it is dead.
    pub fn spare(&self) {
        let mut state = self.state();
        (state.writes_left, state.full) = (None, false);
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("the disk has died")) } else { Ok(()) }
    }

    /// Whether a write is taken; the disk may die of it.
    fn check_write(&mut self, grows: bool) -> io::Result<()> {
        self.check()?;
        if self.full && grows {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match &mut self.writes_left {
            Some(0) => {
                self.dead = true;
                Err(io::Error::other("the disk dies"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cache, false);
        self.unsynced.push(change);
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().cache.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        state.check()?;
        let start = offset as usize;
        let data = state.cache.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let grows = len > state.cache.len() as u64;
        state.check_write(grows)?;
        state.change(Change::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        let State { cache, durable, unsynced, .. } = &mut *state;
        for change in unsynced.drain(..) {
            change.apply(durable, false);
        }
        debug_assert_eq!(cache.len(), durable.len(), "every change was applied to both");
        Ok(())
    }

    /// A full device refuses what replaces old pages too: ours are written anew.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.check_write(true)?;
        state.change(Change::Write(offset, data.to_vec()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &Disk, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        disk.read(0, &mut out).expect("a disk that lives");
        out
    }

    #[test]
    fn what_was_synced_stays_and_the_oldest_of_the_rest_may() {
        let mut least = 3;
        let mut most = 0;
        let mut torn = false;
        for seed in 0..50 {
            let disk = Disk::default();
            disk.set_len(4).expect("room");
            disk.write(0, &[1; 4]).expect("room");
            disk.sync_data().expect("a disk that lives");
            disk.write(0, &[2, 2]).expect("room");
            disk.write(2, &[2, 2]).expect("room");
            let (left, lost) = disk.crash(&mut Rng::new(seed));
            assert!(disk.write(0, &[9]).is_err() && disk.sync_data().is_err(), "it is dead");
            let image = read(&left, 4);
            let expected: &[[u8; 4]] = &[[1, 1, 1, 1], [2, 1, 1, 1], [2, 2, 1, 1], [2, 2, 2, 1], [2, 2, 2, 2]];
            assert!(expected.iter().any(|expected| image == expected), "{image:?}");
            (least, most) = (least.min(lost.writes), most.max(lost.writes));
            torn |= lost.torn;
        }
        assert_eq!((least, most, torn), (0, 2, true));
    }

    #[test]
    fn it_dies_when_it_is_told_to_and_is_full_until_it_is_not() {
        let disk = Disk::default();
        disk.set_len(2).expect("room");
        disk.fill(true);
        assert!(disk.set_len(3).is_err_and(|error| error.kind() == io::ErrorKind::StorageFull));
        assert!(disk.write(0, &[1]).is_err_and(|error| error.kind() == io::ErrorKind::StorageFull));
        disk.fill(false);
        disk.fail_after(1);
        disk.write(0, &[1]).expect("the last one");
        assert!(disk.write(0, &[1]).is_err() && disk.len().is_ok() && disk.read(0, &mut [0]).is_err());
    }
}
