//! From the rows of a checkpoint to the group that made them: checks the rows that count, and whether they belong together.

use super::read::{Kind, Stored};
use super::{
    BUCKETS, COMPONENTS, Closing, IDS, LoadError, META, Meta, NAMES, NAMES_BYTES_MAX, NAMES_PER_BLOCK, QUEUE, QueueRow,
    STREAMS, block_of, get, get_varint, key_of, malformed, queue_block_of,
};
use crate::group::cells::{COMPONENTS_PER_BLOCK, Cells, Component};
use crate::group::generations::{Generations, SavedGenerations};
use crate::group::guard::Guard;
use crate::group::ids::LoadingIds;
use crate::group::queue::Queue;
use crate::group::series::Series;
use crate::group::shelved::Place;
use crate::group::stream::{Record, STREAMS_PER_BLOCK, Stream, Streams};
use crate::group::{Group, GroupConfig};
use tidemark_types::ids::GroupId;
use tidemark_types::limits::{COMPONENT_MAX, LANES_MAX};
use tidemark_types::series::Row as Buckets;
use tidemark_types::table::CellTable;

/// The number of slots or components that room is made for without evidence that there are any.
const ROOM_MIN: usize = 1 << 16;

/// A group that is put together from the output of a [`RowReader`](super::RowReader), in its order.
#[derive(Debug)]
pub struct Loading {
    config: GroupConfig,
    begun: Option<Box<Begun>>,
}

impl Loading {
    /// A group without any state yet.
    pub fn new(config: GroupConfig) -> Loading {
        Loading { config, begun: None }
    }

    /// Takes over a row that counts.
    pub fn take(&mut self, stored: Stored) -> Result<(), LoadError> {
        match (stored.0, &mut self.begun) {
            (Kind::Closing(closing), begun) => *begun = Some(Box::new(Begun::new(self.config, *closing)?)),
            (Kind::Block { key, content }, Some(begun)) => begun.on_block(&key, &content)?,
            (Kind::Buckets { number, side, row, shelved }, Some(begun)) => {
                begun.on_buckets(number, side, row, shelved)?
            }
            (Kind::Leftover { key }, Some(begun)) => begun.on_leftover(&key)?,
            (_, None) => debug_assert!(false, "a reader begins with what completes a checkpoint"),
        }
        Ok(())
    }

    /// The group; `None` if no checkpoint was ever completed.
    pub fn finish(self) -> Result<Option<Group>, LoadError> {
        self.begun.map(|begun| begun.finish()).transpose()
    }
}

/// The state of a checkpoint that was completed.
#[derive(Debug)]
struct Begun {
    meta: Meta,
    generations: SavedGenerations,
    group: Group,
    ids: LoadingIds,
    /// The numbers of slots and components that room was made for.
    roomy: (usize, usize),
}

impl Begun {
    fn new(config: GroupConfig, mut closing: Closing) -> Result<Begun, LoadError> {
        let generations = closing.take_generations();
        let mut meta = closing.meta;
        let config = adopted(config, meta.group);
        if meta.group != config.id {
            return Err(LoadError::Foreign { found: meta.group, expected: config.id });
        }
        if !(1..=LANES_MAX).contains(&meta.lanes) {
            return Err(malformed(&[META], "no valves, or too many"));
        }
        for (number, tenure) in std::mem::take(&mut meta.tenures) {
            let guard = meta.guards.get_mut(number as usize).ok_or(malformed(&[META], "rights of an unknown guard"))?;
            guard.tenure = tenure;
        }
        for (guard, &(head, next)) in meta.guards.iter_mut().zip(&meta.queues) {
            guard.queue = Queue::to_load(head, next);
        }
        let table = CellTable::with_namespaces(config.table_seed, meta.table_namespaces.clone());
        let ring = config.ring(meta.applied.0);
        let mut cells = Cells::new(table, ring);
        cells.widen(meta.lanes);
        let mut series = Series::new(&config, meta.applied.0);
        let spaces = series.load_spaces(meta.clock, std::mem::take(&mut meta.series));
        spaces.ok_or(malformed(&[META], "the terms of a series are out of bounds"))?;
        let group = Group { cells, series, ..Group::new(config) };
        Ok(Begun { meta, generations, group, ids: LoadingIds::default(), roomy: (0, 0) })
    }

