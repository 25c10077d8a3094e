//! Programs with ordinary sockets, which `--sockets` makes use rsockets.

use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{self, Ready, Scenario, Side};

const fn pair(
    name: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
    says: &'static [(Side, &'static str, usize)],
) -> Scenario {
    scenario::pair(name, Ready::RListens, server, client, says).with(&["--sockets"])
}

const BOTH_SAME: &[(Side, &str, usize)] = &[(Server, "the same", 1), (Client, "the same", 1)];

const MESSAGES: &[(Side, &str, usize)] = &[
    (Server, "streams wait no longer than they should", 1),
    (Server, "several messages at a time", 1),
    (Client, "several messages at a time", 1),
];

/// Takes three connections, and sends everything back.
const ECHO_SERVER: &str = "\
import asyncio
async def main():
    left, done = 3, asyncio.Event()
    async def echo(reader, writer):
        nonlocal left
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.close()
        left -= 1
        if not left: done.set()
    await asyncio.start_server(echo, '0.0.0.0', {port})
    await done.wait()
    print('served')
asyncio.run(main())
";

/// Makes two connections by RDMA and one by the system's network at once.
const ECHO_CLIENT: &str = "\
import asyncio
async def one(number, host):
    reader, writer = await asyncio.open_connection(host, {port})
    sent = bytes([number]) * 1000000
    async def send():
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    received = await reader.read(-1)
    await sending
    assert received == sent
    print('the same from', host)
async def main():
    await asyncio.gather(one(1, '10.0.0.1'), one(2, '10.0.0.1'), one(3, '127.0.0.1'))
asyncio.run(main())
";

pub(super) const ALL: &[Scenario] = &[
    // A file each way, in `poll`.
    pair(
        "sockets-nc",
        &[
            "/bin/sh",
            "-ec",
            "nc -N -l {port} < {programs}/rping > {scratch}/of-client\n\
             cmp {programs}/ib_write_bw {scratch}/of-client && echo the same",
        ],
        &[
            "/bin/sh",
            "-ec",
            "nc -N 10.0.0.1 {port} < {programs}/ib_write_bw > {scratch}/of-server\n\
             cmp {programs}/rping {scratch}/of-server && echo the same",
        ],
        BOTH_SAME,
    ),
    // The server listens on the system's network as well.
    pair(
        "sockets-nc-loopback",
        &[
            "/bin/sh",
            "-ec",
            "nc -N -l {port} < {programs}/rping > {scratch}/of-client\n\
             cmp {programs}/ib_write_bw {scratch}/of-client && echo the same",
        ],
        &[
            "/bin/sh",
            "-ec",
            "nc -N 127.0.0.1 {port} < {programs}/ib_write_bw > {scratch}/of-server\n\
             cmp {programs}/rping {scratch}/of-server && echo the same",
        ],
        BOTH_SAME,
    ),
    // Datagrams, which `nc` takes from its first sender.
    pair(
        "sockets-nc-datagrams",
        &["nc", "-u", "-l", "{port}"],
        &[
            "/bin/sh",
            "-ec",
            "echo a datagram | nc -u -w 1 10.0.0.1 {port}; echo sent",
        ],
        &[(Server, "a datagram", 1), (Client, "sent", 1)],
    )
    .stays(),
    // In `select`.
    pair(
        "sockets-iperf3",
        &["iperf3", "-s", "-1", "-p", "{port}"],
        &["iperf3", "-c", "10.0.0.1", "-t", "1", "-p", "{port}"],
        &[
            (Server, "Accepted connection from 10.0.0.2", 1),
            (Server, "receiver", 1),
            (Client, "iperf Done.", 1),
        ],
    ),
    pair(
        "sockets-iperf3-ipv6",
        &["iperf3", "-s", "-1", "-p", "{port}"],
        &["iperf3", "-R", "-c", "fd00::1", "-t", "1", "-p", "{port}"],
        &[
            (Server, "Accepted connection from fd00::2", 1),
            (Server, "sender", 1),
            (Client, "iperf Done.", 1),
        ],
    )
    .whole(),
    pair(
        "sockets-iperf3-datagrams",
        &["iperf3", "-s", "-1", "-p", "{port}"],
        &[
            "iperf3", "-u", "-l", "1400", "-c", "10.0.0.1", "-t", "1", "-p", "{port}",
        ],
        &[
            (Server, "Accepted connection from 10.0.0.2", 1),
            (Client, "iperf Done.", 1),
        ],
    )
    .whole(),
    pair(
        "sockets-http",
        &[
            "/bin/sh",
            "-ec",
            "PYTHONHOME={programs}/.. exec python3.11 -m http.server -d {programs} {port}",
        ],
        &[
            "/bin/sh",
            "-ec",
            "PYTHONHOME={programs}/.. python3.11 -c \"import urllib.request as r, sys; \
             sys.stdout.buffer.write(r.urlopen('http://10.0.0.1:{port}/rping').read())\" \
             > {scratch}/fetched\n\
             cmp {programs}/rping {scratch}/fetched && echo the same",
        ],
        &[(Server, "GET /rping", 1), (Client, "the same", 1)],
    )
    .stays(),
    // In epoll, without waiting.
    pair(
        "sockets-epoll",
        &[
            "/usr/bin/env",
            "PYTHONHOME={programs}/..",
            "python3.11",
            "-c",
            ECHO_SERVER,
        ],
        &[
            "/usr/bin/env",
            "PYTHONHOME={programs}/..",
            "python3.11",
            "-c",
            ECHO_CLIENT,
        ],
        &[(Server, "served", 1), (Client, "the same from", 3)],
    )
    .whole(),
    // Threads that are cancelled in calls that wait.
    Scenario {
        options: &["--sockets"],
        ..scenario::alone(
            "sockets-cancel",
            &["c:cancel", "ordinary"],
            &[
                (Server, ": cancelled", 19),
                (Server, "all threads were cancelled", 1),
            ],
        )
    },
    // Times, and several messages at a time.
    pair(
        "sockets-messages",
        &["c:messages", "server", "{port}"],
        &["c:messages", "client", "10.0.0.1", "{port}"],
        MESSAGES,
    ),
    // The same with Linux's own sockets at the other end of those that are on both networks.
    pair(
        "sockets-messages-loopback",
        &["c:messages", "server", "{port}"],
        &["c:messages", "client", "127.0.0.1", "{port}"],
        MESSAGES,
    )
    .whole(),
];
