#pragma once
#include <sys/types.h>

/// Starts a program, with no signal blocked and no descriptor but its three standard ones.
///
/// `directory`: where it works; null: where we do. `streams`: what its standard descriptors are copies of; -1: of ours.
/// Gives its number, or minus the error's.
pid_t spawn_program(char *const arguments[], char *const environment[], const char *directory,
                    const int streams[3]);
