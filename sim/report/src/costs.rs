//! The traffic of the links: messages and encoded bytes by kind, inside data centres and between them.

use serde::{Deserialize, Serialize};
use tidemark_proto::msg::{ForGroup, FromGroup, LedgerCmd, PeerMsg, ShardMsg, ToGroup};
use tidemark_proto::wire;

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Client to node.
    Increments,
    /// Node to client: durable, and places.
    Answers,
    /// Node to its aggregator, and what pulls it.
    Feed,
    /// Gossip of components.
    Deltas,
    /// Gossip of versions.
    Digests,
    /// The reports of groups about spent rights.
    Reports,
    /// Queued increments, with their identities or as blocks.
    Offers,
    /// Rights granted and acknowledged.
    Accounts,
    /// Rights wanted back.
    Recalls,
    /// Places of what was offered.
    Placements,
    /// The ledger's entries to its replicas.
    Log,
    /// Greetings, namespaces, the spread list, definitions.
    Settings,
}

pub const KINDS: [Kind; 12] = [
    Kind::Increments,
    Kind::Answers,
    Kind::Feed,
    Kind::Deltas,
    Kind::Digests,
    Kind::Reports,
    Kind::Offers,
    Kind::Accounts,
    Kind::Recalls,
    Kind::Placements,
    Kind::Log,
    Kind::Settings,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Increments => "increments, client → node",
            Kind::Answers => "answers, node → client",
            Kind::Feed => "feed, node → aggregator",
            Kind::Deltas => "gossip of components",
            Kind::Digests => "gossip of versions",
            Kind::Reports => "reports",
            Kind::Offers => "offers",
            Kind::Accounts => "accounts",
            Kind::Recalls => "recalls",
            Kind::Placements => "placements",
            Kind::Log => "ledger's log",
            Kind::Settings => "settings",
        }
    }

    /// Whether it is said for the sake of milestones.
    pub fn is_of_milestones(self) -> bool {
        use Kind::*;
        matches!(self, Reports | Offers | Accounts | Recalls | Placements | Log)
    }
}

/// Messages, and their bytes as encoded, without what QUIC and IP put around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub messages: u64,
    pub bytes: u64,
}

impl Volume {
    pub fn add(&mut self, messages: u64, bytes: u64) {
        self.messages += messages;
        self.bytes += bytes;
    }

