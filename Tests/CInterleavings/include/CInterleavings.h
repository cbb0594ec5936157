#pragma once

#include <stdbool.h>
#include <stdint.h>

// One process's Swift jobs on one thread at a time, in an order that a seed decides.
//
// All that could make two runs differ is taken over: which job runs next, when a running one is interrupted, what the
// clocks show, and the system's random numbers. Time passes only where nothing could run, or by chance.

/// How a run is scheduled.
typedef struct {
  uint64_t seed;
  /// Whether jobs are also interrupted between two suspension points, and others run meanwhile.
  bool interrupts;
} CInterleavings_Rules;

/// How a run came to its end.
typedef enum {
  CInterleavings_finished,
  /// Nothing could run, and no time that passes would change that.
  CInterleavings_stuck,
  /// It took more steps or more time than it was given.
  CInterleavings_endless,
} CInterleavings_Outcome;

/// A SerialExecutor or TaskExecutor, as UnownedSerialExecutor and UnownedTaskExecutor hold it.
typedef struct {
  void *identity;
  uintptr_t implementation;
} CInterleavings_Executor;

/// Whether it can be used at all: not beside a sanitizer, which takes over the same functions.
bool CInterleavings_isAvailable(void);

/// Has this program begin anew where memory lies at the same addresses and hashes have the same seeds each time; as far
/// as the system lets it.
void CInterleavings_fixAddresses(void);

/// fork(2): each seed has a process of its own.
int32_t CInterleavings_fork(void);

/// Takes over. From here on jobs wait for CInterleavings_run(). Once in a process.
void CInterleavings_begin(CInterleavings_Rules rules);

/// A job of an actor that has an executor of its own: those of one executor run one by one, in the order in which they came.
void CInterleavings_enqueueSerial(void *job, CInterleavings_Executor executor);

/// A job of a task that prefers an executor.
void CInterleavings_enqueueTask(void *job, CInterleavings_Executor executor);

/// Runs jobs until CInterleavings_stop() is called, and then those that are left.
CInterleavings_Outcome CInterleavings_run(uint64_t mostSteps, int64_t mostSeconds);

/// What CInterleavings_run() is for is done.
void CInterleavings_stop(void);

/// The time since the beginning, in nanoseconds.
int64_t CInterleavings_now(void);

/// What was decided so far, condensed: equal for equal runs.
uint64_t CInterleavings_trace(void);

/// Jobs that ran, and how often one was interrupted.
uint64_t CInterleavings_steps(void);
uint64_t CInterleavings_interruptions(void);
