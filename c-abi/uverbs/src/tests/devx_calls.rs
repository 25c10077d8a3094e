//! DevX's methods.

use bareverbs_node::verbs::firmware_cmds::srq::{CreateRmpIn, ModifyRmpIn};
use libc::c_int;
use zerocopy::{FromZeros, IntoBytes};

use super::program::*;
use crate::abi::*;
use crate::thread;

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
        (commands, &[0], &[object], libc::EBADF),
        (channel, &[0], &[attr(devx::SECOND, 0, 9999)], libc::ENOENT),
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
            attr(devx::ASYNC_OUT_LEN, 8, 272),
        ];
        method(fd, (devx::OBJ, devx::ASYNC_QUERY), attrs).err()
    };
    // Nor are there general objects.
    assert_eq!([query(0x402), query(0xa02)], [Some(libc::EINVAL); 2]);
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
        attr(devx::ASYNC_OUT_LEN, 8, 272),
    ];
    for (at, other, errno) in [
        (0, attr(devx::FIRST, 0, 9999), libc::ENOENT),
        (2, attr(devx::ASYNC_CHANNEL, 0, channel), libc::EBADF),
        (4, attr(devx::ASYNC_OUT_LEN, 2, 272), libc::EINVAL),
        (4, attr(devx::ASYNC_OUT_LEN, 8, 0x1_0110), libc::EINVAL),
    ] {
        let mut attrs = attrs;
        attrs[at] = other;
        let done = method(fd, (devx::OBJ, devx::ASYNC_QUERY), attrs);
        assert_eq!(done.err(), Some(errno), "{at}");
    }
    method(fd, (devx::OBJ, devx::ASYNC_QUERY), attrs).unwrap();
    let mut packet = [0xff_u8; 512];
    // SAFETY: it has room.
    let len = unsafe { libc::read(commands as c_int, packet.as_mut_ptr().cast(), 512) };
    assert_eq!(len, 8 + 272);
    assert_eq!(packet[..8], 0x55_u64.to_ne_bytes());
    assert_eq!(packet[8], 0);

    // A shared queue without requests is below a limit as soon as it is armed.
    let ring = Ring::new();
    let mut umem = 0_u32;
    let attrs = [
        plain,
        attr(devx::UMEM_ADDR, 8, ring.addresses().0),
        attr(devx::UMEM_LEN, 8, 8192),
        attr(devx::UMEM_ACCESS, 4, 1),
        attr(devx::UMEM_ID, 4, &raw mut umem as u64),
    ];
    method(fd, (devx::UMEM, devx::CREATE), attrs).unwrap();
    let about = |handle: Attr, how: u16, input: &[u8]| {
        let mut answer = [0_u32; 4];
        let attrs = [
            handle,
            attr(devx::OBJ_IN, input.len(), input.as_ptr() as u64),
            attr(devx::OBJ_OUT, 16, answer.as_mut_ptr() as u64),
        ];
        let done = method(fd, (devx::OBJ, how), attrs).unwrap();
        (done[0].data, u32::from_be(answer[2]))
    };
    let mut create = CreateRmpIn::new();
    create.ctx_mut().set_state(1);
    let wq = create.ctx_mut().wq_mut();
    wq.set_wq_type(1).set_pd(u32::from_be(answer[2]));
    wq.set_log_wq_stride(6).set_log_wq_sz(3);
    wq.set_wq_umem_id(umem).set_dbr_umem_id(umem);
    wq.set_dbr_addr(4096);
    let (pool, number) = about(plain, devx::CREATE, create.as_bytes());
    let object = attr(devx::SECOND, 0, pool);
    // SAFETY: numbers alone.
    let counter = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    let told = attr(devx::EVENT_COUNTER, 4, counter as u64);
    assert_eq!(subscribe(channel, &[0x14], &[object, cookie]), Ok(()));
    assert_eq!(subscribe(channel, &[0x14], &[object, told]), Ok(()));
    let arm = || {
        let mut modify = ModifyRmpIn::new();
        modify.set_rmp_state(1).set_rmpn(number);
        modify.bitmask_mut().set_lwm(true);
        modify.ctx_mut().set_state(1).wq_mut().set_lwm(5);
        about(attr(devx::FIRST, 0, pool), devx::MODIFY, modify.as_bytes());
    };
    let is_readable = |fd: c_int, wait: c_int| {
        let mut asked = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the structure can be written.
        unsafe { libc::poll(&mut asked, 1, wait) == 1 }
    };
    let take = |fd: c_int| {
        assert!(is_readable(fd, 10_000), "no event");
        let mut value = 0_u64;
        // SAFETY: the number can be written.
        let len = unsafe { libc::read(fd, (&raw mut value).cast(), 8) };
        assert_eq!(len, 8);
        value
    };
    // The device does not wait for a counter that is full.
    let full = u64::MAX - 1;
    // SAFETY: the number can be read.
    let len = unsafe { libc::write(counter, (&raw const full).cast(), 8) };
    assert_eq!(len, 8);
    arm();
    assert!(is_readable(channel as c_int, 10_000), "no event");
    assert_eq!(subscribe(channel, &[0x77], &[object]), Err(libc::EINVAL));
    assert_eq!(take(counter), full);
    // Until an event is read there is no other of the subscription.
    arm();
    assert_eq!(take(counter), 1);
    assert_eq!(take(channel as c_int), 7);
    assert!(!is_readable(channel as c_int, 0));
    arm();
    assert_eq!([take(counter), take(channel as c_int)], [1, 7]);
    // SAFETY: the descriptor is of this test.
    unsafe { libc::close(counter) };
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

    // Memory that the program itself cannot write to: as a region, and with the call in it.
    // SAFETY: a new page, which stays.
    let page = unsafe {
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), 4096, both, anonymous, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    let region = |rights| {
        let attrs = [
            attr(devx::FIRST, 0, 0),
            attr(devx::UMEM_ADDR, 8, page as u64),
            attr(devx::UMEM_LEN, 8, 4096),
            attr(devx::UMEM_ID, 4, out),
            attr(devx::UMEM_ACCESS, 4, rights),
        ];
        method(fd, (devx::UMEM, devx::CREATE), attrs).map(drop)
    };
    let call = Call {
        header: Header {
            length: size_of::<Call<2>>() as u16,
            object: devx::DEVX,
            method: devx::QUERY_UAR,
            num_attrs: 2,
            ..FromZeros::new_zeroed()
        },
        attrs: [attr(devx::FIRST, 0, 0), attr(devx::SECOND, 4, out)],
    };
    // An address that is no multiple of anything.
    let at = page.wrapping_byte_add(1);
    // SAFETY: it is in the page, and lies where bytes lie.
    unsafe { at.cast::<Call<2>>().write_unaligned(call) };
    assert_eq!(thread::call(fd, at), 0);
    for (protection, errnos) in [
        (libc::PROT_READ, [Ok(()), Err(libc::EFAULT)]),
        (libc::PROT_NONE, [Err(libc::EFAULT); 2]),
    ] {
        // SAFETY: the page is of this test, and nothing refers to it.
        let done = unsafe { libc::mprotect(page, 4096, protection) };
        assert_eq!(done, 0);
        assert_eq!([region(0), region(1)], errnos);
        assert_eq!(thread::call(fd, at), libc::EFAULT);
    }

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
