//! Positions as text, and which of them are part of a history.

use super::*;

fn birth(number: u64) -> Birth {
    Birth(NonZeroU64::new(number).unwrap())
}

fn given(text: &str) -> GivenPosition {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Restored from an image of entry 10, and 20 entries further.
fn history() -> History {
    let mut births = Births::first(birth(0xa)).ended(LogIndex(10));
    births.begin(birth(0xb));
    History { births, applied: LogIndex(1_020) }
}

fn at(index: u64, at: u64, counter: u64) -> AwardPosition {
    AwardPosition { index, at, counter }
}

/// Why it is refused, and where the caller goes on.
fn anew(text: &str) -> (AnewReason, String) {
    match history().find(&given(text), true) {
        Found::Anew(Anew { reason, given, position }) => {
            assert_eq!(given, text, "it is said which one is refused");
            (reason, position.to_string())
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_position_is_read_as_it_is_written() {
    for (position, text) in [
        (at(7, 3, 0xff), "000000000000000a.7.3.00000000000000ff"),
        (at(1_007, u64::MAX, 1), "000000000000000b.1007.18446744073709551615.0000000000000001"),
    ] {
        let marked = position.marked(&history().births);
        assert_eq!(marked.to_string(), text);
        assert_eq!((given(text).birth, given(text).position), (marked.birth, position));
    }
    let short = given("000000000000000b.1007.3");
    assert_eq!((short.birth, short.position), (Some(birth(0xb)), at(1_007, 3, u64::MAX)));
    for old in ["7.3", "7.3.ff", "7.3.00000000000000ff"] {
        assert_eq!((given(old).birth, given(old).position.index), (None, 7), "{old}");
    }
    let unknown = at(7, 3, 0).marked(&Births::default());
    assert_eq!(unknown.to_string(), "0000000000000000.7.3.0000000000000000");
    assert_eq!(given(&unknown.to_string()).birth, None);
}

#[test]
fn text_that_is_no_position_is_refused_with_what_was_said() {
    for wrong in
        ["", "7", "7.", "7.x", "7.3.+f", "7.3.", "x.7.3.ff", "000000000000000g.7.3.ff", "7.-3", "1.2.3.4.5", "a.b"]
    {
        let refused = wrong.parse::<GivenPosition>().unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{wrong:?} is no position of an award")), "{refused}");
    }
    let refused = "9".repeat(200).parse::<GivenPosition>().unwrap_err().to_string();
    assert!(refused.len() < 250, "{refused}");
    assert!("é".repeat(100).parse::<GivenPosition>().is_err(), "cut within a character");
}

#[test]
fn who_comes_with_a_position_of_this_history_goes_on_behind_it() {
    for text in [
        "000000000000000a.10.3.00000000000000ff",
        "000000000000000a.0.0",
        "000000000000000b.1020.18446744073709551615.ffffffffffffffff",
        "000000000000000b.5.3",
    ] {
        assert_eq!(history().find(&given(text), false), Found::Here(given(text).position), "{text}");
    }
    assert_eq!(
        history().find(&given("0.0"), false),
        Found::Here(AwardPosition::default()),
        "the beginning is everywhere"
    );
}

#[test]
fn who_comes_with_a_position_of_another_history_begins_where_both_part() {
    let beginning = "000000000000000a.0.0.0000000000000000".to_owned();
    for other in ["000000000000000c.1.1.ff", "000000000000000c.0.0", "7.3.ff", "99999.1.ffffffffffffffff"] {
        assert_eq!(anew(other), (AnewReason::OtherBirth, beginning.clone()), "{other}");
    }
    let image = "000000000000000a.10.18446744073709551615.ffffffffffffffff".to_owned();
    assert_eq!(anew("000000000000000a.11.1.ff"), (AnewReason::OtherBirth, image.clone()));
    assert_eq!(history().find(&given(&image), false), Found::Here(given(&image).position), "it is told a good one");
    assert_eq!(anew("000000000000000b.1021.1.ff"), (AnewReason::Ahead, beginning));
}

#[test]
fn a_process_that_has_not_heard_of_all_refuses_nothing() {
    assert_eq!(history().find(&given("000000000000000b.1021.1.ff"), false), Found::NotYet);
    let nothing = History::default();
    for text in ["000000000000000b.1.1.ff", "7.3.ff"] {
        assert_eq!(nothing.find(&given(text), true), Found::NotYet, "{text}");
    }
}

#[test]
fn a_position_that_was_kept_before_there_were_births_is_of_the_present_one() {
    let births = history().births;
    let kept = GivenPosition::kept(MarkedPosition { birth: None, position: at(1_005, 1, 1) }, &births);
    assert_eq!(history().find(&kept, false), Found::Here(at(1_005, 1, 1)));
    let kept = GivenPosition::kept(MarkedPosition { birth: Some(birth(0xc)), position: at(5, 1, 1) }, &births);
    assert!(matches!(history().find(&kept, false), Found::Anew(_)));
}
