// The scheduler. Only the thread that has the turn reads or changes the state in this file. A job runs on any free
// thread. An interrupted job keeps its thread until it has the turn again, because the Swift runtime keeps state of
// the job in thread-local variables.
//
// Jobs arrive through the hooks of libswift_Concurrency. A running job is interrupted where it retains or releases an
// object. In a debug build that is everywhere, also inside critical sections. A thread that then waits for a lock
// lets others run until the lock is free. Uncontended locks are not intercepted.

#define _GNU_SOURCE
#include "CInterleavings.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
// With a sanitizer nothing is replaced, and the functions that would do it are unused.
#pragma clang diagnostic ignored "-Wunused-function"
#endif
#endif

#define SWIFT __attribute__((swiftcall))

typedef struct {
  void *identity;
  uintptr_t implementation;
} executor;

SWIFT void swift_job_run(void *job, executor serial);
SWIFT void swift_job_run_on_task_executor(void *job, executor task);
SWIFT uint64_t swift_task_getJobTaskId(void *job);

extern SWIFT void (*swift_task_enqueueGlobal_hook)(void *job, void *original);
extern SWIFT void (*swift_task_enqueueGlobalWithDelay_hook)(
  unsigned long long delay, void *job, void *original);
extern SWIFT void (*swift_task_enqueueGlobalWithDeadline_hook)(
  long long seconds, long long nanoseconds, long long, long long, int clock, void *job, void *original);
extern SWIFT void (*swift_task_enqueueMainExecutor_hook)(void *job, void *original);

// Waiting and running jobs.

enum kind { GLOBAL, SERIAL, TASK, ALARM };

typedef struct {
  /// The job; for an ALARM, the alarm.
  void *job;
  enum kind kind;
  executor executor;
  /// The id of the job's task, relative to the first one.
  uint64_t id;
} entry;

typedef struct {
  int64_t due;
  uint64_t number;
  void *job;
  enum kind kind;
} timer;

/// Replaces a libdispatch timer: the runtime uses one to wake a sleeping task that may be a little late.
typedef struct {
  int64_t due;
  void (*handler)(void *);
  void *context;
} alarm_source;

/// A thread.
typedef struct carrier {
  sem_t turn;
  /// The job that it runs, or ran last.
  entry entry;
  /// Whether a job is running on it, possibly interrupted.
  bool isInterrupted;
  /// The lock that it waits for. The lock is free once the thread id in it is 0.
  volatile int *awaits;
  struct carrier *nextIdle;
} carrier;

#define MOST_CARRIERS 256
#define MOST_JOBS 65536

static struct {
  bool isActive;
  bool isStopping;
  bool isOver;
  CInterleavings_Outcome outcome;
  CInterleavings_Rules rules;
  uint64_t random, numbers;
  uint64_t steps, mostSteps, interruptions, trace;
  int64_t now, most;
  uint64_t firstID;
  entry jobs[MOST_JOBS];
  int jobCount;
  timer timers[MOST_JOBS];
  int timerCount;
  uint64_t timerNumber;
  carrier *carriers[MOST_CARRIERS];
  int carrierCount;
  carrier *idle;
  carrier *main;
  // How this seed orders the jobs.
  int strategy;
  uint32_t lowered[8];
  int loweredCount;
  int interval;
} state;

/// Whether the thread with the turn is making a decision instead of running a job.
static bool decides;
/// Number of retains and releases until the running job is interrupted; 0: never.
static int64_t countdown;
static __thread carrier *self;

static uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27) * 0x94D049BB133111EB;
  return value ^ value >> 31;
}

/// SplitMix64.
static uint64_t next(uint64_t *numbers) { return mixed(*numbers += 0x9E3779B97F4A7C15); }
static uint64_t below(uint64_t limit) { return next(&state.random) % limit; }

static void fail(const char *why) {
  fprintf(stderr, "the scheduler: %s\n", why);
  fflush(NULL);
  _exit(70);
}

// MARK: Arriving jobs

static uint64_t number(void *job) {
  uint64_t id = swift_task_getJobTaskId(job);
  if (!state.firstID) state.firstID = id;
  return id - state.firstID;
}

static void add(void *job, enum kind kind, executor executor, uint64_t id) {
  if (state.jobCount == MOST_JOBS) fail("too many jobs");
  state.jobs[state.jobCount++] = (entry){job, kind, executor, id};
}

