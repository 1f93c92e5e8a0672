//! Every limit of the core: its name, its reason, and the behaviour when it is reached.

use crate::time::Span;

/// Bytes of a namespace's name. Longer: [`crate::ids::NameError`].
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// Bytes of a counter's key. Longer: [`crate::ids::NameError`].
pub const KEY_BYTES_MAX: usize = 255;
/// Largest weight of one increment (2^40). More: the batch is refused before it is logged.
pub const DELTA_MAX: u64 = 1 << 40;
/// Largest value of one component (2^56), so that the sum over 2^6 groups of a guarded cell stays below [`MILESTONE_MAX`].
/// A batch that would pass it is refused by apply, whole.
pub const COMPONENT_MAX: u64 = 1 << 56;
/// Largest milestone (2^62): sums of base, spent, outstanding and queued weight stay inside `u64`.
pub const MILESTONE_MAX: u64 = 1 << 62;
/// Components and rights that the ledger adds up for one counter (2^63), far beyond every milestone. Bases past it are cut to the
/// rest, and no rights are granted past it. So no sum overflows `u64`, whatever groups report.
pub const CERTAIN_MAX: u64 = 1 << 63;
/// Weight that the ledger counts as sequenced for one counter (2^62): no milestone lies beyond. Further weight is placed, and not
/// added.
pub const SEQUENCED_MAX: u64 = MILESTONE_MAX;
/// Weight in the ledger's window of one counter; further offers stay queued at their groups and are offered again.
pub const WINDOW_WEIGHT_MAX: u64 = 1 << 61;
/// Largest single grant of rights. More is clamped by the ledger's apply.
pub const GRANT_MAX: u64 = 1 << 32;
/// Largest cumulative grant of one account generation; past it nothing is granted and everything is sequenced.
pub const GRANTED_CUMULATIVE_MAX: u64 = 1 << 62;
/// Items in one client batch. More: refused at decode.
pub const BATCH_ITEMS_MAX: usize = 65_536;
/// Microseconds until the end of the next commit, as an answer says: a second. A node says no more. More: refused at decode.
pub const NEXT_US_MAX: u32 = 1_000_000;
/// Client batches in one group log entry; the rest waits for the next entry.
pub const ENTRY_BATCHES_MAX: usize = 65_536;
/// Bytes of one message between processes, and of one log entry. More: refused at decode, and no sender builds one.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a message's tail, where a later version puts fields that an earlier one skips. Larger fields need another kind of
/// message. More: refused at decode. The tail counts as part of its message.
pub const TAIL_BYTES_MAX: usize = 1_024;
/// The longest time that an award may be claimed: 30 days, as long as a session's token is good.
pub const CLAIM_PERIOD_S_MAX: u32 = 30 * 24 * 3_600;
/// Passes of an unclaimed award to a later winner. Then the award lapses, so that unwanted awards do not pile up.
pub const CLAIM_PASSES_MAX: u8 = 10;
/// How long rights under `timely` may be used after the sending of a report that the ledger has applied. Long enough for several
/// round trips, and for the election of another leader of the ledger. The group and the ledger's leader must use the same value.
pub const LEASE: Span = Span::from_secs(6);
/// Clocks gain or lose less than one part in this number of parts (0.5 %).
pub const CLOCK_DRIFT_PARTS: u64 = 200;
/// From a look at the clock to the departure of an answer that depends on it takes less than this, or the answer may come too late.
pub const LEASE_MARGIN: Span = Span::from_millis(200);
/// A leader of the ledger revokes the rights of a group after this long without a report. It counts by its own clock, and from
/// its election at the earliest.
pub const REVOKE_AFTER: Span = Span(LEASE.0 + 2 * LEASE.0 / CLOCK_DRIFT_PARTS + LEASE_MARGIN.0);
/// A further condition: rights were wanted back for this long. A group that is idle but in reach returns them in this time.
pub const REVOKE_PATIENCE: Span = Span::from_secs(1);
/// A group without news for this long may be declared lost without force. Longer than a lease, than an election of the group's
/// leader, and than a restart of its nodes.
pub const LOST_AFTER: Span = Span::from_secs(10);
/// With this number of certified increments that the ledger is known to have, a group's log takes an entry to forget them.
pub const JOURNAL_TRIM_MIN: usize = 4_096;
/// Bytes of a hop token: the token that a query carries to another data centre.
pub const HOP_BYTES_MAX: usize = 4_096;
/// Bytes of a reason or another text that is only shown to people. Longer: the message is refused.
pub const TEXT_BYTES_MAX: usize = 16_384;
/// Commands that one message proposes to the ledger's leader. Even the shortest commands fill a message before this number.
pub const PROPOSED_CMDS_MAX: usize = 65_536;
/// Lanes (valves) of one group.
pub const LANES_MAX: u8 = 64;
/// Data centres of a cluster.
pub const DCS_MAX: u16 = 256;
/// Aggregators of one data centre. Each costs every arming an answer, and the ledger a learner.
pub const AGGREGATORS_MAX: u8 = 8;
/// Groups registered in the ledger, closed ones included; a further one stays unregistered and serves no clients. A view knows
/// this number of groups, and a gossip delta may name as many.
pub const GROUPS_MAX: usize = 4_096;
/// Incarnations of one group that an aggregator names in the first frame to a node: the newest ones.
pub const INCARNATIONS_SAID_MAX: usize = 64;
/// Groups with feed positions in the tail of a delta, so that it stays within [`TAIL_BYTES_MAX`]. The positions of further groups
/// are unknown then.
pub const FED_GROUPS_MAX: usize = 32;
/// Bytes of a group and an entry of its log, at most; and of a version.
const FED_BYTES_MAX: usize = 3 + 3 + 5 + 10;
/// Streams of one data centre that the tail of a delta names: there are no more.
pub const STREAMS_OF_DC_MAX: usize = AGGREGATORS_MAX as usize;
/// Bytes of a stream and its version, at most.
const STREAM_BYTES_MAX: usize = 3 + 1 + 10 + 10;
const _: () = assert!(10 + 2 + FED_GROUPS_MAX * FED_BYTES_MAX + STREAMS_OF_DC_MAX * STREAM_BYTES_MAX <= TAIL_BYTES_MAX);
/// Ranges into which a cluster's counters are cut (slots of the view), so that a list of them stays short. More: the cuts are refused.
pub const SHARDS_MAX: usize = 1_024;
/// Ranges with separate totals in one process: each costs 4 bytes of every counter that inherits. More: the layout is refused.
pub const SHARDS_HELD_MAX: usize = 64;
/// Namespaces that are laid by a piece of their keys: each pull of an aggregator that holds some ranges names them. More: refused
/// at decode, and in a layout.
pub const SHARD_BY_MAX: usize = 64;
/// The highest number of the piece of a key by which counters may be laid. Beyond: refused.
pub const KEY_PIECES_MAX: u8 = 16;
/// Valves that a view knows. Components of further valves are not taken, and the chunk or delta that brought them is requested
/// again.
pub const VALVES_MAX: usize = 1 << 16;
/// Streams with merge positions in an answer about a shard: one of each aggregator. More: the answer is refused.
pub const STANDS_MAX: usize = DCS_MAX as usize * AGGREGATORS_MAX as usize;
/// Slots of a group that a chunk of its feed passes by where its consumer does not hold their counters; to look at one takes some 100 ns.
/// More: the next chunk goes on.
pub const FEED_PASSED_BY_MAX: u32 = 1 << 14;
/// Guarded counters of a cluster, so that everything about all of them fits one message. More: `define` is refused.
pub const GUARDED_COUNTERS_MAX: usize = 1_024;
/// Counters that a cluster spreads because a client asked for it. More: the request is not taken.
pub const SPREAD_ASKED_MAX: usize = 1_024;
/// Counters of a cluster that were reset or removed or that expire: the ledger keeps a record of each, and every group and view the cell
/// of its present generation. With the longest names their part of a snapshot is 370 MB, of 1 GiB that a snapshot may have. More: the
/// request is refused.
pub const COUNTER_LIVES_MAX: usize = 1 << 20;
/// Generations of counters in one message to a group, so that the log entry that names their cells fits one too.
pub const GENERATIONS_PER_MESSAGE_MAX: usize = 1_024;
/// Milestones listed for one counter at a time. More: `define` is refused. (A rule "every k" counts as one.)
pub const MILESTONES_PER_COUNTER_MAX: usize = 1_024;
/// Batches of one client stream that may be unacknowledged.
pub const STREAM_BATCHES_IN_FLIGHT_MAX: usize = 64;
/// Batches of one client stream with a remembered placement detail; an older one is answered without ordinals.
pub const STREAM_RECORDS_MAX: usize = 64;
/// A group grows older by one for each span of this length in which it was led, by the leader's monotonic clock. A group without
/// a leader, or with more frequent changes of leader, ages more slowly, and nothing is forgotten too early.
pub const AGE_UNIT: Span = Span::from_secs(10 * 60);
/// Ages (7 days) for which a group remembers a stream without new batches: a later retry gets no answer, and is never counted.
pub const STREAMS_KEPT_AGES: u32 = 7 * 24 * 6;
/// Ages (a day) for which a group remembers the id of an increment, unless its settings give another number.
pub const IDS_KEPT_AGES: u32 = 24 * 6;
/// Ids that a group remembers at most, unless its settings say otherwise: some 45 bytes each. More: new ones are refused, and none is
/// forgotten before its time.
pub const IDS_MAX: u32 = 1 << 23;
/// The most that the settings may allow: so numbers of ids in use stay far apart from reused numbers.
pub const IDS_MAX_MAX: u32 = 1 << 26;
/// A keyed batch that arrives this number of ages after its request is refused: its ids may be forgotten before it arrives.
pub const IDS_LATE_AGES: u32 = 12;
/// Ages beyond the promise for which a group remembers an id. They cover the delay of a late batch, and the time that a client
/// may hold back an increment before it sends its age.
pub const IDS_GRACE_AGES: u32 = IDS_LATE_AGES + 3;
/// Increments that one id may stand for.
pub const ID_ITEMS_MAX: u8 = 8;
/// A client stays with one id for at most this time. Its groups remember each of its streams several times as long, even a stream
/// that it used only once. So no retry of a live client comes too late.
pub const STAY_MAX: Span = Span::from_secs(24 * 3_600);
/// Items of one offer that carry their sessions; a longer queue is offered as a block (weight only).
pub const OFFER_ITEMS_MAX: usize = 2_048;
/// Items one block offer may cover.
pub const BLOCK_ITEMS_MAX: u64 = 1 << 20;
/// Fewer increments of one weight than this are offered with their identities, even if the ledger does not want identities.
pub const BLOCK_ITEMS_MIN: usize = 8;
/// Identities are wanted when the next milestone is nearer than this, in seconds of the present rate.
pub const IDENTITIES_AHEAD_S: u64 = 2;
/// Runs of places in one message to a group; the rest follows when these are acknowledged.
pub const PLACED_RUNS_MAX: usize = 8_192;
/// Runs of places of one account that its group has not acknowledged, undecided items of the counter included. Past this limit
/// further offers stay queued at the group and are offered again.
pub const UNACKNOWLEDGED_RUNS_MAX: u64 = 1 << 17;
/// Undecided items in the ledger's window of one counter; further offers stay queued at their groups and are offered again.
pub const UNDECIDED_ITEMS_MAX: u64 = 1 << 17;
/// Items queued at one group, pending placement (24 h of 70,000/s over 15 groups). Past it batches are refused as `Overloaded`.
pub const QUEUED_ITEMS_MAX: u64 = 400_000_000;
/// Weight of the largest block: `BLOCK_ITEMS_MAX` × `DELTA_MAX` stays below [`MILESTONE_MAX`].
pub const BLOCK_WEIGHT_MAX: u64 = BLOCK_ITEMS_MAX * DELTA_MAX;
/// Process starts that a group may have made without an answer from the ledger.
pub const BOOTS_UNCONFIRMED_MAX: usize = 64;
/// Earlier process starts of a group that the ledger remembers, to tell a late greeting from a copied disk.
pub const STARTS_REMEMBERED_MAX: usize = 256;
/// Births of the cluster before the present one that the ledger remembers: one per restore of the whole cluster. Positions of
/// older births are unknown.
pub const EARLIER_BIRTHS_MAX: usize = 64;
/// Signatures kept per award (voters of the ledger).
pub const SIGNATURES_PER_AWARD_MAX: usize = 31;
/// Bytes of one certificate chain or signature kept with an award.
pub const SIGNATURE_BYTES_MAX: usize = 4_096;
/// Bytes of a cluster's name with its era, as processes tell one another. Longer: refused at decode.
pub const CLUSTER_BYTES_MAX: usize = 256;
/// Namespaces of a cluster.
pub const NAMESPACES_MAX: usize = 1_024;
/// The latest event time, the year 3000, seconds since 1970: the number of a minute stays below 2^30. Later: refused at decode.
pub const UNIX_TIME_MAX_S: u64 = 32_503_680_000;
/// Granularities that a namespace keeps. More: its policy is refused.
pub const GRANULARITIES_MAX: usize = 8;
/// Buckets of one granularity that a counter keeps: minutes for 45 days, hours for 7 years. A longer time to live: the policy is refused.
pub const BUCKETS_KEPT_MAX: u64 = 1 << 16;
/// Seconds that an event may be ahead of the log's clock: a policy that allows more is refused.
pub const AHEAD_MAX_S: u64 = 24 * 3_600;
/// Buckets of one encoded row. More: refused at decode; a writer cuts a longer row into pieces.
pub const ROW_BUCKETS_MAX: usize = 4_096;
/// Bytes of one encoded row: its head, and for each bucket at most a value and a gap.
pub const ROW_BYTES_MAX: usize = 1 + 32 * 8 + ROW_BUCKETS_MAX * (10 + 5);
/// Boundaries of one series of windows. More: the query is refused.
pub const STEPS_MAX: usize = 8_192;
/// Seconds between the proposer's clock and the time from which a policy of series holds. Groups hear of the policy before that
/// time, and all begin new granularities with the same bucket. A group that hears later counts in totals only until then.
pub const SERIES_AHEAD_S: u64 = 10;
/// Counters that are read at one instant, under one lock: 10,000 features of a model. More: the query is refused.
pub const QUERY_COUNTERS_MAX: usize = 10_000;
/// Windows of each counter in one read. More: the query is refused.
pub const QUERY_WINDOWS_MAX: usize = 8;
/// Values in one answer of series of many counters, which is read under one lock. More: the query is refused, and a smaller page
/// asks for fewer.
pub const SERIES_VALUES_MAX: usize = 200_000;
/// Counters that one ranking looks at, page by page. More: the query is refused, and a longer prefix asks for fewer.
pub const RANKED_MAX: usize = 100_000;
/// Counters in one page of a range. More: the query is refused, and the rest is asked for behind its last key.
pub const RANGE_MAX: usize = 1_000;
/// Places of a ranking. More: the query is refused.
pub const RANKS_MAX: usize = 1_000;
/// Edges between counters of a cluster. More: an edge is refused.
pub const EDGES_MAX: usize = 1 << 26;
/// Edge changes of one command of the ledger, which are carried out together. More: refused at decode; a load is cut into several.
pub const EDGE_CHANGES_PER_COMMAND_MAX: usize = 1_024;
/// Commands on changes of edges with outcomes that the ledger remembers. A command that was decided on an older graph is not
/// carried out: it may be a copy of a forgotten one. Its requester is told that the outcome is unknown.
pub const EDGE_COMMANDS_REMEMBERED: usize = 1 << 16;
/// Bytes of the text that names the author of an edge change: the name of a client's certificate, or another text. Longer:
/// refused at decode.
pub const EDGE_AUTHOR_BYTES_MAX: usize = 160;
/// Edge changes that wait in a view for the one before to be worked off. More: they are not taken and are pushed again later.
pub const EDGE_CHANGES_QUEUED_MAX: usize = 1 << 16;
/// Edge changes that the ledger lists for a view at a time. More: it says that the graph was replaced, and the view compares.
pub const EDGE_CHANGES_TOLD_MAX: usize = EDGE_CHANGES_QUEUED_MAX;
/// Batches of edge changes that the ledger remembers with their authors. Older ones are forgotten by the ledger's state; they
/// stay in the log as long as it does.
pub const EDGE_AUDIT_MAX: usize = 1_024;
/// Single changes in these, so that a snapshot is not made of loads that are long done. More: the oldest batches are forgotten.
pub const EDGE_AUDIT_CHANGES_MAX: usize = 1 << 16;
/// Names of a path that a refusal shows. The middle of a longer path is left out.
pub const EDGE_PATH_NAMES_MAX: usize = 64;
/// Pairs of namespaces between which edges are permitted. More: the permission is refused.
pub const EDGE_PERMISSIONS_MAX: usize = 4_096;
/// Characters of a time zone's name. Longer: the zone is unknown.
pub const ZONE_NAME_BYTES_MAX: usize = 64;

