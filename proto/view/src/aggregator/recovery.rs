//! An aggregator read back from its disk: each shard from the rows of its own checkpoints, which may be done side by side.

use super::checkpoint::{
    BLOCK_CELLS, BUCKETS, CELLS, CURSORS, CUTS, Checkpoint, LIMIT, NAMES, NAMESPACES, ORDER, RowError, SHELVED, STREAM,
    Stale, TIME, VALVES, VERSIONS, malformed, parse, parse_next, parsed,
};
use super::feed::Feed;
use super::shard::{Shard, gossip_of};
use super::{AggregatorConfig, AggregatorCore};
use crate::gossip::StreamState;
use crate::view::{Cells, NotedLimit, View};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, CounterName, GroupId, LogIndex, ValveId};
use tidemark_types::limits::VALVES_MAX;
use tidemark_types::series::codec::Decoder;
use tidemark_types::shelf::parse as parse_shelved;
use tidemark_types::table::CellTable;
use tidemark_types::time::Time;
use tidemark_wire::counter_order::CounterOrder;
use tidemark_wire::msg::Version;
use tidemark_wire::shards::{Ranges, ShardId};

impl AggregatorCore {
    /// An aggregator from the rows of its first shard's checkpoints, in any order, with nothing on disk of others. Errors: [`RowError`];
    /// never panics.
    pub fn recover(
        config: AggregatorConfig,
        rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<AggregatorCore, RowError> {
        AggregatorCore::recover_shards(config, [rows])
    }

    /// The same from the rows of each shard, in their order; those of shards without rows on disk are not looked at.
    pub fn recover_shards<I: IntoIterator<Item = (Vec<u8>, Vec<u8>)>>(
        config: AggregatorConfig,
        shards: impl IntoIterator<Item = I>,
    ) -> Result<AggregatorCore, RowError> {
        let mut recoveries = Recovery::all(&config);
        for (shard, rows) in (0..).map(ShardId).zip(shards) {
            let Some(recovery) = recoveries.iter_mut().find(|recovery| recovery.shard == shard) else { continue };
            let sorted: BTreeMap<Vec<u8>, Vec<u8>> = rows.into_iter().collect();
            sorted.iter().try_for_each(|(key, value)| recovery.take(key, value))?;
        }
        Recovery::finish(config, recoveries)
    }
}

/// Reads one shard of an aggregator back from the rows of its checkpoints, in the order of their keys.
pub struct Recovery {
    config: AggregatorConfig,
    shard: ShardId,
    head: BTreeMap<Vec<u8>, Vec<u8>>,
    loaded: Option<Loaded>,
}

impl Recovery {
    /// A recovery for each shard that has rows on disk.
    pub fn all(config: &AggregatorConfig) -> Vec<Recovery> {
        let of_shard = |shard| Recovery { config: config.clone(), shard, head: BTreeMap::new(), loaded: None };
        config.kept().into_iter().map(of_shard).collect()
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Takes the next row. Errors: [`RowError`]; never panics.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        let is_split = !self.config.ranges.has(self.shard);
        if self.loaded.is_none() && matches!(key, [NAMESPACES | VALVES]) && !is_split {
            self.head.insert(key.to_vec(), value.to_vec());
            return Ok(());
        }
        if self.loaded.is_none() {
            self.loaded = Some(Loaded::new(&self.config, self.shard, &mut self.head)?);
        }
        let is_of_limits = matches!(key, [LIMIT, ..] | [CUTS] | [ORDER] | [TIME]);
        match &mut self.loaded {
            // Its cells are in its parts' files.
            Some(loaded) if is_split && !is_of_limits => loaded.stale.note(key),
            loaded => loaded.iter_mut().try_for_each(|loaded| loaded.take(key, value))?,
        }
        Ok(())
    }

