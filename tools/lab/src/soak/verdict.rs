//! The knowledge of front ends against the shown values: each counter by itself, so that a loss of one does not make up for a double count
//! of another; and the answers to front ends against each other.

use std::collections::BTreeSet;
use std::fmt;

use tidemark_client::CounterName;

use super::account::{Account, Added, HitFate};
use super::load::{hits, key};

/// Counters that a finding names.
const NAMED_MAX: usize = 10;

/// The required value of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub counter: CounterName,
    pub least: u64,
    pub most: u64,
}

/// The counter of hits first.
pub fn expected(account: &Account) -> Vec<Expected> {
    let most = account.hits() - account.hits_that_are(HitFate::Refused);
    let least = most - account.hits_that_are(HitFate::Unknown);
    let mut all = vec![Expected { counter: hits(), least, most }];
    for (front_end, of) in account.0.iter().enumerate() {
        let adds = of.adds.iter();
        all.extend(adds.map(|(&number, added)| Expected {
            counter: key(front_end, number),
            least: added.least(),
            most: added.most(),
        }));
    }
    all
}

/// By counter, weight: what was acknowledged and is not shown, and what is shown and was never asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    lost: Vec<(CounterName, u64)>,
    doubled: Vec<(CounterName, u64)>,
}

impl Difference {
    /// `shown` in the order of `expected`.
    pub fn new(expected: &[Expected], shown: &[u64]) -> Difference {
        let mut difference = Difference::default();
        for (Expected { counter, least, most }, &shown) in expected.iter().zip(shown) {
            if shown < *least {
                difference.lost.push((counter.clone(), least - shown));
            }
            if shown > *most {
                difference.doubled.push((counter.clone(), shown - most));
            }
        }
        difference
    }

    pub fn is_nothing(&self) -> bool {
        *self == Difference::default()
    }

    pub fn lost(&self) -> u64 {
        sum(&self.lost)
    }

    pub fn doubled(&self) -> u64 {
        sum(&self.doubled)
    }
}

fn sum(counters: &[(CounterName, u64)]) -> u64 {
    counters.iter().map(|(_, weight)| weight).sum()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |counters: &[(CounterName, u64)]| {
            let each = counters.iter().take(NAMED_MAX).map(|(name, weight)| format!("{name} {weight}"));
            let more = counters.len().saturating_sub(NAMED_MAX);
            let more = (more > 0).then(|| format!("{more} more"));
            let each: Vec<String> = each.chain(more).collect();
            if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) }
        };
        let lost = named(&self.lost);
        let doubled = named(&self.doubled);
        write!(f, "{} lost{lost}, {} doubled{doubled}", self.lost(), self.doubled())
    }
}

/// How much of what was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub asked: u64,
    pub durable: u64,
    pub unknown: u64,
    pub refused: u64,
}

impl Totals {
    pub fn of(account: &Account) -> Totals {
        let adds = |of: fn(&Added) -> u64| account.adds().map(of).sum::<u64>();
        let unknown = account.hits_that_are(HitFate::Unknown);
        let refused = account.hits_that_are(HitFate::Refused);
        Totals {
            asked: account.hits() + adds(|added| added.asked),
            durable: account.hits() - unknown - refused + adds(Added::least),
            unknown: unknown + adds(|added| added.most() - added.least()),
            refused: refused + adds(|added| added.refused),
        }
    }
}

