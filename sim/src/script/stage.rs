//! The stage of a script: groups with their logs, one ledger, a view per data centre, and messages that wait.

mod eras;
mod totals;

use super::words;
use eras::Image;
use std::collections::BTreeMap;
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{ClientId, CounterName, GroupId, Half, LogIndex, SessionId};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::limits::{IDS_GRACE_AGES, IDS_KEPT_AGES};
use tidemark_proto::msg::{Batch, GroupCmd, GroupEntry, Item, ItemId, Keyed, LedgerCmd, Report, ToGroup};
use tidemark_proto::time::WallMs;

type Done = Result<Vec<String>, String>;

/// A waiting message, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Message(pub u32);

#[derive(Clone, Debug)]
enum Held {
    ToLedger(LedgerCmd),
    ToGroup(String, GroupCmd),
}

/// A data centre: a group of one lane, its log, its view's promise.
#[derive(Debug)]
struct Site {
    id: GroupId,
    group: Group,
    log: Vec<GroupEntry>,
    /// Appended and not committed.
    tail: Vec<GroupEntry>,
    boots: u64,
    cut: bool,
    reports: u64,
}

/// A client's stream at one group.
#[derive(Clone, Debug, Default)]
struct Stream {
    seq: u64,
    last: Option<Batch>,
}

#[derive(Debug, Default)]
pub struct Stage {
    sites: BTreeMap<String, Site>,
    ledger: Ledger,
    index: u64,
    held: BTreeMap<u32, Held>,
    sent: u32,
    streams: BTreeMap<(String, String), Stream>,
    sessions: u64,
    copies: u64,
    images: BTreeMap<String, Image>,
    totals: totals::Totals,
    /// The time of the leader's clock.
    clock: Option<WallMs>,
}

impl Stage {
    /// The counter that every script counts.
    pub fn counter(&self) -> CounterName {
        CounterName::new("t", b"n").expect("a valid name")
    }

    pub fn check_invariants(&self) {
        self.ledger.check_invariants();
        self.totals.check_invariants();
        self.sites.values().for_each(|site| site.group.check_invariants());
    }

    fn site(&mut self, name: &str) -> Result<&mut Site, String> {
        self.sites.get_mut(name).ok_or_else(|| format!("no data centre {name:?}"))
    }

    fn name_of(&self, id: GroupId) -> String {
        self.sites.iter().find(|(_, site)| site.id == id).map_or_else(|| id.to_string(), |(name, _)| name.clone())
    }

    // ---- data centres ----

    /// A data centre that is registered from the start.
    pub fn add_dc(&mut self, name: &str) -> Done {
        self.join(name)?;
        let hello = self.site(name)?.group.hello();
        self.ledger_applies(LedgerCmd::Hello(hello))?;
        self.confirm(name)?;
        Ok(Vec::new())
    }

    /// A data centre with a group that has started and sent nothing yet.
    pub fn join(&mut self, name: &str) -> Done {
        let id = self.next_id(name);
        let group = Group::new(GroupConfig::new(id, 1));
        let log = Vec::new();
        let tail = Vec::new();
        self.sites.insert(name.to_owned(), Site { id, group, log, tail, boots: 0, cut: false, reports: 0 });
        if self.ledger.namespaces().next().is_none() {
            self.ledger_applies(LedgerCmd::Namespace("t".into()))?;
        }
        self.boot(name)?;
        Ok(vec![format!("{name} starts")])
    }

    fn boot(&mut self, name: &str) -> Done {
        let site = self.site(name)?;
        site.boots += 1;
        let nonce = site.boots;
        self.append(name, GroupCmd::Boot { nonce, lanes: 1 })?;
        self.commit(name)
    }

    /// The ledger's answer to the group's greeting, delivered at once.
    fn confirm(&mut self, name: &str) -> Done {
        let id = self.site(name)?.id;
        let confirmation = self.ledger.confirmation(id).ok_or_else(|| format!("{name} is not registered"))?;
        self.append(name, GroupCmd::Ledger(confirmation))?;
        self.commit(name)
    }

