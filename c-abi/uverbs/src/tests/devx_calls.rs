//! DevX's methods.

use super::*;

/// Channels of DevX: what a subscription and a query may say, completions that are counted and told, and a late answer.
pub(super) fn events() {
    let fd = open_context(1);
    let new = |object, attrs| method(fd, (object, devx::CREATE), attrs).map(|it| it[0].data);
    let plain = attr(devx::FIRST, 0, 0);
    let open = |flags| {
        let attrs = [plain, attr(devx::SECOND, 4, flags)];
        method(fd, (devx::EVENT_CHANNEL, devx::CREATE), attrs)
    };
    // Events as the device wrote them are not kept.
    assert_eq!(
        [open(0).err(), open(2).err()],
        [Some(libc::EOPNOTSUPP), Some(libc::EINVAL)]
    );
    let channel = open(1).unwrap()[0].data;
    let commands = new(devx::COMMAND_CHANNEL, [plain]).unwrap();

    let [input, mut answer] = [[(0x800_u32 << 16).to_be(), 0, 0, 0], [0; 4]];
    let attrs = [
        plain,
        attr(devx::OBJ_IN, 16, input.as_ptr() as u64),
        attr(devx::OBJ_OUT, 16, answer.as_mut_ptr() as u64),
    ];
    let domain = method(fd, (devx::OBJ, devx::CREATE), attrs).unwrap()[0].data;
    let subscribe = |channel, kinds: &[u16], more: &[Attr]| {
        let mut list = [0; 8];
        for (place, kind) in list.chunks_exact_mut(2).zip(kinds) {
            place.copy_from_slice(&kind.to_ne_bytes());
        }
        let mut attrs = [attr(devx::FIRST, 0, channel); 5];
        attrs[1] = attr(devx::EVENT_TYPES, 2 * kinds.len(), u64::from_ne_bytes(list));
        // Those that are left out have a name that no method knows.
        for (index, place) in attrs[2..].iter_mut().enumerate() {
            *place = *more
                .get(index)
                .unwrap_or(&attr(0x2000 + index as u16, 0, 0));
        }
        method(fd, (devx::DEVX, devx::SUBSCRIBE), attrs).map(drop)
    };
    let [object, cookie] = [
        attr(devx::SECOND, 0, domain),
        attr(devx::EVENT_COOKIE, 8, 7),
    ];
    let counter = attr(devx::EVENT_COUNTER, 4, channel);
    assert_eq!(subscribe(channel, &[0, 4], &[object, cookie]), Ok(()));
    // A port's events are about no object; unknown types, no types, other descriptors.
    assert_eq!(subscribe(channel, &[9], &[cookie]), Ok(()));
    for (channel, kinds, more, errno) in [
        (channel, &[9_u16][..], &[object, cookie][..], libc::EINVAL),
        (channel, &[0], &[cookie], libc::EINVAL),
        (channel, &[0x77], &[object], libc::EINVAL),
        (channel, &[], &[object], libc::EINVAL),
        (channel, &[0], &[object, cookie, counter], libc::EINVAL),
        (channel, &[0], &[object, counter], libc::EINVAL),
        (channel + 1000, &[0], &[object], libc::EBADF),
    ] {
        assert_eq!(subscribe(channel, kinds, more), Err(errno), "{kinds:?}");
    }

    // A domain cannot be queried; the answer of what can be is a packet of the channel.
    let query = |opcode: u32| {
        let input = [(opcode << 16).to_be(), 0, 0, 0];
        let attrs = [
            attr(devx::FIRST, 0, domain),
            attr(devx::OBJ_IN, 16, input.as_ptr() as u64),
            attr(devx::ASYNC_CHANNEL, 0, commands),
            attr(devx::ASYNC_WR_ID, 8, 0x55),
            attr(devx::ASYNC_OUT_LEN, 2, 272),
        ];
        method(fd, (devx::OBJ, devx::ASYNC_QUERY), attrs).err()
    };
    assert_eq!(query(0x402), Some(libc::EINVAL));
    let counters = {
        let [input, mut answer] = [[(0x771_u32 << 16).to_be(), 0, 0, 0], [0; 4]];
        let attrs = [
            plain,
            attr(devx::OBJ_IN, 16, input.as_ptr() as u64),
            attr(devx::OBJ_OUT, 16, answer.as_mut_ptr() as u64),
        ];
        let made = method(fd, (devx::OBJ, devx::CREATE), attrs).unwrap()[0].data;
        (made, u32::from_be(answer[2]))
    };
    let mut input = [0_u32; 8];
    (input[0], input[7]) = ((0x773_u32 << 16).to_be(), (counters.1 & 0xff).to_be());
    let attrs = [
        attr(devx::FIRST, 0, counters.0),
        attr(devx::OBJ_IN, 32, input.as_ptr() as u64),
        attr(devx::ASYNC_CHANNEL, 0, commands),
        attr(devx::ASYNC_WR_ID, 8, 0x55),
        attr(devx::ASYNC_OUT_LEN, 2, 272),
    ];
    method(fd, (devx::OBJ, devx::ASYNC_QUERY), attrs).unwrap();
    let mut packet = [0xff_u8; 512];
    // SAFETY: it has room.
    let len = unsafe { libc::read(commands as c_int, packet.as_mut_ptr().cast(), 512) };
    assert_eq!(len, 8 + 272);
    assert_eq!(packet[..8], 0x55_u64.to_ne_bytes());
    assert_eq!(packet[8], 0);
    thread::closed(fd, false);
}

