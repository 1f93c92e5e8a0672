//! A network of its own for machines and containers: each has an address and names, its own ports, and reaches the others. It is made of
//! the kernel's namespaces and gone with the test.

use crate::process::command;
use crate::python::{must, need_debian};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Waits until its standard input ends: no longer than the test's process is there.
const HOLD: &str = "set -e
ip link set lo up
ip link add bridge type bridge
ip addr add 10.77.0.1/16 dev bridge
ip link set bridge up
mount -t tmpfs tmpfs /run
mkdir /run/netns
mount --bind \"$1\" /etc/hosts
echo up
exec cat";
/// Gives a host its address.
const JOIN: &str = "set -e
ip netns add \"$1\"
ip link add \"v$2\" type veth peer name eth0 netns \"$1\"
ip link set \"v$2\" master bridge up
ip -n \"$1\" addr add \"$3/16\" dev eth0
ip -n \"$1\" link set eth0 up
ip -n \"$1\" link set lo up";

/// A host with an address of its own, and its names.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub aliases: Vec<String>,
}

pub struct Network {
    holder: Child,
    /// Closed, it ends the network.
    _input: Option<ChildStdin>,
    _hosts: tempfile::NamedTempFile,
    is_root: bool,
}

fn is_root() -> bool {
    must(Command::new("id").arg("-u")).trim() == "0"
}

fn need(program: &str, package: &str) {
    let is_there = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        need_debian(package);
    }
}

impl Network {
    /// Makes a network of these hosts. An unprivileged user needs a kernel that lets users make namespaces.
    pub fn new(hosts: &[Host]) -> Network {
        need("ip", "iproute2");
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = |(at, host): (usize, &Host)| format!("{} {} {}\n", address(at), host.name, host.aliases.join(" "));
        let lines: String = hosts.iter().enumerate().map(line).collect();
        std::fs::write(file.path(), format!("127.0.0.1 localhost\n{lines}")).unwrap();
        let mut unshare = Command::new("unshare");
        let is_root = is_root();
        if !is_root {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--net", "--mount", "--propagation", "private", "sh", "-c", HOLD, "sh"]).arg(file.path());
        let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = holder.stdin.take();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(
            said, "up\n",
            "this test needs namespaces of the kernel (unshare --net --mount), as root or as a user"
        );
        let network = Network { holder, _input: input, _hosts: file, is_root };
        for (at, host) in hosts.iter().enumerate() {
            let mut join = network.enter();
            must(join.args(["sh", "-c", JOIN, "sh", &host.name, &at.to_string(), &address(at)]));
        }
        network
    }

    fn enter(&self) -> Command {
        let mut nsenter = Command::new("nsenter");
        if !self.is_root {
            nsenter.args(["--user", "--preserve-credentials"]);
        }
        nsenter.args(["--net", "--mount", "--target", &self.holder.id().to_string(), "--"]).stdin(Stdio::null());
        nsenter
    }

    /// A command on a host, which finds the program `tidemark`.
    pub fn on(&self, host: &str, arguments: &[String]) -> Command {
        let mut command = self.enter();
        command.args(["ip", "netns", "exec", host]).args(arguments).env("PATH", path());
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn address(at: usize) -> String {
    format!("10.77.1.{}", at + 1)
}

/// The program's folder, before what is searched anyway.
fn path() -> std::ffi::OsString {
    let program = PathBuf::from(command(&[]).get_program());
    let folder = program.parent().map(Path::to_owned);
    let before = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(folder.into_iter().chain(std::env::split_paths(&before))).unwrap()
}