    /// `GROUP@COPY`: a copy of the group's disk, on which a process starts while the original runs on.
    pub fn copy(&mut self, words: &str) -> Done {
        let (from, to) = words.split_once('@').ok_or("GROUP@COPY")?;
        self.copies += 1;
        let boots = 100 * self.copies;
        let original = self.site(from)?;
        let id = original.id;
        let log = original.log.clone();
        let reports = original.reports;
        let group = Group::new(GroupConfig::new(id, 1));
        self.sites.insert(to.to_owned(), Site { id, group, log, tail: Vec::new(), boots, cut: false, reports });
        self.crash(to)?;
        Ok(vec![format!("{to} starts on a copy of the disk of {from}")])
    }

    pub fn partition(&mut self, name: &str) -> Done {
        self.site(name)?.cut = true;
        Ok(vec![format!("{name} is cut off")])
    }

    pub fn heal(&mut self, name: &str) -> Done {
        self.site(name)?.cut = false;
        Ok(vec![format!("{name} is back")])
    }

    // ---- a group's log ----

    /// Appends a command; it counts for nothing until it is committed.
    pub fn append(&mut self, name: &str, cmd: GroupCmd) -> Done {
        let counter = self.counter();
        let site = self.site(name)?;
        let cell = site.group.cell_of(&counter, Half::Up);
        let known = site.group.table().find(&cell).is_some() || !site.tail.is_empty();
        let names = cmd.batch().is_some_and(|batch| !batch.items.is_empty()) && !known;
        let new_cells = if names { vec![cell] } else { Vec::new() };
        let entry = GroupEntry { now: WallMs(0), first_new_slot: site.group.table().len(), new_cells, cmds: vec![cmd] };
        site.tail.push(entry);
        Ok(Vec::new())
    }

    /// Commits and applies everything that was appended.
    pub fn commit(&mut self, name: &str) -> Done {
        let site = self.site(name)?;
        let tail = std::mem::take(&mut site.tail);
        for entry in tail {
            site.log.push(entry);
            site.group.apply(LogIndex(site.log.len() as u64), &site.log[site.log.len() - 1]);
        }
        let mut effects = Vec::new();
        while let Some(effect) = site.group.poll_effect() {
            effects.push(effect);
        }
        Ok(effects.iter().filter_map(|effect| words::effect(name, effect)).collect())
    }

    /// The process dies: what was not committed is lost. It starts again from its log.
    pub fn crash(&mut self, name: &str) -> Done {
        let site = self.site(name)?;
        let lost = site.tail.len();
        site.tail.clear();
        site.group = Group::new(GroupConfig::new(site.id, 1));
        for (at, entry) in site.log.iter().enumerate() {
            site.group.apply(LogIndex(at as u64 + 1), entry);
        }
        while site.group.poll_effect().is_some() {}
        self.boot(name)?;
        Ok(vec![format!("{name} crashes, loses {lost} entries, starts again")])
    }

    // ---- clients ----

    fn client(name: &str) -> ClientId {
        ClientId(name.bytes().fold(0, |id, byte| id << 8 | u128::from(byte)))
    }

    /// The next batch of a client's stream at a group; every item has its own session.
    pub fn next_batch(&mut self, group: &str, client: &str, weights: &[u64]) -> Result<GroupCmd, String> {
        let counter = self.counter();
        let group_of = &self.site(group)?.group;
        let slot = group_of.table().find(&group_of.cell_of(&counter, Half::Up)).unwrap_or(0);
        let mut items = Vec::new();
        for &delta in weights {
            self.sessions += 1;
            let session = Some(SessionId(u128::from(self.sessions).to_be_bytes()));
            items.push(Item { slot, delta, session });
        }
        let stream = self.streams.entry((group.to_owned(), client.to_owned())).or_default();
        stream.seq += 1;
        let batch =
            Batch { client: Self::client(client), lane: 0, seq: stream.seq, since: 0, items, times: Vec::new() };
        stream.last = Some(batch.clone());
        Ok(GroupCmd::Batch(batch))
    }

    /// A client's next batch at a group, in which each increment has an id; an increment of weight 0 fences its id.
    pub fn once(&mut self, group: &str, client: &str, items: &[(&str, u64)]) -> Done {
        let weights: Vec<u64> = items.iter().map(|(_, weight)| *weight).filter(|weight| *weight > 0).collect();
        let GroupCmd::Batch(batch) = self.next_batch(group, client, &weights)? else {
            return Err("no batch".into());
        };
        let id = |&(id, weight): &(&str, u64)| {
            let mut digest = [0; 16];
            let mut content = [0; 8];
            digest.iter_mut().zip(id.bytes()).for_each(|(to, byte)| *to = byte);
            content.copy_from_slice(&weight.to_be_bytes());
            ItemId { digest, content, items: u8::from(weight > 0) }
        };
        let asked = self.site(group)?.group.age();
        let ids = items.iter().map(id).collect();
        self.append(group, GroupCmd::Keyed(Keyed { batch, asked, ids }))?;
        self.commit(group)
    }

