internal import Jobs
internal import Synchronization

/// About how many jobs get a worker before another one, in this process: an estimate from what was submitted and what
/// was claimed, which asks no store and keeps nothing for a job.
///
/// A level's jobs go in the order of their ids; those of batches, which go beside them, don't count. Those that were moved to another level, cancelled, or are held back by
/// their origin count as if nothing had happened to them, until a later job of the level is claimed; those that
/// were queued anew don't count.
final class QueuePositions: Sendable {
  private let levels = Mutex([Level](repeating: Level(), count: Priority.allCases.count))
  /// Where the order of this run's jobs begins.
  private let start: Int

  /// - Parameter moment: when the service started.
  init(since moment: Timestamp) { start = Int(moment.milliseconds) << 12 }

  /// Jobs were submitted and wait.
  func add(_ jobs: [Job]) {
    levels.withLock { levels in
      for (priority, jobs) in Dictionary(grouping: jobs, by: \.priority) {
        levels[priority.rawValue].add(jobs.map(\.id))
      }
    }
  }

  /// Jobs were claimed in the order of the queue.
  func take(_ jobs: some Sequence<Job>) {
    levels.withLock { levels in
      for job in jobs {
        levels[job.priority.rawValue].take(job.id)
        guard job.id.order >= start else { continue }
        // What waited in the levels above, also since before the start, went first.
        for level in job.priority.rawValue..<levels.count { levels[level].isKnown = true }
      }
    }
  }

  /// Nothing is left in the queue that could be claimed.
  func clear() {
    levels.withLock { levels in
      for level in levels.indices {
        levels[level].clear()
        levels[level].isKnown = true
      }
    }
  }

  /// Nil where that isn't known: the job was queued anew, or jobs of an earlier run are still ahead of it.
  func ahead(of job: Job) -> Int? {
    guard job.startedAt == nil, job.notBefore == nil, job.batch == nil else { return nil }
    return levels.withLock { levels in
      let level = levels[job.priority.rawValue]
      guard level.isKnown else { return nil }
      return levels[(job.priority.rawValue + 1)...].reduce(level.count(before: job.id)) {
        $0 + $1.count
      }
    }
  }

  /// Jobs of one priority.
  private struct Level {
    /// Jobs submitted one after the other, the first and the last one's order.
    struct Run {
      var first: Int
      var last: Int
      var count: Int

      /// How many of them come before that one; they are taken to be spread evenly.
      func count(before order: Int) -> Int {
        guard order > first else { return 0 }
        guard order <= last else { return count }
        return Int(Double(count - 1) * Double(order - first) / Double(last - first))
      }
    }

    /// Beyond so many, two neighbours each become one.
    static let maxRuns = 1_024
    /// In order, without jobs that were claimed.
    private var runs: [Run] = []
    private(set) var count = 0
    /// The last one that was.
    private var taken = 0
    /// Whether all that waits here was submitted since the start.
    var isKnown = false

    mutating func add(_ ids: [JobID]) {
      // The dispatcher may have claimed them before the submission gets here.
      let waiting = ids.map(\.order).filter { $0 > taken }
      guard let first = waiting.first, let last = waiting.last else { return }
      let run = Run(first: first, last: last, count: waiting.count)
      runs.append(run)
      count += run.count
      guard runs.count > Self.maxRuns else { return }
      runs = stride(from: 0, to: runs.count, by: 2).map { index in
        let pair = runs[index..<min(index + 2, runs.count)]
        return Run(
          first: pair.first!.first, last: pair.last!.last,  // a pair has one or two
          count: pair.reduce(0) { $0 + $1.count })
      }
    }

    mutating func take(_ id: JobID) {
      taken = max(taken, id.order)
      let gone = runs.prefix { $0.last <= id.order }
      count -= gone.reduce(0) { $0 + $1.count }
      runs.removeFirst(gone.count)
      guard let run = runs.first, run.first <= id.order else { return }
      let part = run.count(before: id.order) + 1
      runs[0] = Run(first: id.order + 1, last: run.last, count: run.count - part)
      count -= part
    }

    mutating func clear() { (runs, count) = ([], 0) }

    func count(before id: JobID) -> Int {
      var sum = 0
      for run in runs {
        if run.first > id.order { break }
        sum += run.count(before: id.order)
      }
      return sum
    }
  }
}

extension JobID {
  /// Grows with each job of a process: the milliseconds and the counter within one (``JobIDSequence``).
  fileprivate var order: Int { Int(high >> 16) << 12 | Int(high & 0xFFF) }
}
