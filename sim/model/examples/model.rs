//! Explores the rights protocol in its smallest forms: `model [CONFIG [BUG]]`, with one rule left out if a bug is named.
use tidemark_sim::teeth::{ALL, INSIDE, Mutation, SMALL};
use tidemark_sim_model::{check::check_models, config, search::explore};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let configs: Vec<_> = config::all().filter(|config| args.first().is_none_or(|name| name == config.name)).collect();
    let Some(bug) = args.get(1) else {
        check_models(&configs, &|checked| println!("{}", checked.json()));
        return;
    };
    let mut all = INSIDE.iter().map(|&bug| Mutation::Inside(bug)).chain(ALL).chain(SMALL);
    let mutation = all.find(|mutation| format!("{mutation:?}").contains(bug.as_str())).expect("a bug");
    let explored = explore(configs.first().expect("a configuration"), mutation);
    explored.trace.iter().for_each(|step| println!("{step}"));
    println!("{:?} after {} states", explored.violation, explored.states);
}
