//! Of many entries that become durable at once a part is applied, and inputs that came meanwhile are taken before the next.

use super::*;

#[test]
fn of_much_that_is_durable_at_once_a_part_is_applied_and_told_before_the_next() {
    let mut world = World::new(NodeConfig::new(id(), LANES));
    world.pass(Span::from_secs(1));
    world.add(ClientId(1), 0, &[(1, 1)]);
    world.pass(Span::from_secs(1));
    let (core, &conn) = (&mut world.core, world.conns.keys().next().unwrap());
    let items: Vec<(usize, u64)> = (0..25_000).map(|nth| (1 + nth % 7, 1)).collect();
    let mut now = world.now;
    let before = core.group().applied();
    let mut last = LogIndex(0);
    for seq in 2..5 {
        now = now + Span::from_secs(1);
        core.handle(now, Input::Client { conn, msg: batch(0, seq, &items) });
        while let Some(output) = core.poll_output() {
            let Output::Append { index, entry } = output else { continue };
            assert!(entry.len() > APPLIED_BYTES_MAX, "one is a part");
            last = index;
        }
    }
    assert_eq!(last.0 - before.0, 2, "two commits are on their way");
    let pull = |cursor| Input::Aggregator { seat: 0, msg: ForGroup::Feed(FeedPull { cursor, ..world.pull }) };
    let mut inputs = VecDeque::from([pull(before), Input::Durable { upto: last }]);
    let mut told = Vec::new();
    while let Some(input) = inputs.pop_front() {
        core.handle(now, input);
        while let Some(output) = core.poll_output() {
            if let Output::Aggregator { msg: FromGroup::Feed(chunk), .. } = output {
                told.push((chunk.upto, core.group().applied()));
                inputs.push_back(pull(chunk.upto));
            }
        }
        if inputs.is_empty() && core.poll_timeout().is_some_and(|due| due <= now) {
            inputs.push_back(Input::Tick);
        }
    }
    assert_eq!(core.group().applied(), last);
    let one = before.next();
    assert_eq!(told.first(), Some(&(one, one)), "the first part is told before the second is applied");
}
