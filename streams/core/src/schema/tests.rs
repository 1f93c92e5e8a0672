//! Names have the meaning that users expect, and earlier rows never count under a reused name.

use super::*;
use crate::event::{EventError, Judged, RawEvent};
use crate::time::{Hour, Now};
use crate::values::Values;
use proptest::prelude::*;

fn rename(from: &str, to: &str) -> TypeChange {
    TypeChange::Rename { from: from.to_owned(), to: to.to_owned(), merges: false }
}

fn merge(from: &str, to: &str) -> TypeChange {
    TypeChange::Rename { from: from.to_owned(), to: to.to_owned(), merges: true }
}

fn delete(name: &str) -> TypeChange {
    TypeChange::Delete { name: name.to_owned() }
}

fn add(name: &str) -> TypeChange {
    TypeChange::Add { name: name.to_owned() }
}

/// A change that is asked for when the log has so many rows, by a clock that is far ahead.
fn at(change: &TypeChange, log_row: u64) -> Changed {
    Changed { change: change.clone(), at_ms: u64::MAX / 2 + log_row, log_row }
}

/// A schema of impressions, clicks and views, with changes at rows 10, 20 and so on of the log.
fn schema(changes: &[TypeChange]) -> Schema {
    let mut schema = Schema::default();
    schema.claim(Some(&["impression", "click", "view"].map(str::to_owned))).unwrap();
    for (number, change) in (1..).zip(changes) {
        assert_eq!(schema.change(&at(change, 10 * number)), Ok(true), "{change:?}");
    }
    schema
}

fn refused(changes: &[TypeChange], change: &TypeChange) -> String {
    schema(changes).change(&at(change, 1_000)).unwrap_err().to_string()
}

fn position(epoch: u64, before: u64) -> Position {
    Position { epoch: Epoch(epoch), before: Seq(before) }
}

fn configured() -> EventTypes {
    EventTypes::new(&["impression", "click", "view"]).unwrap()
}

/// The type that an event of a name counts as which is a row of the log; `None`: it is refused.
fn counted_as(schema: &Schema, name: &str, log_row: u64) -> Option<String> {
    let types = schema.effective(&configured());
    let values = Values::NONE;
    let raw = RawEvent { tenant: "a", listing: "x", at_s: 0, event_type: name, count: 1, values };
    raw.check_judged(Now(u64::MAX), Judged::AsOfLogRow(log_row), &types)
        .ok()
        .map(|event| types.name(event.event_type).to_owned())
}

#[test]
fn events_of_the_old_name_count_under_the_new_one() {
    let schema = schema(&[rename("view", "impression-view")]);
    for name in ["view", "impression-view"] {
        assert_eq!(counted_as(&schema, name, 5).as_deref(), Some("impression-view"));
        assert_eq!(counted_as(&schema, name, 50).as_deref(), Some("impression-view"));
    }
    assert_eq!((schema.present("view"), schema.present("click")), (Some("impression-view"), Some("click")));
}

#[test]
fn name_that_is_in_use_is_taken_by_a_merge_only() {
    assert!(refused(&[], &rename("view", "click")).starts_with("event type click exists"));
    let merged = schema(&[merge("view", "click")]);
    assert_eq!(counted_as(&merged, "view", 50).as_deref(), Some("click"));
    assert!(!merged.listed().contains("view"));
}

#[test]
fn merged_types_keep_the_ids_of_their_events() {
    // Both types are in use by a claim only: no change names them before.
    let merged = schema(&[merge("view", "click")]);
    let types = merged.effective(&configured());
    for name in ["view", "click"] {
        assert_eq!((merged.identity(name), types.identity(name)), (name.to_owned(), name));
    }
    // A merge that met no other type is a rename.
    let renamed = schema(&[merge("view", "seen")]);
    assert_eq!(renamed.identity("seen"), "view");
    let TypeChange::Rename { merges, .. } = &renamed.changes()[0].change else { panic!("no rename") };
    assert!(!merges);
    let again = schema(&[delete("view"), add("view"), merge("click", "view")]);
    assert_eq!((again.identity("view"), again.identity("click")), ("view#1".to_owned(), "click".to_owned()));
}

