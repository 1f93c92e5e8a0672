//! The cluster's layout: what all its processes must be told alike. `deploy/cluster.toml` explains every key.

use super::process::NODES_PER_DC_MAX;
use super::{ConfigError, read};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use tidemark_aggregator::{ClientNames, GraphClients};
use tidemark_proto::counter_order::{BadShardBy, CounterOrder, ShardBy};
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::{AGGREGATORS_MAX, DCS_MAX, GUARDED_COUNTERS_MAX, NAMESPACES_MAX, SHARDS_HELD_MAX};
use tidemark_proto::placement::{self, Placement, PlacementError, REPLICAS_MAX};
use tidemark_proto::series::SeriesPolicy;
use tidemark_proto::shards::Ranges;
use tidemark_server::names::parse_counter;
use tidemark_server::places::{LATITUDE_MAX, LONGITUDE_MAX, Place};
use tidemark_server::series::{OutOfRangeBody, PolicyBody, PolicyTextError};
use tidemark_transport::certs::Identity;
use tidemark_transport::{HostPort, PeerName, Role};
use toml::Spanned;

/// Voters of the ledger: more cost every award and protect little more.
const VOTERS_MAX: usize = 9;
/// Names of clients that may change edges. More: refused.
const GRAPH_CLIENTS_MAX: usize = 1_024;

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    pub name: String,
    /// 0 at first; `tidemark restore cluster` says which comes next.
    #[serde(default, skip_serializing_if = "is_first")]
    pub era: u64,
    pub namespaces: Vec<String>,
    /// Those of `namespaces` that have counters which may go down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updown: Vec<String>,
    /// Counters (`NAMESPACE/KEY`) spread over all valves although they have no milestone.
    #[serde(default)]
    pub spread: Vec<String>,
    /// Counters (`NAMESPACE/KEY`) at which views are cut into ranges, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Spanned<String>>,
    /// Clients that may change edges, as `DC/NAME` of their certificates, with `*` for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graph_clients: Vec<String>,
    pub voters: Vec<String>,
    pub leader: String,
    /// How namespaces keep series, until that is changed while the cluster runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesKeys>,
    /// Namespaces with counters that lie beside those of others by a piece of their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shard_by: Vec<ShardByKeys>,
    #[serde(rename = "dc")]
    pub dcs: Vec<DcLayout>,
}

/// How one namespace keeps series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesKeys {
    pub namespace: String,
    /// Granularities, each with how long its buckets are kept.
    pub keep: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<String>,
    #[serde(default)]
    pub out_of_range: OutOfRangeBody,
}

/// Where the counters of one namespace lie in a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardByKeys {
    pub namespace: String,
    /// Left out: a space of its own, of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// Of the pieces of a key between `/`, counted from 1. Left out: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piece: Option<u8>,
}

impl ShardByKeys {
    fn laid(&self) -> ShardBy {
        let ShardByKeys { namespace, space, piece } = self.clone();
        ShardBy { space: space.unwrap_or_else(|| namespace.clone()), namespace, piece: piece.unwrap_or(1) }
    }
}

/// A data centre.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DcLayout {
    pub name: String,
    /// Where others reach its aggregator; it may listen elsewhere (`listen` of its own settings).
    pub aggregator: HostPort,
    /// Where they reach the second of a pair of aggregators; its certificate has the name `second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_aggregator: Option<HostPort>,
    /// Where they reach the third and further ones; their certificates have the names `third` to `eighth`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_aggregators: Vec<HostPort>,
    /// In the order of their numbers, those that are gone too: there is a group for each.
    pub nodes: Vec<HostPort>,
    /// Numbers of nodes that were taken away, for ever. Their places in `nodes` stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<u16>,
    /// Nodes that hold each group's log; 3 where there are as many nodes, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// Where it stands, for the map of the cluster page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl SeriesKeys {
    fn body(&self) -> PolicyBody {
        let SeriesKeys { keep, late, ahead, out_of_range, .. } = self.clone();
        PolicyBody { keep, late, ahead, out_of_range }
    }

    fn policy(&self) -> Option<(String, SeriesPolicy)> {
        Some((self.namespace.clone(), self.body().policy().ok()?))
    }
}

fn is_first(era: &u64) -> bool {
    *era == 0
}

impl DcLayout {
    /// Where its aggregators are reached, in the order of their seats.
    pub fn aggregators(&self) -> Vec<HostPort> {
        let first_two = std::iter::once(&self.aggregator).chain(&self.second_aggregator);
        first_two.chain(&self.further_aggregators).cloned().collect()
    }

