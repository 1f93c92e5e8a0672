//! Properties of the state: batches count once in whatever way they come again, and a restored state is the state.

use super::*;
use crate::entry::Listings;
use crate::event_ids::IdBounds;
use proptest::prelude::*;

const CONFIG: StateConfig =
    StateConfig { ids: IdSettings { others: OF_OTHERS, of_types: BTreeMap::new() }, lateness_s: 3_600 };
const OF_OTHERS: IdBounds = IdBounds { kept_ms: 600_000, ids_max: 50 };
const HOUR_MS: u64 = 3_600_000;

fn event(tenant: &'static str, at_s: i64, id: Option<u64>) -> Event<'static> {
    Event::Valid(ValidEvent {
        tenant: tenant.into(),
        listings: Listings::One("l".into()),
        at_s,
        event_type: "click".into(),
        count: 3,
        id: id.map(|id| EventKey(id, id)),
        values: "".into(),
    })
}

/// Judges a batch, writes it and applies it. Returns the entry, if there is one.
fn offer(
    state: &mut State,
    now_ms: u64,
    of: Option<BatchOf<'static>>,
    mut events: Vec<Event<'static>>,
) -> Option<Vec<u8>> {
    if let Some(of) = &of
        && state.turn(now_ms, of) != Ok(Turn::Next)
    {
        return None;
    }
    let duplicates = state.drop_known(now_ms, &mut events);
    let answer = Answer { accepted: events.len() as u32, dead_letters: 0, duplicates };
    let entry = Batch { producer: of, answer, events }.encode(state.next_row(), now_ms);
    let (head, batch) = Batch::decode(&entry).unwrap();
    state.apply(state.index() + 1, &head, &batch).unwrap();
    Some(entry.clone())
}

fn restored(rows: &BTreeMap<(&'static str, Vec<u8>), Vec<u8>>) -> State {
    let mut state = State::new(CONFIG);
    for ((table, key), value) in rows {
        state.restore(table, key, value).unwrap();
    }
    state
}

fn write(rows: &mut BTreeMap<(&'static str, Vec<u8>), Vec<u8>>, changes: Vec<StateRow>) {
    for StateRow { table, key, value } in changes {
        match value {
            Some(value) => rows.insert((table, key), value),
            None => rows.remove(&(table, key)),
        };
    }
}

#[test]
fn late_counts_are_told_by_tenant() {
    let mut state = State::new(CONFIG);
    let now_ms = 100 * HOUR_MS;
    // Hour 98 ends at 99 h and is settled at 100 h.
    let events = vec![event("a", 98 * 3_600, None), event("b", 97 * 3_600 + 5, None), event("b", 99 * 3_600, None)];
    offer(&mut state, now_ms, None, events.clone());
    assert_eq!((state.late_of("a"), state.late_of("b"), state.totals().late), (Some(0), Some(3), 3));
    offer(&mut state, now_ms + 1_000, None, events);
    assert_eq!((state.late_of("a"), state.late_of("b"), state.totals().late), (Some(3), Some(6), 9));
}

#[test]
fn entries_that_leave_rows_out_are_refused() {
    let mut state = State::new(CONFIG);
    let entry = Batch { events: vec![event("a", 5, None)], ..Batch::default() }.encode(3, 1);
    let (head, batch) = Batch::decode(&entry).unwrap();
    let error = state.apply(1, &head, &batch).unwrap_err();
    assert_eq!(error, OutOfOrder { index: 1, first_row: 3, next_row: 0 });
}

#[test]
fn ids_of_rows_are_removed_once_their_time_is_over() {
    let mut state = State::new(CONFIG);
    let mut rows = BTreeMap::new();
    offer(&mut state, 1_000, None, vec![event("a", 0, Some(1))]);
    write(&mut rows, state.take_changes(1_000));
    offer(&mut state, 500_000, None, vec![event("a", 0, Some(2))]);
    write(&mut rows, state.take_changes(500_000));
    let ids =
        |rows: &BTreeMap<(&'static str, Vec<u8>), Vec<u8>>| rows.keys().filter(|(table, _)| *table == IDS).count();
    assert_eq!(ids(&rows), 2);
    write(&mut rows, state.take_changes(601_000));
    assert_eq!(ids(&rows), 1);
}

#[test]
fn ids_of_a_type_are_restored_with_its_bounds() {
    let of_types = BTreeMap::from([("purchase".to_owned(), IdBounds { kept_ms: 86_400_000, ids_max: 9 })]);
    let config = StateConfig { ids: IdSettings { others: OF_OTHERS, of_types }, lateness_s: 3_600 };
    let mut state = State::new(config.clone());
    let mut rows = BTreeMap::new();
    let purchase = |id| match event("a", 0, Some(id)) {
        Event::Valid(event) => Event::Valid(ValidEvent { event_type: "purchase".into(), ..event }),
        Event::Broken { .. } => unreachable!(),
    };
    offer(&mut state, 1_000, None, vec![event("a", 0, Some(1)), purchase(2)]);
    write(&mut rows, state.take_changes(1_000));
    let restore = |config: &StateConfig| {
        let mut state = State::new(config.clone());
        rows.iter().for_each(|((table, key), value)| state.restore(table, key, value).unwrap());
        state
    };
    let known_after = |state: &mut State, now_ms: u64| {
        let mut events = vec![event("a", 0, Some(1)), purchase(2)];
        state.drop_known(now_ms, &mut events)
    };
    let mut again = restore(&config);
    assert_eq!((known_after(&mut again, 2_000), known_after(&mut again, 700_000)), (2, 1));
    // The row of the other types leaves the checkpoint, that of purchases stays.
    let gone = again.take_changes(700_000).iter().filter(|row| row.table == IDS && row.value.is_none()).count();
    assert_eq!(gone, 1);
    // Without bounds of its own, the type has those of the others.
    assert_eq!(known_after(&mut restore(&CONFIG), 700_000), 0);
}

proptest! {
    /// A batch of producer 0 or 1, or of none, with ids; some are sent again; checkpoints come in between; a restart from any checkpoint
    /// and the entries behind it gives what a plain model has.
    #[test]
    fn restored_state_and_model_agree(steps in prop::collection::vec((0..4_u8, prop::collection::vec(0..20_u64, 0..4), any::<bool>()), 1..40)) {
        let mut state = State::new(CONFIG);
        let mut rows = BTreeMap::new();
        let mut behind: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut next = [1_u64; 2];
        let mut model: Vec<u64> = Vec::new();
        let mut counted = 0_u64;
        for (at, (who, ids, is_checkpoint)) in steps.into_iter().enumerate() {
            let now_ms = 1_000 * at as u64 + 1_000;
            let producer = (who < 2).then(|| BatchOf { name: format!("p{who}").into(), seq: next[usize::from(who)], digest: at as u64 });
            let events: Vec<Event<'static>> = ids.iter().map(|id| event("a", 0, Some(*id))).collect();
            let entry = offer(&mut state, now_ms, producer.clone(), events.clone()).unwrap();
            behind.push((state.index(), entry));
            if who < 2 {
                next[usize::from(who)] += 1;
                prop_assert!(offer(&mut state, now_ms, producer, events).is_none(), "the same batch again");
            }
            for id in ids {
                if !model.contains(&id) {
                    model.push(id);
                    counted += 1;
                }
            }
            if is_checkpoint {
                write(&mut rows, state.take_changes(now_ms));
                behind.clear();
            }
            let mut again = restored(&rows);
            for (index, entry) in &behind {
                let (head, batch) = Batch::decode(entry).unwrap();
                again.apply(*index, &head, &batch).unwrap();
            }
            prop_assert_eq!(again.totals(), state.totals());
            prop_assert_eq!((again.next_row(), again.ids().len(), again.producers()), (state.next_row(), state.ids().len(), state.producers()));
            prop_assert_eq!((state.totals().accepted, state.next_row()), (counted, counted));
        }
    }
}
