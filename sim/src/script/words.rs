//! How scripts say what happened.

use super::stage::Stage;
use tidemark_proto::group::Effect;
use tidemark_proto::ids::{AggregatorId, ClientId, CounterName, GroupId, SessionId};
use tidemark_proto::ledger::{Ledger, Pending};
use tidemark_proto::msg::{
    Account, Award, GroupCmd, IdAnswer, Keyed, LedgerCmd, OfferBody, Opened, Place, Policy, ToGroup,
};

pub fn client(id: ClientId) -> String {
    let bytes = id.0.to_be_bytes();
    String::from_utf8_lossy(&bytes).trim_start_matches('\0').to_owned()
}

fn session(id: Option<SessionId>) -> String {
    id.map_or("nobody".into(), |id| format!("s{}", u128::from_be_bytes(id.0)))
}

pub fn place(place: Place) -> String {
    match place {
        Place::Counted => "counted".into(),
        Place::Number(n) => format!("number {n}"),
        Place::Milestone { at, first } => format!("the milestone {at} (from {first} on)"),
    }
}

/// `None` for an effect that is no answer.
pub fn effect(group: &str, effect: &Effect) -> Option<String> {
    let said = match effect {
        Effect::Acked { client: of, seq, pending, leased, .. } if !leased.is_empty() => {
            let leased: Vec<u32> = leased.iter().map(|item| item.idx).collect();
            let pending = if pending.is_empty() { String::new() } else { format!(", pending {}", ranges(pending)) };
            format!("{} {seq}: durable, counted while the lease runs {}{pending}", client(*of), ranges(&leased))
        }
        Effect::Acked { client: of, seq, pending, .. } if pending.is_empty() => {
            format!("{} {seq}: durable, all counted", client(*of))
        }
        Effect::Acked { client: of, seq, pending, .. } => {
            format!("{} {seq}: durable, pending {}", client(*of), ranges(pending))
        }
        Effect::Refused { client: of, seq, error, .. } => format!("{} {seq}: refused: {error}", client(*of)),
        Effect::Placed { client: of, seq, idx, place: at, .. } => {
            format!("{} {seq}.{idx}: {}", client(*of), place(*at))
        }
        Effect::Fenced { client: of, last_seq, .. } => format!("{} is fenced after {last_seq}", client(*of)),
        Effect::Forgotten { client: of, .. } => format!("{} is forgotten", client(*of)),
        Effect::FencedOut => "must never serve again".into(),
        Effect::Confirmed => "is confirmed".into(),
        Effect::Closed { generation, upto, .. } => format!("generation {generation} ended: S {upto} of it counts"),
        Effect::Spread | Effect::Began { .. } | Effect::Settled { .. } | Effect::Compacted => return None,
        Effect::Ids { client: of, seq, answers, .. } => {
            let said = answers.iter().map(|(at, answer)| format!("id {at} {}", answer_text(*answer)));
            format!("batch {seq} of {}: {}", client(*of), said.collect::<Vec<_>>().join(", "))
        }
    };
    Some(format!("{group}: {said}"))
}

fn answer_text(answer: IdAnswer) -> String {
    match answer {
        IdAnswer::Other => "stands for something else: not counted".into(),
        IdAnswer::Open => "counted before, its place is open".into(),
        IdAnswer::Full { max } => format!("finds {max} ids remembered: not counted"),
        IdAnswer::Fenced => "is fenced: it never counts".into(),
        IdAnswer::Counted => "counted before it was fenced".into(),
        IdAnswer::Known => "counted before".into(),
    }
}

/// `0-3,7` for 0, 1, 2, 3, 7.
fn ranges(all: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &n in all {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => parts.push((n, n)),
        }
    }
    let said = |&(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    parts.iter().map(said).collect::<Vec<_>>().join(",")
}

