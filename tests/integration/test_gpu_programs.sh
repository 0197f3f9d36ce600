#!/usr/bin/env bash
# The GPU's tests on the simulated device: their logic, and whatever of them the
# simulation can show. What needs a card is counted as skipped there.
set -u
cd "$(dirname "$0")/../.." || exit 1
DEVICE=sim:64MiB TEST_TIMEOUT=${TEST_TIMEOUT:-120} exec tests/gpu/run "${BUILD:-build}"