    /// A row of a checkpoint that was not completed: its block is written again by the next one, which has the same number.
    fn on_leftover(&mut self, key: &[u8]) -> Result<(), LoadError> {
        let block = block_of(key);
        match key[0] {
            IDS => self.group.ids.dirty.set(block),
            NAMES => self.group.saved.names.set(block),
            COMPONENTS => self.group.cells.dirty.set(block),
            STREAMS => self.group.streams.dirty.set(block),
            BUCKETS => self.group.series.load_leftover(block),
            QUEUE if key.len() == 14 => {
                let place = (block, queue_block_of(key)?);
                self.group.saved.queue_dirty.insert(place);
                self.group.saved.queue_sides.insert(place, 1 - key[13]);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_block(&mut self, key: &[u8], content: &[u8]) -> Result<(), LoadError> {
        let block = block_of(key);
        let side = key[key.len() - 1];
        match key[0] {
            IDS => self.on_ids(content, block, side),
            NAMES => self.on_names(content, block, side),
            COMPONENTS => self.on_components(content, block, side),
            STREAMS => self.on_streams(content, block, side),
            QUEUE if key.len() == 14 => self.on_queue(content, key),
            _ => Err(malformed(key, "unknown tag")),
        }
    }

    /// Blocks that a compaction has left on disk go with the next checkpoint.
    fn is_left(&mut self, is_there: bool, tag: u8, block: u32) -> bool {
        let is_left = !is_there && self.meta.compactions > 0;
        if is_left {
            self.group.saved.left.push((tag, block));
        }
        is_left
    }

    fn on_names(&mut self, content: &[u8], block: u32, side: u8) -> Result<(), LoadError> {
        let wrong = |what| malformed(&key_of(NAMES, block, side), what);
        let is_there = block < self.meta.slots.div_ceil(NAMES_PER_BLOCK);
        if self.is_left(is_there, NAMES, block) {
            self.group.saved.names.loaded(block, side);
            return Ok(());
        }
        let table = &mut self.group.cells.table;
        if block.checked_mul(NAMES_PER_BLOCK) != Some(table.len()) {
            return Err(wrong("names before it are missing"));
        }
        if let Some(more) = room(&mut self.roomy.0, table.len(), self.meta.slots) {
            table.reserve_records(more, content.len().min(NAMES_BYTES_MAX) / NAMES_PER_BLOCK as usize * more);
        }
        table.load_records(content).map_err(|_| wrong("a name is malformed"))?;
        self.group.saved.names.loaded(block, side);
        Ok(())
    }

    fn on_components(&mut self, mut content: &[u8], block: u32, side: u8) -> Result<(), LoadError> {
        let wrong = |what| malformed(&key_of(COMPONENTS, block, side), what);
        self.group.cells.names_loaded();
        let is_there = block < self.meta.components.div_ceil(COMPONENTS_PER_BLOCK);
        if self.is_left(is_there, COMPONENTS, block) {
            self.group.cells.dirty.loaded(block, side);
            return Ok(());
        }
        let cells = &mut self.group.cells;
        if block.checked_mul(COMPONENTS_PER_BLOCK) != Some(cells.len()) {
            return Err(wrong("components before it are missing"));
        }
        if let Some(more) = room(&mut self.roomy.1, cells.len(), self.meta.components) {
            cells.reserve(more);
        }
        while !content.is_empty() {
            let component = get_component(&mut content).ok_or_else(|| wrong("cut short"))?;
            let known = component.slot < cells.table.len() && component.lane < self.meta.lanes;
            if !known || component.value > COMPONENT_MAX || cells.has(component.slot, component.lane) {
                return Err(wrong("a component is out of bounds or given twice"));
            }
            cells.push(component);
        }
        cells.dirty.loaded(block, side);
        Ok(())
    }

    fn on_streams(&mut self, content: &[u8], block: u32, side: u8) -> Result<(), LoadError> {
        let wrong = |what| malformed(&key_of(STREAMS, block, side), what);
        let streams = &mut self.group.streams;
        if block.checked_mul(STREAMS_PER_BLOCK) != Some(streams.numbers()) {
            return Err(wrong("streams before it are missing"));
        }
        let leftover = streams.dirty.clone();
        for stream in get::<Vec<Option<Stream>>>(content).ok_or_else(|| wrong("not streams"))? {
            let is_wrong = |stream: &Stream| {
                let twice = streams.find(stream.client, stream.lane).is_some();
                stream.lane >= LANES_MAX || stream.used > self.meta.age || twice
            };
            if stream.as_ref().is_some_and(is_wrong) {
                return Err(wrong("a stream is out of bounds or given twice"));
            }
            streams.push(stream);
        }
        streams.dirty = leftover;
        streams.dirty.loaded(block, side);
        Ok(())
    }

    fn on_ids(&mut self, content: &[u8], block: u32, side: u8) -> Result<(), LoadError> {
        let wrong = |what| malformed(&key_of(IDS, block, side), what);
        if block != self.ids.slots() {
            return Err(wrong("ids before them are missing"));
        }
        self.group.ids.dirty.loaded(block, side);
        self.ids.push(content).ok_or_else(|| wrong("not ids"))
    }

    fn on_buckets(&mut self, number: u32, side: u8, row: Buckets, shelved: Option<Place>) -> Result<(), LoadError> {
        let wrong = |what| LoadError::Malformed { key: key_of(BUCKETS, number, side), what };
        let components = self.group.cells.len();
        if number >= components {
            // A component of this number may come again without buckets: then an empty row has to stand there, and on the other side.
            self.group.series.loaded_side(number, side);
            self.group.series.load_leftover(number);
            // An unfinished checkpoint may have known of a component that was not there yet when the next one was made.
            let is_empty = row.is_empty() && shelved.is_none();
            return match self.is_left(false, BUCKETS, number) || is_empty {
                true => Ok(()),
                false => Err(wrong("buckets of a component that is not there")),
            };
        }
        if row.most() > self.group.cells.component(number).value {
            return Err(wrong("a bucket holds more than its component"));
        }
        self.group.series.load_row(number, components, side, row, shelved);
        Ok(())
    }

    fn on_queue(&mut self, content: &[u8], key: &[u8]) -> Result<(), LoadError> {
        let wrong = |what| malformed(key, what);
        let number = block_of(key);
        let block = queue_block_of(key)?;
        let row = get::<QueueRow>(content).ok_or_else(|| wrong("not a queue"))?;
        let guard = self.meta.guards.get_mut(number as usize).ok_or_else(|| wrong("the queue of an unknown guard"))?;
        self.group.saved.queue_sides.insert((number, block), key[13]);
        if row.epoch != guard.epoch || row.items.is_empty() {
            return Ok(());
        }
        let loaded = guard.queue.load_block(block, row.first_pos, row.items);
        loaded.map_err(|_| wrong("a position out of bounds"))
    }

    fn finish(self) -> Result<Group, LoadError> {
        let Begun { mut group, meta, generations, ids, .. } = self;
        group.cells.names_loaded();
        complete("names", group.cells.table.len().into(), meta.slots.into())?;
        group.cells.table.index_loaded().map_err(|_| malformed(&[NAMES], "a name is given twice"))?;
        complete("components", group.cells.len().into(), meta.components.into())?;
        complete("streams", group.streams.numbers().into(), meta.streams.into())?;
        complete("queues", meta.queues.len() as u64, meta.guards.len() as u64)?;
        complete("rows of ids", ids.slots().into(), meta.id_slots.into())?;
        let dirty = std::mem::take(&mut group.ids.dirty);
        let loaded = ids.finish(group.config.table_seed, meta.first_ids, meta.ids_won, meta.age);
        group.ids = loaded.ok_or(malformed(&[META], "ids do not belong together"))?;
        group.ids.dirty = dirty;
        group.ids.set_terms(meta.id_terms);
        group.compactions = meta.compactions;
        group.saved.number = meta.number;
        group.applied = meta.applied;
        (group.boots, group.starts) = (meta.boots, meta.starts);
        (group.confirmed, group.ever_confirmed, group.fenced_out) =
            (meta.confirmed, meta.ever_confirmed, meta.fenced_out);
        (group.namespaces, group.spread, group.age) = (meta.namespaces, meta.spread, meta.age);
        group.updown = meta.updown;
        let generations = Generations::load(generations, &group.cells.table);
        group.generations = generations.ok_or(malformed(&[META], "what began again is out of bounds"))?;
        group.generations.load_heard(meta.heard);
        for (mut guard, (head, _)) in meta.guards.into_iter().zip(meta.queues) {
            finish_queue(&mut guard.queue, head, &group.streams)?;
            let number = group.guards.len() as u32;
            let sound = guard_is_sound(&guard, &group.streams);
            if guard.slot >= meta.slots || !sound || group.guard_of_slot.contains_key(&guard.slot) {
                return Err(malformed(&[META], "an account is out of bounds"));
            }
            group.queued += guard.queue.open();
            group.index_guard(guard.slot, number);
            group.guards.push(guard);
        }
        if !records_are_sound(&group) {
            return Err(malformed(&[META], "queues and records of streams differ"));
        }
        Ok(group)
    }
}

fn guard_is_sound(guard: &Guard, streams: &Streams) -> bool {
    let used = guard.spent.checked_add(guard.returned);
    let acked = guard.acked_spent <= guard.spent && guard.acked_pos <= guard.next_pos();
    let tenure = guard.tenure.is_sound(guard.spent, guard.next_pos(), |number| streams.holds(number));
    used.is_some_and(|used| used <= guard.granted) && acked && tenure
}

/// Records are of batches that were applied. They name guards that exist and, each, the items that are queued of its batch; together all
/// that are.
fn records_are_sound(group: &Group) -> bool {
    let recorded: u64 = group.streams.iter().map(|(_, stream)| stream.open()).sum();
    let agree = |(number, stream): (u32, &Stream)| {
        // A batch behind the last one would be applied again, over its record.
        let is_sound =
            |seq, record: &Record| seq <= stream.last && queued_of(group, number, seq, record) == Some(record.open());
        stream.records().all(|(seq, record)| is_sound(seq, record))
    };
    recorded == group.queued && group.streams.iter().all(agree)
}

/// The number of queued items of a record; `None` if it names the items of others.
fn queued_of(group: &Group, stream: u32, seq: u64, record: &Record) -> Option<u32> {
    let mut queued = 0;
    for part in &record.parts {
        let guard = group.guards.get(part.guard as usize)?;
        let end = part.first_pos.checked_add(part.indices.len() as u64)?;
        if part.epoch != guard.epoch {
            continue;
        }
        for (pos, &idx) in (part.first_pos..end).zip(&part.indices) {
            let Some(item) = guard.queue.get_open(pos) else { continue };
            if (item.stream, item.seq, item.idx) != (stream, seq, idx) {
                return None;
            }
            queued += 1;
        }
    }
    Some(queued)
}

/// The room to make now, with `len` of `total` read and room made for `roomy`. A damaged file may claim anything: at most twice
/// the number of read items is believed.
fn room(roomy: &mut usize, len: u32, total: u32) -> Option<usize> {
    let len = len as usize;
    let more = (total as usize).saturating_sub(len).min(len.max(ROOM_MIN));
    (len >= *roomy && more > 0).then(|| {
        *roomy = len + more;
        more
    })
}

fn finish_queue(queue: &mut Queue, head: u64, streams: &Streams) -> Result<(), LoadError> {
    queue.advance();
    complete("positions before the first increment without a place", queue.head(), head)?;
    if queue.items().any(|item| !item.placed && !streams.holds(item.stream)) {
        return Err(malformed(&[QUEUE], "a queued increment is out of bounds"));
    }
    Ok(())
}

fn complete(what: &'static str, have: u64, expected: u64) -> Result<(), LoadError> {
    if have == expected { Ok(()) } else { Err(LoadError::Incomplete { what, have, expected }) }
}

/// A replica learns its group's incarnation from the log (see [`crate::node::NodeCore::replica`]).
fn adopted(config: GroupConfig, found: GroupId) -> GroupConfig {
    let incarnation = if config.id.incarnation == 0 { found.incarnation } else { config.id.incarnation };
    GroupConfig { id: GroupId { incarnation, ..config.id }, ..config }
}

fn get_component(bytes: &mut &[u8]) -> Option<Component> {
    let slot = u32::try_from(get_varint(bytes)?).ok()?;
    let (&lane, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(Component { slot, lane, value: get_varint(bytes)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_for_what_is_there_and_never_for_more_than_twice_that() {
        let total = 1_000_000;
        let mut roomy = 0;
        let mut made = Vec::new();
        for len in (0..total).step_by(256) {
            let more = room(&mut roomy, len, total).unwrap_or(0);
            assert!(more <= ROOM_MIN.max(len as usize) && roomy > len as usize && roomy <= total as usize);
            made.extend((more > 0).then_some(roomy));
        }
        assert!(made.len() < 10 && made.last() == Some(&(total as usize)), "{made:?}");
        let mut damaged = 0;
        assert_eq!((room(&mut damaged, 0, u32::MAX), room(&mut damaged, 256, u32::MAX)), (Some(ROOM_MIN), None));
    }
}
