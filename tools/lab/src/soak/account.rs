//! The logs of all front ends, read back: what the cluster must show, at least and at most.
//!
//! | line | what it says |
//! |---|---|
//! | `sessions P` | the session of hit *n* is *P*, then *n*, 16 digits of hexadecimal each |
//! | `asked N` | hits 1 to *N* were handed to the client |
//! | `durable A B`, `counted A B`, `placeless A B` | hits *A* to *B* were answered: counted once |
//! | `number A B N` | hits *A* to *B* were told that they are the numbers from *N* on |
//! | `milestone H AT FIRST` | hit *H* was told that it is milestone *AT*, and number *FIRST* |
//! | `unknown A B`, `refused A B` | nobody knows of these; these were surely not counted |
//! | `added I C:W …`, `settled I` | weight by counter, handed over in interval *I*; the client says that all of it is settled |
//! | `refused-add C W`, `unknown-add C W` | of what was added to counter *C* so much was not counted, or nobody knows |
//! | `edges B +V:W -V:W …` | batch *B* was asked for: edges from vertex *V* to *W* are to be inserted (`+`) and removed (`-`) |
//! | `edges-made B I R` | it was carried out, and *I* edges were added and *R* taken away |
//! | `end` | the log is whole |

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use tidemark_client::SessionId;

use super::edges::{Change, Counts, Edges};
use super::log::{self, HEADER};

/// Hits of one front end.
const HITS_MAX: u64 = 1 << 32;

/// The knowledge of all front ends.
#[derive(Debug, Default)]
pub struct Account(pub Vec<FrontEndAccount>);

/// The knowledge of one front end.
#[derive(Debug, Default)]
pub struct FrontEndAccount {
    sessions: u64,
    /// By number of the hit, from 1 on.
    hits: Vec<HitFate>,
    /// The numbers that hits were told.
    pub numbers: Vec<u64>,
    /// By number of the hit: the milestone, and the number that it was told to be.
    pub milestones: BTreeMap<u64, (u64, u64)>,
    /// By number of the counter.
    pub adds: BTreeMap<usize, Added>,
    open: BTreeMap<u64, Vec<(usize, u64)>>,
    /// By the batches that were carried out.
    pub edges: Edges,
    /// Batches that were carried out; the one that was asked for, and not answered.
    pub edge_changes: u64,
    pub edges_asked: Option<(u64, Vec<Change>)>,
    pub edges_mistold: Vec<Mistold>,
}

/// A batch that was told to have changed another number of edges than it had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mistold {
    pub batch: u64,
    pub told: Counts,
    pub should: Counts,
}

/// A hit of a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitId {
    pub front_end: usize,
    pub number: u64,
}

/// As far as a front end knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitFate {
    /// No answer, or that the result is unknown.
    Unknown,
    Refused,
    /// Counted, and nothing is said of its place, or that it can no longer be learnt.
    Durable,
    /// Counted, and is no milestone.
    Placed,
    Milestone,
}

/// To one counter: weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub asked: u64,
    /// Of that, in intervals that are settled.
    settled: u64,
    pub refused: u64,
    unknown: u64,
}

impl Added {
    /// Durable for sure.
    pub fn least(&self) -> u64 {
        self.settled.saturating_sub(self.refused + self.unknown)
    }

    pub fn most(&self) -> u64 {
        self.asked.saturating_sub(self.refused)
    }
}

impl Account {
    /// Reads the logs of this number of front ends.
    ///
    /// # Errors
    /// A log cannot be read, is not whole, or has an impossible entry.
    pub fn read(dir: &Path, front_ends: usize) -> io::Result<Account> {
        let read = |front_end| {
            let path = log::path(dir, front_end);
            let file = BufReader::new(std::fs::File::open(&path)?);
            FrontEndAccount::read(file).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
        };
        Ok(Account((0..front_ends).map(read).collect::<io::Result<_>>()?))
    }

    /// The hit of a session.
    pub fn hit_of(&self, session: SessionId) -> Option<HitId> {
        let (sessions, number) = parts(session);
        let front_end = self.0.iter().position(|front_end| front_end.sessions == sessions)?;
        self.0[front_end].fate(number).map(|_| HitId { front_end, number })
    }

    pub fn fate(&self, hit: HitId) -> HitFate {
        self.0[hit.front_end].fate(hit.number).expect("somebody was told of it")
    }

