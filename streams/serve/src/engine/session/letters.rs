//! Dead letters that are replayed or dropped while the server runs: one blob at a time, between other work of the owner.

use super::Session;
use crate::dead_letters;
use crate::engine::{LetterAction, LetterBlobs, LettersRequest, Problem, SettleError, SettleRequest, SettledBlob};
use std::time::Instant;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Level};
use tidemark_streams_core::manifest::{Command, Outcome};
use tidemark_streams_core::owner::{Input, Letters};
use tidemark_streams_store::directory::live_blob;
use tokio::sync::oneshot;

/// Requests about dead letters.
#[derive(Default)]
pub(super) struct LetterWork {
    /// Requests for blobs, each with the log's end when it came.
    asked: Vec<Asked>,
    waiting: Vec<SettleRequest>,
    under_way: Option<UnderWay>,
    /// The owner knows that requests wait.
    is_announced: bool,
}

struct Asked {
    request: LettersRequest,
    row: u64,
    index: u64,
}

/// The letters of a blob that are on their way out.
struct UnderWay {
    key: BlobKey,
    answer: oneshot::Sender<Result<SettledBlob, SettleError>>,
}

impl Session<'_> {
    pub(super) fn ask_letters(&mut self, request: LettersRequest) {
        let row = self.log.durable_row();
        let index = self.log.progress().durable;
        self.letter_work.asked.push(Asked { request, row, index });
    }

    pub(super) fn ask_settle(&mut self, request: SettleRequest) {
        self.letter_work.waiting.push(request);
    }

    /// Answers which blobs of dead letters there are, and begins to settle the next blob.
    pub(super) fn work_on_letters(&mut self) -> Result<(), Problem> {
        // Nobody waits for the answer of a request whose client is gone.
        self.letter_work.asked.retain(|asked| !asked.request.answer.is_closed());
        self.letter_work.waiting.retain(|request| !request.answer.is_closed());
        self.answer_letters();
        self.end_unsettled();
        let now = Instant::now();
        let late: Vec<SettleRequest> = self.letter_work.waiting.extract_if(.., |request| now >= request.by).collect();
        for request in late {
            let _ = request.answer.send(Ok(SettledBlob::TimeIsOver));
        }
        while self.letter_work.under_way.is_none() {
            if !self.owner.takes_letters() && !self.owner.is_paused() {
                break;
            }
            if self.letter_work.waiting.is_empty() {
                break;
            }
            let request = self.letter_work.waiting.remove(0);
            self.begin_settle(request);
            self.settle()?;
        }
        self.announce();
        Ok(())
    }

    /// Tells the owner whether requests wait, which then gives letters a turn between two other jobs.
    fn announce(&mut self) {
        let waits = !self.letter_work.waiting.is_empty();
        if waits != self.letter_work.is_announced {
            self.letter_work.is_announced = waits;
            let now = self.now();
            self.owner.handle(now, Input::LettersWait(waits));
        }
    }

    /// Answers a request whose letters are no longer under way, though no commit took them out.
    fn end_unsettled(&mut self) {
        let is_over = |under_way: &UnderWay| !self.owner.is_settling(&under_way.key);
        if let Some(under_way) = self.letter_work.under_way.take_if(|under_way| is_over(under_way)) {
            let _ = under_way.answer.send(Ok(SettledBlob::Replaced));
        }
    }

    fn answer_letters(&mut self) {
        let committed = self.committed();
        let is_paused = self.owner.is_paused();
        let is_ready = |asked: &mut Asked| {
            !asked.request.flushes || is_paused || committed >= asked.row || Instant::now() >= asked.request.by
        };
        let ready: Vec<Asked> = self.letter_work.asked.extract_if(.., is_ready).collect();
        for Asked { request, row, .. } in ready {
            let live = self.host.manifest().live();
            let mut metas: Vec<BlobMeta> = live.filter(|meta| meta.level == Level::DeadLetters).collect();
            metas.sort_unstable_by_key(|meta| meta.key);
            let _ = request.answer.send(Ok(LetterBlobs { metas, unwritten: row.saturating_sub(committed) }));
        }
        if self.letter_work.asked.iter().any(|asked| self.next_index > asked.index) {
            let now = self.now();
            self.owner.handle(now, Input::Flush);
        }
    }

    fn begin_settle(&mut self, request: SettleRequest) {
        if let Err(error) = self.check_pauses(request.action) {
            let _ = request.answer.send(Err(error));
            return;
        }
        let SettleRequest { key, letters, tried, answer, .. } = request;
        if live_blob(self.host.manifest(), &key).is_none() {
            let _ = answer.send(Ok(SettledBlob::Replaced));
            return;
        }
        let now = self.now();
        let owner = &mut self.owner;
        dead_letters::settle(&letters, &tried, |letters| owner.handle(now, Input::Settle(Letters { key, letters })));
        match self.owner.is_settling(&key) {
            true => self.letter_work.under_way = Some(UnderWay { key, answer }),
            false => drop(answer.send(Ok(SettledBlob::Done { replayed: 0, dropped: 0 }))),
        }
    }

    fn check_pauses(&self, action: LetterAction) -> Result<(), SettleError> {
        if self.owner.is_paused() {
            return Err(SettleError::Paused);
        }
        let types = self.node.names().types;
        let pauses = self.host.manifest().pauses();
        let paused = pauses.types().find(|(name, _)| types.find(name).is_some());
        match (action, paused) {
            (LetterAction::Replay, Some((name, _))) => Err(SettleError::TypePaused(name.to_owned())),
            (LetterAction::Replay, None) | (LetterAction::Drop, _) => Ok(()),
        }
    }

    /// Answers a request once a commit has settled its letters. The bound of dead letters sees the change before the sender does.
    pub(super) fn note_settled(&mut self, command: &Command, outcome: &Outcome) {
        let (Command::Commit(commit), Outcome::Commit { result: Ok(_), .. }) = (command, outcome) else { return };
        let Some(settled) = commit.settled else { return };
        let is_meant = |under_way: &UnderWay| commit.remove.contains(&under_way.key);
        let Some(under_way) = self.letter_work.under_way.take_if(|under_way| is_meant(under_way)) else { return };
        self.publish();
        let _ = under_way.answer.send(Ok(SettledBlob::Done { replayed: settled.replayed, dropped: settled.dropped }));
    }
}