#[test]
fn name_of_a_deleted_type_is_taken_only_once_it_is_free() {
    let deleted = [delete("view")];
    for change in [rename("click", "view"), merge("click", "view")] {
        assert!(refused(&deleted, &change).contains("free this one by `tidemark-streams types add view`"));
    }
    let freed = schema(&[delete("view"), add("view"), merge("click", "view")]);
    assert_eq!((counted_as(&freed, "view", 5), counted_as(&freed, "view", 25).as_deref()), (None, Some("view")));
}

#[test]
fn rows_of_files_are_judged_by_the_names_of_now() {
    // The clock of the proposer was years ahead.
    let types = schema(&[delete("view"), add("view")]).effective(&configured());
    let values = Values::NONE;
    let raw = RawEvent { tenant: "a", listing: "x", at_s: 0, event_type: "view", count: 1, values };
    let counted = raw.check(Now(7), &types).map(|event| types.name(event.event_type).to_owned());
    assert_eq!(counted.as_deref(), Ok("view"));
}

#[test]
fn names_used_again_matter_in_the_epoch_of_their_owner() {
    let schema = Arc::new(schema(&[delete("view"), add("view")]));
    let types = TypesOf { schema, positions: vec![position(2, 4), position(2, 5)] };
    assert!(types.is_ambiguous(Epoch(2), Seq(0), Seq(6)) && types.has_reused_names_since(Seq(5)));
    assert!(!types.is_ambiguous(Epoch(3), Seq(0), Seq(6)), "the owner of epoch 3 knew the name before it took a row");
    assert!(!types.is_ambiguous(Epoch(2), Seq(0), Seq(5)) && !types.is_ambiguous(Epoch(2), Seq(6), Seq(9)));
    assert!(!types.has_reused_names_since(Seq(6)));
}

#[test]
fn added_name_is_reused_if_an_earlier_type_had_it() {
    let reuses = |changes: &[TypeChange]| {
        let positions = changes.iter().map(|_| position(2, 4)).collect();
        TypesOf { schema: Arc::new(schema(changes)), positions }.has_reused_names_since(Seq(1))
    };
    assert!(reuses(&[rename("view", "seen"), add("view")]));
    assert!(!reuses(&[add("new"), delete("view"), add("other")]), "no row was counted under these names before");
}

#[test]
fn merged_types_are_ambiguous_once_values_have_bounds() {
    let dimension = TypeChange::AddDimension { name: "view".into(), dimension: "country".into(), values_max: 2 };
    let ambiguous = |changes: &[TypeChange]| {
        let schema = Arc::new(schema(changes));
        let positions = (1..=changes.len() as u64).map(|at| position(2, at)).collect();
        TypesOf { schema, positions }.is_ambiguous(Epoch(2), Seq(2), Seq(9))
    };
    assert!(ambiguous(&[dimension.clone(), merge("view", "click")]), "each type had a bound of its own");
    assert!(!ambiguous(&[dimension, rename("view", "seen")]), "a name alone changes no bound");
    assert!(!ambiguous(&[rename("view", "seen"), merge("seen", "click")]));
}

#[test]
fn impossible_changes_are_refused_with_the_next_step() {
    assert_eq!(refused(&[], &rename("vew", "x")), "event type vew is unknown; known are: click, impression, view");
    assert_eq!(refused(&[], &rename("view", "view")), "event type view has this name already");
    assert!(refused(&[], &rename("view", "View")).starts_with("event type \"View\" is no name"));
    let renamed = [rename("view", "seen")];
    assert_eq!(refused(&renamed, &delete("view")), "event type view is now called seen: name that one");
    assert!(refused(&renamed, &rename("click", "view")).contains("`tidemark-streams types add view` frees the name"));
    assert!(refused(&[delete("view")], &rename("view", "x")).contains("types add"));
    let mut unlisted = Schema::default();
    unlisted.claim(None).unwrap();
    assert_eq!(unlisted.change(&at(&delete("view"), 1)), Err(SchemaRefused::Unlisted));
    assert_eq!(unlisted.list_all(&["view".to_owned()]), Ok(true));
    assert_eq!(unlisted.change(&at(&delete("view"), 1)), Ok(true));
}

