//! Letters and other jobs take turns.

use super::*;

/// An owner with a blob of two letters, and rows for one flush behind another.
fn busy_world() -> World {
    let row = |at: usize, count| Row {
        tenant: format!("t{}", at % 7),
        listing: format!("l{at}"),
        at_s: 1_700_000_000,
        event_type: "click",
        count,
    };
    let letters = (0..2).map(|at| row(at, -1));
    let mut world = World::new(letters.chain((0..2_000).map(|at| row(at, 1))).collect());
    world.carry_out(0);
    world.apply(0, false);
    world.give_rows(2);
    commit(&mut world);
    assert!(letters_of(&world).len() == 2);
    world
}

/// Gives rows until the next command is applied. Whenever it has none, the owner has rows for another flush.
fn commit(world: &mut World) {
    for _ in 0..1_000 {
        world.give_rows(8);
        world.carry_out(0);
        if !world.proposals.is_empty() {
            world.apply(0, false);
            return;
        }
    }
    panic!("nothing was proposed");
}

fn drop_letters(world: &mut World) {
    let meta = world.manifest.live().find(|meta| meta.level == Level::DeadLetters).unwrap();
    let Content::DeadLetters(stored) = world.store[&meta.key].clone() else { panic!("{meta:?}") };
    let letters: Vec<Letter<'_>> = stored.iter().map(|letter| Letter { letter, fate: Fate::Drop }).collect();
    world.owner.handle(world.now, Input::Settle(Letters { key: meta.key, letters: &letters }));
    assert!(world.owner.is_settling(&meta.key));
}

#[test]
fn letters_have_a_turn_between_two_jobs() {
    let mut world = busy_world();
    for _ in 0..10 {
        world.give_rows(8);
        assert!(!world.owner.takes_letters(), "one job follows another");
        commit(&mut world);
    }
    world.give_rows(8);
    world.owner.handle(world.now, Input::LettersWait(true));
    assert!(!world.owner.takes_letters(), "a job is under way");
    commit(&mut world);
    world.give_rows(8);
    assert!(world.owner.takes_letters());
    drop_letters(&mut world);
    // Others wait, and yet another job is next.
    world.owner.handle(world.now, Input::LettersWait(true));
    commit(&mut world);
    world.give_rows(8);
    assert_eq!((letters_of(&world).len(), world.owner.takes_letters()), (0, false));
    commit(&mut world);
    world.give_rows(8);
    assert!(world.owner.takes_letters());
}

#[test]
fn turn_of_letters_ends_if_none_come() {
    let mut world = busy_world();
    world.give_rows(8);
    world.owner.handle(world.now, Input::LettersWait(true));
    commit(&mut world);
    world.give_rows(8);
    assert!(world.owner.takes_letters());
    assert_eq!(world.owner.poll_timeout(), Some(world.now.plus_ms(1_000)));
    world.tick(999);
    assert!(world.owner.takes_letters());
    world.tick(1);
    assert!(!world.owner.takes_letters(), "another job has begun");
    commit(&mut world);
    world.give_rows(8);
    assert!(world.owner.takes_letters(), "the next turn is that of letters");
    world.owner.handle(world.now, Input::LettersWait(false));
    assert!(!world.owner.takes_letters(), "nobody waits any more");
}

#[test]
fn merge_under_way_writes_its_blobs_at_once_for_letters() {
    let mut world = busy_world();
    let puts = |world: &World| world.outputs.iter().filter(|output| matches!(output, Output::Put(_))).count();
    for step in 0..1_000 {
        // A flush that is due comes before a merge.
        if step < 100 {
            world.give_rows(8);
        }
        world.pull();
        let before = puts(&world);
        world.owner.handle(world.now, Input::LettersWait(true));
        world.pull();
        if before == 1 && puts(&world) > 1 {
            return;
        }
        world.owner.handle(world.now, Input::LettersWait(false));
        world.carry_out(0);
        world.apply(0, false);
        world.tick(1);
    }
    panic!("no merge wrote several blobs");
}
