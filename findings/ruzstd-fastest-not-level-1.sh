#!/usr/bin/env bash
# Package: the crate ruzstd 0.9.1; zstd 1.5.7 (Debian 13) to compare with. Needs cargo besides the rest.
# Guess:   CompressionLevel::Fastest, which the documentation calls roughly equivalent to zstd's level 1, is within a fifth of its size on a text log;
#          compress tells the number of bytes or an error; the frame says how large its content is.
# Seen:    The file is more than three times as large as that of zstd -1. compress returns the unit type, so a writer's error has no way out, and of the
#          five levels three are marked as not implemented. The frame has a checksum and no content size.
# Matters: Reports that a tool packs with this crate are larger than expected; sizes for a limit have to be measured, not taken from zstd.
source "$(dirname "$0")/lib.sh"
debs trixie zstd=1.5.7+dfsg-1
mkdir -p "$tmp/pack/src" "$tmp/share"
cat >"$tmp/pack/Cargo.toml" <<'TOML'
[package]
name = "pack"
version = "0.0.0"
edition = "2021"

[dependencies]
ruzstd = "=0.9.1"

[workspace]
TOML
cat >"$tmp/pack/src/main.rs" <<'RUST'
use ruzstd::encoding::{compress, CompressionLevel};

fn main() {
    let folder = std::env::args().nth(1).expect("a folder");
    let text: String = (0..40_000).map(|line| format!("port {} link up, counter {line}\n", line % 64)).collect();
    let mut packed = Vec::new();
    let nothing: () = compress(text.as_bytes(), &mut packed, CompressionLevel::Fastest);
    println!("compress returned {nothing:?}");
    std::fs::write(format!("{folder}/log"), text).expect("a file");
    std::fs::write(format!("{folder}/log.zst"), packed).expect("a file");
}
RUST
{
    CARGO_TARGET_DIR=$tmp/target cargo run -q --manifest-path "$tmp/pack/Cargo.toml" "$tmp/share"
    run zstd -dcq /tmp/log.zst | cmp - "$tmp/share/log" && echo "zstd unpacks it"
    python3 - "$tmp/share/log.zst" "$(run zstd -1 -c /tmp/log | wc -c)" <<'PY'
import sys

with open(sys.argv[1], "rb") as file:
    frame = file.read()
flags = frame[4]
print(f"checksum: {bool(flags & 4)}, content size: {bool(flags & 0xE0)}")
print(f"larger than zstd -1's by a factor of more than {len(frame) // int(sys.argv[2])}")
PY
} >"$seen"
check <<'OUT'
compress returned ()
zstd unpacks it
checksum: True, content size: False
larger than zstd -1's by a factor of more than 3
OUT
echo ok