/// Prevents interruptions while the scheduler itself works. Returns the previous state.
static bool quiet(void) {
  bool before = decides;
  decides = true;
  return before;
}

static SWIFT void enqueueGlobal(void *job, void *original) {
  (void)original;
  bool before = quiet();
  add(job, GLOBAL, (executor){0, 0}, number(job));
  decides = before;
}

static void addTimer(int64_t due, void *job, enum kind kind) {
  bool before = quiet();
  if (state.timerCount == MOST_JOBS) fail("too many timers");
  state.timers[state.timerCount++] = (timer){due, state.timerNumber++, job, kind};
  decides = before;
}

static SWIFT void enqueueWithDelay(unsigned long long delay, void *job, void *original) {
  (void)original;
  addTimer(state.now + (int64_t)delay, job, GLOBAL);
}

static SWIFT void enqueueWithDeadline(
  long long seconds, long long nanoseconds, long long a, long long b, int clock, void *job,
  void *original) {
  (void)a, (void)b, (void)clock, (void)original;
  int64_t limit = (int64_t)1 << 33;
  addTimer((seconds < limit ? seconds : limit) * 1000000000 + nanoseconds, job, GLOBAL);
}

void CInterleavings_enqueueSerial(void *job, CInterleavings_Executor actor) {
  bool before = quiet();
  add(job, SERIAL, (executor){actor.identity, actor.implementation}, number(job));
  decides = before;
}

void CInterleavings_enqueueTask(void *job, CInterleavings_Executor task) {
  bool before = quiet();
  add(job, TASK, (executor){task.identity, task.implementation}, number(job));
  decides = before;
}

// MARK: Deciding

/// A candidate for the next turn: a waiting job or an interrupted thread.
typedef struct {
  int job;
  carrier *carrier;
  uint64_t id;
} candidate;

static bool isBusy(int place) {
  entry *job = &state.jobs[place];
  if (job->kind != SERIAL) return false;
  for (int other = 0; other < place; other++)
    if (state.jobs[other].kind == SERIAL
        && state.jobs[other].executor.identity == job->executor.identity)
      return true;
  for (int other = 0; other < state.carrierCount; other++) {
    carrier *carrier = state.carriers[other];
    if (carrier->isInterrupted && carrier->entry.kind == SERIAL
        && carrier->entry.executor.identity == job->executor.identity)
      return true;
  }
  return false;
}

static int gather(candidate *candidates) {
  int count = 0;
  for (int place = 0; place < state.carrierCount; place++) {
    carrier *carrier = state.carriers[place];
    if (!carrier->isInterrupted) continue;
    if (carrier->awaits && (*carrier->awaits & FUTEX_TID_MASK) != 0) continue;
    candidates[count++] = (candidate){-1, carrier, carrier->entry.id};
  }
  for (int place = 0; place < state.jobCount && count < 1024; place++)
    if (!isBusy(place)) candidates[count++] = (candidate){place, NULL, state.jobs[place].id};
  return count;
}

/// Advances the time to the next timer if that is at most `most` nanoseconds away.
static bool passTime(int64_t most) {
  if (!state.timerCount) return false;
  int first = 0;
  for (int place = 1; place < state.timerCount; place++) {
    timer *a = &state.timers[place], *b = &state.timers[first];
    if (a->due < b->due || (a->due == b->due && a->number < b->number)) first = place;
  }
  timer timer = state.timers[first];
  if (timer.due > state.now && timer.due - state.now > most) return false;
  state.timers[first] = state.timers[--state.timerCount];
  if (timer.due > state.now) state.now = timer.due;
  uint64_t id = timer.kind == ALARM ? timer.number | 1 << 24 : number(timer.job);
  add(timer.job, timer.kind, (executor){0, 0}, id);
  return true;
}

/// Random priorities; some are lowered during the run (probabilistic concurrency testing). This needs few
/// changes of the order to reach states that a random order seldom reaches.
static uint64_t rank(uint64_t id) {
  for (int place = 0; place < state.loweredCount; place++)
    if (state.lowered[place] == (uint32_t)id) return (uint64_t)place;
  return mixed(state.rules.seed * 0x9E3779B97F4A7C15 + id) | 256;
}