    /// The aggregator, of all that [`Recovery::all`] gave; one with nothing on disk if there was no row.
    pub fn finish(config: AggregatorConfig, recoveries: Vec<Recovery>) -> Result<AggregatorCore, RowError> {
        let mut cells = Vec::new();
        let mut shards = Vec::new();
        let mut limits = BTreeMap::new();
        let mut cursors: Option<BTreeMap<GroupId, LogIndex>> = None;
        let mut beside: Option<BTreeMap<GroupId, LogIndex>> = None;
        let mut recoveries = recoveries.into_iter().peekable();
        for shard in (0..config.ranges.numbers() as u16).map(ShardId) {
            let Some(recovery) = recoveries.next_if(|recovery| recovery.shard == shard) else {
                cells.push(Cells::new(config.seed));
                shards.push(Shard::new(&config, shard));
                continue;
            };
            let loaded = recovery.loaded()?;
            if !config.ranges.has(shard) {
                let mut own = Shard::new(&config, shard);
                if let Some(Loaded { limits: noted, stale, .. }) = loaded {
                    own.checkpoint = Checkpoint::of_limits(noted.keys().cloned().collect(), true);
                    if !stale.is_empty() {
                        own.checkpoint.drop_rows(Time(0), stale);
                    }
                    limits.extend(noted);
                }
                cells.push(Cells::new(config.seed));
                shards.push(own);
                continue;
            }
            let told = loaded.iter().flat_map(|loaded| loaded.cursors.iter().copied()).collect();
            // Changes that one shard lacks are told again to all of them; a shard that is arriving is told beside the others.
            let of_shard = if config.joins(shard) { &mut beside } else { &mut cursors };
            *of_shard = Some(match of_shard.take() {
                None => told,
                Some(known) => least(&known, &told),
            });
            let (own, with) = match loaded {
                None => (Cells::new(config.seed), Shard::new(&config, shard)),
                Some(loaded) => {
                    limits.extend(loaded.limits.clone());
                    loaded.build(&config)
                }
            };
            cells.push(own);
            shards.push(with);
        }
        let now = cells.iter().map(Cells::time).max().unwrap_or_default();
        let mut view = View::of_shards(config.own, cells, config.ranges.clone());
        view.on_time(now);
        for (counter, limit) in limits {
            view.limits_mut().restore(counter, limit);
        }
        let feeds = cursors.into_iter().flatten().map(|(group, cursor)| (group, Feed::at(cursor))).collect();
        Ok(AggregatorCore::with_state(config, view, shards, feeds, beside.unwrap_or_default()))
    }

    /// The state on disk; `None` if there was no row.
    fn loaded(mut self) -> Result<Option<Loaded>, RowError> {
        let mut loaded = match self.loaded {
            None if self.head.is_empty() => return Ok(None),
            None => Loaded::new(&self.config, self.shard, &mut self.head)?,
            Some(loaded) => loaded,
        };
        if loaded.cuts != self.config.ranges.founding_cuts() {
            return Err(loaded.is_cut_elsewhere());
        }
        if !self.config.ranges.is_whole() && loaded.order != *self.config.ranges.order() {
            let disk = loaded.order.to_string();
            let asked = self.config.ranges.order().to_string();
            return Err(RowError::Order { disk, asked });
        }
        loaded.end()?;
        match loaded.is_mixed {
            true => Err(malformed(&[NAMES], &format_args!("a name that is not of shard {}", self.shard.0))),
            false => Ok(Some(loaded)),
        }
    }
}

/// The lower position of each group that both know.
fn least(known: &BTreeMap<GroupId, LogIndex>, told: &BTreeMap<GroupId, LogIndex>) -> BTreeMap<GroupId, LogIndex> {
    let both = |(group, &at): (&GroupId, &LogIndex)| Some((*group, at.min(*told.get(group)?)));
    known.iter().filter_map(both).collect()
}

/// A shard being read back.
pub(super) struct Loaded {
    pub(super) cells: Cells,
    pub(super) cursors: Vec<(GroupId, LogIndex)>,
    versions: Vec<(AggregatorId, Version)>,
    stream: Option<StreamState>,
    limits: BTreeMap<CounterName, NotedLimit>,
    cuts: Vec<CounterName>,
    order: CounterOrder,
    /// There is a name that belongs into another shard. Names come before cuts, which say why.
    is_mixed: bool,
    /// The rows on disk of a split range's cells.
    stale: Stale,
    /// The expected ranges.
    ranges: Ranges,
    shard: ShardId,
    decoder: Decoder,
}

impl Loaded {
    pub(super) fn new(
        config: &AggregatorConfig,
        shard: ShardId,
        rows: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<Loaded, RowError> {
        let namespaces: Vec<String> = match rows.remove(&vec![NAMESPACES]) {
            Some(value) => parse(&[NAMESPACES], &value)?,
            None => Vec::new(),
        };
        let valves: Vec<ValveId> = match rows.remove(&vec![VALVES]) {
            Some(value) => parse(&[VALVES], &value)?,
            None => Vec::new(),
        };
        if valves.iter().collect::<BTreeSet<_>>().len() < valves.len() || valves.len() > VALVES_MAX {
            return Err(malformed(&[VALVES], &"a valve twice, or more than allowed"));
        }
        let mut cells = Cells::load(CellTable::with_namespaces(config.seed, namespaces), &valves);
        config.budget.iter().for_each(|budget| cells.keep_within(budget, shard));
        Ok(Loaded {
            cells,
            cursors: Vec::new(),
            versions: Vec::new(),
            stream: None,
            limits: BTreeMap::new(),
            cuts: Vec::new(),
            order: CounterOrder::by_name(),
            is_mixed: false,
            stale: Stale::default(),
            ranges: config.ranges.clone(),
            shard,
            decoder: Decoder::default(),
        })
    }

    /// Takes the rows in the order of their keys: names before components.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        match key {
            [CURSORS] => self.cursors = parse(key, value)?,
            [STREAM] => {
                let stream: StreamState = parse(key, value)?;
                if !stream.has_room() {
                    return Err(malformed(key, &"no versions are left above those that were given out"));
                }
                self.stream = Some(stream);
            }
            [VERSIONS] => self.versions = parse(key, value)?,
            [TIME] => self.cells.on_time(parse(key, value)?),
            [LIMIT, counter @ ..] => {
                self.limits.insert(parse(key, counter)?, parse(key, value)?);
            }
            [CUTS] => self.cuts = parse(key, value)?,
            [ORDER] => {
                let order: CounterOrder = parse(key, value)?;
                order.validate().map_err(|error| malformed(key, &error))?;
                self.order = order;
            }
            [NAMES, ..] => self.take_names(key, value)?,
            [CELLS, block @ ..] => self.take_cells(key, block, value)?,
            [BUCKETS, number @ ..] => self.take_buckets(key, number, value)?,
            [SHELVED, number @ ..] => self.take_shelved(key, number, value)?,
            _ => return Err(RowError::Unknown { key: key.to_vec() }),
        }
        Ok(())
    }

