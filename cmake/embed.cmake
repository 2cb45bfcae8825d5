# convtune_embed(<out-var> <file>...): makes one C++ source that holds the files as they are, for
# src/embedded.h to look up by file name. Regenerated when a file changes.
