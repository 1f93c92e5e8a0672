//! The page of commands is what clap says of the product and of its experiments, and every command that a page names exists.
//!
//! The page is written anew with `TIDEMARK_BLESS=1`.

use clap::{Arg, ArgAction, Command, CommandFactory};
use std::path::{Path, PathBuf};
use tidemark_lab::cli::Cli;

/// Options that most commands take; the page explains them once.
const COMMON: [&str; 6] = ["server", "data_dir", "token", "token_file", "ca", "json"];
/// The command with the common options that the page shows.
const COMMON_OF: &str = "get";

/// How the repository's programs are run without installing them, and the command that this is.
const RUNS: [(&str, &str); 3] = [
    ("cargo run --release --locked -- ", "tidemark "),
    ("cargo run --release --locked -p tidemark-demo -- ", "tidemark demo "),
    ("cargo run --release --locked -p tidemark-lab -- ", "tidemark "),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a page with what it has to be, or makes it so.
fn check(path: &str, wanted: &str) {
    if std::env::var_os("TIDEMARK_BLESS").is_some() {
        std::fs::write(root().join(path), wanted).unwrap();
    }
    let found = read(path);
    let line = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted);
    assert!(found == wanted, "{path} is not what the program says, from line {line:?} on: run with TIDEMARK_BLESS=1");
}

/// All commands, under the name by which users call them.
fn commands() -> Command {
    let mut top = Cli::command().name("tidemark").bin_name("tidemark");
    top.build();
    top
}

#[test]
fn the_page_of_commands_is_what_clap_says() {
    let top = commands();
    let commands: Vec<&Command> = top.get_subcommands().filter(|command| is_shown(command)).collect();
    let mut page = read("docs/reference/cli.md");
    page.truncate(page.find("\n## ").map_or(page.len(), |at| at + 1));
    page += "## Common options\n\n";
    let common = commands.iter().find(|command| command.get_name() == COMMON_OF).expect("a command with them");
    common
        .get_arguments()
        .filter(|argument| is_common(argument, common))
        .for_each(|argument| page += &option(argument));
    for command in &commands {
        described(command, "tidemark", common, &mut page);
    }
    check("docs/reference/cli.md", &page);
}

fn is_shown(command: &Command) -> bool {
    command.get_name() != "help" && !command.is_hide_set()
}

fn is_common(argument: &Arg, common: &Command) -> bool {
    let same = common.get_arguments().find(|known| known.get_id() == argument.get_id());
    COMMON.contains(&argument.get_id().as_str()) && same.is_some_and(|known| help(known) == help(argument))
}

/// A command and those below it.
fn described(command: &Command, parent: &str, common: &Command, page: &mut String) {
    let name = format!("{parent} {}", command.get_name());
    let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
    let below: Vec<&Command> = command.get_subcommands().filter(|command| is_shown(command)).collect();
    *page += &format!("\n## {name}\n\n{}.\n", summary.trim_end_matches('.'));
    let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    if let Some((_, more)) = about.split_once("\n\n") {
        *page += &format!("\n{}\n", more.trim());
    }
    if below.is_empty() || !command.is_subcommand_required_set() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>().join(" ");
        let usage = if usage.starts_with("tidemark") { usage } else { format!("{parent} {usage}") };
        *page += &format!("\n    {usage}\n");
    }
    let shown = |argument: &&Arg| !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version");
    let (shared, own): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(shown).partition(|argument| is_common(argument, common));
    if !own.is_empty() {
        *page += "\n";
        own.iter().for_each(|argument| *page += &option(argument));
    }
    if !shared.is_empty() && below.is_empty() {
        *page += "\nTakes the [common options](#common-options).\n";
    }
    if let Some(more) = command.get_after_long_help().or(command.get_after_help()) {
        *page += &format!("\n```text\n{}\n```\n", more.to_string().trim());
    }
    below.iter().for_each(|command| described(command, &name, common, page));
}

fn help(argument: &Arg) -> String {
    argument.get_help().map(ToString::to_string).unwrap_or_default()
}

/// An argument as an item of a list.
fn option(argument: &Arg) -> String {
    let takes_value = !matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::Count);
    let values: Vec<String> = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let values = values.join(" ");
    let name = match argument.get_long() {
        Some(long) if takes_value => format!("--{long} {values}"),
        Some(long) => format!("--{long}"),
        None => values,
    };
    let mut text = format!("* `{name}`");
    let said = help(argument);
    if !said.is_empty() {
        text += &format!(": {}", said.trim_end_matches('.').replace('\n', " ").replace('<', "\\<"));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if takes_value && !defaults.concat().is_empty() {
        text += &format!("; default `{}`", defaults.join(" "));
    }
    if let Some(variable) = argument.get_env() {
        text += &format!("; variable `{}`", variable.to_string_lossy());
    }
    for value in argument.get_possible_values().iter().filter(|value| takes_value && !value.is_hide_set()) {
        let said = value.get_help().map(|said| format!(": {said}")).unwrap_or_default();
        text += &format!("\n  * `{}`{said}", value.get_name());
    }
    text + "\n"
}

/// Every command that a page names exists, with the options that it is given.
#[test]
fn commands_in_pages_exist() {
    let top = commands();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in pages() {
        let text = read(&path.to_string_lossy());
        for said in commands_of(&text) {
            seen += 1;
            wrong.extend(unknown_in(&said, &top).map(|what| format!("{}: {what} in `{said}`", path.display())));
        }
    }
    assert!(seen > 100, "{seen} commands were seen");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn pages() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            let is_old = path.ends_with("decisions");
            match root().join(&path).is_dir() {
                true if !is_old => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "md") => found.push(path),
                _ => {}
            }
        }
    }
    found
}

/// Lines of blocks and pieces of code that begin with the command.
fn commands_of(text: &str) -> Vec<String> {
    let mut said = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            let run = |(run, own): &(&str, &str)| Some(format!("{own}{}", line.trim().strip_prefix(run)?));
            let own = RUNS.iter().find_map(run);
            said.push(own.unwrap_or_else(|| line.trim().to_owned()));
        } else {
            said.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    said.retain(|line| line.starts_with("tidemark "));
    said
}

/// The first word that the command does not know.
fn unknown_in(said: &str, top: &Command) -> Option<String> {
    let mut command = top;
    for word in said.split_whitespace().skip(1) {
        if matches!(word, "|" | "&&" | ";" | "&" | "#" | "…" | ">" | "--help" | "--version") {
            return None;
        }
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split('=').next().unwrap_or(flag).trim_end_matches([')', ',', ';']);
            if !command.get_arguments().any(|argument| argument.get_long() == Some(flag)) {
                return Some(format!("--{flag}"));
            }
        } else if let Some(below) = command.find_subcommand(word.trim_end_matches(';')) {
            command = below;
        } else if command.is_subcommand_required_set() && command.get_positionals().next().is_none() {
            return (word != "COMMAND").then(|| word.to_owned());
        }
    }
    None
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let top = commands();
    assert_eq!(unknown_in("tidemark add NS/KEY 5 --id x", &top), None);
    assert_eq!(unknown_in("tidemark add NS/KEY --identity x", &top).as_deref(), Some("--identity"));
    assert_eq!(unknown_in("tidemark counter forget NS/KEY", &top).as_deref(), Some("forget"));
    assert_eq!(unknown_in("tidemark count", &top).as_deref(), Some("count"));
    assert_eq!(commands_of("a `tidemark get x` b\n```sh\ntidemark add y\n```\n"), ["tidemark get x", "tidemark add y"]);
}