    /// A group grows older by a day and what is kept beyond it.
    pub fn older(&mut self, group: &str) -> Done {
        for _ in 0..=IDS_KEPT_AGES + IDS_GRACE_AGES {
            let age = self.site(group)?.group.age() + 1;
            self.append(group, GroupCmd::Age(age))?;
            self.commit(group)?;
        }
        let ids = self.site(group)?.group.ids();
        Ok(vec![format!("{group} is a day older and remembers {ids} ids")])
    }

    /// `CLIENT@GROUP`: its last batch once more.
    pub fn again(&mut self, who: &str) -> Done {
        let (client, group) = who.split_once('@').ok_or("CLIENT@GROUP")?;
        let stream = self.streams.get(&(group.to_owned(), client.to_owned())).ok_or("no such stream")?;
        let batch = stream.last.clone().ok_or("no batch")?;
        self.append(group, GroupCmd::Batch(batch))?;
        self.commit(group)
    }

    pub fn fence(&mut self, group: &str, client: &str) -> Done {
        self.append(group, GroupCmd::Fence { client: Self::client(client), lane: 0, since: 0 })?;
        self.commit(group)
    }

    // ---- messages ----

    fn hold(&mut self, held: Held) -> Done {
        self.sent += 1;
        let told = match &held {
            Held::ToLedger(cmd) => words::to_ledger(self, cmd),
            Held::ToGroup(name, cmd) => format!("→ {name}: {}", words::to_group(cmd)),
        };
        self.held.insert(self.sent, held);
        Ok(vec![format!("m{} {told}", self.sent)])
    }

    /// An operator's decision on the ledger's present state is still on its way.
    pub fn hold_for_ledger(&mut self, cmd: LedgerCmd) -> Done {
        self.hold(Held::ToLedger(cmd))
    }

    pub fn ledger_state(&self) -> &Ledger {
        &self.ledger
    }

    /// The revision of the counter's milestones.
    pub fn revision(&self) -> u64 {
        self.ledger.revision(&self.counter())
    }

    pub fn hold_for_group(&mut self, group: &str, cmd: GroupCmd) -> Done {
        self.hold(Held::ToGroup(group.to_owned(), cmd))
    }

    /// The message arrives, and is gone.
    pub fn deliver(&mut self, message: Message) -> Done {
        let done = self.duplicate(message)?;
        let lost = done.len() == 1 && done[0].ends_with("is lost");
        self.held.remove(&message.0);
        debug_assert!(!lost || done.len() == 1);
        Ok(done)
    }

    /// The message arrives, and a copy of it is still on its way.
    pub fn duplicate(&mut self, message: Message) -> Done {
        let held = self.held.get(&message.0).cloned().ok_or("no such message")?;
        let cut = match &held {
            Held::ToLedger(cmd) => {
                words::sender(cmd).is_some_and(|id| self.sites.values().any(|s| s.id == id && s.cut))
            }
            Held::ToGroup(name, GroupCmd::Ledger(_)) => self.site(name)?.cut,
            Held::ToGroup(..) => false,
        };
        if cut {
            return Ok(vec![format!("m{} is lost", message.0)]);
        }
        match held {
            Held::ToLedger(cmd) => self.ledger_applies(cmd),
            Held::ToGroup(name, cmd) => {
                self.append(&name, cmd)?;
                self.commit(&name)
            }
        }
    }

    pub fn drop_message(&mut self, message: Message) -> Done {
        self.held.remove(&message.0).ok_or("no such message")?;
        Ok(vec![format!("m{} is lost", message.0)])
    }

    fn guard(&mut self, name: &str) -> Result<u32, String> {
        let counter = self.counter();
        self.site(name)?.group.guard_of(&counter).ok_or_else(|| format!("{name} does not guard yet"))
    }

    fn report_of(&mut self, name: &str) -> Result<Report, String> {
        let guard = self.guard(name)?;
        let site = self.site(name)?;
        site.reports += 1;
        Ok(Report { report_no: site.reports, ..site.group.report(guard) })
    }