    /// Nodes that hold each group's log.
    pub fn replicas(&self) -> u16 {
        self.replicas.unwrap_or_else(|| placement::replicas_default(self.nodes.len() as u16))
    }

    /// Which nodes hold which group's log.
    ///
    /// # Errors
    /// [`PlacementError`]: nodes are gone that cannot be. A layout that was parsed has none.
    pub fn placement(&self) -> Result<Placement, PlacementError> {
        Placement::new(self.nodes.len() as u16, &self.gone, self.replicas())
    }

    /// A pair holds everything twice; of more, each holds some of the ranges, so there has to be one for each.
    fn check_aggregators(&self, ranges: usize) -> Result<(), Problem> {
        let further = self.further_aggregators.len();
        let all = self.aggregators().len();
        let key = format!("dc.{}.further_aggregators", self.name);
        at_most(&key, further, 0, usize::from(AGGREGATORS_MAX) - 2)?;
        if further > 0 && self.second_aggregator.is_none() {
            let expected = "a second_aggregator is expected too: these are the third and the following ones".to_owned();
            return Err(Problem::new(&key, format!("a list of {further}"), expected));
        }
        if further > 0 && ranges < all {
            let dc = &self.name;
            let least = all - 1;
            let most = SHARDS_HELD_MAX - 1;
            let expected =
                format!("dc.{dc} has {all} aggregators, a range for each is expected: {least} to {most} cuts");
            return Err(Problem::new("slots", format!("a list of {}", ranges - 1), expected));
        }
        Ok(())
    }

    fn check_gone(&self) -> Result<(), Problem> {
        let refused = |error: PlacementError| {
            let value = match error {
                PlacementError::NoNode { node, .. }
                | PlacementError::Twice { node }
                | PlacementError::Alone { node } => node.to_string(),
                PlacementError::TooFew { .. } => format!("a list of {}", self.gone.len()),
            };
            Problem::new(&format!("dc.{}.gone", self.name), value, error.to_string())
        };
        self.placement().map(drop).map_err(refused)
    }

    /// An even number costs as much as the next odd one, and survives the loss of no more nodes.
    fn check_replicas(&self) -> Result<(), Problem> {
        let replicas = self.replicas();
        let nodes = self.nodes.len();
        let most = usize::from(REPLICAS_MAX).min(nodes);
        if replicas % 2 == 1 && (1..=most).contains(&usize::from(replicas)) {
            return Ok(());
        }
        let expected = format!("an odd number, 1 to {REPLICAS_MAX} and not more than its {nodes} nodes, is expected");
        Err(Problem::new(&format!("dc.{}.replicas", self.name), replicas, expected))
    }
}

/// The layout as processes use it: data centres by their index.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub name: String,
    pub namespaces: Vec<String>,
    /// Namespaces with counters that may go down.
    pub updown: Vec<String>,
    pub spread: Vec<CounterName>,
    /// Into which views are cut.
    pub ranges: Ranges,
    /// Of namespaces that keep series from the first start.
    pub series: Vec<(String, SeriesPolicy)>,
    pub dcs: Vec<DcLayout>,
    /// Indices into `dcs`.
    pub voters: Vec<u16>,
    pub leader: u16,
}

impl ClusterFile {
    /// Reads and checks a layout.
    ///
    /// # Errors
    /// [`ConfigError`], naming key, value and limit.
    pub fn load(path: &Path) -> Result<ClusterFile, ConfigError> {
        ClusterFile::parse(path, &read(path)?)
    }

    /// Checks a layout's text; `path` is for errors.
    pub fn parse(path: &Path, text: &str) -> Result<ClusterFile, ConfigError> {
        let refused = |error: toml::de::Error| ConfigError::Toml { path: path.to_owned(), message: error.to_string() };
        let file: ClusterFile = toml::from_str(text).map_err(refused)?;
        file.check().map_err(|problem| problem.at(path, text))?;
        Ok(file)
    }

    /// The layout, by index. It was checked when it was parsed.
    pub fn layout(&self) -> Layout {
        let index = |name: &String| self.index_of(name).expect("checked: voters and leader are data centres");
        Layout {
            name: self.name.clone(),
            namespaces: self.namespaces.clone(),
            updown: self.updown.clone(),
            spread: self.spread.iter().filter_map(|counter| parse_counter(counter).ok()).collect(),
            ranges: self.ranges().unwrap_or_default(),
            series: self.series.iter().filter_map(SeriesKeys::policy).collect(),
            dcs: self.dcs.clone(),
            voters: self.voters.iter().map(index).collect(),
            leader: index(&self.leader),
        }
    }

