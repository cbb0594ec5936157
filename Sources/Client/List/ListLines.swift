internal import Glibc

/// A list's lines on their way through batches of a service, handed from thread to thread: read, sent, ended, saved. Memory
/// holds those that are on their way and no others; whoever reads the list waits while there are as many as may be.
///
/// What waits looks at the stop flag as well, five times a second.
final class ListLines: @unchecked Sendable {  // all of it is used under `mutex`
  /// Where a line is: which batch of the run, and which line of that, from 1 on.
  struct Place: Hashable {
    var batch: Int
    var line: Int
  }

  /// A line that has ended at the service.
  struct Ended {
    var item: Sources.Item
    var result: ResultLine
  }

  /// On their way at most; some 10 MB with long URLs.
  static let most = 10_000
  /// Sent in one request at most.
  private static let chunk = 1_000

  private let stop: CancellationFlag
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  /// For whoever reads and sends.
  private let change = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  /// For those who save: a line that has ended wakes one of them.
  private let endings = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)

  private var read: [Sources.Item] = []
  private var isReadThrough = false
  private var sent: [Place: Sources.Item] = [:]
  private var ended: [Ended] = []
  /// Those before are handed out.
  private var firstEnded = 0
  /// Of the uploads, and of the batches whose results are read: what may yet bring ended lines.
  private var sources = 1

  init(stop: CancellationFlag) {
    self.stop = stop
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(change, nil)
    pthread_cond_init(endings, nil)
  }

  deinit {
    pthread_mutex_destroy(mutex)
    for condition in [change, endings] {
      pthread_cond_destroy(condition)
      condition.deallocate()
    }
    mutex.deallocate()
  }

  /// Takes a line that was read, once there is room for it.
  func add(_ item: Sources.Item) {
    exclusively {
      wait(for: change) { read.count + sent.count + ended.count - firstEnded < Self.most }
      read.append(item)
      pthread_cond_broadcast(change)
    }
  }

  /// The list has been read through.
  func endReading() {
    exclusively {
      isReadThrough = true
      pthread_cond_broadcast(change)
    }
  }

  /// Waits for lines to be sent: those that came meanwhile; nil after the last.
  func nextToSend() -> [Sources.Item]? {
    exclusively {
      wait(for: change) { !read.isEmpty || isReadThrough }
      guard !read.isEmpty, !stop.isRaised else { return nil }
      defer { read.removeFirst(min(Self.chunk, read.count)) }
      return Array(read.prefix(Self.chunk))
    }
  }

  /// Lines of a batch are about to be sent: their results may come before the answer does.
  func send(_ items: some Collection<Sources.Item>, from line: Int, of batch: Int) {
    exclusively {
      for (offset, item) in items.enumerated() {
        sent[Place(batch: batch, line: line + offset)] = item
      }
    }
  }

  /// A batch takes no more: these have not become lines of it.
  func takeBack(_ count: Int, from line: Int, of batch: Int) {
    exclusively {
      for line in line..<line + count { sent[Place(batch: batch, line: line)] = nil }
    }
  }

  /// The line has ended; one that has before, or is none of ours, is passed over.
  func end(_ result: ResultLine, of batch: Int) {
    exclusively {
      let item = sent.removeValue(forKey: Place(batch: batch, line: result.line))
      guard let item else { return }
      ended.append(Ended(item: item, result: result))
      pthread_cond_signal(endings)
    }
  }

  /// A batch's lines are on their way, or have all ended.
  func follow(_ isFollowed: Bool) {
    exclusively {
      sources += isFollowed ? 1 : -1
      if sources == 0 { pthread_cond_broadcast(endings) }
    }
  }

  /// Nothing more is sent.
  func endSending() { follow(false) }

  /// Waits for a line that has ended; nil after the last of all.
  func nextEnded() -> Ended? {
    exclusively {
      wait(for: endings) { firstEnded < ended.count || sources == 0 }
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

  /// How many lines are at the service and have not ended.
  var unended: Int { exclusively { sent.count } }

  /// Whether nothing is sent or followed any more.
  var isThrough: Bool { exclusively { sources == 0 } }

  /// Which line of all it is that is on its way there; nil where none is.
  func item(at place: Place) -> Sources.Item? { exclusively { sent[place] } }

  /// The first line of a batch that has not ended; nil where all have.
  func firstUnended(of batch: Int, through last: Int = .max) -> Int? {
    exclusively {
      sent.keys.lazy.filter { $0.batch == batch && $0.line <= last }.map(\.line).min()
    }
  }

  /// The service has told of all that it will: what is left it has lost, and that is to be seen.
  func abandon(_ batch: Int, through last: Int) {
    let lost = JobAnswer.Failure(
      code: "not_found", detail: "The service doesn't say what has become of it.")
    let lines = exclusively {
      sent.keys.filter { $0.batch == batch && $0.line <= last }.map(\.line).sorted()
    }
    for line in lines { end(ResultLine(line: line, job: nil, error: lost), of: batch) }
  }

  private func exclusively<Value>(_ body: () -> Value) -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }

  /// - Parameter isSo: what is waited for, or the stop flag.
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