    /// Hits that were told to be milestones: the hit, the milestone, the number that it was told to be.
    pub fn milestones(&self) -> impl Iterator<Item = (HitId, u64, u64)> {
        let of = |(front_end, account): (usize, &FrontEndAccount)| {
            let told = account.milestones.iter();
            told.map(move |(&number, &(at, first))| (HitId { front_end, number }, at, first)).collect::<Vec<_>>()
        };
        self.0.iter().enumerate().flat_map(of)
    }

    pub fn hits(&self) -> u64 {
        self.0.iter().map(|front_end| front_end.hits.len() as u64).sum()
    }

    /// Hits of which nothing else is known.
    pub fn hits_that_are(&self, fate: HitFate) -> u64 {
        let of = |front_end: &FrontEndAccount| front_end.hits.iter().filter(|&&of| of == fate).count() as u64;
        self.0.iter().map(of).sum()
    }

    pub fn adds(&self) -> impl Iterator<Item = &Added> {
        self.0.iter().flat_map(|front_end| front_end.adds.values())
    }
}

/// The session of a hit.
pub fn session(sessions: u64, number: u64) -> SessionId {
    SessionId((u128::from(sessions) << 64 | u128::from(number)).to_be_bytes())
}

fn parts(session: SessionId) -> (u64, u64) {
    let whole = u128::from_be_bytes(session.0);
    ((whole >> 64) as u64, whole as u64)
}

impl FrontEndAccount {
    /// Reads a log.
    ///
    /// # Errors
    /// It cannot be read, is not whole, or says what cannot be.
    pub fn read(lines: impl BufRead) -> io::Result<FrontEndAccount> {
        let mut account = FrontEndAccount::default();
        let mut ended = false;
        for (at, line) in (1_u64..).zip(lines.lines()) {
            let line = line?;
            let refused = |why: String| io::Error::other(format!("line {at}: {why}: {line:?}"));
            match (at, line.as_str()) {
                (1, HEADER) => {}
                (1, _) => return Err(refused("no log of a soak".to_owned())),
                _ if ended => return Err(refused("something stands behind the end".to_owned())),
                (_, "end") => ended = true,
                (_, line) => account.take(line).map_err(refused)?,
            }
        }
        if ended { Ok(account) } else { Err(io::Error::other("it is cut off: the last line is not \"end\"")) }
    }

