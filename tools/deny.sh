#!/usr/bin/env bash
# deny.sh: checks licences, bans and sources of every dependency against deny.toml. Builds
# cargo-deny once if it is missing.
set -euo pipefail
tools=${CARGO_TARGET_DIR:-target}/tools
if ! command -v cargo-deny >/dev/null && [ ! -x "$tools/bin/cargo-deny" ]; then
  echo "lint: building cargo-deny (once, some minutes)"
  # An unoptimised build is enough for one tree and takes a fraction of the time.
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR="$tools/build" cargo install cargo-deny --debug --locked --quiet --root "$tools"
  rm -rf "$tools/build"
fi
PATH="$PATH:$tools/bin" cargo deny --log-level error check licenses bans sources