#[test]
fn change_that_was_made_is_not_made_again() {
    for change in [rename("view", "seen"), delete("view")] {
        let mut schema = schema(std::slice::from_ref(&change));
        assert_eq!((schema.change(&at(&change, 99)), schema.changes().len()), (Ok(false), 1));
    }
    assert_eq!(schema(&[]).change(&at(&add("view"), 9)), Ok(false));
}

#[test]
fn rename_can_be_undone() {
    let schema = schema(&[rename("view", "seen"), rename("seen", "view")]);
    assert_eq!(counted_as(&schema, "view", 50).as_deref(), Some("view"));
    assert_eq!(counted_as(&schema, "seen", 50).as_deref(), Some("view"));
    assert_eq!((schema.identity("view"), schema.identity("seen")), ("view".to_owned(), "view".to_owned()));
}

#[test]
fn events_of_a_deleted_type_are_refused_by_name() {
    let schema = schema(&[rename("view", "seen"), delete("seen")]);
    let types = schema.effective(&configured());
    for name in ["view", "seen"] {
        let values = Values::NONE;
        let raw = RawEvent { tenant: "a", listing: "x", at_s: 0, event_type: name, count: 1, values };
        let expected = EventError::DeletedType { shown: name.to_owned() };
        assert_eq!(raw.check(Now(u64::MAX), &types), Err(expected));
        assert_eq!(schema.deleted_at_ms(name), Some(u64::MAX / 2 + 20));
    }
    assert_eq!(types.names(), ["impression", "click"]);
}

#[test]
fn name_that_is_used_again_has_no_rows_of_before() {
    let deleted = schema(&[delete("view"), add("view")]);
    // An event that was accepted before the name was used again, and is counted later.
    assert_eq!((counted_as(&deleted, "view", 5), counted_as(&deleted, "view", 19)), (None, None));
    assert_eq!(counted_as(&deleted, "view", 20).as_deref(), Some("view"));
    let renamed = schema(&[rename("view", "click-view"), add("view")]);
    assert_eq!(renamed.identity("click-view"), "view");
    assert_eq!(renamed.identity("view"), "view#1", "ids of the new type are not those of the old one");
    let types = TypesOf { schema: Arc::new(renamed), positions: vec![position(1, 4), position(1, 7)] };
    assert_eq!(types.since(Seq(4)).name("view"), Some("click-view"));
    assert_eq!(types.since(Seq(5)).name("view"), Some("view"));
    // Both are taken where the one name is configured.
    assert_eq!(types.schema.effective(&configured()).names(), ["impression", "click", "view", "click-view"]);
    assert_eq!(counted_as(&types.schema, "click-view", 50).as_deref(), Some("click-view"));
}

#[test]
fn owner_of_a_commit_knew_the_changes_before_it() {
    let schema = Arc::new(schema(&[rename("view", "seen"), delete("seen")]));
    let types = TypesOf { schema, positions: vec![position(1, 4), position(1, 4)] };
    assert_eq!((types.known_by(Seq(4)).changes().len(), types.known_by(Seq(5)).changes().len()), (0, 2));
    assert_eq!((types.between(Seq(4), Seq(5)).name("view"), types.deleted_to()), (None, Some(Seq(4))));
    assert!(types.between(Seq(1), Seq(4)).is_empty() && types.since(Seq(5)).is_empty());
}

