//! The commands of scripts: one line each, words separated by spaces.

use super::stage::{Message, Stage};
use tidemark_proto::msg::{LedgerCmd, MilestoneSpec, Policy};

/// The fault in a command's words.
type Done = Result<Vec<String>, String>;

impl Stage {
    /// Runs one command and says what it did.
    pub fn run(&mut self, line: &str) -> Done {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (command, rest) = words.split_first().ok_or("empty")?;
        match *command {
            "dc" => self.each(rest, Stage::add_dc),
            "join" => self.each(rest, Stage::join),
            "add" => self.on_add(rest, false),
            "append" => self.on_add(rest, true),
            "send" => self.on_send(rest),
            "again" => self.again(one(rest)?),
            "commit" => self.each(rest, Stage::commit),
            "copy" => self.each(rest, Stage::copy),
            "crash" => self.each(rest, Stage::crash),
            "once" => self.on_once(rest),
            "fence-id" => self.on_fence_id(rest),
            "older" => self.each(rest, Stage::older),
            "fence" => self.on_fence(rest),
            "define" => self.define_of(rest).and_then(|cmd| self.ledger_applies(cmd)),
            "disarm" => self.disarm_of(rest).and_then(|cmd| self.ledger_applies(cmd)),
            "reset" => self.ledger_applies(self.reset_of(true)?),
            "remove" => self.ledger_applies(self.reset_of(false)?),
            "decide" => self.on_decide(rest),
            "grant" => self.on_grant(rest),
            "report" => self.each(rest, Stage::report),
            "offer" => self.each(rest, Stage::offer),
            "hello" => self.each(rest, Stage::hello),
            "detail" => self.each(rest, Stage::detail),
            "account" => self.each(rest, Stage::account),
            "recall" => self.each(rest, Stage::recall),
            "revoke" => self.each(rest, Stage::revoke),
            "lease" => self.each(rest, |stage, name| stage.lease(name, true)),
            "lapse" => self.each(rest, |stage, name| stage.lease(name, false)),
            "lose" => self.each(rest, |stage, name| stage.lose(name, false)),
            "give-up" => self.each(rest, |stage, name| stage.lose(name, true)),
            "forget" => self.each(rest, Stage::forget),
            "image" => self.each(rest, Stage::image),
            "era" => match rest {
                [choice, images @ ..] if !images.is_empty() => self.era(choice, images),
                _ => Err("era rearm|withhold IMAGE…".into()),
            },
            "remains" => self.on_remains(rest),
            "placed" => self.each(rest, Stage::placed),
            "generations" => self.each(rest, Stage::generations),
            "confirmed" => self.each(rest, Stage::confirmed),
            "watch" => self.each(rest, Stage::add_view),
            "ack" => self.each(rest, Stage::view_ack),
            "forge" => self.on_forge(rest),
            "deliver" => self.each_message(rest, Stage::deliver),
            "duplicate" => self.each_message(rest, Stage::duplicate),
            "drop" => self.each_message(rest, Stage::drop_message),
            "exchange" => self.exchange(),
            "partition" => self.each(rest, Stage::partition),
            "heal" => self.each(rest, Stage::heal),
            "ledger" => Ok(self.ledger_words()),
            "group" => self.each(rest, Stage::group_words),
            "view" => self.each(rest, Stage::view_words),
            "edges" => self.edges(rest),
            "count" => match rest {
                [key, weight] => self.count(key, number(weight)?),
                _ => Err("count COUNTER WEIGHT".into()),
            },
            "settle" => self.settle(),
            "restart" => self.restart_view(),
            "totals" => self.totals(rest),
            "award" => self.award_words(number(one(rest)?)?),
            "clock" => self.set_clock(one(rest)?),
            other => Err(format!("unknown command {other:?}")),
        }
    }

    fn on_fence_id(&mut self, rest: &[&str]) -> Done {
        match rest {
            [group, client, id] => self.once(group, client, &[(id, 0)]),
            _ => Err("fence-id GROUP CLIENT ID".into()),
        }
    }

    fn each(&mut self, names: &[&str], what: impl Fn(&mut Stage, &str) -> Done) -> Done {
        let mut done = Vec::new();
        for name in names {
            done.extend(what(self, name)?);
        }
        Ok(done)
    }

    fn each_message(&mut self, names: &[&str], what: impl Fn(&mut Stage, Message) -> Done) -> Done {
        let mut done = Vec::new();
        for name in names {
            let id = number(name.strip_prefix('m').ok_or_else(|| format!("{name:?} is not a message"))?)? as u32;
            done.extend(what(self, Message(id))?);
        }
        Ok(done)
    }

    /// `add GROUP CLIENT WEIGHT…`
    fn on_add(&mut self, words: &[&str], hold: bool) -> Done {
        let (group, client, weights) = batch(words)?;
        let cmd = self.next_batch(group, client, &weights)?;
        let mut done = self.append(group, cmd)?;
        if hold {
            done.push(format!("{group} holds an entry that is not committed"));
        } else {
            done.extend(self.commit(group)?);
        }
        Ok(done)
    }

