internal import Glibc

/// Passes the lines of URL lists between the threads of a run: read, sent, ended, saved. Memory holds
/// only the lines in these stages. When there are `most` of them, the reading thread waits.
///
/// A waiting thread also checks the stop flag, five times a second.
final class ListLines: @unchecked Sendable {  // `mutex` protects everything
  /// The position of a line: the number of the batch in the run, and the line in that batch, both from
  /// 1 on.
  struct Place: Hashable {
    var batch: Int
    var line: Int
  }

  /// A line whose job has ended.
  struct Ended {
    var item: Sources.Item
    var result: ResultLine
  }

  /// The most lines in all stages together; about 10 MB with long URLs.
  static let maxInFlight = 10_000
  /// The most lines in one request.
  private static let chunk = 1_000

  private let stop: CancellationFlag
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  /// Wakes the threads that read and send.
  private let change = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  /// Wakes the threads that save; one for each ended line.
  private let lineEnded = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)

  private var read: [Sources.Item] = []
  private var isReadThrough = false
  private var sent: [Place: Sources.Item] = [:]
  private var ended: [Ended] = []
  /// Entries before this index have been returned.
  private var firstEnded = 0
  /// The number of sources of ended lines: the upload, and each batch whose results are read.
  private var sources = 1

  init(stop: CancellationFlag) {
    self.stop = stop
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(change, nil)
    pthread_cond_init(lineEnded, nil)
  }

  deinit {
    pthread_mutex_destroy(mutex)
    for condition in [change, lineEnded] {
      pthread_cond_destroy(condition)
      condition.deallocate()
    }
    mutex.deallocate()
  }

  /// Adds a line that was read. Waits while there are too many.
  func add(_ item: Sources.Item) {
    exclusively {
      wait(for: change) { read.count + sent.count + ended.count - firstEnded < Self.maxInFlight }
      read.append(item)
      pthread_cond_broadcast(change)
    }
  }

  /// Marks the lists as read completely.
  func endReading() {
    exclusively {
      isReadThrough = true
      pthread_cond_broadcast(change)
    }
  }

  /// Waits for lines to send and returns all that are ready. Nil after the last.
  func nextToSend() -> [Sources.Item]? {
    exclusively {
      wait(for: change) { !read.isEmpty || isReadThrough }
      guard !read.isEmpty, !stop.isRaised else { return nil }
      defer { read.removeFirst(min(Self.chunk, read.count)) }
      return Array(read.prefix(Self.chunk))
    }
  }

  /// Records lines before they are sent, because their results may arrive before the response.
  func recordSent(_ items: some Collection<Sources.Item>, from line: Int, of batch: Int) {
    exclusively {
      for (offset, item) in items.enumerated() {
        sent[Place(batch: batch, line: line + offset)] = item
      }
    }
  }

  /// Removes lines that a batch did not accept.
  func removeUnsent(_ count: Int, from line: Int, of batch: Int) {
    exclusively {
      for line in line..<line + count { sent[Place(batch: batch, line: line)] = nil }
    }
  }

  /// Records the result of a line. Repeated and unknown results are ignored.
  func recordResult(_ result: ResultLine, of batch: Int) {
    exclusively {
      let item = sent.removeValue(forKey: Place(batch: batch, line: result.line))
      guard let item else { return }
      ended.append(Ended(item: item, result: result))
      pthread_cond_signal(lineEnded)
    }
  }

  /// Called when reading a batch's results begins, and when it ends.
  func countSource(_ isFollowed: Bool) {
    exclusively {
      sources += isFollowed ? 1 : -1
      if sources == 0 { pthread_cond_broadcast(lineEnded) }
    }
  }

  /// Called when all lines have been sent.
  func endSending() { countSource(false) }

  /// Waits for the next line that has ended. Nil after the last.
  func nextEnded() -> Ended? {
    exclusively {
      wait(for: lineEnded) { firstEnded < ended.count || sources == 0 }
      guard firstEnded < ended.count, !stop.isRaised else { return nil }
      firstEnded += 1
      pthread_cond_signal(change)
      let next = ended[firstEnded - 1]
      if firstEnded >= 1_000 {
        ended.removeFirst(firstEnded)
        firstEnded = 0
      }
      return next
    }
  }

  /// The number of lines that were sent and have not ended.
  var unended: Int { exclusively { sent.count } }

  /// Whether all lines were sent and all results read.
  var isFinished: Bool { exclusively { sources == 0 } }

  /// Returns the line at a position if it was sent and has not ended.
  func item(at place: Place) -> Sources.Item? { exclusively { sent[place] } }

  /// Returns the first line of a batch that has not ended. Nil if all have.
  func firstUnended(of batch: Int, through last: Int = .max) -> Int? {
    exclusively {
      sent.keys.lazy.filter { $0.batch == batch && $0.line <= last }.map(\.line).min()
    }
  }

  /// Ends the batch's remaining lines as failed. The service has returned all results, so it has lost
  /// these lines.
  func abandon(_ batch: Int, through last: Int) {
    let lost = JobResponse.Failure(
      code: "not_found", detail: "The service returned no result for this line.")
    let lines = exclusively {
      sent.keys.filter { $0.batch == batch && $0.line <= last }.map(\.line).sorted()
    }
    for line in lines { recordResult(ResultLine(line: line, job: nil, error: lost), of: batch) }
  }

  private func exclusively<Value>(_ body: () -> Value) -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }

  /// Waits until a condition is true or the stop flag is raised.
  private func wait(for condition: UnsafeMutablePointer<pthread_cond_t>, until isSo: () -> Bool) {
    while !isSo(), !stop.isRaised {
      var until = timespec()
      clock_gettime(CLOCK_REALTIME, &until)
      until.tv_nsec += 200_000_000
      if until.tv_nsec >= 1_000_000_000 {
        until.tv_sec += 1
        until.tv_nsec -= 1_000_000_000
      }
      pthread_cond_timedwait(condition, mutex, &until)
    }
  }
}