/// Answers to front ends that are impossible, whatever the cluster shows.
pub fn of_what_was_told(account: &Account) -> Vec<String> {
    let mut found = Vec::new();
    let Totals { asked, unknown, refused, .. } = Totals::of(account);
    if refused > 0 {
        found.push(format!("{refused} increments were refused"));
    }
    // Each may be counted or not, so a loss could hide behind it. A client asks until it has an answer. It reports an unknown result only
    // if a group's disks are lost for good, which a soak does to none.
    if unknown > 0 {
        found.push(format!("{unknown} of {asked} increments are of unknown fate"));
    }
    for (front_end, of) in account.0.iter().enumerate() {
        let open = of.edges_asked.as_ref();
        found.extend(open.map(|open| format!("edges of front end {front_end} are not known to be changed: {open:?}")));
        let mistold = of.edges_mistold.iter();
        found.extend(mistold.map(|mistold| format!("edges of front end {front_end} are not as was told: {mistold:?}")));
    }
    let most = account.hits() - account.hits_that_are(HitFate::Refused);
    let milestones = account.milestones().map(|(_, _, first)| first);
    let mut numbers = BTreeSet::new();
    for number in account.0.iter().flat_map(|front_end| front_end.numbers.iter().copied()).chain(milestones) {
        if !(1..=most).contains(&number) {
            found.push(format!("a hit was told to be number {number}, of {most}"));
        }
        if !numbers.insert(number) {
            found.push(format!("two hits were told to be number {number}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::account::tests::account;
    use super::*;

    const TWO: [&str; 2] = [
        "asked 10\ncounted 1 10\nadded 1 0:5 1:7\nsettled 1\n",
        "asked 4\ncounted 1 3\nadded 1 0:5\nsettled 1\nadded 2 0:1\nrefused-add 0 2\n",
    ];

    fn shown(logs: &[&str], shown: &[u64]) -> Difference {
        Difference::new(&expected(&account(logs)), shown)
    }

    #[test]
    fn a_counter_may_show_what_is_durable_and_what_nobody_knows() {
        let all: Vec<_> =
            expected(&account(&TWO)).iter().map(|of| (of.counter.to_string(), of.least, of.most)).collect();
        let of = |name: &str, least, most| (format!("soak/{name}"), least, most);
        assert_eq!(all, [of("hits", 13, 14), of("key-0-0", 5, 5), of("key-0-1", 7, 7), of("key-1-0", 3, 4)]);
        assert!(shown(&TWO, &[13, 5, 7, 3]).is_nothing() && shown(&TWO, &[14, 5, 7, 4]).is_nothing());
    }

    #[test]
    fn what_one_counter_lost_does_not_make_up_for_what_another_has_twice() {
        let found = shown(&TWO, &[12, 6, 4, 7]);
        assert_eq!((found.lost(), found.doubled()), (1 + 3, 1 + 3));
        let said = "4 lost (soak/hits 1, soak/key-0-1 3), 4 doubled (soak/key-0-0 1, soak/key-1-0 3)";
        assert_eq!(found.to_string(), said);
    }

    #[test]
    fn a_finding_names_some_counters_and_says_how_many_more_there_are() {
        let pairs: Vec<String> = (0..12).map(|number| format!("{number}:1")).collect();
        let log = format!("added 1 {}\nsettled 1\n", pairs.join(" "));
        let found = shown(&[&log], &[0; 13]);
        assert!(found.to_string().contains("soak/key-0-9 1, 2 more), 0 doubled"), "{found}");
    }

    #[test]
    fn an_unknown_fate_is_a_finding() {
        assert_eq!(of_what_was_told(&account(&["asked 5\ncounted 1 5\nadded 1 0:1\nsettled 1\n"])), [""; 0]);
        let found = of_what_was_told(&account(&["asked 5\ncounted 1 4\nadded 1 0:1\n"]));
        assert_eq!(found, ["2 of 6 increments are of unknown fate"]);
        let found = of_what_was_told(&account(&["edges 1 +0:1\nedges-made 1 1 0\nedges 2 -0:1\n"]));
        assert!(
            found.len() == 1 && found[0].starts_with("edges of front end 0 are not known to be changed: (2, "),
            "{found:?}"
        );
        let found = of_what_was_told(&account(&["edges 7 +0:1 +0:2\nedges-made 7 1 0\n"]));
        assert!(found.len() == 1 && found[0].contains("not as was told: Mistold { batch: 7, "), "{found:?}");
    }

    #[test]
    fn what_was_refused_and_numbers_that_cannot_be_are_findings() {
        let log = "asked 5\nnumber 1 2 3\nnumber 3 3 4\nmilestone 4 5 5\nrefused 5 5\n";
        let found = of_what_was_told(&account(&[log]));
        let said = ["1 increments were refused", "two hits were told to be number 4", "to be number 5, of 4"];
        assert!(found.len() == 3 && said.iter().zip(&found).all(|(said, found)| found.contains(said)), "{found:?}");
    }
}
