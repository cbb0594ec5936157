#pragma once

/// Starts a program in a group of its own, with no signal blocked and no descriptor but its three standard ones.
///
/// `directory`: where it works; null: where we do. `streams`: what its standard descriptors are copies of; -1: of ours.
/// Gives its number, or minus the error's.
int spawn_program(char *const arguments[], char *const environment[], const char *directory,
                  const int streams[3]);