static int pick(candidate *candidates, int count) {
  switch (state.strategy) {
  case 1:  // mostly in order of arrival
    return below(8) ? 0 : (int)below((uint64_t)count);
  case 2: {
    if (!below(32)) return (int)below((uint64_t)count);
    int best = 0;
    for (int place = 1; place < count; place++)
      if (rank(candidates[place].id) > rank(candidates[best].id)) best = place;
    if (!below(200) && state.loweredCount < 8)
      state.lowered[state.loweredCount++] = (uint32_t)candidates[best].id;
    return best;
  }
  case 3:  // mostly the latest arrival
    return below(4) ? count - 1 : (int)below((uint64_t)count);
  default: return (int)below((uint64_t)count);
  }
}

/// Chooses the next candidate; false if the run is over.
static bool choose(candidate *chosen) {
  static candidate candidates[1024 + MOST_CARRIERS];
  state.now += 1000 + (int64_t)below(20000);
  if (++state.steps > state.mostSteps || (state.now > state.most && !state.isStopping)) {
    state.outcome = CInterleavings_endless;
    return false;
  }
  // Simulates a slow machine: sometimes a timer fires before jobs that could have run long ago.
  if (!below(64)) passTime(100000000);
  int count;
  while (!(count = gather(candidates))) {
    if (passTime(INT64_MAX)) continue;
    bool waits = false;
    for (int place = 0; place < state.carrierCount; place++)
      waits = waits || state.carriers[place]->isInterrupted;
    state.outcome =
      state.isStopping && !waits ? CInterleavings_finished : CInterleavings_stuck;
    return false;
  }
  *chosen = candidates[pick(candidates, count)];
  state.trace = mixed(state.trace ^ (chosen->id * 2 + (chosen->carrier != NULL))) + state.steps;
  return true;
}

// MARK: Turns of threads

static void *carry(void *start);

static void waitForTurn(carrier *carrier) {
  while (sem_wait(&carrier->turn)) {}
}

/// Removes a waiting job and gives it to the thread.
static void take(int place, carrier *carrier) {
  carrier->entry = state.jobs[place];
  memmove(
    &state.jobs[place], &state.jobs[place + 1],
    sizeof(entry) * (size_t)(state.jobCount - place - 1));
  state.jobCount--;
}

static carrier *newCarrier(void) {
  if (state.carrierCount == MOST_CARRIERS) fail("too many threads");
  carrier *carrier = calloc(1, sizeof *carrier);
  sem_init(&carrier->turn, 0, 0);
  state.carriers[state.carrierCount++] = carrier;
  return carrier;
}

/// Returns a thread that runs nothing.
static carrier *idleCarrier(void) {
  carrier *carrier = state.idle;
  if (carrier) {
    state.idle = carrier->nextIdle;
    return carrier;
  }
  carrier = newCarrier();
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 2 << 20);
  sem_t ready;
  sem_init(&ready, 0, 0);
  void *start[2] = {carrier, &ready};
  if (pthread_create(&thread, &attributes, carry, start)) fail("no thread can be started");
  pthread_attr_destroy(&attributes);
  // Wait until it runs, so that its allocations get the same addresses in every run.
  while (sem_wait(&ready)) {}
  return carrier;
}

static void setCountdown(void) {
  countdown = state.interval ? 1 + (int64_t)below((uint64_t)state.interval * 2) : 0;
}

static void runOne(carrier *carrier) {
  entry entry = carrier->entry;
  carrier->isInterrupted = true;
  setCountdown();
  decides = false;
  if (entry.kind == ALARM) {
    alarm_source *source = entry.job;
    source->handler(source->context);
  } else if (entry.kind == TASK)
    swift_job_run_on_task_executor(entry.job, entry.executor);
  else
    swift_job_run(entry.job, entry.executor);
  decides = true;
  carrier->isInterrupted = false;
}

/// Gives the turn to the chosen candidate. Called by a thread that is running a job.
static void giveTurn(candidate chosen) {
  carrier *carrier = chosen.carrier;
  if (!carrier) {
    carrier = idleCarrier();
    take(chosen.job, carrier);
  }
  sem_post(&carrier->turn);
}

static void endRun(carrier *carrier) {
  state.isOver = true;
  if (carrier != state.main) sem_post(&state.main->turn);
}

/// The loop of a free thread that has the turn, until it gives the turn away.
static void work(carrier *carrier) {
  candidate chosen;
  while (!state.isOver) {
    if (!choose(&chosen)) return endRun(carrier);
    if (chosen.carrier) {
      carrier->nextIdle = state.idle;
      state.idle = carrier;
      sem_post(&chosen.carrier->turn);
      return;
    }
    take(chosen.job, carrier);
    runOne(carrier);
  }
}