    /// `once GROUP CLIENT ID=WEIGHT…`: each increment has an id.
    fn on_once(&mut self, words: &[&str]) -> Done {
        let [group, client, items @ ..] = words else { return Err("once GROUP CLIENT ID=WEIGHT…".into()) };
        let item = |word: &&str| {
            let (id, weight) = word.split_once('=').ok_or("ID=WEIGHT")?;
            Ok((id.to_owned(), number(weight)?))
        };
        let items = items.iter().map(item).collect::<Result<Vec<_>, String>>()?;
        let items: Vec<(&str, u64)> = items.iter().map(|(id, weight)| (id.as_str(), *weight)).collect();
        self.once(group, client, &items)
    }

    /// `send GROUP CLIENT WEIGHT…`: the batch waits in the network.
    fn on_send(&mut self, words: &[&str]) -> Done {
        let (group, client, weights) = batch(words)?;
        let cmd = self.next_batch(group, client, &weights)?;
        self.hold_for_group(group, cmd)
    }

    /// `fence GROUP CLIENT`
    fn on_fence(&mut self, words: &[&str]) -> Done {
        let [group, client] = words else { return Err("fence GROUP CLIENT".into()) };
        self.fence(group, client)
    }

    /// `decide define …`, `disarm …`, `reset` or `remove`: as below, and on its way to the ledger.
    fn on_decide(&mut self, words: &[&str]) -> Done {
        let cmd = match words.split_first() {
            Some((&"define", rest)) => self.define_of(rest)?,
            Some((&"disarm", rest)) => self.disarm_of(rest)?,
            Some((&"reset", [])) => self.reset_of(true)?,
            Some((&"remove", [])) => self.reset_of(false)?,
            _ => return Err("decide define …, disarm …, reset or remove".into()),
        };
        self.hold_for_ledger(cmd)
    }

    /// `define MILESTONE… [every K] [sequence-from N] [timely]`
    fn define_of(&self, words: &[&str]) -> Result<LedgerCmd, String> {
        let mut spec = MilestoneSpec::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or("a number is missing".to_owned()).and_then(|word| number(word));
            match *word {
                "every" => spec.every = Some(value()?),
                "sequence-from" => spec.sequence_from = Some(value()?),
                "timely" => spec.policy = Policy::Timely,
                at => spec.at.push(number(at)?),
            }
        }
        Ok(LedgerCmd::Define { counter: self.counter(), revision: self.revision(), spec })
    }

    /// `disarm MILESTONE` or `disarm rule`
    fn disarm_of(&self, words: &[&str]) -> Result<LedgerCmd, String> {
        let at = if one(words)? == "rule" { None } else { Some(number(one(words)?)?) };
        Ok(LedgerCmd::Disarm { counter: self.counter(), revision: self.revision(), at })
    }

    /// `reset` or `remove`
    fn reset_of(&self, keeps_milestones: bool) -> Result<LedgerCmd, String> {
        self.ledger_state().reset(&self.counter(), keeps_milestones, true).map_err(|error| error.to_string())
    }

    /// `grant GROUP AMOUNT`: proposed and applied; the part that fits is granted.
    fn on_grant(&mut self, words: &[&str]) -> Done {
        let [group, amount] = words else { return Err("grant GROUP AMOUNT".into()) };
        self.grant(group, number(amount)?)
    }

    /// `remains GROUP COMPONENT`: a view shows this of a lost group.
    fn on_remains(&mut self, words: &[&str]) -> Done {
        let [group, component] = words else { return Err("remains GROUP COMPONENT".into()) };
        self.remains(group, number(component)?)
    }

    /// `forge GROUP SPENT`: a report that claims this.
    fn on_forge(&mut self, words: &[&str]) -> Done {
        match words {
            [group, spent] => self.forge(group, number(spent)?, None),
            [group, spent, "epoch", epoch] => self.forge(group, number(spent)?, Some(number(epoch)? as u32)),
            _ => Err("forge GROUP SPENT [epoch EPOCH]".into()),
        }
    }
}

fn batch<'a>(words: &[&'a str]) -> Result<(&'a str, &'a str, Vec<u64>), String> {
    let [group, client, weights @ ..] = words else { return Err("GROUP CLIENT WEIGHT…".into()) };
    let weights: Vec<u64> = weights.iter().flat_map(|word| weights_of(word)).collect();
    if weights.is_empty() { Err("no weight".into()) } else { Ok((group, client, weights)) }
}

/// `3` is one item of weight 3, `5x1` are five items of weight 1.
fn weights_of(word: &str) -> Vec<u64> {
    match word.split_once('x') {
        Some((times, weight)) => vec![weight.parse().unwrap_or(0); times.parse().unwrap_or(0)],
        None => word.parse().into_iter().collect(),
    }
}

fn one<'a>(words: &[&'a str]) -> Result<&'a str, String> {
    let [word] = words else { return Err("one word wanted".into()) };
    Ok(word)
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|error| format!("{word:?}: {error}"))
}