    fn fate(&self, number: u64) -> Option<HitFate> {
        self.hits.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "sessions" => {
                self.sessions = u64::from_str_radix(rest, 16).map_err(|error| error.to_string())?;
                Ok(())
            }
            "asked" => self.asked(numbers(rest)?),
            "durable" | "placeless" => self.told(ends(rest)?, HitFate::Durable),
            "counted" => self.told(ends(rest)?, HitFate::Placed),
            "number" => self.numbered(numbers(rest)?),
            "milestone" => {
                let [hit, at, first] = numbers(rest)?;
                self.milestones.insert(hit, (at, first));
                self.told([hit, hit], HitFate::Milestone)
            }
            "unknown" => self.told(ends(rest)?, HitFate::Unknown),
            "refused" => self.told(ends(rest)?, HitFate::Refused),
            "added" => self.added(rest),
            "settled" => self.settled(numbers(rest)?),
            "edges" => self.asked_for_edges(rest),
            "edges-made" => self.made_edges(numbers(rest)?),
            "refused-add" | "unknown-add" => self.lost(word, numbers(rest)?),
            _ => Err("no line of a log".to_owned()),
        }
    }

    fn asked(&mut self, [number]: [u64; 1]) -> Result<(), String> {
        if number < self.hits.len() as u64 || number > HITS_MAX {
            return Err(format!("{} to {HITS_MAX} allowed", self.hits.len()));
        }
        self.hits.resize(number as usize, HitFate::Unknown);
        Ok(())
    }

    fn numbered(&mut self, [from, to, first]: [u64; 3]) -> Result<(), String> {
        self.told([from, to], HitFate::Placed)?;
        self.numbers.extend((from..=to).map(|hit| first.saturating_add(hit - from)));
        Ok(())
    }

    /// A durable increment stays so, even if its place is unknown afterwards.
    fn told(&mut self, [from, to]: [u64; 2], fate: HitFate) -> Result<(), String> {
        if from == 0 || from > to || to > self.hits.len() as u64 {
            return Err(format!("hits 1 to {} are known", self.hits.len()));
        }
        for (number, hit) in (from..).zip(&mut self.hits[from as usize - 1..to as usize]) {
            *hit = match (*hit, fate) {
                (HitFate::Unknown, fate) => fate,
                (HitFate::Durable, HitFate::Unknown | HitFate::Durable) => HitFate::Durable,
                (HitFate::Durable, HitFate::Placed | HitFate::Milestone) => fate,
                (was, fate) => return Err(format!("hit {number} was {was:?} and is now {fate:?}")),
            };
        }
        Ok(())
    }

    fn added(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.split(' ');
        let [interval] = numbers(words.next().unwrap_or_default())?;
        let pair = |word: &str| {
            let (counter, weight) = word.split_once(':')?;
            Some((counter.parse().ok()?, weight.parse().ok()?))
        };
        let weights = words.map(pair).collect::<Option<Vec<(usize, u64)>>>().ok_or("COUNTER:WEIGHT expected")?;
        weights.iter().for_each(|&(counter, weight)| self.adds.entry(counter).or_default().asked += weight);
        match self.open.insert(interval, weights) {
            None => Ok(()),
            Some(_) => Err("the interval is there already".to_owned()),
        }
    }

    fn settled(&mut self, [interval]: [u64; 1]) -> Result<(), String> {
        let weights = self.open.remove(&interval).ok_or("there is no such interval")?;
        weights.iter().for_each(|(counter, weight)| self.adds.entry(*counter).or_default().settled += weight);
        Ok(())
    }

    fn asked_for_edges(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.split(' ');
        let [batch] = numbers(words.next().unwrap_or_default())?;
        let change = |word: &str| {
            let (inserts, edge) = match word.split_at_checked(1)? {
                ("+", edge) => (true, edge),
                ("-", edge) => (false, edge),
                _ => return None,
            };
            let (from, to) = edge.split_once(':')?;
            Some(Change { inserts, from: from.parse().ok()?, to: to.parse().ok()? })
        };
        let changes = words.map(change).collect::<Option<Vec<Change>>>().ok_or("+FROM:TO or -FROM:TO expected")?;
        match self.edges_asked.replace((batch, changes)) {
            None => Ok(()),
            Some((before, _)) => Err(format!("batch {before} is not answered")),
        }
    }

    fn made_edges(&mut self, [batch, inserted, removed]: [u64; 3]) -> Result<(), String> {
        let (_, changes) = self.edges_asked.take_if(|(asked, _)| *asked == batch).ok_or("there is no such batch")?;
        let told = Counts { inserted, removed };
        let should = self.edges.take(&changes)?;
        self.edge_changes += 1;
        if told != should {
            self.edges_mistold.push(Mistold { batch, told, should });
        }
        Ok(())
    }

    fn lost(&mut self, word: &str, [counter, weight]: [u64; 2]) -> Result<(), String> {
        let added = self.adds.entry(counter as usize).or_default();
        match word {
            "refused-add" => added.refused += weight,
            _ => added.unknown += weight,
        }
        Ok(())
    }
}

fn numbers<const N: usize>(text: &str) -> Result<[u64; N], String> {
    let parsed = text.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
    parsed.ok().and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| format!("{N} numbers expected"))
}

fn ends(text: &str) -> Result<[u64; 2], String> {
    numbers(text)
}

#[cfg(test)]
pub mod tests {
    use super::super::log::{Entry, LogFile, Told};
    use super::*;
    use crate::bench::cluster::Folder;

    /// An account of one front end for each text, with its lines between header and end.
    pub fn account(logs: &[&str]) -> Account {
        let whole = |lines: &&str| FrontEndAccount::read(format!("{HEADER}\n{lines}end\n").as_bytes());
        Account(logs.iter().map(whole).collect::<io::Result<_>>().unwrap())
    }