    fn take_names(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        let known = self.cells.len();
        self.cells.load_names(value).map_err(|error| malformed(key, &error))?;
        let is_here = |slot| self.ranges.find(&self.cells.name(slot).counter) == self.shard;
        self.is_mixed |= !self.ranges.is_whole() && !(known..self.cells.len()).all(is_here);
        Ok(())
    }

    fn is_cut_elsewhere(&self) -> RowError {
        let text = |cuts: &[CounterName]| match cuts {
            [] => "no counter".to_owned(),
            cuts => cuts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        RowError::Cut { disk: text(&self.cuts), asked: text(self.ranges.founding_cuts()) }
    }

    fn take_cells(&mut self, key: &[u8], block: &[u8], value: &[u8]) -> Result<(), RowError> {
        let block = block.try_into().map(u32::from_be_bytes);
        let block = block.map_err(|_| malformed(key, &"a block's number has four bytes"))?;
        // Decoded one by one: a list of lists takes an allocation for each cell.
        let mut rest = value;
        let first = u64::from(block) * u64::from(BLOCK_CELLS);
        let cells: u64 = parse_next(key, &mut rest)?;
        for slot in first..first.saturating_add(cells) {
            if slot >= u64::from(self.cells.len()) {
                return Err(malformed(key, &"components of a cell without a name"));
            }
            for _ in 0..parse_next::<u64>(key, &mut rest)? {
                let (valve, value): (u16, u64) = parse_next(key, &mut rest)?;
                if usize::from(valve) >= self.cells.valves().len() {
                    return Err(malformed(key, &"component of an unknown valve"));
                }
                self.cells.load_component(slot as u32, valve, value);
            }
        }
        parsed(key, rest)
    }

    fn take_buckets(&mut self, key: &[u8], number: &[u8], value: &[u8]) -> Result<(), RowError> {
        let number = number.try_into().map(u32::from_be_bytes);
        let number = number.map_err(|_| malformed(key, &"a row's number has four bytes"))?;
        let mut rest = value;
        let (slot, valve): (u32, u16) = parse_next(key, &mut rest)?;
        if slot >= self.cells.len() || usize::from(valve) >= self.cells.valves().len() {
            return Err(malformed(key, &"buckets of an unknown cell or valve"));
        }
        let row = self.decoder.decode_pieces(rest).map_err(|error| malformed(key, &error))?;
        let loaded = self.cells.load_row(number, slot, valve, row);
        loaded.then_some(()).ok_or(malformed(key, &"rows before it are missing, or it is there twice"))
    }

    fn take_shelved(&mut self, key: &[u8], number: &[u8], value: &[u8]) -> Result<(), RowError> {
        let number = number.try_into().map(u32::from_be_bytes);
        let number = number.map_err(|_| malformed(key, &"a row's number has four bytes"))?;
        let (until, row) = parse_shelved(&mut self.decoder, value).map_err(|error| malformed(key, &error))?;
        let loaded = self.cells.load_shelved(number, until, &row);
        loaded.then_some(()).ok_or(malformed(key, &"old buckets of a row that is missing"))
    }

    /// There are no more rows: names are found from here on.
    pub(super) fn end(&mut self) -> Result<(), RowError> {
        self.cells.names_loaded().map_err(|error| malformed(&[NAMES], &error))
    }

    fn build(self, config: &AggregatorConfig) -> (Cells, Shard) {
        let mut gossip = gossip_of(config, self.shard);
        match self.stream {
            Some(stream) => gossip.resume(stream, self.versions, &self.cells),
            None => gossip.begin_with_walk(),
        }
        let persisted: BTreeSet<CounterName> = self.limits.into_keys().collect();
        let mut checkpoint = Checkpoint::of(&self.cells, persisted);
        if self.order != *config.ranges.order() {
            checkpoint.reorder(config.ranges.order());
        }
        (self.cells, Shard { gossip, checkpoint })
    }
}
