#!/bin/sh
# Makes crates/penstock-pipestream/src/generated from proto/, or with --check says whether it is up to date.
#
# Needs cargo and a Python with grpcio-tools, whose protoc knows edition 2023 (Debian's does not): .venv/bin/python,
# or $PYTHON.
set -eu

cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
generated=crates/penstock-pipestream/src/generated

case "${1:-}" in
    "" | --check) ;;
    *) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac
if ! "$python" -c "import grpc_tools" 2>/dev/null; then
    echo "$0: $python has no grpcio-tools; make the project's venv first, or set PYTHON" >&2
    exit 1
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/out"

"$python" -m grpc_tools.protoc --proto_path=proto --include_imports --include_source_info \
    --descriptor_set_out="$work/set.bin" \
    pipestream/protocol/v1/pipestream.proto penstock/pipestream/v1/extensions.proto
"$python" scripts/patch_descriptors.py "$work/set.bin" "$work/patched.bin"
cargo run --quiet --locked --manifest-path tools/proto-gen/Cargo.toml --target-dir target/proto-gen -- \
    "$work/patched.bin" "$work/out"

files="$(ls "$work/out" | wc -l)"
if [ "${1:-}" = --check ]; then
    diff -ru "$generated" "$work/out" || { echo "$0: $generated is stale; run $0" >&2; exit 1; }
    echo "$generated: $files files up to date"
else
    mkdir -p "$generated"
    rm -f "$generated"/*.rs
    cp "$work/out"/*.rs "$generated/"
    echo "$generated: $files files written"
fi
