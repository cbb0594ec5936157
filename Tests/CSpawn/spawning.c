// In C, because Swift can't import declarations that require _GNU_SOURCE.
#define _GNU_SOURCE
#include "spawning.h"

#include <signal.h>
#include <spawn.h>

int spawn_program(char *const arguments[], char *const environment[], const char *directory,
                  const int streams[3]) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (directory) posix_spawn_file_actions_addchdir_np(&actions, directory);
    for (int target = 0; target < 3; target++)
        if (streams[target] >= 0)
            posix_spawn_file_actions_adddup2(&actions, streams[target], target);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    // In its own process group, so that signals from the terminal do not reach it: some programs clean up after the tests.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    pid_t child;
    int code = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code ? -code : child;
}