    pub fn plus(self, other: Volume) -> Volume {
        Volume { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

/// A message's bytes by kind; it counts as one of the first kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel(pub Vec<(Kind, u64)>);

impl Parcel {
    fn one(kind: Kind, bytes: usize) -> Parcel {
        Parcel(vec![(kind, bytes as u64)])
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn increments(bytes: u64) -> Parcel {
        Parcel(vec![(Kind::Increments, bytes)])
    }

    pub fn to_client(msg: &tidemark_proto::msg::ToClient) -> Parcel {
        Parcel::one(Kind::Answers, wire::encode(msg).len())
    }

    pub fn from_group(msg: &FromGroup) -> Parcel {
        let kind = match msg {
            FromGroup::Hello(_) | FromGroup::Resigned { .. } | FromGroup::Audited(_) => Kind::Settings,
            FromGroup::Report(_) | FromGroup::Returned(_) => Kind::Reports,
            FromGroup::Offer(_) | FromGroup::Detail(_) => Kind::Offers,
            FromGroup::Feed(_) | FromGroup::FedIn(_) => Kind::Feed,
        };
        Parcel::one(kind, wire::encode(msg).len())
    }

    pub fn for_group(msg: &ForGroup) -> Parcel {
        let kind = match msg {
            ForGroup::Feed(_) | ForGroup::FeedIn(_) | ForGroup::FeedOrdered(..) => Kind::Feed,
            ForGroup::Ledger(ToGroup::Account(_) | ToGroup::Opened(_) | ToGroup::Begun { .. }) => Kind::Accounts,
            ForGroup::Ledger(ToGroup::Placed(_)) => Kind::Placements,
            ForGroup::Ledger(_) | ForGroup::Again | ForGroup::Lost { .. } | ForGroup::Audit(_) => Kind::Settings,
        };
        Parcel::one(kind, wire::encode(msg).len())
    }

    /// Reports and offers travel together: the bytes are told apart by command, and what is left by the first kind.
    pub fn peer(msg: &PeerMsg) -> Parcel {
        let bytes = wire::encode(msg).len();
        let cmds = match msg {
            PeerMsg::Digest(_) | PeerMsg::Shard { msg: ShardMsg::Digest(_), .. } => {
                return Parcel::one(Kind::Digests, bytes);
            }
            PeerMsg::Delta(_) | PeerMsg::Shard { msg: ShardMsg::Delta(_), .. } => {
                return Parcel::one(Kind::Deltas, bytes);
            }
            PeerMsg::Recall(_) => return Parcel::one(Kind::Recalls, bytes),
            PeerMsg::Reading { .. } => return Parcel::one(Kind::Settings, bytes),
            PeerMsg::Propose(cmds) => cmds,
        };
        let mut parts: Vec<(Kind, u64)> = Vec::new();
        for cmd in cmds {
            let size = command_bytes(cmd);
            match parts.iter_mut().find(|(kind, _)| *kind == kind_of(cmd)) {
                Some((_, sum)) => *sum += size,
                None => parts.push((kind_of(cmd), size)),
            }
        }
        // Offers first: what is sent for their sake is sent at once.
        parts.sort_by_key(|(kind, _)| (*kind != Kind::Offers, *kind));
        let told: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        match parts.first_mut() {
            Some((_, first)) => *first += bytes as u64 - told,
            None => parts.push((Kind::Settings, bytes as u64)),
        }
        Parcel(parts)
    }

    /// One entry of the ledger's log as a replica gets it: its commands, without Raft's heads and acknowledgements.
    pub fn log(cmds: &[LedgerCmd]) -> Parcel {
        Parcel::one(Kind::Log, cmds.iter().map(|cmd| wire::encode(cmd).len()).sum())
    }
}

/// Bytes of a command inside a message, which has one version for all.
fn command_bytes(cmd: &LedgerCmd) -> u64 {
    wire::encode(cmd).len() as u64 - 1
}

fn kind_of(cmd: &LedgerCmd) -> Kind {
    match cmd {
        LedgerCmd::Report(_) => Kind::Reports,
        LedgerCmd::Offer(_) | LedgerCmd::Detail(_) => Kind::Offers,
        LedgerCmd::Grant { .. } => Kind::Accounts,
        _ => Kind::Settings,
    }
}

/// Volumes by kind, inside data centres and between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    inside: [Volume; KINDS.len()],
    between: [Volume; KINDS.len()],
}

impl Tally {
    pub fn count(&mut self, parcel: &Parcel, between: bool) {
        let volumes = if between { &mut self.between } else { &mut self.inside };
        for (at, &(kind, bytes)) in parcel.0.iter().enumerate() {
            volumes[kind as usize].add(u64::from(at == 0), bytes);
        }
    }

    pub fn get(&self, kind: Kind, between: bool) -> Volume {
        if between { self.between[kind as usize] } else { self.inside[kind as usize] }
    }

    pub fn sum(&self) -> Volume {
        self.inside.iter().chain(&self.between).fold(Volume::default(), |sum, &volume| sum.plus(volume))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::ids::{CounterName, DcId};
    use tidemark_proto::msg::{Offer, OfferBody};

    #[test]
    fn the_parts_of_a_proposal_add_up_to_its_bytes() {
        let counter = CounterName::new("t", b"k").unwrap();
        let offer = |count| {
            let epoch = 1;
            let group = Default::default();
            let start = 9;
            let first_pos = 3;
            let body = OfferBody::Block { count, delta: 1 };
            LedgerCmd::Offer(Offer { counter: counter.clone(), epoch, group, start, first_pos, body })
        };
        let msg = PeerMsg::Propose(vec![LedgerCmd::View(DcId(1).into()), offer(7), offer(1_000_000)]);
        let parcel = Parcel::peer(&msg);
        assert_eq!(parcel.bytes(), wire::encode(&msg).len() as u64);
        let mut tally = Tally::default();
        tally.count(&parcel, true);
        assert_eq!(tally.sum(), Volume { messages: 1, bytes: parcel.bytes() });
        assert_eq!(tally.get(Kind::Offers, true).messages, 1);
        assert!(tally.get(Kind::Settings, true).bytes > 0);
    }
}