    pub fn report(&mut self, name: &str) -> Done {
        let report = self.report_cmd(name)?;
        self.hold(Held::ToLedger(report))
    }

    fn report_cmd(&mut self, name: &str) -> Result<LedgerCmd, String> {
        let report = self.report_of(name)?;
        let guard = self.guard(name)?;
        let late = self.site(name)?.group.guards()[guard as usize].awaits_late();
        Ok(if late { LedgerCmd::Returned(report) } else { LedgerCmd::Report(report) })
    }

    /// The ledger's leader takes a group's lease for over; the command is on its way through the log.
    pub fn revoke(&mut self, name: &str) -> Done {
        let counter = self.counter();
        let group = self.site(name)?.id;
        let state = self.ledger.counter(&counter).ok_or("not guarded")?;
        let account = state.accounts().get(&group).ok_or_else(|| format!("{name} has no account"))?;
        let generation = account.generation;
        let if_last_report = account.report_no;
        let epoch = state.epoch();
        self.hold(Held::ToLedger(LedgerCmd::Revoke { counter, epoch, group, generation, if_last_report }))
    }

    /// The group's clock shows that its lease runs, or has ended.
    pub fn lease(&mut self, name: &str, held: bool) -> Done {
        let guard = self.guard(name)?;
        let generation = self.site(name)?.group.guards()[guard as usize].generation;
        let cmd = GroupCmd::Lease { guard, generation, held };
        let told = format!("{name}: {}", words::to_group(&cmd));
        self.append(name, cmd)?;
        let mut done = vec![told];
        done.extend(self.commit(name)?);
        Ok(done)
    }

    /// A report that claims to have spent this, in the present epoch or another.
    pub fn forge(&mut self, name: &str, spent: u64, epoch: Option<u32>) -> Done {
        let report = self.report_of(name)?;
        let report = Report { spent, epoch: epoch.unwrap_or(report.epoch), ..report };
        self.hold(Held::ToLedger(LedgerCmd::Report(report)))
    }

    /// An operator has declared the group lost; the command is on its way to the ledger.
    pub fn lose(&mut self, name: &str, forced: bool) -> Done {
        let group = self.site(name)?.id;
        match self.ledger.declaration(group, forced) {
            Ok(cmd) => self.hold(Held::ToLedger(cmd)),
            Err(error) => Ok(vec![format!("refused: {error}")]),
        }
    }

    pub fn remains(&mut self, name: &str, component: u64) -> Done {
        let counter = self.counter();
        let group = self.site(name)?.id;
        let epoch = self.ledger.counter(&counter).map_or(1, |state| state.epoch());
        self.ledger_applies(LedgerCmd::Remains { counter, epoch, group, component })
    }

    pub fn offer(&mut self, name: &str) -> Done {
        let guard = self.guard(name)?;
        let from = self.site(name)?.group.guards()[guard as usize].acked_pos;
        match self.site(name)?.group.offer(guard, from, true) {
            Some(offer) => self.hold(Held::ToLedger(LedgerCmd::Offer(offer))),
            None => Ok(vec![format!("{name} has nothing to offer")]),
        }
    }

    pub fn hello(&mut self, name: &str) -> Done {
        let hello = self.site(name)?.group.hello();
        self.hold(Held::ToLedger(LedgerCmd::Hello(hello)))
    }

    /// Identities that the ledger asked for.
    pub fn detail(&mut self, name: &str) -> Done {
        let counter = self.counter();
        let guard = self.guard(name)?;
        let id = self.site(name)?.id;
        let wanted = self.ledger.placed(&counter, id).and_then(|placed| placed.need_items);
        let (from, to) = wanted.ok_or("the ledger wants no identities")?;
        let detail = self.site(name)?.group.detail(guard, from, to).ok_or("nothing there")?;
        self.hold(Held::ToLedger(LedgerCmd::Detail(detail)))
    }

    fn account_of(&mut self, name: &str, recall: bool) -> Result<ToGroup, String> {
        let counter = self.counter();
        let id = self.site(name)?.id;
        let granted = self.ledger.account(&counter, id).filter(|_| recall).map(|account| account.granted);
        self.ledger.tells(&counter, id, granted).ok_or_else(|| format!("{name} has no account"))
    }

    pub fn account(&mut self, name: &str) -> Done {
        let account = self.account_of(name, false)?;
        self.hold_for_group(name, GroupCmd::Ledger(account))
    }

