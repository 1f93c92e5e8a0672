//! The logs under a run. Fast runs model them (`raft`); a crate above this one may bring real logs, which keep to the same virtual time.
//! The world hands over the entries of its machines, says which processes and links fail, and receives the results.

use crate::coverage::{FLOORS, Floors};
use crate::disk::Rows;
pub use crate::party::Party;
use crate::plan::{INCREMENTS_OF_EVIDENCE, Plan};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::Time;

/// The news of a member of the ledger's log.
#[derive(Clone, Debug)]
pub enum LedgerNews {
    /// It has applied the entry of this index. Entries that hold no command are not told.
    Applied { index: usize, cmds: Vec<LedgerCmd> },
    /// A snapshot that stands for everything up to this index has replaced its state.
    Restored { index: usize, ledger: Box<Ledger> },
    /// The leader, as far as it knows, and whether that is itself.
    Leader { leader: Option<usize>, leads: bool, term: u64 },
    /// It has stopped by itself.
    Failed { reason: String },
}

/// The news of a member of a group's log.
#[derive(Clone, Debug)]
pub enum GroupNews {
    /// These are committed; with the last one, this number is committed.
    Committed {
        count: usize,
        commands: Vec<Vec<u8>>,
    },
    /// It leads, under this number.
    Leads {
        leadership: u64,
    },
    Follows,
    /// Another member's rows have replaced its own; they stand for this number of commands.
    Restored {
        count: usize,
        rows: Rows,
    },
    /// A checkpoint is durable that stands for this number of commands.
    Checkpointed {
        count: usize,
    },
    /// Its node is not placed any more, and the group has gone on without it.
    Left,
    Failed {
        reason: String,
    },
}

/// News of one process start, or of a line between two.
#[derive(Clone, Debug)]
pub enum News {
    Ledger {
        dc: usize,
        boot: u32,
        news: LedgerNews,
    },
    Group {
        node: usize,
        boot: u32,
        news: GroupNews,
    },
    /// A message has come, all before it on its line too.
    Came {
        line: Line,
        message: Vec<u8>,
    },
    /// The connection under a line is lost, or there is none, and with it what had not come.
    Broke {
        line: Line,
    },
}

/// One direction of a link between two machines while it is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub from: Party,
    pub to: Party,
    /// Tells the link from earlier ones between the two.
    pub number: u64,
}

impl Line {
    pub fn back(self) -> Line {
        Line { from: self.to, to: self.from, number: self.number }
    }
}

/// The datagrams over real connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    pub sent: u64,
    pub lost: u64,
    pub cut: u64,
    pub doubled: u64,
    pub overtaken: u64,
    /// A hash of when how many bytes went from where to where.
    pub digest: u64,
}

/// The losses of a process in a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Writes that had not been synced, and are gone.
    pub writes: usize,
    /// Whether the last that is left was torn.
    pub torn: bool,
}

/// The content of a process's disk at a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    pub rows: Rows,
    /// Commands that the rows stand for.
    pub count: usize,
    /// Entries that it had in its log when it crashed, and has not now.
    pub entries_lost: u64,
}

/// A machine's reading of its data centre's layout about one group, each as the group's process there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// That hold the group's log.
    pub placed: Vec<usize>,
    /// That the data centre ever had.
    pub nodes: Vec<usize>,
    /// Those of them that were taken away.
    pub gone: Vec<usize>,
}

/// Real logs, on the world's time. Members of the ledger's log are data centres, those of groups' logs processes; a process is
/// named by its number and its start.
pub trait Engine {
    /// Goes on until something happens, at most until `until`; when, and what.
    fn next(&mut self, until: Time) -> Option<(Time, News)>;

    /// Starts a member of the ledger's log from its disk; returns the replayed news.
    fn start_ledger(&mut self, dc: usize, boot: u32) -> Result<Vec<LedgerNews>, String>;
    fn crash_ledger(&mut self, dc: usize) -> Lost;
    /// Hands commands to the log of a member that leads.
    fn propose(&mut self, dc: usize, cmds: &[LedgerCmd]);
    /// An election without need.
    fn elect(&mut self, candidate: usize);

