//! A program alone, or a server and a client, and what they have to print.

use std::fmt;

/// One of two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// When the client may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// The library, or our program, says that the server listens.
    Listens,
    /// The library says that the server listens on an rsocket.
    RListens,
    /// The library says that the server is in a multicast group.
    Joined,
    /// The library says that there is a rule for the server's frames.
    Steered,
    /// The server listens at the TCP port over which the programs exchange their addresses.
    Tcp,
}

/// The output of a side: so many lines with a text.
pub(super) type Says = &'static [(Side, &'static str, usize)];

/// A program alone, or a server and a client. Both have to exit with status 0 unless it says otherwise.
#[derive(Clone, Copy)]
pub(super) struct Scenario {
    /// Its name, and that of its logs.
    pub(super) name: &'static str,
    /// A program and its arguments, with `{port}` for a free TCP port, `{programs}` for the folder of the programs, and
    /// `{scratch}` for a folder of this run.
    /// `our:` is in front of one of this repository's examples, `c:` of one of `programs/`.
    pub(super) server: &'static [&'static str],
    /// Nothing: the server runs alone.
    pub(super) client: &'static [&'static str],
    /// Arguments that the client has besides.
    pub(super) more: &'static [&'static str],
    pub(super) ready: Ready,
    /// Of `bareverbs-run`, with `{log}` for the path of the side's log.
    pub(super) options: &'static [&'static str],
    /// So many lines of a side's output have this text.
    pub(super) says: Says,
    /// The server serves until it is stopped.
    pub(super) stays: bool,
    /// The client has to fail with this status.
    pub(super) status: i32,
    /// CI leaves it out: it takes long, or differs little from another one.
    pub(super) whole: bool,
}

/// In front of the name of a program of ours.
pub(super) const OURS: &str = "our:";
/// In front of the name of a program in C of this rig.
pub(super) const IN_C: &str = "c:";

impl Scenario {
    /// Nothing.
    pub(super) const NONE: Self = Self {
        name: "",
        server: &[],
        client: &[],
        more: &[],
        ready: Ready::Tcp,
        options: &[],
        says: &[],
        stays: false,
        status: 0,
        whole: false,
    };

    /// The programs of ours that it runs.
    pub(super) fn ours(&self) -> impl Iterator<Item = &'static str> {
        let programs = [self.server.first(), self.client.first()];
        let ours = |program: &&'static str| program.strip_prefix(OURS);
        programs.into_iter().flatten().filter_map(ours)
    }

    pub(super) const fn with(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    pub(super) const fn stays(self) -> Self {
        Self {
            stays: true,
            ..self
        }
    }

    pub(super) const fn fails(self, status: i32) -> Self {
        Self { status, ..self }
    }

    pub(super) const fn whole(self) -> Self {
        Self {
            whole: true,
            ..self
        }
    }
}

pub(super) const fn alone(
    name: &'static str,
    program: &'static [&'static str],
    says: Says,
) -> Scenario {
    pair(name, Ready::Tcp, program, &[], says)
}

pub(super) const fn pair(
    name: &'static str,
    ready: Ready,
    server: &'static [&'static str],
    client: &'static [&'static str],
    says: Says,
) -> Scenario {
    Scenario {
        name,
        server,
        client,
        ready,
        says,
        ..Scenario::NONE
    }
}

/// Options for programs that use Debian's own libraries, for which the kernel's ABI is served.
pub(super) const SERVED: &[&str] = &["--uverbs"];

/// A pair of which the client has the server's arguments, and more.
pub(super) const fn same(
    name: &'static str,
    ready: Ready,
    program: &'static [&'static str],
    more: &'static [&'static str],
    says: Says,
) -> Scenario {
    Scenario {
        more,
        ..pair(name, ready, program, program, says)
    }
}
