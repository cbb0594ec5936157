internal import Executors
internal import Glibc
internal import Metrics
internal import Synchronization

/// Takes lines without ever waiting, and writes them in their order on a thread of its own: whoever reads them slowly,
/// or not at all, holds up nothing but them.
///
/// Lines for which there is no room are dropped and counted; where they would have stood, one line tells how many.
final class LogWriter: @unchecked Sendable {  // all state behind `mutex`
  /// What may wait to be written; as much again may be on its way.
  struct Limits {
    var lines = 8192
    var bytes = 1 << 20
  }

  /// Lines of all writers that were taken and aren't yet written. A signal's handler reads it, and must not lock.
  static let unwritten = Atomic<Int>(0)

  private struct Batch {
    var bytes: [UInt8] = []
    var lines = 0
    /// Dropped after the last of these lines.
    var dropped = 0
  }

  private let limits: Limits
  private let output: LogOutput
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let arrived = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private let finished = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var waiting = Batch()
  private var isWriting = false
  private var isClosed = false
  private var dropped = 0
  private var counter: Counter?

  /// - Parameter notice: the line that tells how many were dropped.
  init(
    to descriptor: Int32, limits: Limits = Limits(),
    display: @escaping LogOutput.Display = { _ in false },
    notice: @escaping @Sendable (Int) -> String
  ) {
    self.limits = limits
    output = LogOutput(descriptor, display: display, notice: notice)
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(arrived, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    // A wall clock that is set meanwhile must not make a wait longer.
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(finished, &attributes)
    pthread_condattr_destroy(&attributes)
    startThread(named: "log") { [self] in run() }
  }

  deinit {
    pthread_cond_destroy(finished)
    pthread_cond_destroy(arrived)
    pthread_mutex_destroy(mutex)
    finished.deallocate()
    arrived.deallocate()
    mutex.deallocate()
  }

  /// Takes a line, its line feed included, or drops it.
  func add(_ line: String) {
    var line = line
    line.withUTF8 { bytes in
      locked {
        let isFull =
          waiting.lines >= limits.lines || waiting.bytes.count + bytes.count > limits.bytes
        // Nothing comes behind a gap until the writing thread has taken what is before it, and tells of it there.
        guard !isFull, waiting.dropped == 0 else {
          waiting.dropped += 1
          return drop(1)
        }
        waiting.bytes.append(contentsOf: bytes)
        waiting.lines += 1
        Self.unwritten.add(1, ordering: .relaxed)
        if waiting.lines == 1 { pthread_cond_signal(arrived) }
      }
    }
  }

  /// Waits until all lines that were taken are written, or have turned out not to be writable.
  ///
  /// - Returns: false where that took too long.
  @discardableResult
  func flush(within limit: Duration) -> Bool {
    var end = timespec()
    clock_gettime(CLOCK_MONOTONIC, &end)
    let nanoseconds = end.tv_nsec + Int(limit / .nanoseconds(1))
    end.tv_sec += nanoseconds / 1_000_000_000
    end.tv_nsec = nanoseconds % 1_000_000_000
    return locked {
      while waiting.lines > 0 || isWriting {
        guard pthread_cond_timedwait(finished, mutex, &end) == 0 else { return false }
      }
      return true
    }
  }

  /// Has the counter tell how many lines were dropped, those so far included.
  func count(by counter: Counter) {
    locked {
      self.counter = counter
      counter.increment(by: dropped)
    }
  }

  /// How many lines were dropped.
  var droppedLines: Int { locked { dropped } }

  /// How many lines the thread hasn't taken yet.
  var waitingLines: Int { locked { waiting.lines } }

  /// Ends the thread once what was taken is written.
  func close() {
    locked {
      isClosed = true
      pthread_cond_signal(arrived)
    }
  }

  private func run() {
    blockBrokenPipeSignal()
    var batch = Batch()
    while takeTurn(&batch) {
      let lost = output.write(batch.bytes, lines: batch.lines, dropped: batch.dropped)
      Self.unwritten.subtract(batch.lines, ordering: .relaxed)
      locked { drop(lost) }
    }
  }

  /// Waits for lines and exchanges them for those that were written.
  ///
  /// - Returns: false once closed and empty.
  private func takeTurn(_ batch: inout Batch) -> Bool {
    batch.bytes.removeAll(keepingCapacity: true)
    (batch.lines, batch.dropped) = (0, 0)
    return locked {
      isWriting = false
      if waiting.lines == 0 { pthread_cond_broadcast(finished) }
      while waiting.lines == 0 {
        if isClosed { return false }
        pthread_cond_wait(arrived, mutex)
      }
      swap(&waiting, &batch)
      isWriting = true
      return true
    }
  }

  private func drop(_ lines: Int) {
    dropped += lines
    counter?.increment(by: lines)
  }

  /// Whoever was to read may be gone: that shall be an error, not a signal.
  private func blockBrokenPipeSignal() {
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, SIGPIPE)
    pthread_sigmask(SIG_BLOCK, &signals, nil)
  }

  private func locked<Value>(_ body: () -> Value) -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }
}