    /// Starts a member of a group's log from its disk, by what its process has read of the layout.
    fn start_replica(&mut self, node: usize, boot: u32, nonce: u64, reads: &Reads) -> Result<Started, String>;
    /// The machine of a process runs, or not, and holds nothing of the process's group; it says so when it is asked.
    fn stand_by(&mut self, node: usize, runs: bool, reads: &Reads);
    fn crash_replica(&mut self, node: usize) -> Lost;
    /// The disk is lost; the process is down.
    fn wipe(&mut self, node: usize);
    /// The disk is set aside, as its group has let the member go; the process is down.
    fn set_aside(&mut self, node: usize);
    /// Whether each voter of the group of these processes runs and has all committed entries, so that any one may be lost. A voter with a
    /// disk that was set aside counts as such: it should be no voter any more, and a run has to show if it is.
    fn is_whole(&self, nodes: std::ops::Range<usize>) -> bool;
    /// Whether, of these processes, exactly those that it is placed on vote in their group's log, and none waits to vote.
    fn is_settled(&self, nodes: std::ops::Range<usize>, placed: &[usize]) -> bool;
    /// Hands an entry to the log, if the leadership lasts; false when it is known not to.
    fn submit(&mut self, node: usize, leadership: u64, entry: Vec<u8>) -> bool;
    /// Everything that was last told of a group was handed to its owner.
    fn taken(&mut self, node: usize);
    /// Persists a part of a checkpoint that stands for what was taken when its first part came.
    fn checkpoint(&mut self, node: usize, applied: LogIndex, last: bool, rows: Rows);
    /// The group's leader asks another member to lead.
    fn hand_over(&mut self, nodes: std::ops::Range<usize>);

    /// The disk fails after this number of further writes, which tears a transaction.
    fn fail_disk_after(&mut self, node: usize, writes: u64);
    /// The disk takes no further write, or does again.
    fn fill_disk(&mut self, node: usize, full: bool);
    /// Whether messages pass from one data centre to another.
    fn set_cut(&mut self, from: usize, to: usize, cut: bool);
    /// Whether the others of its group hear this process.
    fn set_apart(&mut self, node: usize, apart: bool);
    /// Links only delay from here on, and disks do as they should.
    fn end_faults(&mut self);

    /// Real connections between all machines, if there are any. Without, the world models their links.
    fn lines(&mut self) -> Option<&mut dyn Lines>;
}

/// Real connections, which carry what machines say to one another.
pub trait Lines {
    /// Hands a message over; its fate is told as news.
    fn say(&mut self, line: Line, message: Vec<u8>);
    /// The link is down, in both directions.
    fn hang_up(&mut self, line: Line);
    /// A client process has ended, and its connections with it.
    fn end_client(&mut self, client: usize, dc: usize);
    /// The datagrams so far.
    fn datagrams(&self) -> Datagrams;
}

/// How a seed becomes a run.
#[derive(Clone, Copy)]
pub struct Mode {
    pub name: &'static str,
    pub plan: fn(u64) -> Plan,
    /// `None`: the logs are modelled.
    pub engine: fn(&Plan) -> Option<Box<dyn Engine>>,
    /// The floors that a sweep has to meet.
    pub floors: Option<&'static Floors>,
    pub least: Least,
}

/// The least content of each run of a sweep, without which it is no evidence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Least {
    pub virtual_s: f64,
    pub increments: u64,
    pub milestones: u64,
}

impl Mode {
    /// Everything is modelled but the machines of the core.
    pub const FAST: Mode = Mode {
        name: "fast",
        plan: Plan::new,
        engine: |_| None,
        floors: Some(&FLOORS),
        least: Least { virtual_s: 60.0, increments: INCREMENTS_OF_EVIDENCE, milestones: 1 },
    };
    /// The same for a virtual hour of the reference layout at a thousand increments a second.
    pub const HOUR: Mode = Mode { name: "hour", plan: Plan::hour, floors: None, ..Mode::FAST };
    /// The same for a virtual month, with the constants that ship.
    pub const MONTH: Mode = Mode { name: "month", plan: Plan::month, floors: None, ..Mode::FAST };
}