/// Attributes that DevX's methods know, rights to memory, and commands that are not the programs'.
pub(super) fn memory() {
    let fd = open_context(1);
    let memory = Ring::new();
    let (address, _) = memory.addresses();
    let mut number = 0_u32;
    let out = &raw mut number as u64;
    let parts = |access: &[Attr]| {
        let known = [
            attr(devx::FIRST, 0, 0),
            attr(devx::UMEM_ADDR, 8, address),
            attr(devx::UMEM_LEN, 8, 4096),
            attr(devx::UMEM_ID, 4, out),
        ];
        match access {
            [] => method(fd, (devx::UMEM, devx::CREATE), known).map(drop),
            [one, ..] => {
                let [a, b, c, d] = known;
                method(fd, (devx::UMEM, devx::CREATE), [a, b, c, d, *one]).map(drop)
            }
        }
    };
    assert_eq!(parts(&[]), Ok(()));
    let access = |rights| parts(&[attr(devx::UMEM_ACCESS, 4, rights)]);
    assert_eq!([access(3), access(7)], [Ok(()); 2]);
    assert_eq!([access(2), access(1 << 4)], [Err(libc::EINVAL); 2]);
    // Twice; memory of another driver's, where the program asks for it and where it may be left out.
    let twice = attr(devx::UMEM_LEN, 8, 4096);
    assert_eq!(parts(&[twice]), Err(libc::EINVAL));
    let foreign = attr(0x1006, 4, 7);
    assert_eq!(parts(&[foreign]), Ok(()));
    let foreign = Attr {
        flags: MANDATORY,
        ..foreign
    };
    assert_eq!(parts(&[foreign]), Err(libc::EPROTONOSUPPORT));

    // An opcode that is not permitted, one that this firmware does not have, and a call without a place for the handle.
    let mut answer = [0_u8; 16];
    let room = answer.as_mut_ptr() as u64;
    for (opcode, errno) in [(0x999_u32, libc::EINVAL), (0xb00, libc::EREMOTEIO)] {
        let command = [(opcode << 16).to_be(), 0, 0, 0];
        let attrs = [
            attr(devx::OTHER_IN, 16, command.as_ptr() as u64),
            attr(devx::OTHER_OUT, 16, room),
        ];
        let done = method(fd, (devx::DEVX, devx::OTHER), attrs);
        assert_eq!(done.err(), Some(errno), "{opcode:#x}");
    }
    thread::closed(fd, false);
}