static void *carry(void *start) {
  carrier *own = ((void **)start)[0];
  self = own;
  sem_post(((void **)start)[1]);
  for (;;) {
    waitForTurn(own);
    if (own->entry.job) runOne(own);
    work(own);
  }
}

/// Lets another job run if it is chosen. Called by a thread that is running a job.
static void yield(void) {
  carrier *own = self;
  candidate chosen;
  decides = true;
  if (!choose(&chosen)) {
    endRun(own);
    for (;;) pause();
  }
  if (chosen.carrier != own) {
    state.interruptions++;
    giveTurn(chosen);
    waitForTurn(own);
  }
  setCountdown();
  decides = false;
}

// MARK: Replaced functions

#ifndef SANITIZED

static void mayYield(void) {
  if (!state.isActive || decides || !self || !countdown || --countdown) return;
  yield();
}

static void waitFor(volatile int *lock) {
  bool before = quiet();
  self->awaits = lock;
  yield();
  self->awaits = NULL;
  decides = before;
}

/// Finds the original of a function that is replaced here.
#define THEIRS(name) \
  static typeof(&name) theirs; \
  if (!theirs) *(void **)&theirs = dlsym(RTLD_NEXT, #name)

// Callers of the runtime's functions expect most registers to be preserved. Libraries may call the originals
// directly, but all calls of the engine arrive here.
#define KEEPING __attribute__((preserve_most))

KEEPING void *swift_retain(void *object) {
  THEIRS(swift_retain);
  mayYield();
  return theirs(object);
}

KEEPING void swift_release(void *object) {
  THEIRS(swift_release);
  mayYield();
  theirs(object);
}

static bool isScheduled(void) { return state.isActive && self && !decides; }

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  THEIRS(pthread_mutex_lock);
  if (!isScheduled()) return theirs(mutex);
  int code;
  while ((code = pthread_mutex_trylock(mutex)) == EBUSY) waitFor(&mutex->__data.__lock);
  return code;
}

/// Synchronization.Mutex and the runtime's own locks wait with this call.
long syscall(long call, ...) {
  THEIRS(syscall);
  va_list list;
  va_start(list, call);
  long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long),
       d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
  va_end(list);
  if (call == SYS_futex && isScheduled() && (b & FUTEX_CMD_MASK) == FUTEX_LOCK_PI) {
    int *lock = (int *)a;
    while (*lock & FUTEX_TID_MASK) waitFor(lock);
    *lock = gettid();
    return 0;
  }
  if (call == SYS_getrandom && state.isActive) {
    for (long place = 0; place < b; place++) ((uint8_t *)a)[place] = (uint8_t)next(&state.numbers);
    return b;
  }
  return theirs(call, a, b, c, d, e, f);
}

ssize_t getrandom(void *bytes, size_t count, unsigned flags) {
  return syscall(SYS_getrandom, bytes, count, flags);
}

int getentropy(void *bytes, size_t count) {
  return getrandom(bytes, count, 0) == (ssize_t)count ? 0 : -1;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!state.isActive) return (int)syscall(SYS_clock_gettime, clock, time);
  time->tv_sec = state.now / 1000000000;
  time->tv_nsec = state.now % 1000000000;
  return 0;
}

bool CInterleavings_isAvailable(void) { return true; }

// Task.yield and Task.sleep use no hook, but the executor that Swift builds on libdispatch. All its functions are
// replaced, so that it starts no threads. The highest bit of a time identifies its clock.

void *dispatch_queue_attr_make_with_qos_class(void *attribute, unsigned class, int priority) {
  (void)class, (void)priority;
  return attribute;
}

void *dispatch_queue_create(const char *label, void *attribute) {
  (void)label, (void)attribute;
  return calloc(1, sizeof(alarm_source));
}

void dispatch_queue_set_width(void *queue, long width) { (void)queue, (void)width; }

void dispatch_async_f(void *queue, void *job, void (*run)(void *)) {
  (void)queue, (void)run;
  enqueueGlobal(job, NULL);
}

void dispatch_after_f(uint64_t when, void *queue, void *job, void (*run)(void *)) {
  (void)queue, (void)run;
  addTimer((int64_t)(when & INT64_MAX), job, GLOBAL);
}