    fn refusal(text: &str) -> String {
        FrontEndAccount::read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = Folder::new().unwrap();
        let file = LogFile::create(folder.path(), 0, 0xabc, 1_000_000).unwrap();
        let log = file.log();
        let milestone = Told::Milestone { at: 40, first: 40 };
        let told =
            [Told::Durable, Told::Counted, Told::Number(39), milestone, Told::Placeless, Told::Unknown, Told::Refused];
        for (number, told) in (1..).zip(told) {
            assert!(log.write(Entry::Asked(number)) && log.write(Entry::Told(number, told)));
        }
        log.write(Entry::Asked(8));
        log.write(Entry::Added { interval: 1, weights: BTreeMap::from([(0, 5), (3, 2)]) });
        log.write(Entry::UnknownAdd { counter: 3, weight: 1 });
        log.write(Entry::Settled { interval: 1 });
        log.write(Entry::Added { interval: 2, weights: BTreeMap::from([(3, 4)]) });
        log.write(Entry::RefusedAdd { counter: 0, weight: 2 });
        let change = |inserts, from, to| Change { inserts, from, to };
        log.write(Entry::Edges {
            batch: 1,
            changes: vec![change(true, 0, 4), change(true, 1, 4), change(false, 0, 4)],
        });
        log.write(Entry::EdgesMade { batch: 1, counts: Counts { inserted: 2, removed: 1 } });
        log.write(Entry::Edges { batch: 2, changes: vec![change(false, 1, 4)] });
        let bytes = file.finish().unwrap();
        assert_eq!(bytes, std::fs::metadata(log::path(folder.path(), 0)).unwrap().len());

        let account = Account::read(folder.path(), 1).unwrap();
        let fates = [HitFate::Durable, HitFate::Placed, HitFate::Milestone, HitFate::Unknown, HitFate::Refused];
        assert_eq!((account.hits(), fates.map(|fate| account.hits_that_are(fate))), (8, [2, 2, 1, 2, 1]));
        assert_eq!(account.0[0].numbers, [39]);
        let fourth = HitId { front_end: 0, number: 4 };
        assert_eq!(account.milestones().collect::<Vec<_>>(), [(fourth, 40, 40)]);
        let adds: Vec<_> = account.adds().map(|added| (added.least(), added.most())).collect();
        assert_eq!(adds, [(3, 3), (1, 6)]);
        let FrontEndAccount { edges, edge_changes, edges_asked, .. } = &account.0[0];
        assert_eq!((edges.len(), *edge_changes, edges_asked), (1, 1, &Some((2, vec![change(false, 1, 4)]))));
        assert_eq!(account.hit_of(session(0xabc, 4)), Some(fourth));
        assert_eq!(account.hit_of(session(0xabc, 9)), None, "no such hit");
        assert_eq!(account.hit_of(session(0xabd, 4)), None, "no such front end");
    }

    #[test]
    fn a_hit_that_was_durable_stays_so_whatever_nobody_knows_afterwards() {
        let account = account(&["asked 2\ndurable 1 2\nunknown 1 1\n"]);
        assert_eq!(account.hits_that_are(HitFate::Durable), 2);
    }

    #[test]
    fn a_log_that_cannot_be_is_refused() {
        for (lines, why) in [
            ("asked 2\ncounted 1 3\n", "hits 1 to 2 are known"),
            ("asked 2\ncounted 1 2\ncounted 2 2\n", "hit 2 was Placed"),
            ("asked 2\ndurable 1 1\nrefused 1 1\n", "hit 1 was Durable and is now Refused"),
            ("asked 2\nrefused 1 1\ndurable 1 1\n", "hit 1 was Refused"),
            ("asked 2\nasked 1\n", "2 to"),
            ("settled 1\n", "no such interval"),
            ("added 1 0:1\nadded 1 0:1\n", "there already"),
            ("added 1 0-1\n", "COUNTER:WEIGHT"),
            ("counted 1\n", "2 numbers expected"),
            ("edges 1 0:1\n", "+FROM:TO"),
            ("edges 1 +0:1\nedges 2 +0:2\n", "batch 1 is not answered"),
            ("edges 1 +0:1\nedges-made 2 1 0\n", "no such batch"),
            ("edges 1 -0:1\nedges-made 1 0 1\n", "from 0 to 1 cannot be changed so"),
            ("edges 1 +2:1\nedges-made 1 1 0\n", "from 2 to 1 cannot be changed so"),
            ("anything\n", "no line of a log"),
            ("end\n", "behind the end"),
        ] {
            let said = refusal(&format!("{HEADER}\n{lines}end\n"));
            assert!(said.contains(why), "{lines:?}: {said}");
        }
        assert!(refusal(&format!("{HEADER}\nasked 2\n")).contains("cut off"));
        assert!(refusal("asked 2\n").contains("no log of a soak"));
    }
}