#[test]
fn changes_and_names_in_use_are_bounded() {
    let mut schema = schema(&[]);
    let names: Vec<String> = (0..=EVENT_TYPES_MAX - 3).map(|number| format!("t{number}")).collect();
    assert_eq!(schema.claim(Some(&names)), Err(SchemaRefused::TooManyTypes));
    assert_eq!(schema.claim(Some(&names[1..])), Ok(()));
    assert_eq!(schema.change(&at(&add("more"), 1)), Err(SchemaRefused::TooManyTypes));
    for number in 0..TYPE_CHANGES_MAX {
        let change = if number % 2 == 0 { rename("view", "seen") } else { rename("seen", "view") };
        assert_eq!(schema.change(&at(&change, 1)), Ok(true));
    }
    assert_eq!(schema.change(&at(&delete("view"), 1)), Err(SchemaRefused::TooManyChanges));
}

#[test]
fn rows_are_joined_under_one_name_and_deleted_ones_left_out() {
    let mut rows = Rollups::new();
    for event_type in ["click", "impression", "view"] {
        let values = Values::NONE;
        let row = RollupRow { tenant: "a", values, listing: "x", hour: Hour(1), event_type, quarters: [1, 0, 0, 0] };
        rows.push(row).unwrap();
    }
    let changes = [merge("view", "click"), delete("impression")];
    let found = Renaming::of(changes.iter()).rows(&rows).unwrap().unwrap();
    let found: Vec<_> = found.iter().map(|row| (row.event_type, row.count())).collect();
    assert_eq!(found, [("click", 2)]);
    assert_eq!(Renaming::of([add("view")].iter()).rows(&rows), Ok(None));
}

fn any_change() -> impl Strategy<Value = TypeChange> {
    let name = || (0..4_usize).prop_map(|at| ["impression", "click", "view", "seen"][at].to_owned());
    (0..4_u8, name(), name(), any::<bool>()).prop_map(|(kind, from, to, merges)| match kind {
        0 | 1 => TypeChange::Rename { from, to, merges },
        2 => TypeChange::Delete { name: from },
        _ => TypeChange::Add { name: from },
    })
}

proptest! {
    /// An event that is counted early and renamed later counts like an event that waited in a log.
    #[test]
    fn events_that_wait_count_as_those_that_were_counted_at_once(
        changes in proptest::collection::vec(any_change(), 0..12),
        known in 0..12_usize,
        name in 0..4_usize,
    ) {
        let name = ["impression", "click", "view", "seen"][name];
        let mut all = schema(&[]);
        let mut then = None;
        for (number, change) in changes.iter().enumerate() {
            if number == known {
                then = Some((all.clone(), all.changes().len()));
            }
            let _ = all.change(&at(change, 10 * (number as u64 + 1)));
        }
        let (then, made) = then.unwrap_or_else(|| (all.clone(), all.changes().len()));
        let log_row = 10 * known as u64 + 5;
        let renaming = Renaming::of(all.changes()[made..].iter().map(|changed| &changed.change));
        // An event that is refused at once does not wait in a log.
        if let Some(at_once) = counted_as(&then, name, log_row) {
            let later = counted_as(&all, name, log_row);
            prop_assert_eq!(later.as_deref(), renaming.name(&at_once));
        }
        let listed: Vec<String> = all.listed().iter().cloned().collect();
        let restored = Schema::restored(listed, true, all.changes().to_vec());
        prop_assert_eq!(restored.as_ref(), Ok(&all));
    }
}

fn dimension(name: &str, dimension: &str, values_max: u32) -> TypeChange {
    TypeChange::AddDimension { name: name.to_owned(), dimension: dimension.to_owned(), values_max }
}

/// The dimensions of a type with their bounds.
fn dimensions_of(changes: &[TypeChange], name: &str) -> Vec<(String, u32)> {
    let known = schema(changes).dimensions();
    let of_type = known.of_types.get(name).cloned().unwrap_or_default();
    of_type.iter().map(|(number, max)| (known.names.name(*number).to_owned(), *max)).collect()
}