void *dispatch_source_create(const void *type, uintptr_t handle, uintptr_t mask, void *queue) {
  (void)type, (void)handle, (void)mask, (void)queue;
  return calloc(1, sizeof(alarm_source));
}

void dispatch_source_set_timer(void *source, uint64_t when, uint64_t interval, uint64_t leeway) {
  (void)interval, (void)leeway;
  ((alarm_source *)source)->due = (int64_t)(when & INT64_MAX);
}

void dispatch_set_context(void *source, void *context) { ((alarm_source *)source)->context = context; }

void dispatch_source_set_event_handler_f(void *source, void (*handler)(void *)) {
  ((alarm_source *)source)->handler = handler;
}

void dispatch_activate(void *source) { addTimer(((alarm_source *)source)->due, source, ALARM); }

void dispatch_release(void *source) { free(source); }

#else

bool CInterleavings_isAvailable(void) { return false; }

#endif

// MARK: Running

void CInterleavings_fixAddresses(void) {
  if (getenv("ADDRESSES_ARE_FIXED")) return;
  int now = personality(0xFFFFFFFF);
  if (now != -1) personality((unsigned long)now | ADDR_NO_RANDOMIZE);
  // Few variables, so that the caller's environment does not matter.
  char *environment[8] = {"ADDRESSES_ARE_FIXED=1", "SWIFT_DETERMINISTIC_HASHING=1"};
  static const char *const kept[] = {"SEED=", "LD_LIBRARY_PATH="};
  int variables = 2;
  for (char **variable = environ; *variable; variable++)
    for (size_t place = 0; place < sizeof kept / sizeof *kept; place++)
      if (variables < 7 && !strncmp(*variable, kept[place], strlen(kept[place])))
        environment[variables++] = *variable;
  char *arguments[512];
  static char text[65536];
  FILE *file = fopen("/proc/self/cmdline", "r");
  if (!file) return;
  size_t size = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  int count = 0;
  for (size_t place = 0; place < size && count < 511; place += strlen(text + place) + 1)
    arguments[count++] = text + place;
  arguments[count] = NULL;
  execve("/proc/self/exe", arguments, environment);
}

int32_t CInterleavings_fork(void) {
  fflush(NULL);
  return fork();
}

void CInterleavings_begin(CInterleavings_Rules rules) {
  // One heap for all threads.
  mallopt(M_ARENA_MAX, 1);
  state.rules = rules;
  state.random = mixed(rules.seed + 1);
  state.numbers = mixed(rules.seed + 2);
  state.strategy = (int)below(4);
  static const int intervals[] = {30, 100, 300, 1000, 3000};
  if (rules.interrupts) state.interval = intervals[below(5)];
  state.now = 1000000000;
  state.main = self = newCarrier();
  decides = true;
  swift_task_enqueueGlobal_hook = enqueueGlobal;
  swift_task_enqueueMainExecutor_hook = enqueueGlobal;
  swift_task_enqueueGlobalWithDelay_hook = enqueueWithDelay;
  swift_task_enqueueGlobalWithDeadline_hook = enqueueWithDeadline;
  state.isActive = true;
}

CInterleavings_Outcome CInterleavings_run(uint64_t mostSteps, int64_t mostSeconds) {
  state.mostSteps = mostSteps;
  state.most = state.now + mostSeconds * 1000000000;
  if (!state.interval) {
    work(state.main);
    return state.outcome;
  }
  // This thread runs no job, so that it can continue even if interrupted jobs never end.
  sem_post(&idleCarrier()->turn);
  waitForTurn(state.main);
  return state.outcome;
}

void CInterleavings_stop(void) { state.isStopping = true; }

void CInterleavings_reset(void) {
  swift_task_enqueueGlobal_hook = NULL;
  swift_task_enqueueMainExecutor_hook = NULL;
  swift_task_enqueueGlobalWithDelay_hook = NULL;
  swift_task_enqueueGlobalWithDeadline_hook = NULL;
  memset(&state, 0, sizeof state);
  self = NULL;
}

int64_t CInterleavings_now(void) { return state.now; }
uint64_t CInterleavings_trace(void) { return state.trace; }
uint64_t CInterleavings_steps(void) { return state.steps; }
uint64_t CInterleavings_interruptions(void) { return state.interruptions; }
