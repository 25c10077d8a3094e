//! The switch between processes: greetings and frames of a member that keeps to nothing, datagrams at an uplink, and the same
//! from a switch for its member. The switch runs as long as the process, and serves a member that is right behind each input.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use connectx_model::link::datagram::Wire;
use connectx_model::link::stream::{Connection, Wish};
use connectx_model::link::vswitch::VirtualSwitch;

use crate::input::Input;

/// The switch may take this long for a member that is right.
const SOON: Duration = Duration::from_secs(10);

struct Running {
    folder: PathBuf,
    /// The other machine's end of the uplink.
    uplink: UdpSocket,
    _held: Connection,
}

fn running() -> &'static Running {
    static SWITCH: OnceLock<Running> = OnceLock::new();
    SWITCH.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("bareverbs-switch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("switch");
        let mut switch = VirtualSwitch::bind(&path).expect("a socket");
        let pair = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        let ends = [0, 1].map(|end| pair[end].local_addr().expect("bound"));
        let [ours, theirs] = pair;
        ours.connect(ends[1]).expect("connected");
        theirs.connect(ends[0]).expect("connected");
        switch.uplink(ours).expect("an uplink");
        thread::spawn(move || switch.serve());
        let held = Connection::open(&path, Wish::Hold).expect("the switch answers");
        Running {
            folder,
            uplink: theirs,
            _held: held,
        }
    })
}

/// Runs an input.
///
/// # Panics
/// If the switch does, or if it serves others no more.
pub fn run(data: &[u8]) {
    let switch = running();
    let mut input = Input::new(data);
    let kind = input.byte();
    match kind % 4 {
        0 | 1 => member(switch, &mut input, kind),
        2 => {
            while !input.is_empty() {
                let len = usize::from(input.word() & 0x3fff);
                // What the other end does not take in time is lost.
                let _ = switch.uplink.send(input.bytes(len));
            }
        }
        _ => return of_switch(switch, &mut input, kind),
    }
    // With any number, as the input's member may have them all for a moment.
    let served = Connection::open(&switch.folder.join("switch"), Wish::None);
    drop(served.expect("the switch serves others"));
}

/// A member: its greeting is right if the input says so.
fn member(switch: &Running, input: &mut Input<'_>, kind: u8) {
    let path = switch.folder.join("switch");
    let mut stream = UnixStream::connect(path).expect("the switch listens");
    stream.set_write_timeout(Some(SOON)).expect("a limit");
    if kind & 4 != 0 {
        let _ = stream.write_all(&[
            b'b',
            b'v',
            b'x',
            b'2',
            kind >> 3 & 3,
            1 + (kind >> 5),
            kind >> 6,
            0,
        ]);
        // The first frame is an empty one.
        let _ = stream.write_all(&[0; 2]);
    }
    while !input.is_empty() {
        let len = usize::from(input.word() & 0x3fff);
        let piece = input.bytes(len);
        let wrong = kind & 0x80 != 0;
        let head = (piece.len() as u16).to_be_bytes();
        let framed = [if wrong { &[][..] } else { &head }, piece].concat();
        // A switch that has refused it has closed its end.
        if stream.write_all(&framed).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// A switch that is none, for a member.
fn of_switch(switch: &Running, input: &mut Input<'_>, kind: u8) {
    let path = switch.folder.join("other");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut said = Vec::new();
    if kind & 4 != 0 {
        said.extend([b'b', b'v', b'x', b'2', kind >> 3 & 1, kind >> 4, 0, 0, 0, 0]);
    }
    said.extend(input.bytes(usize::MAX));
    let other = thread::spawn(move || {
        if let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(&said);
            let _ = stream.shutdown(Shutdown::Write);
            // Until the member has closed its end.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    if let Ok(connection) = Connection::open(&path, Wish::Preferably { first: 1, count: 1 })
        && let Ok(wire) = Wire::on_switch(0, connection)
    {
        let _ = wire.read(|| ());
        let mut frame = Vec::new();
        while wire.receive(&mut frame) {}
        wire.close();
    }
    other.join().expect("it only writes");
}