    /// A data centre's index.
    pub fn index_of(&self, dc: &str) -> Option<u16> {
        let index = self.dcs.iter().position(|candidate| candidate.name == dc)?;
        u16::try_from(index).ok()
    }

    fn check(&self) -> Result<(), Problem> {
        if let Err(error) = Identity::new(&self.name, "dc", Role::Operator, "name") {
            return Err(Problem::new("name", &self.name, error.to_string()));
        }
        self.check_namespaces()?;
        self.check_graph_clients()?;
        self.ranges()?;
        self.check_series()?;
        self.check_dcs()?;
        self.check_addresses()?;
        self.check_voters()
    }

    fn check_namespaces(&self) -> Result<(), Problem> {
        at_most("namespaces", self.namespaces.len(), 1, NAMESPACES_MAX)?;
        distinct("namespaces", &self.namespaces)?;
        for name in &self.namespaces {
            CounterName::new(name, b"-").map_err(|error| Problem::new("namespaces", name, error.to_string()))?;
        }
        distinct("updown", &self.updown)?;
        if let Some(unknown) = self.updown.iter().find(|name| !self.namespaces.contains(name)) {
            return Err(Problem::new("updown", unknown, "it is not among `namespaces`".to_owned()));
        }
        at_most("spread", self.spread.len(), 0, GUARDED_COUNTERS_MAX)?;
        for text in &self.spread {
            let counter = parse_counter(text).map_err(|error| Problem::new("spread", text, error.to_string()))?;
            if !self.namespaces.iter().any(|name| name == counter.namespace()) {
                return Err(Problem::new("spread", text, "its namespace is not among `namespaces`".to_owned()));
            }
        }
        Ok(())
    }

    fn check_graph_clients(&self) -> Result<(), Problem> {
        let key = "graph_clients";
        at_most(key, self.graph_clients.len(), 0, GRAPH_CLIENTS_MAX)?;
        distinct(key, &self.graph_clients)?;
        for text in &self.graph_clients {
            text.parse::<ClientNames>().map_err(|error| Problem::new(key, text, error.to_string()))?;
        }
        Ok(())
    }

    /// Which clients may change edges.
    pub fn graph_clients(&self) -> GraphClients {
        GraphClients(self.graph_clients.iter().filter_map(|text| text.parse().ok()).collect())
    }

    /// The order that `shard_by` says.
    fn order(&self) -> Result<CounterOrder, Problem> {
        let laid: Vec<ShardBy> = self.shard_by.iter().map(ShardByKeys::laid).collect();
        for ShardBy { namespace, space, .. } in &laid {
            if !self.namespaces.contains(namespace) {
                let expected = "it is not among `namespaces`".to_owned();
                return Err(Problem::new("shard_by.namespace", namespace, expected));
            }
            // Its counters would lie amid the parts of others.
            let is_of_space = |other: &ShardBy| other.namespace == *space && other.space == *space;
            if self.namespaces.contains(space) && !laid.iter().any(is_of_space) {
                let expected = format!(
                    "a namespace has that name, and does not lie in it as {namespace} does: another name is expected, or a [[shard_by]] of it too"
                );
                return Err(Problem::new("shard_by.space", space, expected));
            }
        }
        let refused = |error: BadShardBy| {
            let (key, value) = match &error {
                BadShardBy::TooMany(count) => ("shard_by", format!("a list of {count}")),
                BadShardBy::Twice(name) => ("shard_by.namespace", name.clone()),
                BadShardBy::Name { name, .. } => ("shard_by.space", name.clone()),
                BadShardBy::Piece { piece, .. } => ("shard_by.piece", piece.to_string()),
            };
            Problem::new(key, value, error.to_string())
        };
        CounterOrder::new(laid).map_err(refused)
    }

    /// The ranges that `slots` cuts.
    fn ranges(&self) -> Result<Ranges, Problem> {
        let order = self.order()?;
        at_most("slots", self.slots.len(), 0, SHARDS_HELD_MAX - 1)?;
        let mut cuts: Vec<CounterName> = Vec::with_capacity(self.slots.len());
        for text in &self.slots {
            let refused = |expected: String| Problem::new("slots", text.as_ref(), expected).within(text.span());
            let cut = parse_counter(text.as_ref()).map_err(|error| refused(error.to_string()))?;
            if !self.namespaces.iter().any(|name| name == cut.namespace()) {
                return Err(refused("its namespace is not among `namespaces`".to_owned()));
            }
            cuts.push(cut);
            // The earlier cuts were a list of ranges, so it is this cut that is wrong.
            Ranges::of_ordered(cuts[cuts.len().saturating_sub(2)..].to_vec(), order.clone())
                .map_err(|error| refused(error.to_string()))?;
        }
        Ranges::of_ordered(cuts, order)
            .map_err(|error| Problem::new("slots", format!("a list of {}", self.slots.len()), error.to_string()))
    }

