internal import Executors
internal import Glibc
internal import Metrics
internal import Synchronization

/// Queues log lines without blocking, and writes them in order on its own thread. A slow or stuck reader of the log
/// delays only the log.
///
/// If the queue is full, lines are dropped and counted. In their place, one line reports how many were dropped.
final class LogWriter: @unchecked Sendable {  // all state behind `mutex`
  /// The capacity of the queue. The same amount may be in the process of being written.
  struct Limits {
    var lines = 8192
    var bytes = 1 << 20
  }

  /// Lines of all writers that were queued and not yet written. Atomic, because signal handlers read it and must not lock.
  static let unwritten = Atomic<Int>(0)

  private struct Batch {
    var bytes: [UInt8] = []
    var lines = 0
    /// The number of lines dropped after the last line of this batch.
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

  /// - Parameter notice: returns the line that reports how many lines were dropped.
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
    // A change of the wall clock must not lengthen a wait.
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

  /// Queues a line, which includes its line feed, or drops it if the queue is full.
  func add(_ line: String) {
    var line = line
    line.withUTF8 { bytes in
      locked {
        let isFull =
          waiting.lines >= limits.lines || waiting.bytes.count + bytes.count > limits.bytes
        // After a drop, no line is queued until the writing thread has taken the batch. The notice about the dropped
        // lines then stands in their place.
        guard !isFull, waiting.dropped == 0 else {
          waiting.dropped += 1
          return countDropped(1)
        }
        waiting.bytes.append(contentsOf: bytes)
        waiting.lines += 1
        Self.unwritten.add(1, ordering: .relaxed)
        if waiting.lines == 1 { pthread_cond_signal(arrived) }
      }
    }
  }

  /// Waits until all queued lines are written or have failed.
  ///
  /// - Returns: False if `limit` passed first.
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

  /// Counts dropped lines with this counter, including those dropped before the call.
  func count(by counter: Counter) {
    locked {
      self.counter = counter
      counter.increment(by: dropped)
    }
  }

  var droppedLines: Int { locked { dropped } }

  /// The number of lines that the thread has not taken yet.
  var waitingLines: Int { locked { waiting.lines } }

  /// Stops the thread after it has written the queued lines.
  func close() {
    locked {
      isClosed = true
      pthread_cond_signal(arrived)
    }
  }

  private func run() {
    blockBrokenPipeSignal()
    var batch = Batch()
    while exchangeBatch(&batch) {
      let lost = output.write(batch.bytes, lines: batch.lines, dropped: batch.dropped)
      Self.unwritten.subtract(batch.lines, ordering: .relaxed)
      locked { countDropped(lost) }
    }
  }

  /// Waits for lines and replaces the written batch with them.
  ///
  /// - Returns: False if the writer is closed and its queue is empty.
  private func exchangeBatch(_ batch: inout Batch) -> Bool {
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

  private func countDropped(_ lines: Int) {
    dropped += lines
    counter?.increment(by: lines)
  }

  /// Blocks SIGPIPE, so that a write to a closed pipe fails with an error instead of ending the process.
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