pub fn to_group(cmd: &GroupCmd) -> String {
    match cmd {
        GroupCmd::Batch(batch) => {
            format!("batch {} of {}, {} items", batch.seq, client(batch.client), batch.items.len())
        }
        GroupCmd::Keyed(Keyed { batch, ids, .. }) => {
            format!(
                "batch {} of {}, {} items under {} ids",
                batch.seq,
                client(batch.client),
                batch.items.len(),
                ids.len()
            )
        }
        GroupCmd::IdTerms(terms) => format!("ids are kept for {} ages, {} at most", terms.kept, terms.max),
        GroupCmd::Fence { client: of, .. } => format!("fence {}", client(*of)),
        GroupCmd::Age(age) => format!("age {age}"),
        GroupCmd::Boot { nonce, .. } => format!("start {nonce}"),
        GroupCmd::Compact { nonce } => format!("start {nonce}, with other slots"),
        GroupCmd::Ledger(ToGroup::Account(account)) => account_words(account),
        GroupCmd::Ledger(ToGroup::Opened(opened)) => {
            let leased = if opened.leased { " under a lease" } else { "" };
            let Opened { account, closed_spent, .. } = opened;
            let generation = account.generation;
            let said = account_words(account);
            format!("{said}; generation {generation}{leased}, S {closed_spent} of the one before counts")
        }
        GroupCmd::Lease { held, .. } => format!("the lease {}", if *held { "runs" } else { "has ended" }),
        GroupCmd::Ledger(ToGroup::Placed(placed)) => {
            let run =
                |run: &tidemark_proto::msg::PlacedRun| format!("{}+{} {}", run.first_pos, run.count, place(run.place));
            let runs: Vec<String> = placed.runs.iter().map(run).collect();
            let need = placed.need_items.map_or(String::new(), |(from, to)| format!("; who are {from}..{to}?"));
            format!("placed {}{need}", runs.join(", "))
        }
        GroupCmd::Ledger(ToGroup::Confirmed { start, .. }) => format!("start {} is confirmed", start.nonce),
        GroupCmd::Ledger(ToGroup::FencedOut { .. }) => "fenced out".into(),
        GroupCmd::Ledger(ToGroup::Begun { opened, won }) => {
            let winners: usize = won.iter().map(|placed| placed.runs.len()).sum();
            let said = account_words(&opened.account);
            let epoch = opened.account.epoch;
            format!("epoch {epoch} begins, {winners} won before; {said}")
        }
        GroupCmd::Ledger(ToGroup::Resets { begun, .. }) => {
            let generations: Vec<String> = begun.iter().map(|(_, generation)| generation.to_string()).collect();
            format!("generation {}", generations.join(", "))
        }
        GroupCmd::Ledger(_) => "settings".into(),
    }
}

fn account_words(account: &Account) -> String {
    let recall = if account.recall { ", give back" } else { "" };
    format!("account G {} acked S {} next {}{recall}", account.granted, account.acked_spent, account.next_pos)
}

/// The group that sends this to the ledger.
pub fn sender(cmd: &LedgerCmd) -> Option<GroupId> {
    match cmd {
        LedgerCmd::Report(report) | LedgerCmd::Returned(report) => Some(report.group),
        LedgerCmd::Offer(offer) | LedgerCmd::Detail(offer) => Some(offer.group),
        LedgerCmd::Hello(hello) => Some(hello.group),
        _ => None,
    }
}