/// Most bytes of a counter's name, encoded.
pub const NAME_BYTES_MAX: usize = 1 + NAMESPACE_BYTES_MAX + 2 + KEY_BYTES_MAX;
/// The most bytes of one account's message, its counter's name included.
pub const ACCOUNT_BYTES_MAX: usize = NAME_BYTES_MAX + 5 + 11 + 5 + 10 + 10 + 1 + 10 + 10;
/// Most bytes of the name of a cell in a log entry that guards it.
pub const GUARDED_CELL_BYTES_MAX: usize = NAME_BYTES_MAX + 16;

// The largest messages fit: a greeting and its answer (which becomes a log entry that names every guarded cell), and the counters
// that are spread.
const MESSAGE_HEAD_BYTES: usize = 1_024;
const _: () = assert!(
    MESSAGE_HEAD_BYTES + GUARDED_COUNTERS_MAX * (ACCOUNT_BYTES_MAX + GUARDED_CELL_BYTES_MAX) <= MESSAGE_BYTES_MAX
);
const _: () =
    assert!(MESSAGE_HEAD_BYTES + (GUARDED_COUNTERS_MAX + SPREAD_ASKED_MAX) * NAME_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(
    MESSAGE_HEAD_BYTES + GENERATIONS_PER_MESSAGE_MAX * (NAME_BYTES_MAX + 5 + GUARDED_CELL_BYTES_MAX)
        <= MESSAGE_BYTES_MAX
);
const _: () = assert!(MESSAGE_HEAD_BYTES + NAMESPACES_MAX * (1 + NAMESPACE_BYTES_MAX) <= MESSAGE_BYTES_MAX);
const _: () = assert!(
    MESSAGE_HEAD_BYTES
        + SHARDS_HELD_MAX * 2 * (1 + NAME_BYTES_MAX)
        + SHARD_BY_MAX * (2 * (1 + NAMESPACE_BYTES_MAX) + 1)
        <= MESSAGE_BYTES_MAX
);
const _: () = assert!(MESSAGE_HEAD_BYTES + PLACED_RUNS_MAX * (10 + 10 + 1 + 20) <= MESSAGE_BYTES_MAX);
const _: () = assert!(MESSAGE_HEAD_BYTES + OFFER_ITEMS_MAX * (6 + 17 + 19 + 1 + 10 + 5) <= MESSAGE_BYTES_MAX);
const _: () = assert!(MESSAGE_HEAD_BYTES + GROUPS_MAX * (11 + 10) <= MESSAGE_BYTES_MAX);
const _: () = assert!(BOOTS_UNCONFIRMED_MAX * 10 < MESSAGE_HEAD_BYTES - 64);
const _: () = assert!(MILESTONE_MAX as u128 + GRANTED_CUMULATIVE_MAX as u128 <= u64::MAX as u128);
const _: () = assert!(CERTAIN_MAX as u128 + SEQUENCED_MAX as u128 + WINDOW_WEIGHT_MAX as u128 <= u64::MAX as u128);
const _: () = assert!(BLOCK_WEIGHT_MAX <= WINDOW_WEIGHT_MAX);
const _: () = assert!(LOST_AFTER.0 > REVOKE_AFTER.0);
const _: () = assert!(DELTA_MAX <= COMPONENT_MAX);
const _: () = assert!(OFFER_ITEMS_MAX as u64 <= BLOCK_ITEMS_MAX);
const _: () = assert!(BLOCK_WEIGHT_MAX < MILESTONE_MAX);

// A client that lives has streams that are remembered several times as long as it uses them.
const _: () = assert!(STAY_MAX.0 * 4 <= STREAMS_KEPT_AGES as u64 * AGE_UNIT.0);
const _: () = assert!(MESSAGE_HEAD_BYTES + ROW_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(EDGE_CHANGES_PER_COMMAND_MAX <= EDGE_AUDIT_CHANGES_MAX);
const _: () = assert!(
    MESSAGE_HEAD_BYTES + EDGE_AUTHOR_BYTES_MAX + EDGE_CHANGES_PER_COMMAND_MAX * (1 + 2 * NAME_BYTES_MAX)
        <= MESSAGE_BYTES_MAX
);
/// Counters of one client. It numbers them on its links as in its own table, so a node accepts as many numbers on one connection.
pub const CLIENT_COUNTERS_MAX: usize = 1 << 22;
