internal import DequeModule
internal import Glibc
internal import HeapModule
internal import Synchronization

/// A fixed number of threads of our own, for work that computes or blocks: Swift's shared threads
/// never do either, so that a decode or a disk can't starve the tasks that only pass values on.
///
/// Start a task with it as its preferred executor (SE-0417: nonisolated functions and default actors then
/// run here whenever that task calls them), or give it one closure with ``run(_:)``. Jobs run by their priority, first come first served within one.
public final class ThreadPool: TaskExecutor {
  private let line: WaitingLine

  /// - Parameters:
  ///   - name: the threads' name in `top` and in a debugger; Linux keeps 15 bytes of it.
  ///   - threads: how many threads, at least one; 0 is one a core.
  ///   - niceness: how far they step back where other threads want the core (nice(1)).
  public init(name: String, threads: Int, niceness: Int = 0) {
    let line = WaitingLine()
    self.line = line
    let count = threads > 0 ? threads : max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    for _ in 0..<count {
      startThread(named: name, niceness: niceness) { [executor = Unowned(self)] in
        while let work = line.next() {
          switch work {
          case .job(let job, nil): job.runSynchronously(on: executor.reference)
          case .job(let job, let lane?): job.runSynchronously(on: lane.reference)
          case .turn(let lane, let number): lane.runNext(number)
          case .closure(let body): body()
          }
        }
      }
    }
  }

  /// A share of the threads for one task, whose priority is its own: see ``Lane``.
  public func lane(priority: UInt8) -> Lane { Lane(of: self, line, priority: priority) }

  /// A share of the threads for one actor, whose priority is its own: see ``SerialLane``.
  public func serialLane(priority: UInt8) -> SerialLane {
    SerialLane(of: self, line, priority: priority)
  }

  deinit { line.close() }

  /// Jobs and closures that the threads were given so far: tests count by it how often work changes threads.
  package var handedOver: UInt64 { line.handedOver }

  public func enqueue(_ job: consuming ExecutorJob) {
    let priority = job.priority.rawValue
    line.add(.job(UnownedJob(job), nil), priority: priority)
  }

  /// Runs one task's jobs on the pool's threads in the order of a priority that can be raised and lowered while the task
  /// runs, which its own can't.
  public final class Lane: TaskExecutor {
    private let pool: ThreadPool
    private let line: WaitingLine
    private let priority: Atomic<UInt8>

    fileprivate init(of pool: ThreadPool, _ line: WaitingLine, priority: UInt8) {
      self.pool = pool
      self.line = line
      self.priority = Atomic(priority)
    }

    public func enqueue(_ job: consuming ExecutorJob) {
      let work = Work.job(UnownedJob(job), Unowned(self))
      line.add(work, priority: priority.load(ordering: .relaxed))
    }

    /// Orders what is enqueued from now on by another priority.
    public func move(to priority: UInt8) { self.priority.store(priority, ordering: .relaxed) }
  }

  /// Runs one actor's jobs on the pool's threads, one at a time and in the order in which they come, each when the
  /// lane's priority has its turn.
  ///
  /// Give it to an actor as its `unownedExecutor`. What a task calls there and is isolated to nothing runs here too,
  /// as it inherits the caller's isolation (SE-0461), so a task changes threads only where it waits.
  public final class SerialLane: SerialExecutor {
    private struct State {
      var jobs = Deque<UnownedJob>()
      var priority: UInt8
      /// Whether the lane has a thread.
      var isRunning = false
      /// The priority at which the lane waits for a thread; nil: it doesn't.
      var waitsAt: UInt8?
      /// The turn that it waits for: those before it were overtaken.
      var turn: UInt64 = 0

      /// A turn to be waited for, where there is something to do and none is waited for that comes as soon.
      mutating func nextTurn() -> Turn? {
        guard !jobs.isEmpty, !isRunning, waitsAt.map({ $0 < priority }) ?? true else { return nil }
        waitsAt = priority
        turn += 1
        return (turn, priority)
      }
    }
    private typealias Turn = (number: UInt64, priority: UInt8)

    private let pool: ThreadPool
    private let line: WaitingLine
    private let state: Mutex<State>

    fileprivate init(of pool: ThreadPool, _ line: WaitingLine, priority: UInt8) {
      self.pool = pool
      self.line = line
      state = Mutex(State(priority: priority))
    }

    public func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      change { $0.jobs.append(job) }
    }

    /// Orders what is enqueued from now on by another priority; by a higher one also what waits for a thread already.
    public func move(to priority: UInt8) { change { $0.priority = priority } }

    private func change(_ body: (inout State) -> Void) {
      let turn = state.withLock { state in
        body(&state)
        return state.nextTurn()
      }
      if let turn { line.add(.turn(self, turn.number), priority: turn.priority) }
    }

    fileprivate func runNext(_ number: UInt64) {
      let job = state.withLock { state -> UnownedJob? in
        guard number == state.turn else { return nil }
        (state.isRunning, state.waitsAt) = (true, nil)
        return state.jobs.popFirst()
      }
      guard let job else { return }
      job.runSynchronously(on: asUnownedSerialExecutor())
      change { $0.isRunning = false }
    }
  }

  /// Runs `body` on one of the threads; it may block there. It is not given up when the task is cancelled.
  public func run<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value {
    await withCheckedContinuation { continuation in
      line.add(
        .closure { continuation.resume(returning: body()) }, priority: Task.currentPriority.rawValue
      )
    }
  }
}

/// A task keeps its executor alive for as long as it has jobs, so a running job may use it.
private struct Unowned: Sendable {
  let reference: UnownedTaskExecutor
  init(_ executor: some TaskExecutor) { reference = executor.asUnownedTaskExecutor() }
}

private enum Work {
  case job(UnownedJob, Unowned?)
  case turn(ThreadPool.SerialLane, UInt64)
  case closure(() -> Void)
}

/// The jobs that wait for a thread, highest priority first.
private final class WaitingLine: @unchecked Sendable {  // all state behind `mutex`
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

  /// Waits for a job; nil once closed and empty.
  func next() -> Work? {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while heap.isEmpty && !closed { pthread_cond_wait(arrived, mutex) }
    return heap.popMax()?.work
  }

  var handedOver: UInt64 {
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