pub fn to_ledger(stage: &Stage, cmd: &LedgerCmd) -> String {
    let name = sender(cmd).map_or(String::new(), |id| stage.spoken(id));
    match cmd {
        LedgerCmd::Report(r) => {
            format!(
                "{name} → ledger: report base {} S {} R {} placed below {}",
                r.base, r.spent, r.returned, r.placed_upto
            )
        }
        LedgerCmd::Returned(r) => {
            format!("{name} → ledger: back in generation {}, placed below {}", r.generation, r.placed_upto)
        }
        LedgerCmd::Revoke { group, generation, if_last_report, .. } => {
            let name = stage.spoken(*group);
            format!("→ ledger: revoke generation {generation} of {name}, if its last report is {if_last_report}")
        }
        LedgerCmd::DeclareLost { group, forced, .. } => {
            let name = stage.spoken(*group);
            let unless = if *forced { "" } else { ", unless it was heard of since" };
            format!("→ ledger: {name} is lost{unless}")
        }
        LedgerCmd::Forget { dc, forced, .. } => {
            let unless = if *forced { "" } else { ", unless it was heard of since" };
            format!("→ ledger: data centre {} never returns{unless}", dc.0)
        }
        LedgerCmd::Offer(o) => format!("{name} → ledger: offer {}", body(o.first_pos, &o.body)),
        LedgerCmd::Detail(o) => format!("{name} → ledger: identities {}", body(o.first_pos, &o.body)),
        LedgerCmd::Hello(h) => format!("{name} → ledger: hello, starts {:?}", h.nonces),
        LedgerCmd::Define { revision, spec, .. } => {
            let every = spec.every.map_or(String::new(), |every| format!(" every {every}"));
            let policy = if spec.policy == Policy::Timely { " timely" } else { "" };
            format!("→ ledger: on revision {revision}, define {:?}{every}{policy}", spec.at)
        }
        LedgerCmd::Disarm { revision, at, .. } => {
            let what = at.map_or("the rule".into(), |at| at.to_string());
            format!("→ ledger: on revision {revision}, remove {what}")
        }
        LedgerCmd::Reset { revision, keeps_milestones, .. } => {
            let what = if *keeps_milestones { "reset" } else { "remove the counter" };
            format!("→ ledger: on revision {revision}, {what}")
        }
        LedgerCmd::ViewAck { at, view: AggregatorId { dc, .. }, shown_below, .. } => {
            let shown = if *shown_below { "shows less than" } else { "has shown" };
            format!("view {} → ledger: {shown} {at}", dc.0)
        }
        other => format!("ledger: {other:?}"),
    }
}

fn body(first: u64, body: &OfferBody) -> String {
    match body {
        OfferBody::Items(items) => {
            let weights: u64 = items.iter().map(|item| item.delta).sum();
            format!("{first}..{} of weight {weights}", first + items.len() as u64)
        }
        OfferBody::Block { count, delta } => format!("a block {first}..{}, each of weight {delta}", first + count),
    }
}

pub fn milestones(ledger: &Ledger, counter: &CounterName) -> String {
    let Some(state) = ledger.counter(counter) else { return "none".into() };
    let pending = state.milestones().pending().map(|(at, pending)| match pending {
        Pending::Armed => format!("{at} armed"),
        Pending::Arming { awaits, .. } if !awaits.is_empty() => format!("{at} arming (awaits {} views)", awaits.len()),
        Pending::Arming { .. } => format!("{at} arming"),
    });
    let passed = state.milestones().passed().map(|at| format!("{at} passed"));
    let awarded = state.awards().values().map(|a| match a.award.count {
        1 => format!("{} awarded", a.award.at),
        n => format!("{} and {} more awarded", a.award.at, n - 1),
    });
    let all: Vec<String> = pending.chain(passed).chain(awarded).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

pub fn award(stage: &Stage, award: &Award) -> String {
    let before: Vec<String> =
        award.before.iter().map(|(group, weight)| format!("{} {weight}", stage.spoken(*group))).collect();
    let more =
        if award.count > 1 { format!(" and {} more, every {}", award.count - 1, award.step) } else { String::new() };
    let time = award.time.map_or_else(String::new, |time| format!(", at {time}"));
    format!(
        "award {}{more}: {} ({} {}.{} at {}), ordinals {}..={}, before it {}{time}",
        award.at,
        session(award.session),
        client(award.client),
        award.seq,
        award.idx,
        stage.spoken(award.group),
        award.first,
        award.first + award.delta - 1,
        before.join(" + ")
    )
}

pub fn reading(ledger: &Ledger, counter: &CounterName, sum: u64) -> String {
    let next = ledger.next_milestone(counter).unwrap_or(u64::MAX);
    let value = ledger.certain(counter).max(sum.min(next - 1));
    format!("value {value} pending {}", sum - value)
}
