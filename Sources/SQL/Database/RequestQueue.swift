internal import Glibc

/// A waiting request and its caller.
struct QueuedRequest<Request: Sendable, Outcome: Sendable>: Sendable {
  let request: Request
  /// Requests of the same kind can be merged; `nil` if this one can't.
  let kind: Int?
  let began = ContinuousClock.now
  private let continuation: CheckedContinuation<Outcome, Never>

  init(_ request: Request, of kind: Int?, _ continuation: CheckedContinuation<Outcome, Never>) {
    (self.request, self.kind) = (request, kind)
    self.continuation = continuation
  }

  func finish(_ outcome: Outcome) { continuation.resume(returning: outcome) }
}

/// The requests that no thread has started. A mutex protects all state.
final class RequestQueue<Request: Sendable, Outcome: Sendable>: @unchecked Sendable {
  typealias Entry = QueuedRequest<Request, Outcome>
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let arrived = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var waiting: [Entry] = []
  private var isClosed = false
  private var acceptedCount = 0
  private var threads = 0
  private var ends: [CheckedContinuation<Void, Never>] = []

  init() {
    pthread_mutex_init(mutex, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    // The monotonic clock, so that a change of the system time does not extend a wait.
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(arrived, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(arrived)
    pthread_mutex_destroy(mutex)
    arrived.deallocate()
    mutex.deallocate()
  }

  func threadStarted() { locked { threads += 1 } }

  func threadEnded() {
    let ended = locked {
      threads -= 1
      defer { if threads == 0 { ends = [] } }
      return threads == 0 ? ends : []
    }
    for continuation in ended { continuation.resume() }
  }

  func whenEnded(_ continuation: CheckedContinuation<Void, Never>) {
    let hasEnded = locked {
      if threads > 0 { ends.append(continuation) }
      return threads == 0
    }
    if hasEnded { continuation.resume() }
  }

  var count: Int { locked { waiting.count } }

  /// The number of requests added so far.
  var accepted: Int { locked { acceptedCount } }

  /// - Returns: `false` if the queue is closed.
  func add(_ entry: Entry) -> Bool {
    locked {
      guard !isClosed else { return false }
      // The thread that was signalled for an earlier request of this kind also takes this one.
      let isMerged = entry.kind != nil && waiting.contains { $0.kind == entry.kind }
      waiting.append(entry)
      acceptedCount += 1
      if !isMerged { pthread_cond_signal(arrived) }
      return true
    }
  }

  /// Waits for the next request and returns it with the requests that can be merged. Returns an
  /// empty array once the queue is closed and empty.
  func dequeue(
    _ limit: Int, by pacing: inout Pacing, _ now: () -> ContinuousClock.Instant
  ) -> [Entry] {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while !waiting.isEmpty || !isClosed {
      let moment = now()
      switch pacing.next(among: waiting.map(\.kind), at: moment) {
      case .wait(let time): wait(atMost: time)
      case .serve(let place):
        pacing.recordStart(of: waiting[place].kind, at: moment)
        return dequeue(limit, from: place)
      }
    }
    return []
  }

  private func dequeue(_ limit: Int, from place: Int) -> [Entry] {
    guard let kind = waiting[place].kind else { return [waiting.remove(at: place)] }
    var (taken, left): ([Entry], [Entry]) = ([], [])
    for entry in waiting {
      if taken.count < limit, entry.kind == kind { taken.append(entry) } else { left.append(entry) }
    }
    waiting = left
    return taken
  }

  /// Waits for a signal or the timeout. Can return early.
  private func wait(atMost time: Duration?) {
    guard let time else {
      pthread_cond_wait(arrived, mutex)
      return
    }
    var end = timespec()
    clock_gettime(CLOCK_MONOTONIC, &end)
    let nanoseconds = end.tv_nsec + Int(time / .nanoseconds(1))
    end.tv_sec += nanoseconds / 1_000_000_000
    end.tv_nsec = nanoseconds % 1_000_000_000
    pthread_cond_timedwait(arrived, mutex, &end)
  }

  func dequeueAll() -> [Entry] {
    locked {
      defer { waiting = [] }
      return waiting
    }
  }

  func close() {
    locked { isClosed = true }
    pthread_cond_broadcast(arrived)
  }

  private func locked<Value>(_ body: () -> Value) -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }
}
