#pragma once

#include <stdbool.h>
#include <stdint.h>

// Runs the Swift jobs of a process one at a time, in an order that a seed decides.
//
// The scheduler controls what could make two runs differ: the next job, the interruptions of a running job, the
// clocks and the system's random numbers. Time advances only when no job can run, or by chance.

/// The rules of a run.
typedef struct {
  uint64_t seed;
  /// Whether jobs are also interrupted between two suspension points, so that other jobs run in between.
  bool interrupts;
} CInterleavings_Rules;

/// The result of a run.
typedef enum {
  CInterleavings_finished,
  /// No job can run, and no timer is pending.
  CInterleavings_stuck,
  /// The run exceeded its limit of steps or time.
  CInterleavings_endless,
} CInterleavings_Outcome;

/// A SerialExecutor or TaskExecutor, with the layout of UnownedSerialExecutor and UnownedTaskExecutor.
typedef struct {
  void *identity;
  uintptr_t implementation;
} CInterleavings_Executor;

/// Whether the scheduler is available. It is not with a sanitizer, which replaces the same functions.
bool CInterleavings_isAvailable(void);

/// Restarts this program with fixed memory addresses and hash seeds, as far as the system allows it. It passes on
/// only the environment variables SEED and LD_LIBRARY_PATH.
void CInterleavings_fixAddresses(void);

/// Calls fork(2). Each seed runs in a process of its own.
int32_t CInterleavings_fork(void);

/// Starts the scheduler. From here on jobs wait for CInterleavings_run(). Call it once in a process.
void CInterleavings_begin(CInterleavings_Rules rules);

/// Adds a job of an actor with an executor of its own. Jobs of one executor run one after another, in the order of
/// their arrival.
void CInterleavings_enqueueSerial(void *job, CInterleavings_Executor executor);

/// Adds a job of a task that prefers an executor.
void CInterleavings_enqueueTask(void *job, CInterleavings_Executor executor);

/// Runs jobs until CInterleavings_stop() is called, and then the remaining ones.
CInterleavings_Outcome CInterleavings_run(uint64_t mostSteps, int64_t mostSeconds);

/// Tells CInterleavings_run() to end once no job is left.
void CInterleavings_stop(void);

/// Forgets a run without interruptions, which leaves no threads, so that another one can begin.
void CInterleavings_reset(void);

/// Time since the start, in nanoseconds.
int64_t CInterleavings_now(void);

/// A hash of all decisions so far: equal for equal runs.
uint64_t CInterleavings_trace(void);

/// Number of jobs that ran, and number of interruptions.
uint64_t CInterleavings_steps(void);
uint64_t CInterleavings_interruptions(void);