    pub fn recall(&mut self, name: &str) -> Done {
        let account = self.account_of(name, true)?;
        self.hold_for_group(name, GroupCmd::Ledger(account))
    }

    /// The ledger's words about counters that began again.
    pub fn generations(&mut self, name: &str) -> Done {
        let begun = self.ledger.resets().generations().map(|(counter, generation)| (counter.clone(), generation));
        let message = ToGroup::Resets { after: 0, upto: self.ledger.resets().last(), begun: begun.collect() };
        self.hold_for_group(name, GroupCmd::Ledger(message))
    }

    /// The ledger's answer to a greeting.
    pub fn confirmed(&mut self, name: &str) -> Done {
        let id = self.site(name)?.id;
        let message = match self.ledger.confirmation(id) {
            Some(confirmation) => confirmation,
            None if self.ledger.is_fenced(id) => ToGroup::FencedOut { group: id },
            None => return Err(format!("the ledger does not know {name}")),
        };
        self.hold_for_group(name, GroupCmd::Ledger(message))
    }

    pub fn placed(&mut self, name: &str) -> Done {
        let counter = self.counter();
        let id = self.site(name)?.id;
        match self.ledger.placed(&counter, id) {
            Some(placed) => self.hold_for_group(name, GroupCmd::Ledger(ToGroup::Placed(placed))),
            None => Ok(vec![format!("the ledger has no place to tell {name}")]),
        }
    }

    pub fn view_ack(&mut self, words: &str) -> Done {
        let (name, below) = match words.strip_suffix('!') {
            Some(name) => (name, false),
            None => (words, true),
        };
        let dc = self.site(name)?.id.dc;
        let mut done = Vec::new();
        for awaiting in self.ledger.awaiting_view(dc.into()) {
            done.extend(self.hold(Held::ToLedger(awaiting.answer(dc.into(), below)))?);
        }
        Ok(done)
    }

    /// A data centre's view registers: arming waits for it from now on.
    pub fn add_view(&mut self, name: &str) -> Done {
        let dc = self.site(name)?.id.dc;
        self.ledger_applies(LedgerCmd::View(dc.into()))
    }

    pub fn grant(&mut self, name: &str, amount: u64) -> Done {
        let counter = self.counter();
        let group = self.site(name)?.id;
        let epoch = self.ledger.counter(&counter).map_or(1, |state| state.epoch());
        let before = self.ledger.account(&counter, group).map_or(0, |account| account.granted);
        let mut done =
            self.ledger_applies(LedgerCmd::Grant { counter: counter.clone(), epoch, group, amount, if_awarded: None })?;
        let after = self.ledger.account(&counter, group).map_or(0, |account| account.granted);
        done.push(format!("{name} is granted {} of {amount}", after - before));
        Ok(done)
    }

    /// Accounts, reports, offers and places go to and fro until nothing changes; a group that is cut off receives and sends nothing.
    pub fn exchange(&mut self) -> Done {
        let mut done = Vec::new();
        for _ in 0..8 {
            for name in self.sites.keys().cloned().collect::<Vec<_>>() {
                if !self.sites[&name].cut {
                    done.extend(self.exchange_with(&name)?);
                }
            }
        }
        Ok(done)
    }

    fn exchange_with(&mut self, name: &str) -> Done {
        let counter = self.counter();
        let id = self.site(name)?.id;
        let wanted = self.ledger.counter(&counter).is_some_and(|state| state.recall_wanted());
        let mut done = Vec::new();
        let told = self.ledger.placed(&counter, id).map(ToGroup::Placed);
        let granted = self.ledger.account(&counter, id).filter(|_| wanted).map(|account| account.granted);
        let account = self.ledger.tells(&counter, id, granted);
        for message in account.into_iter().chain(told) {
            if self.site(name)?.group.would_change(&message) {
                self.append(name, GroupCmd::Ledger(message))?;
                done.extend(self.commit(name)?);
            }
        }
        let Ok(guard) = self.guard(name) else { return Ok(done) };
        let next = self.ledger.account(&counter, id).map_or(0, |account| account.next_pos);
        let report = self.report_cmd(name)?;
        let offer = self.site(name)?.group.offer(guard, next, true);
        done.extend(self.ledger_applies(report)?);
        if let Some(offer) = offer {
            done.extend(self.ledger_applies(LedgerCmd::Offer(offer))?);
        }
        Ok(done)
    }

