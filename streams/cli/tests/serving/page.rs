//! The page of a shop in a real Chromium, which is Debian's. Screenshots are left beside the build output.

#[path = "../../../../tests/npm/chromium.rs"]
mod chromium;
#[path = "../../../../tests/npm/install.rs"]
mod npm;

use crate::serving::{PROGRAM, Place, Server};
use chromium::chromium;
use npm::must;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/web");

#[test]
fn page_of_a_shop_shows_its_counts_and_nobody_elses() {
    let place = Place::new();
    let secret = &place.secret();
    let token = |arguments: &[&str]| place.token(arguments);
    let server = Server::start(&place.dir(), &["--flush-s", "2", "--secret-file", secret]);
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("web/screenshots");
    std::fs::create_dir_all(&shots).unwrap();
    let mut tests = Command::new("node");
    tests.args(["--test", "impressions.test.mjs"]).current_dir(FOLDER).env("CHROMIUM", chromium());
    tests
        .env("MODULES", npm::modules(Path::new(FOLDER)))
        .env("SHOTS", shots)
        .env("PAGE", format!("http://{}", server.address));
    tests.env("PRODUCER", token(&[])).env("TOKEN", token(&["--tenant", "shop-1", "--expires-in", "1h"]));
    tests.env("PLAIN_TOKEN", token(&["--tenant", "shop-1"])).env("EMPTY_TOKEN", token(&["--tenant", "shop-2"]));
    // The last test kills the server and starts it again.
    tests.env("PROGRAM", PROGRAM).env("DIR", place.dir()).env("SECRET", secret).env("SERVER", server.id().to_string());
    let said = must(&mut tests);
    said.lines().filter(|line| line.contains(" bytes") || line.contains(" ms")).for_each(|line| println!("{line}"));
}
