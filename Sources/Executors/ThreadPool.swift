internal import DequeModule
internal import Glibc
internal import HeapModule
internal import Synchronization

// Executors: threads for work that computes or blocks.
//
// Input: closures, tasks and actors. Output: their execution on threads of a pool, highest priority first. `startThread`
// starts a single thread; `ThreadPool` is a fixed number of threads with a common queue. The rest of the program runs on
// Swift's shared threads, which must never compute for long or block.

/// A fixed number of threads for work that computes or blocks.
///
/// Such work must not run on Swift's shared threads, because a decode or a slow disk would delay all other tasks.
///
/// Set the pool as a task's preferred executor: nonisolated functions and default actors that the task calls then run
/// here (SE-0417). Or pass a closure to ``run(_:)``. Jobs run in order of priority; equal priorities run in the order in
/// which they were enqueued.
package final class ThreadPool: TaskExecutor {
  private let line: JobQueue

  /// - Parameters:
  ///   - name: the threads' name in `top` and in debuggers; Linux keeps 15 bytes of it.
  ///   - threads: the number of threads; 0 for one per core.
  ///   - niceness: 0…19, lowers the threads' scheduling priority (nice(2)).
  package init(name: String, threads: Int, niceness: Int = 0) {
    let line = JobQueue()
    self.line = line
    let count = threads > 0 ? threads : max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    for _ in 0..<count {
      startThread(named: name, niceness: niceness) { [executor = UnownedExecutor(self)] in
        while let work = line.next() {
          switch work {
          case .job(let job, nil): job.runSynchronously(on: executor.reference)
          case .job(let job, let lane?): job.runSynchronously(on: lane.reference)
          case .entry(let lane, let number): lane.runNext(number)
          case .closure(let body): body()
          }
        }
      }
    }
  }

  /// Creates an executor on this pool for one task, with a priority that can be changed: see ``Lane``.
  package func lane(priority: UInt8) -> Lane { Lane(of: self, line, priority: priority) }

  /// Creates an executor on this pool for one actor, with a priority that can be changed: see ``SerialLane``.
  package func serialLane(priority: UInt8) -> SerialLane {
    SerialLane(of: self, line, priority: priority)
  }

  deinit { line.close() }

  /// The number of jobs and closures enqueued so far. Tests use it to count how often work changes threads.
  package var enqueuedCount: UInt64 { line.enqueuedCount }

  package func enqueue(_ job: consuming ExecutorJob) {
    let priority = job.priority.rawValue
    line.add(.job(UnownedJob(job), nil), priority: priority)
  }

  /// Runs one task's jobs on the pool's threads. Unlike a task's own priority, the lane's priority can be raised and lowered
  /// while the task runs.
  package final class Lane: TaskExecutor {
    private let pool: ThreadPool
    private let line: JobQueue
    private let priority: Atomic<UInt8>

    fileprivate init(of pool: ThreadPool, _ line: JobQueue, priority: UInt8) {
      self.pool = pool
      self.line = line
      self.priority = Atomic(priority)
    }

    package func enqueue(_ job: consuming ExecutorJob) {
      let work = Work.job(UnownedJob(job), UnownedExecutor(self))
      line.add(work, priority: priority.load(ordering: .relaxed))
    }

    /// Changes the priority of jobs that are enqueued from now on.
    package func setPriority(_ priority: UInt8) {
      self.priority.store(priority, ordering: .relaxed)
    }
  }

  /// Runs one actor's jobs on the pool's threads, one at a time and in order.
  ///
  /// Use it as the actor's `unownedExecutor`. Nonisolated functions that the actor calls also run here, because they
  /// inherit the caller's isolation (SE-0461). So a task changes threads only when it suspends.
  package final class SerialLane: SerialExecutor {
    private struct State {
      var jobs = Deque<UnownedJob>()
      var priority: UInt8
      /// Whether a thread runs one of the lane's jobs.
      var isRunning = false
      /// The priority of the lane's entry in the pool's queue; nil if it has none.
      var waitsAt: UInt8?
      /// The number of the lane's latest entry in the pool's queue. Older entries are ignored.
      var entry: UInt64 = 0

      /// Returns a new entry for the pool's queue. Returns nil if the lane has no jobs, is running, or already has an entry
      /// with at least its priority.
      mutating func nextEntry() -> Entry? {
        guard !jobs.isEmpty, !isRunning, waitsAt.map({ $0 < priority }) ?? true else { return nil }
        waitsAt = priority
        entry += 1
        return (entry, priority)
      }
    }
    private typealias Entry = (number: UInt64, priority: UInt8)

    private let pool: ThreadPool
    private let line: JobQueue
    private let state: Mutex<State>

    fileprivate init(of pool: ThreadPool, _ line: JobQueue, priority: UInt8) {
      self.pool = pool
      self.line = line
      state = Mutex(State(priority: priority))
    }

    package func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      change { $0.jobs.append(job) }
    }

    /// Changes the priority of the jobs that wait for a thread and of later ones. A lower priority applies only after the
    /// next job.
    package func setPriority(_ priority: UInt8) { change { $0.priority = priority } }

    private func change(_ body: (inout State) -> Void) {
      let entry = state.withLock { state in
        body(&state)
        return state.nextEntry()
      }
      if let entry { line.add(.entry(self, entry.number), priority: entry.priority) }
    }

    fileprivate func runNext(_ number: UInt64) {
      let job = state.withLock { state -> UnownedJob? in
        guard number == state.entry else { return nil }
        (state.isRunning, state.waitsAt) = (true, nil)
        return state.jobs.popFirst()
      }
      guard let job else { return }
      job.runSynchronously(on: asUnownedSerialExecutor())
      change { $0.isRunning = false }
    }
  }

  /// Runs `body` on one of the threads, where it may block. Cancelling the task does not stop it.
  package func run<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value {
    await withCheckedContinuation { continuation in
      line.add(
        .closure { continuation.resume(returning: body()) }, priority: Task.currentPriority.rawValue
      )
    }
  }
}

