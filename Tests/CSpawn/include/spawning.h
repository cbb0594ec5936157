#pragma once

/// Starts a program in its own process group, without blocked signals and with only its three standard descriptors.
///
/// `directory`: the working directory; null for the caller's. `streams`: descriptors to copy; -1 to inherit the caller's.
/// Returns the process id, or the negative error number.
int spawn_program(char *const arguments[], char *const environment[], const char *directory,
                  const int streams[3]);
