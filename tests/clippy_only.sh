#!/usr/bin/env bash
# Called by cargo as if it were rustc (RUSTC_WORKSPACE_WRAPPER): clippy judges a crate, and does not compile it.
exec clippy-driver "${@/--emit=dep-info,metadata,link/--emit=dep-info,metadata}"
