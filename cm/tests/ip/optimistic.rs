//! Addresses that are used while they are probed for (RFC 4429).

use super::*;

#[test]
fn optimistic_addresses_are_used_until_another_host_is_known_to_have_them() {
    let optimistic = Config {
        ipv4_probes: 3,
        optimistic: true,
        ..Config::new(3)
    };
    for (own, peer, prefix, another, elsewhere) in [
        ("192.0.2.1", "192.0.2.2", 24, "192.0.2.3", "198.51.100.1"),
        (
            "2001:db8::1",
            "2001:db8::2",
            64,
            "2001:db8::3",
            "2001:db8:9::1",
        ),
    ] {
        let mut memories = [Memory::new(), Memory::new(), Memory::new()];
        let mut cable = Cable::new(&mut memories, &[A, B, C], optimistic);
        cable.add(0, own, prefix, None);
        cable.add(1, peer, prefix, None);
        assert_eq!(cable.events(0), [ready(own)]);
        assert!(cable.host(0).is_settled());
        cable.resolve(0, own, peer);
        cable.pass(20 * SECOND);
        let again = |event: &&Event| matches!(event, Event::AddressReady { .. });
        assert_eq!(cable.events(0).iter().filter(again).count(), 0, "{own}");
        assert_eq!(cable.host(0).addresses().count(), 1);

        // A third host has used the first one's address for a while when it is told.
        cable.add(2, own, prefix, None);
        let gateway = Route::default_over(ip(peer));
        cable.host(2).add_route(gateway).unwrap();
        assert_eq!(cable.events(2), [ready(own)]);
        assert!(cable.host(2).has_route(ip(own), ip(elsewhere)));
        cable.pass(20 * SECOND);
        let taken = Event::AddressDuplicate {
            address: ip(own),
            vlan: None,
            mac: A,
        };
        assert_eq!(cable.events(2), [taken], "{own}");
        assert_eq!(cable.host(2).addresses().count(), 0);
        assert_eq!(cable.host(2).groups().count(), 0);
        assert_eq!(cable.host(0).addresses().count(), 1);
        // The route over the gateway has gone with the address over which the gateway was reached.
        cable.add(2, another, prefix, None);
        assert!(cable.host(2).has_route(ip(another), ip(peer)));
        assert!(!cable.host(2).has_route(ip(another), ip(elsewhere)));
    }
}
