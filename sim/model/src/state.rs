//! A state of the whole: which state each machine is in, what was ever said, and what of the configuration was used. All of it
//! numbers, so that a state is a few words and equal states are equal words.

use super::Violation;
use super::channel::{Channel, NOTHING};
use super::config::{Config, GROUPS_MAX};
use super::groups::{Groups, Input};
use super::ledgers::Ledgers;
use tidemark_proto::msg::{LedgerCmd, ToGroup};
use tidemark_sim::teeth::Mutation;

/// Of the channels to the ledger the one behind the groups' is the operator's.
pub const CHANNELS_MAX: usize = GROUPS_MAX + 1;

/// A state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub groups: [u32; GROUPS_MAX],
    pub ledger: u32,
    /// The messages to the ledger: a set per channel.
    pub up: [u32; CHANNELS_MAX],
    /// The messages to each group.
    pub down: [u32; GROUPS_MAX],
    /// Per group: what was placed elsewhere when its queued increments were asked for; see [`super::order`].
    pub before: [u32; GROUPS_MAX],
    pub used: Used,
}

/// How much of what the configuration allows has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Used {
    pub batches: u8,
    pub decisions: u8,
    pub crashes: u8,
    pub leader_changes: u8,
    pub revocations: u8,
}

/// The machines of a configuration, in every state that was met so far.
#[derive(Debug)]
pub struct Model {
    pub config: Config,
    pub mutation: Mutation,
    pub groups: Vec<Groups>,
    pub ledgers: Ledgers,
    pub up: Vec<Channel<LedgerCmd>>,
    pub down: Vec<Channel<ToGroup>>,
}

impl Model {
    pub fn new(config: Config, mutation: Mutation) -> Model {
        let groups: Vec<Groups> = (0..config.groups).map(|number| Groups::new(number, &config)).collect();
        let ids = groups.iter().map(|group| group.id).collect();
        Model {
            config,
            mutation,
            ledgers: Ledgers::new(ids, &config, mutation),
            up: (0..=config.groups).map(|_| Channel::default()).collect(),
            down: groups.iter().map(|_| Channel::default()).collect(),
            groups,
        }
    }

    /// The number of the operator's channel.
    pub fn operator(&self) -> usize {
        self.config.groups
    }

    /// Every group has started; all but the late ones are registered and confirmed.
    pub fn first(&mut self) -> Result<State, Violation> {
        let early = self.config.groups - self.config.late_groups;
        let mut groups = [0; GROUPS_MAX];
        let mut hellos = Vec::new();
        for (number, (machine, state)) in self.groups.iter_mut().zip(&mut groups).enumerate() {
            *state = machine.first(&mut self.up[number])?;
            hellos.push(LedgerCmd::Hello(machine.part(*state).group.hello()));
        }
        let ledger = self.ledgers.first(&hellos[..early], &mut self.down)?;
        for (number, state) in groups.iter_mut().enumerate().take(early) {
            *state = self.confirm(number, *state, ledger)?;
        }
        let mut up = [NOTHING; CHANNELS_MAX];
        for ((said, machine), state) in up.iter_mut().zip(&self.groups).zip(groups) {
            *said = machine.part(state).says;
        }
        let down = self.ledgers.part(ledger).tells;
        let before = [0; GROUPS_MAX];
        let used = Used::default();
        Ok(State { groups, ledger, up, down, before, used })
    }

    fn confirm(&mut self, number: usize, group: u32, ledger: u32) -> Result<u32, Violation> {
        let id = self.groups[number].id;
        let ledger = &self.ledgers.part(ledger).ledger;
        let refused = || Violation::new("fence", format!("{id} is refused"));
        let message = ledger.confirmation(id).ok_or_else(refused)?;
        let message = self.down[number].number(message);
        self.groups[number].step(group, Input::Message(message), &mut self.up[number], &self.down[number])
    }
}
