//! An award's fields as a certificate shows them. Each has one spelling, so that no two files say the same.

use crate::api::body::CounterBody;
use crate::names::{from_hex, hex, key_bytes, key_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, NameError, SessionId};
use tidemark_proto::msg::Award;

/// [`Award`], readable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwardFields {
    counter: CounterBody,
    epoch: u32,
    at: u64,
    step: u64,
    count: u64,
    first: u64,
    delta: u64,
    group: GroupFields,
    pos: u64,
    client: String,
    lane: u8,
    seq: u64,
    idx: u32,
    session: Option<String>,
    before: Vec<BeforeFields>,
    ledger_index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupFields {
    dc: u16,
    group: u16,
    incarnation: u32,
}

/// Weight that a group counted before the award.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BeforeFields {
    group: GroupFields,
    weight: u64,
}

impl From<GroupId> for GroupFields {
    fn from(group: GroupId) -> GroupFields {
        GroupFields { dc: group.dc.0, group: group.group, incarnation: group.incarnation }
    }
}

impl From<GroupFields> for GroupId {
    fn from(fields: GroupFields) -> GroupId {
        GroupId { dc: DcId(fields.dc), group: fields.group, incarnation: fields.incarnation }
    }
}

impl From<&Award> for AwardFields {
    fn from(award: &Award) -> AwardFields {
        let before = award.before.iter().map(|&(group, weight)| BeforeFields { group: group.into(), weight });
        AwardFields {
            counter: (&award.counter).into(),
            epoch: award.epoch,
            at: award.at,
            step: award.step,
            count: award.count,
            first: award.first,
            delta: award.delta,
            group: award.group.into(),
            pos: award.pos,
            client: hex(&award.client.0.to_be_bytes()),
            lane: award.lane,
            seq: award.seq,
            idx: award.idx,
            session: award.session.map(|session| hex(&session.0)),
            before: before.collect(),
            ledger_index: award.index.0,
        }
    }
}

/// Why fields are no award.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("key {key:?} is not written in the one way it can be")]
    Key { key: String },
    #[error(transparent)]
    Counter(#[from] NameError),
    #[error("{what} {text:?} is not 32 digits of lower-case hexadecimal")]
    Hexadecimal { what: &'static str, text: String },
    #[error("first {first}, delta {delta}, at {at}, step {step}, count {count}")]
    Numbers { first: u64, delta: u64, at: u64, step: u64, count: u64 },
    #[error("groups before the award are not ascending")]
    Order,
}

impl AwardFields {
    /// The award; else the field that cannot be.
    pub fn to_award(&self) -> Result<Award, FieldError> {
        let session = self.session.as_deref().map(|text| sixteen("session", text).map(SessionId)).transpose()?;
        Ok(Award {
            counter: self.counter()?,
            epoch: self.epoch,
            at: self.at,
            step: self.step,
            count: self.count,
            first: self.first,
            delta: self.delta,
            group: self.group.into(),
            pos: self.pos,
            client: ClientId(u128::from_be_bytes(sixteen("client", &self.client)?)),
            lane: self.lane,
            seq: self.seq,
            idx: self.idx,
            session,
            before: self.before.iter().map(|before| (before.group.into(), before.weight)).collect(),
            index: LogIndex(self.ledger_index),
            time: None,
        })
    }

    fn counter(&self) -> Result<CounterName, FieldError> {
        let key = key_bytes(&self.counter.key);
        if key_text(&key) != self.counter.key {
            return Err(FieldError::Key { key: self.counter.key.clone() });
        }
        Ok(CounterName::new(&self.counter.namespace, &key)?)
    }
}

fn sixteen(what: &'static str, text: &str) -> Result<[u8; 16], FieldError> {
    let bytes = from_hex(text).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| FieldError::Hexadecimal { what, text: text.to_owned() })
}
