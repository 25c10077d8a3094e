use super::super::stream::Connection;
use super::*;
use std::thread::JoinHandle;

/// A switch that runs.
fn switch(name: &str) -> (PathBuf, JoinHandle<io::Result<()>>) {
    let name = format!("connectx-vswitch-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let lock = lock_folder(&path).unwrap();
    let switch = VirtualSwitch::bind(&path).unwrap();
    drop(lock);
    (path, thread::spawn(move || switch.serve()))
}

/// A frame to the model `to` from the model `from`, each by the last byte of its address.
fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
    frame
}

const ALL: u8 = 0xff;

fn send(mut stream: &UnixStream, frame: &[u8]) {
    let mut bytes = Vec::new();
    stream::append(&mut bytes, frame);
    stream.write_all(&bytes).unwrap();
}

fn open(path: &Path, wish: Wish) -> io::Result<(u8, UnixStream)> {
    let connection = Connection::open(path, wish)?;
    Ok((connection.first_unit(), connection.into_stream()))
}

/// A process with one model, which has a port.
fn port(path: &Path) -> (u8, UnixStream) {
    let connection = Connection::open(path, ANY).unwrap();
    connection.begin().unwrap();
    let first = connection.first_unit();
    let stream = connection.into_stream();
    assert!(Reader::new(&stream).next().unwrap().is_empty());
    (first, stream)
}

const ANY: Wish = Wish::Preferably { first: 0, count: 1 };

#[test]
fn frames_go_to_where_their_address_is() {
    let (path, serving) = switch("frames");
    let ports: Vec<UnixStream> = (1..=3)
        .map(|unit| {
            let (first, stream) = port(&path);
            assert_eq!(first, unit);
            stream
        })
        .collect();
    let mut readers: Vec<_> = ports.iter().map(Reader::new).collect();
    // To all, as nobody knows the address yet.
    send(&ports[0], &frame(2, 1, 60));
    assert_eq!(readers[1].next().unwrap(), frame(2, 1, 60));
    assert_eq!(readers[2].next().unwrap(), frame(2, 1, 60));
    // To the first one only: the third one has the one after it.
    send(&ports[1], &frame(1, 2, 5000));
    send(&ports[1], &frame(ALL, 2, 61));
    assert_eq!(readers[0].next().unwrap(), frame(1, 2, 5000));
    assert_eq!(readers[0].next().unwrap(), frame(ALL, 2, 61));
    assert_eq!(readers[2].next().unwrap(), frame(ALL, 2, 61));
    drop(readers);
    drop(ports);
    serving.join().unwrap().unwrap();
    assert!(!path.exists());
}

#[test]
fn units_are_handed_out_once() {
    let (path, serving) = switch("units");
    let hold = open(&path, Wish::Hold).unwrap();
    let (second, _two) = open(&path, Wish::Exactly { first: 2, count: 1 }).unwrap();
    let (first, one) = open(&path, ANY).unwrap();
    let (pair, _pair) = open(&path, Wish::Preferably { first: 2, count: 2 }).unwrap();
    assert_eq!((first, second, pair), (1, 2, 3));
    let taken = open(&path, Wish::Exactly { first: 4, count: 1 }).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(taken.to_string().contains("unit 4"), "{taken}");
    let too_many = Wish::Preferably {
        first: 0,
        count: 254,
    };
    assert!(open(&path, too_many).is_err());
    // The unit of a process that ends, in whatever way, is free again.
    drop(one);
    let mut again = open(&path, Wish::Exactly { first: 1, count: 1 });
    while again.is_err() {
        again = open(&path, Wish::Exactly { first: 1, count: 1 });
    }
    // A stranger is told so, and does no harm.
    let mut stranger = UnixStream::connect(&path).unwrap();
    stranger.write_all(b"GET / HT").unwrap();
    let mut answer = [0; 8];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(answer, Answer::NotUnderstood.bytes());
    drop((hold, _two, _pair, again));
    drop(stranger);
    serving.join().unwrap().unwrap();
}

#[test]
fn a_slow_receiver_loses_nothing() {
    let (path, serving) = switch("slow");
    let (_, sender) = port(&path);
    let (_, receiver) = port(&path);
    send(&receiver, &frame(ALL, 2, 60));
    let mut heard = Reader::new(&sender);
    heard.next().unwrap();
    // Far more than all the sockets hold.
    const FRAMES: u32 = 2000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FRAMES {
                let mut frame = frame(2, 1, 4096);
                frame[14..18].copy_from_slice(&number.to_be_bytes());
                send(&sender, &frame);
            }
        });
        let mut frames = Reader::new(&receiver);
        for number in 0..FRAMES {
            let frame = frames.next().unwrap();
            assert_eq!(frame[14..18], number.to_be_bytes());
        }
    });
    drop((sender, receiver));
    serving.join().unwrap().unwrap();
}

#[test]
fn who_takes_nothing_does_not_stop_the_others() {
    let (path, serving) = switch("stopped");
    let (_, sender) = port(&path);
    let (_, receiver) = port(&path);
    let (_, stopped) = port(&path);
    for (stream, unit) in [(&receiver, 2), (&stopped, 3)] {
        send(stream, &frame(ALL, unit, 60));
    }
    let mut heard = Reader::new(&sender);
    for _ in 0..2 {
        heard.next().unwrap();
    }
    for _ in 0..1000 {
        send(&sender, &frame(3, 1, 4096));
    }
    send(&sender, &frame(2, 1, 70));
    let mut frames = Reader::new(&receiver);
    while frames.next().unwrap() != frame(2, 1, 70) {}
    // When it goes on, what it had not begun to take is whole.
    send(&sender, &frame(3, 1, 71));
    let mut frames = Reader::new(&stopped);
    loop {
        let frame = frames.next().unwrap();
        match frame.len() {
            60 | 71 => {}
            len => {
                assert_eq!(len, 4096);
                assert_eq!(frame[..12], self::frame(3, 1, 12));
            }
        }
        if frame.len() == 71 {
            break;
        }
        if !frames.is_ready() {
            send(&sender, &self::frame(3, 1, 71));
        }
    }
    drop((sender, receiver, stopped));
    serving.join().unwrap().unwrap();
}

#[test]
fn a_socket_without_a_switch_is_replaced_and_one_with_a_switch_is_not() {
    let (path, serving) = switch("again");
    assert_eq!(
        VirtualSwitch::bind(&path).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    let hold = open(&path, Wish::Hold).unwrap();
    drop(hold);
    serving.join().unwrap().unwrap();
    // As a process leaves it that was killed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (_, serving) = switch("again");
    drop(open(&path, ANY).unwrap());
    serving.join().unwrap().unwrap();
    assert!(!path.exists());
}

#[test]
fn the_rest_of_a_frame_is_found() {
    let mut batch = Vec::new();
    stream::append(&mut batch, &[1; 10]);
    stream::append(&mut batch, &[2; 20]);
    for (sent, expected) in [
        (0, (false, 0)),
        (1, (true, 12)),
        (11, (true, 12)),
        (12, (false, 12)),
        (13, (true, 34)),
    ] {
        assert_eq!(unfinished(&batch, sent), expected, "{sent}");
    }
}