    // ---- the ledger ----

    pub fn ledger_applies(&mut self, cmd: LedgerCmd) -> Done {
        let counter = self.counter();
        let before = words::milestones(&self.ledger, &counter);
        self.index += 1;
        if let Some(wall) = self.clock {
            self.ledger.apply(LogIndex(self.index), &LedgerCmd::Clock(wall));
        }
        self.ledger.apply(LogIndex(self.index), &cmd);
        let changes = self.ledger.take_changes();
        self.totals.on_ledger(&changes, &self.ledger);
        let mut done = Vec::new();
        for (name, at) in &changes.awards {
            done.push(self.award_line(name, *at));
        }
        let after = words::milestones(&self.ledger, &counter);
        if before != after {
            done.push(format!("milestones: {after}"));
        }
        for group in &changes.groups {
            if self.ledger.is_fenced(*group) {
                done.push(format!("the ledger fences {}", self.name_of(*group)));
            }
        }
        Ok(done)
    }

    /// From now on each entry of the ledger's log begins with this time, or with none: `-`.
    pub fn set_clock(&mut self, word: &str) -> Done {
        self.clock = match word {
            "-" => None,
            time => Some(time.parse::<WallMs>().map_err(|error| error.to_string())?),
        };
        Ok(Vec::new())
    }

    fn award_line(&self, counter: &CounterName, at: u64) -> String {
        let awarded = self.ledger.counter(counter).and_then(|state| state.awards().get(&at));
        awarded.map_or_else(String::new, |awarded| {
            let written_off = match awarded.written_off {
                0 => String::new(),
                weight => format!(", written off {weight}"),
            };
            words::award(self, &awarded.award) + &written_off
        })
    }

    pub fn award_words(&self, at: u64) -> Done {
        Ok(vec![self.award_line(&self.counter(), at)])
    }

    pub fn ledger_words(&self) -> Vec<String> {
        let counter = self.counter();
        let Some(state) = self.ledger.counter(&counter) else { return vec!["not guarded".into()] };
        let mut done = vec![format!(
            "certain {} out {} window {} (undecided {}) milestones: {}",
            state.certain(),
            state.out(),
            state.window().weight(),
            state.window().undecided(),
            words::milestones(&self.ledger, &counter)
        )];
        for (id, account) in state.accounts() {
            let base = account.base.map_or("?".into(), |base| base.to_string());
            done.push(format!(
                "  {}: base {base} G {} S {} R {} placed {} next {}",
                self.name_of(*id),
                account.granted,
                account.spent,
                account.returned,
                account.placed,
                account.next_pos
            ));
        }
        for (id, loss) in state.losses().lost() {
            let name = self.name_of(id);
            let written_off = loss.written_off;
            let surplus = loss.surplus;
            done.push(format!("  {name} is lost: written off {written_off}, without a place {surplus}"));
        }
        done
    }

    pub fn group_words(&mut self, name: &str) -> Done {
        let counter = self.counter();
        let group = &self.site(name)?.group;
        let component = group.table().find(&group.cell_of(&counter, Half::Up)).map_or(0, |slot| group.sum(slot));
        let Some(guard) = group.guard_of(&counter) else {
            return Ok(vec![format!("{name}: component {component}, not guarded")]);
        };
        let guard = &group.guards()[guard as usize];
        Ok(vec![format!(
            "{name}: component {component} base {} G {} S {} R {} queue {}..{}",
            guard.base,
            guard.granted,
            guard.spent,
            guard.returned,
            guard.placed_upto(),
            guard.next_pos()
        )])
    }

    /// The values of a view that knows every component.
    pub fn view_words(&mut self, name: &str) -> Done {
        self.site(name)?;
        let counter = self.counter();
        let cell = counter.total_of(self.ledger.resets().generation(&counter));
        let present = self.sites.iter().filter(|(name, _)| !Self::is_before(name));
        let component = |site: &Site| site.group.table().find(&cell).map_or(0, |slot| site.group.sum(slot));
        let sum = present.map(|(_, site)| component(site)).sum::<u64>() + self.known_before();
        Ok(vec![words::reading(&self.ledger, &counter, sum)])
    }

    /// The data centre of a group, as the script names it.
    pub fn spoken(&self, id: GroupId) -> String {
        self.name_of(id)
    }
}
