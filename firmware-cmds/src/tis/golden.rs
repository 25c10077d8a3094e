//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn tisc() {
    emits::<Tisc>(
        |s| {
            s.set_strict_lag_tx_port_affinity(true)
                .set_tls_en(false)
                .set_lag_tx_port_affinity(0)
                .set_prio(7)
                .set_transport_domain(0x231ac3)
                .set_underlay_qpn(0x88e3bb)
                .set_pd(0xc2391c);
        },
        &[(0x000, "a0a7a5a5"), (0x024, "a5231ac3 a588e3bb a5c2391c")],
    );
}