#[test]
fn dimensions_follow_a_type_that_is_renamed_merged_and_deleted() {
    let added = [dimension("view", "country", 5), dimension("click", "country", 9), dimension("click", "surface", 2)];
    let with = |change: &[TypeChange]| [&added, change].concat();
    let named = |pairs: &[(&str, u32)]| pairs.iter().map(|(name, max)| ((*name).to_owned(), *max)).collect::<Vec<_>>();
    assert_eq!(dimensions_of(&added, "view"), named(&[("country", 5)]));
    assert_eq!(dimensions_of(&with(&[rename("view", "seen")]), "seen"), named(&[("country", 5)]));
    assert_eq!(dimensions_of(&with(&[merge("view", "click")]), "click"), named(&[("country", 9), ("surface", 2)]));
    assert_eq!(dimensions_of(&with(&[delete("view"), add("view")]), "view"), []);
    // The name of a dimension keeps its number, also without a type.
    let names = schema(&with(&[delete("view"), delete("click")])).dimensions().names;
    assert_eq!(names.all(), ["country", "surface"]);
}

#[test]
fn dimensions_that_cannot_be_added_are_refused() {
    let added = [dimension("view", "country", 5)];
    assert_eq!(schema(&added).change(&at(&added[0], 99)), Ok(false), "the same change again has no effect");
    let refused = |change: TypeChange| refused(&added, &change);
    assert!(refused(dimension("view", "country", 6)).contains("at most 5 values: this bound stays"));
    assert!(refused(dimension("view", "n", 6)).contains("is no name"));
    assert!(refused(dimension("seen", "surface", 6)).contains("event type seen is unknown"));
    for values_max in [0, 10_001] {
        assert!(refused(dimension("view", "surface", values_max)).contains("a bound from 1 to 10000"));
    }
    let four: Vec<TypeChange> = ["a", "b", "c", "d"].iter().map(|name| dimension("view", name, 1)).collect();
    assert!(self::refused(&four, &dimension("view", "e", 1)).contains("at most 4 for ever, and has a, b, c, d"));
    assert!(schema(&four).change(&at(&dimension("click", "d", 1), 99)).is_ok(), "another type may have it too");
}

#[test]
fn events_may_have_the_dimensions_of_their_type_only() {
    let known = schema(&[dimension("view", "country", 5), rename("view", "seen")]);
    let types = known.effective(&configured());
    let values = Values::parse("\u{1}NP").unwrap();
    let raw = |event_type| RawEvent { tenant: "a", listing: "x", at_s: 0, event_type, count: 1, values };
    assert!(raw("seen").check(Now(u64::MAX), &types).is_ok());
    assert!(raw("view").check(Now(u64::MAX), &types).is_ok(), "the earlier name means the same type");
    let refused = raw("click").check(Now(u64::MAX), &types).unwrap_err();
    assert_eq!(refused.to_string(), "event type click has no dimension country (value \"NP\"); its dimensions: none");
}

#[test]
fn names_that_no_type_has_or_had_are_unknown() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let changed = schema(&[rename("view", "look"), delete("click")]);
    assert_eq!(changed.first_unknown(&names(&["impression", "view", "look", "click"]), &[]), None);
    assert_eq!(changed.first_unknown(&names(&["look", "cart", "buy"]), &[]), Some("cart"));
    assert_eq!(changed.first_unknown(&names(&["look", "cart", "buy"]), &names(&["cart"])), Some("buy"));
    let new = Schema::default();
    assert_eq!(new.first_unknown(&names(&["cart"]), &[]), None, "nothing is known yet");
    assert_eq!(new.first_unknown(&names(&["cart"]), &names(&["buy"])), Some("cart"));
    let mut older = schema(&[]);
    older.claim(None).unwrap();
    assert_eq!(older.first_unknown(&names(&["cart"]), &[]), None, "older blobs may have it");
}
