//! Changes of the graph that are requested here: decided on the ledger as it is known, proposed to it, and decided again if they did not
//! fit earlier changes. Clients ask on channels of their own; which of them may, the layout says.

use super::Aggregator;
use crate::asked;
use crate::shown::{LEDGER_PATIENCE, shown};
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemark_proto::edge_changes::{EdgesAnswer, EdgesMade, EdgesRefusal};
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::{EdgeFault, EdgesAsked, EdgesCount, EdgesDecided, EdgesError, EdgesFate};
use tidemark_proto::limits::EDGE_AUTHOR_BYTES_MAX;
use tidemark_proto::msg::{LedgerCmd, Reading};
use tidemark_proto::time::WallMs;
use tidemark_transport::certs::{CLUSTER_BYTES_MAX, DC_BYTES_MAX, NAME_BYTES_MAX, NameError};
use tidemark_transport::{Channel, Identity, Role};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Changes of edges of clients that are taken, made or answered at a time. More wait.
pub const EDGES_ASKED_MAX: usize = 64;
/// How long it is looked whether the ledger has decided on a change, before it is looked whether there is a ledger; and how long there may be
/// none: an election takes less.
const LOOK: Duration = Duration::from_millis(500);
const WITHOUT_LEADER: Duration = Duration::from_secs(3);
/// The longest name of a certificate fits the audit.
const _: () = assert!(
    "tidemark:////operator/".len() + "aggregator".len() + CLUSTER_BYTES_MAX + DC_BYTES_MAX + NAME_BYTES_MAX
        <= EDGE_AUTHOR_BYTES_MAX
);
const ANY: &str = "*";
/// A part that may stand in a certificate.
const VALID: &str = "any";

/// Which clients may change edges. Operators may, and no other clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphClients(pub Vec<ClientNames>);

/// Clients by what their certificates say: of one data centre or any, of one name or any. As text `DC/NAME`, with `*` for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNames {
    dc: Option<String>,
    name: Option<String>,
}

/// Why a text names no clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientNamesError {
    #[error("DC/NAME is expected, as in a client's certificate, and * for any of either")]
    Shape,
    #[error(transparent)]
    Name(#[from] NameError),
}

/// The known clients that change edges.
pub(crate) struct Edges {
    clients: GraphClients,
    room: Arc<Semaphore>,
}

impl FromStr for ClientNames {
    type Err = ClientNamesError;

    fn from_str(text: &str) -> Result<ClientNames, ClientNamesError> {
        let (dc, name) = text.split_once('/').ok_or(ClientNamesError::Shape)?;
        let [dc, name] = [dc, name].map(|part| (part != ANY).then_some(part));
        // A name that no certificate can have is a slip.
        Identity::new(VALID, dc.unwrap_or(VALID), Role::Client, name.unwrap_or(VALID))?;
        Ok(ClientNames { dc: dc.map(str::to_owned), name: name.map(str::to_owned) })
    }
}

impl ClientNames {
    fn are_of(&self, peer: &Identity) -> bool {
        let is = |said: &Option<String>, part: &str| said.as_deref().is_none_or(|said| said == part);
        is(&self.dc, peer.dc()) && is(&self.name, peer.name())
    }
}

impl GraphClients {
    /// All of them.
    pub fn all() -> GraphClients {
        GraphClients(vec![ClientNames { dc: None, name: None }])
    }

    fn permit(&self, peer: &Identity) -> bool {
        match peer.role() {
            Role::Operator => true,
            Role::Client => self.0.iter().any(|clients| clients.are_of(peer)),
            Role::Node | Role::Aggregator => false,
        }
    }
}

impl Edges {
    pub fn new(clients: GraphClients) -> Edges {
        Edges { clients, room: Arc::new(Semaphore::new(EDGES_ASKED_MAX)) }
    }
}

/// Serves one channel of a client. A client that may not change edges takes no room of those that may.
pub(crate) async fn serve(channel: Channel, aggregator: Aggregator, peer: Identity) {
    if !aggregator.edges().clients.permit(&peer) {
        let client = format!("{}/{}", peer.dc(), peer.name());
        let refused = EdgesAnswer::Refused(EdgesRefusal::NotPermitted { client });
        return asked::refuse::<EdgesAsked, _>(channel, &refused).await;
    }
    let room = aggregator.edges().room.clone();
    let answer = |asked| async move {
        let made = aggregator.change_edges(&asked, &peer.to_string()).await;
        made.map_or_else(EdgesAnswer::Refused, EdgesAnswer::Made)
    };
    asked::serve(channel, room, answer).await;
}

impl Aggregator {
    /// Changes edges, all that are asked for or none, or each of them for itself; returns once the ledger, as applied here, has them.
    ///
    /// # Errors
    /// One of them is refused, others change the same edges all the time, or the ledger does not answer.
    pub async fn change_edges(&self, asked: &EdgesAsked, by: &str) -> Result<EdgesMade, EdgesRefusal> {
        asked.check(by)?;
        if let Some((made, _)) = self.with_ledger(|ledger| ledger.graph().carried_out(asked.id)) {
            return Ok(self.made(made, true, &[]));
        }
        if shown(WITHOUT_LEADER, || self.ready().ok()).await.is_none() {
            self.ready().map_err(|reason| EdgesRefusal::NotServing(reason.to_string()))?;
        }
        let counted = self.counted_elsewhere(asked).await?;
        let deadline = Instant::now() + LEDGER_PATIENCE;
        loop {
            let EdgesDecided { cmd, refused, before } = self.decide(asked, by, &counted)?;
            match (cmd, before) {
                (None, None) => return Ok(self.made(EdgesCount::default(), false, &refused)),
                (None, Some(before)) => return Ok(self.made(before, true, &[])),
                (Some(cmd), _) => match self.carry_out(&cmd, deadline).await? {
                    Some((made, true)) => return Ok(self.made(made, false, &refused)),
                    // Decided elsewhere, or before: other ones may have been refused then.
                    Some((made, false)) => return Ok(self.made(made, true, &[])),
                    None => {}
                },
            }
            if Instant::now() >= deadline {
                return Err(EdgesRefusal::Contended);
            }
        }
    }