/// An unowned reference to an executor. A task retains its executor while it has jobs, so a running job may use it.
private struct UnownedExecutor: Sendable {
  let reference: UnownedTaskExecutor
  init(_ executor: some TaskExecutor) { reference = executor.asUnownedTaskExecutor() }
}

private enum Work {
  case job(UnownedJob, UnownedExecutor?)
  case entry(ThreadPool.SerialLane, UInt64)
  case closure(() -> Void)
}

/// The jobs that wait for a thread, highest priority first.
private final class JobQueue: @unchecked Sendable {  // all state behind `mutex`
  private struct Entry: Comparable {
    let priority: UInt8
    let number: UInt64
    let work: Work

    static func < (a: Entry, b: Entry) -> Bool {
      a.priority == b.priority ? a.number > b.number : a.priority < b.priority
    }
    static func == (a: Entry, b: Entry) -> Bool { a.number == b.number }
  }

  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let arrived = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var heap = Heap<Entry>()
  private var count: UInt64 = 0
  private var closed = false

  init() {
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(arrived, nil)
  }

  deinit {
    pthread_cond_destroy(arrived)
    pthread_mutex_destroy(mutex)
    arrived.deallocate()
    mutex.deallocate()
  }

  func add(_ work: Work, priority: UInt8) {
    pthread_mutex_lock(mutex)
    count += 1
    heap.insert(Entry(priority: priority, number: count, work: work))
    pthread_mutex_unlock(mutex)
    pthread_cond_signal(arrived)
  }

  /// Waits for a job. Returns nil once the queue is closed and empty.
  func next() -> Work? {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while heap.isEmpty && !closed { pthread_cond_wait(arrived, mutex) }
    return heap.popMax()?.work
  }

  var enqueuedCount: UInt64 {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return count
  }

  func close() {
    pthread_mutex_lock(mutex)
    closed = true
    pthread_mutex_unlock(mutex)
    pthread_cond_broadcast(arrived)
  }
}

/// Starts a thread that runs `body`. If no thread can be created for five seconds, the process prints an error and exits.
///
/// Without the thread, its callers would wait forever. After an exit the service manager can start the process again. Use
/// this only for threads that start with the service, when no work can be lost. Otherwise use
/// ``startThreadIfPossible(named:_:)``.
///
/// - Parameters:
///   - name: the name in `top -H` and debuggers; Linux keeps 15 bytes of it.
///   - niceness: 0…19, lowers the thread's scheduling priority (nice(2), which applies to one thread on Linux). Threads
///     that it starts inherit it.
package func startThread(
  named name: String, niceness: Int = 0, _ body: @escaping @Sendable () -> Void
) {
  let start = Start {
    nameThisThread(name)
    if niceness > 0 { _ = nice(Int32(niceness)) }
    body()
  }
  for _ in 0..<500 {
    if create(start) { return }
    // Other threads of this user or container may end.
    usleep(10_000)
  }
  let words = Array("imagefetch: internal fault: \(noThreadsMessage)\n".utf8)
  _ = write(STDERR_FILENO, words, words.count)
  // EX_SOFTWARE of sysexits.h.
  _exit(70)
}

/// The error message for operators if the system refuses new threads.
package let noThreadsMessage =
  "no thread can be started: raise TasksMax or the process limit of the container or user"

/// Starts a thread that runs `body`.
/// - Returns: False if the system can't create a thread now.
package func startThreadIfPossible(named name: String, _ body: @escaping @Sendable () -> Void)
  -> Bool
{
  create(
    Start {
      nameThisThread(name)
      body()
    })
}

/// Whether the system can run `count` more threads. If it can't, Swift's own thread pool hangs without a message.
package func canStartThreads(_ count: Int) -> Bool {
  let gate = Gate()
  return gate.mutex.withLock { _ in
    // Each thread waits for the mutex, so that all of them exist at the same time.
    (0..<count).allSatisfy { _ in create(Start { gate.mutex.withLock { _ in } }) }
  }
}

private final class Gate: Sendable { let mutex = Mutex(()) }

private func create(_ start: Start) -> Bool {
  var attributes = pthread_attr_t()
  pthread_attr_init(&attributes)
  defer { pthread_attr_destroy(&attributes) }
  pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
  var thread = pthread_t()
  let context = Unmanaged.passRetained(start)
  let isStarted = pthread_create(&thread, &attributes, run, context.toOpaque()) == 0
  if !isStarted { context.release() }
  return isStarted
}

private final class Start {
  let body: @Sendable () -> Void

  init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

private func run(_ context: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
  if let context { Unmanaged<Start>.fromOpaque(context).takeRetainedValue().body() }
  return nil
}

/// Sets the thread's name through `/proc`, because Swift's Glibc module lacks `pthread_setname_np`.
private func nameThisThread(_ name: String) {
  let file = open("/proc/thread-self/comm", O_WRONLY | O_CLOEXEC)
  guard file >= 0 else { return }
  let bytes = Array(name.utf8.prefix(15))
  _ = write(file, bytes, bytes.count)
  close(file)
}