    fn check_series(&self) -> Result<(), Problem> {
        let names: Vec<String> = self.series.iter().map(|keys| keys.namespace.clone()).collect();
        distinct("series.namespace", &names)?;
        for keys in &self.series {
            let namespace = &keys.namespace;
            if !self.namespaces.contains(namespace) {
                let expected = "it is not among `namespaces`".to_owned();
                return Err(Problem::new("series.namespace", namespace, expected));
            }
            let refused = |error: PolicyTextError| {
                Problem::new(&format!("series.{namespace}"), "no way to keep series", error.to_string())
            };
            keys.body().policy().map_err(refused)?;
        }
        Ok(())
    }

    fn check_dcs(&self) -> Result<(), Problem> {
        at_most("dc", self.dcs.len(), 1, usize::from(DCS_MAX))?;
        distinct("dc.name", &self.dcs.iter().map(|dc| dc.name.clone()).collect::<Vec<_>>())?;
        for dc in &self.dcs {
            let named = PeerName::any(&dc.name, Role::Aggregator);
            named.map_err(|error| Problem::new("dc.name", &dc.name, error.to_string()))?;
            at_most(&format!("dc.{}.nodes", dc.name), dc.nodes.len(), 1, NODES_PER_DC_MAX as usize)?;
            dc.check_aggregators(self.slots.len() + 1)?;
            dc.check_replicas()?;
            dc.check_gone()?;
            dc.place.iter().try_for_each(|place| check_place(&dc.name, place))?;
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for dc in &self.dcs {
            for address in dc.aggregators().into_iter().chain(dc.nodes.iter().cloned()) {
                if !seen.insert(address.clone()) {
                    let key = format!("dc.{}", dc.name);
                    return Err(Problem::new(&key, address, "this address is used twice".to_owned()));
                }
            }
        }
        Ok(())
    }

    fn check_voters(&self) -> Result<(), Problem> {
        distinct("voters", &self.voters)?;
        let count = self.voters.len();
        if count.is_multiple_of(2) || count > VOTERS_MAX {
            let expected = format!("an odd number of voters, 1 to {VOTERS_MAX}, is expected");
            return Err(Problem::new("voters", format!("a list of {count}"), expected));
        }
        if let Some(unknown) = self.voters.iter().find(|name| self.index_of(name).is_none()) {
            return Err(Problem::new("voters", unknown, "there is no [[dc]] of that name".to_owned()));
        }
        if !self.voters.contains(&self.leader) {
            return Err(Problem::new("leader", &self.leader, "it must be one of `voters`".to_owned()));
        }
        Ok(())
    }
}

fn check_place(dc: &str, place: &Place) -> Result<(), Problem> {
    let sides = [("latitude", place.latitude, LATITUDE_MAX), ("longitude", place.longitude, LONGITUDE_MAX)];
    match sides.into_iter().find(|(_, value, max)| !(-max..=*max).contains(value)) {
        Some((side, value, max)) => {
            let expected = format!("{} to {max} degrees are expected", -max);
            Err(Problem::new(&format!("dc.{dc}.place.{side}"), value, expected))
        }
        None => Ok(()),
    }
}

/// A value that is not allowed.
struct Problem {
    key: String,
    value: String,
    expected: String,
    /// Where it stands, bytes, if that is known.
    place: Option<Range<usize>>,
}

impl Problem {
    fn new(key: &str, value: impl ToString, expected: String) -> Problem {
        Problem { key: key.to_owned(), value: value.to_string(), expected, place: None }
    }

    fn within(self, place: Range<usize>) -> Problem {
        Problem { place: Some(place), ..self }
    }

    fn at(self, path: &Path, text: &str) -> ConfigError {
        let Problem { key, value, expected, place } = self;
        let before = place.and_then(|place| text.get(..place.start));
        let line = before.map(|before| format!(", line {}", before.matches('\n').count() + 1)).unwrap_or_default();
        ConfigError::Value { origin: format!("{}{line}", path.display()), key, value, expected }
    }
}

fn at_most(key: &str, count: usize, min: usize, max: usize) -> Result<(), Problem> {
    let expected = || format!("{min} to {max} are allowed");
    if count < min || count > max { Err(Problem::new(key, format!("a list of {count}"), expected())) } else { Ok(()) }
}

fn distinct(key: &str, names: &[String]) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        Some(twice) => Err(Problem::new(key, twice, "it is listed twice".to_owned())),
        None => Ok(()),
    }
}