    fn made(&self, made: EdgesCount, again: bool, refused: &[(usize, EdgeFault)]) -> EdgesMade {
        self.with_ledger(|ledger| {
            let graph = ledger.graph();
            EdgesMade { again, ..EdgesMade::new(graph.revision(), graph.index(), made, refused) }
        })
    }

    /// The command for the ledger as it is.
    fn decide(
        &self,
        asked: &EdgesAsked,
        by: &str,
        counted: &BTreeSet<CounterName>,
    ) -> Result<EdgesDecided, EdgesError> {
        let at = WallMs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64);
        self.with_ledger(|ledger| {
            let unknown: BTreeSet<&CounterName> = self.with_core(|core| {
                let is_known = |counter: &CounterName| counted.contains(counter) || core.view().knows(counter, ledger);
                asked.to_be_known().filter(|counter| !is_known(counter)).collect()
            });
            ledger.edges_asked(asked, at, by, |counter| !unknown.contains(counter))
        })
    }

    /// Proposes a command, and waits until the ledger has decided on it. Returns the change, and whether this very command made it or an
    /// equal one that was proposed elsewhere; nothing if it did not fit earlier changes. A ledger without a leader is not waited for long:
    /// another aggregator may reach it.
    async fn carry_out(&self, cmd: &LedgerCmd, deadline: Instant) -> Result<Option<(EdgesCount, bool)>, EdgesRefusal> {
        let LedgerCmd::Edges { revision, id, at, .. } = cmd else { unreachable!("a change of edges") };
        self.submit_edges(cmd.clone()).await;
        let decided = || {
            self.with_ledger(|ledger| match ledger.graph().fate(*revision, *id) {
                EdgesFate::Open => None,
                EdgesFate::CarriedOut(made) => {
                    let decided_at = ledger.graph().carried_out(*id).map(|(_, decided_at)| decided_at);
                    Some(Ok(Some((made, decided_at == Some(*at)))))
                }
                EdgesFate::Refused => Some(Ok(None)),
                EdgesFate::Outdated => Some(Err(EdgesRefusal::Outdated)),
            })
        };
        let mut led = Instant::now();
        while Instant::now() < deadline && led.elapsed() < WITHOUT_LEADER {
            if let Some(decided) = shown(LOOK, decided).await {
                return decided;
            }
            if self.ready().is_ok() {
                led = Instant::now();
            }
        }
        Err(EdgesRefusal::InDoubt)
    }

    /// Of counters that have to be known, those that have counted, where others of the data centre hold some.
    async fn counted_elsewhere(&self, asked: &EdgesAsked) -> Result<BTreeSet<CounterName>, EdgesRefusal> {
        if !self.is_split() {
            return Ok(BTreeSet::new());
        }
        let counters: BTreeSet<&CounterName> = asked.to_be_known().collect();
        let counters: Vec<CounterName> = counters.into_iter().cloned().collect();
        let readings = self.read_many(&counters).await.map_err(|error| EdgesRefusal::NotServing(error.to_string()))?;
        let has_counted =
            |reading: &Reading| reading.up > 0 || reading.down > 0 || reading.pending > 0 || reading.generation > 0;
        let all = counters.into_iter().zip(readings);
        Ok(all.filter(|(_, reading)| has_counted(reading)).map(|(counter, _)| counter).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(texts: &[&str]) -> Result<GraphClients, ClientNamesError> {
        Ok(GraphClients(texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?))
    }

    #[test]
    fn clients_that_are_named_and_operators_may_change_edges_and_nobody_else() {
        let all = [
            (Role::Client, "usa-0", "web"),
            (Role::Client, "usa-0", "we"),
            (Role::Client, "asia-0", "web"),
            (Role::Operator, "usa-0", "one"),
            (Role::Node, "usa-0", "web"),
            (Role::Aggregator, "usa-0", "web"),
        ];
        let may = |texts: &[&str]| {
            let clients = clients(texts).unwrap();
            all.map(|(role, dc, name)| u8::from(clients.permit(&Identity::new("demo", dc, role, name).unwrap())))
        };
        assert_eq!(may(&[]), [0, 0, 0, 1, 0, 0]);
        assert_eq!(may(&["usa-0/web"]), [1, 0, 0, 1, 0, 0]);
        assert_eq!(may(&["*/web"]), [1, 0, 1, 1, 0, 0]);
        assert_eq!(may(&["usa-0/*"]), [1, 1, 0, 1, 0, 0]);
        assert_eq!(may(&["europe-0/web", "*/*"]), [1, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn what_no_certificate_says_names_no_clients() {
        for text in ["web", "*", "", "usa-0"] {
            assert_eq!(clients(&[text]), Err(ClientNamesError::Shape), "{text}");
        }
        for text in ["usa-0/", "/web", "usa-0/w*", "usa-0/client/web", "USA/web"] {
            assert!(matches!(clients(&[text]), Err(ClientNamesError::Name(_))), "{text}");
        }
    }
}
